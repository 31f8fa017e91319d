"""The status during a rollout, and the wake-up that notices when it is stuck. Follows pkg/controller/deployment/progress.go."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from kcm.api.types.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from kcm.controllers.deployment.conditions import (
    NEW_RS_AVAILABLE,
    PROGRESSING,
    REPLICA_FAILURE,
    REPLICA_SET_UPDATED,
    TIMED_OUT,
    deadline,
    deployment_complete,
    deployment_progressing,
    deployment_timed_out,
    get_deployment_condition,
    has_progress_deadline,
    new_deployment_condition,
    remove_deployment_condition,
    replica_set_to_deployment_condition,
    set_deployment_condition,
)
from kcm.controllers.deployment.decisions import calculate_status
from kcm.controllers.deployment.sync import DeploymentSync, all_replica_sets
from kcm.logs import get_logger

log = get_logger(__name__)

_SECOND = timedelta(seconds=1)


async def sync_rollout_status(sync: DeploymentSync, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> None:
    """Write the status if it changed; if not, make sure that a stuck rollout is looked at when its deadline passes."""
    now = sync.clock.now()
    status = rollout_status(
        sync.deployment,
        all_replica_sets(old_rss, new_rs),
        new_rs,
        now=now,
        terminating_replicas=sync.terminating_replicas,
    )
    if status != sync.deployment.status:
        await sync.update_status(status)
        return
    remaining = time_to_deadline(sync.deployment, status, now)
    key = sync.deployment.metadata.key
    if remaining is None:
        return
    if remaining < _SECOND:
        log.info("Queueing up deployment for a progress check now", v=4, deployment=key)
        sync.queue.add_rate_limited(key)
    else:
        seconds = remaining.total_seconds()
        log.info("Queueing up deployment for a progress check", v=4, deployment=key, queueAfter=int(seconds))
        # Stored times have whole seconds: one more makes sure that the deadline has passed by then.
        sync.queue.add_after(key, seconds + 1)


def rollout_status(
    deployment: Deployment,
    all_rss: Sequence[ReplicaSet],
    new_rs: ReplicaSet | None,
    *,
    now: datetime,
    terminating_replicas: bool,
) -> DeploymentStatus:
    """Counters and all conditions of a Deployment in or after a rollout; the arguments are those of `calculate_status`."""
    status = calculate_status(deployment, all_rss, new_rs, now=now, terminating_replicas=terminating_replicas)
    if not has_progress_deadline(deployment):
        status = remove_deployment_condition(status, PROGRESSING)
    else:
        status = _judge_progress(deployment, status, new_rs, now)
    failure = get_replica_failure(all_rss, new_rs)
    if failure is None:
        return remove_deployment_condition(status, REPLICA_FAILURE)
    return set_deployment_condition(status, failure)


def _judge_progress(
    deployment: Deployment, status: DeploymentStatus, new_rs: ReplicaSet | None, now: datetime
) -> DeploymentStatus:
    current = get_deployment_condition(deployment.status, PROGRESSING)
    if status.replicas == status.updated_replicas and current is not None and current.reason == NEW_RS_AVAILABLE:
        return status  # the rollout was completed before; pods that fail since then are not its concern

    subject = f'Deployment "{deployment.metadata.name}"'
    if new_rs is not None:
        subject = f'ReplicaSet "{new_rs.metadata.name}"'
    if deployment_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        condition = new_deployment_condition(PROGRESSING, "True", NEW_RS_AVAILABLE, message, now)
    elif deployment_progressing(deployment, status):
        message = f"{subject} is progressing."
        condition = new_deployment_condition(PROGRESSING, "True", REPLICA_SET_UPDATED, message, now)
        if current is not None and current.status == "True":
            condition = replace(condition, last_transition_time=current.last_transition_time)
        # Taken out first: each step of progress moves lastUpdateTime, which the deadline counts from, even under one reason.
        status = remove_deployment_condition(status, PROGRESSING)
    elif deployment_timed_out(deployment, status, now):
        message = f"{subject} has timed out progressing."
        condition = new_deployment_condition(PROGRESSING, "False", TIMED_OUT, message, now)
    else:
        return status
    return set_deployment_condition(status, condition)


def get_replica_failure(all_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None) -> DeploymentCondition | None:
    """A ReplicaSet's report that it cannot create or delete pods, the new one's before any other's."""
    in_order = [*([new_rs] if new_rs is not None else []), *all_rss]
    failures = (
        replica_set_to_deployment_condition(condition)
        for rs in in_order
        for condition in rs.status.conditions
        if condition.type == REPLICA_FAILURE
    )
    return next(failures, None)


def time_to_deadline(deployment: Deployment, status: DeploymentStatus, now: datetime) -> timedelta | None:
    """How long a rollout without visible progress has left, maybe less than nothing (progress.go:requeueStuckDeployment).

    None where nothing is to be noticed later: without a deadline or a Progressing condition, when complete, or when the
    deadline's passing is noted already.
    """
    current = get_deployment_condition(deployment.status, PROGRESSING)
    if current is None or current.reason == TIMED_OUT or deployment_complete(deployment, status):
        return None
    end = deadline(deployment, current)
    return None if end is None else end - now
