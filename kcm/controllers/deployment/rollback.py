"""Going back to an earlier template on request of the deprecated annotation. Follows pkg/controller/deployment/rollback.go."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kcm.api.pod_template import equal_ignore_hash, template_document, with_hash_label
from kcm.api.resources import DEPLOYMENTS
from kcm.api.types.apps import Deployment, ReplicaSet, deployment_document
from kcm.api.types.meta import Document
from kcm.controllers.deployment.sync import DeploymentSync, all_replica_sets
from kcm.controllers.deployment.util import (
    ROLLBACK_TO_ANNOTATION,
    SKIPPED_ANNOTATIONS,
    last_revision,
    revision,
)
from kcm.events.recorder import NORMAL, WARNING

REVISION_NOT_FOUND = "DeploymentRollbackRevisionNotFound"
TEMPLATE_UNCHANGED = "DeploymentRollbackTemplateUnchanged"
DONE = "DeploymentRollback"


class Refusal(NamedTuple):
    """Why the template stays as it is, as an event's reason and message."""

    reason: str
    message: str


class Rollback(NamedTuple):
    """The ReplicaSet to take template and annotations from, and its revision."""

    source: ReplicaSet
    revision: int


async def rollback(sync: DeploymentSync, rs_list: Sequence[ReplicaSet], to: int) -> None:
    """Write the Deployment as it was at a revision, in any case without the request; nothing is scaled in this sync."""
    new_rs, old_rss = await sync.get_or_create_new_replica_set(rs_list)
    deployment = sync.deployment
    plan = plan_rollback(deployment, all_replica_sets(old_rss, new_rs), to)
    if isinstance(plan, Refusal):
        sync.event(WARNING, plan.reason, plan.message)
        await _update(sync, rollback_document(deployment, None))
        return
    await _update(sync, rollback_document(deployment, plan.source))
    message = f'Rolled back deployment "{deployment.metadata.name}" to revision {plan.revision}'
    sync.event(NORMAL, DONE, message)


def plan_rollback(deployment: Deployment, all_rss: Sequence[ReplicaSet], to: int) -> Rollback | Refusal:
    """Find the ReplicaSet of a revision, of the last one before the current for 0."""
    wanted = to or last_revision(all_rss)
    if wanted == 0:
        return Refusal(REVISION_NOT_FOUND, "Unable to find last revision.")
    source = next((rs for rs in all_rss if revision(rs) == wanted), None)
    if source is None:
        return Refusal(REVISION_NOT_FOUND, "Unable to find the revision to rollback to.")
    if equal_ignore_hash(deployment, source):
        name = deployment.metadata.name
        message = f'The rollback revision contains the same template as current deployment "{name}"'
        return Refusal(TEMPLATE_UNCHANGED, message)
    return Rollback(source, wanted)


def rollback_document(deployment: Deployment, source: ReplicaSet | None) -> Document:
    """The Deployment's body without the request, with a ReplicaSet's template and annotations if one is given."""
    annotations = deployment.metadata.annotations
    if source is not None:
        own = {key: value for key, value in annotations.items() if key in SKIPPED_ANNOTATIONS}
        theirs = {key: value for key, value in source.metadata.annotations.items() if key not in SKIPPED_ANNOTATIONS}
        annotations = {**own, **theirs}
    annotations = {key: value for key, value in annotations.items() if key != ROLLBACK_TO_ANNOTATION}
    document = deployment_document(replace(deployment, metadata=replace(deployment.metadata, annotations=annotations)))
    if source is not None:
        document["spec"]["template"] = with_hash_label(template_document(source), None)
    return document


async def _update(sync: DeploymentSync, document: Document) -> None:
    meta = sync.deployment.metadata
    await sync.client.update(DEPLOYMENTS, meta.namespace, meta.name, document)
