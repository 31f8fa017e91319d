"""Deployments with all that a sync may find around them, and what they have become when it is over."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from kcm.api.pod_template import compute_hash
from kcm.api.types.apps import Deployment
from kcm.api.types.meta import Document, format_time, from_document
from tests.parity import make
from tests.parity.make import NAMESPACE, NOW, chance

REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web"

_REFUSALS = {"Conflict": 409, "NotFound": 404, "Forbidden": 403, "Invalid": 422, "InternalError": 500}
_CREATION_REFUSALS = {"AlreadyExists": 409, "Forbidden": 403, "InternalError": 500}
_OWNER: Document = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "name": "web",
    "uid": "uid-web",
    "controller": True,
    "blockOwnerDeletion": True,
}

Focus = Callable[[Random, Document], None]


def world(random: Random, focus: Focus) -> Document:
    """What one sync starts from; `focus` is given it to change."""
    deployment = make.deployment(random)
    meta, spec = deployment["metadata"], deployment["spec"]
    spec["replicas"] = _small(random)
    meta.get("annotations", {}).pop(make.ROLLBACK, None)
    if "rollingUpdate" in spec["strategy"] and chance(random, 0.9):
        bounds = {"maxSurge": random.choice((0, 1, 2, "25%", "50%")), "maxUnavailable": random.choice((0, 1, "25%", 3))}
        spec["strategy"]["rollingUpdate"] = bounds
    sets = [_replica_set(random, spec, number) for number in range(random.choice((0, 1, 1, 2, 2, 3, 4)))]
    status = make.deployment_status(random, spec["replicas"], meta["generation"])
    if chance(random, 0.3):
        status.pop("conditions", None)
    deployment["status"] = status
    made = {
        "deployment": deployment,
        "live": None,
        "replicaSets": sets,
        "pods": [_pod(random, sets, number) for number in range(random.randrange(3))] if sets else [],
        "refusals": [refusal(random, sets)] if chance(random, 0.15) else [],
        "now": make.instant(),
        "counted": chance(random, 0.9),
    }
    focus(random, made)
    return made


def _copy(document: Document) -> Document:
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def _small(random: Random) -> int:
    return random.choice((0, 1, 2, 3, 3, 3, 5, 10)) if chance(random, 0.98) else make.size(random)


def _replica_set(random: Random, deployment: Document, number: int) -> Document:
    made = make.replica_set(random, f"web-{number}")
    meta, spec, status = made["metadata"], made["spec"], made["status"]
    meta["labels"] = {"app": "web", "pod-template-hash": str(number)}
    meta["ownerReferences"] = [_OWNER]
    if chance(random, 0.95):
        meta.pop("deletionTimestamp", None)
    if chance(random, 0.5):
        spec["template"] = _copy(deployment["template"])
    spec["template"]["metadata"]["labels"] = {"app": "web", "pod-template-hash": str(number)}
    annotations = meta.setdefault("annotations", {})
    if chance(random, 0.8):
        annotations[make.DESIRED] = str(deployment["replicas"])
    if chance(random, 0.95):
        annotations[make.REVISION] = str(number + random.randrange(2))
    spec.pop("minReadySeconds", None)
    if "minReadySeconds" in deployment and chance(random, 0.8):
        spec["minReadySeconds"] = deployment["minReadySeconds"]
    spec["replicas"] = random.choice((0, _small(random), deployment["replicas"]))
    status["replicas"] = spec["replicas"] if chance(random, 0.7) else _small(random)
    for key in ("readyReplicas", "availableReplicas"):
        status.pop(key, None)
        if (count := status["replicas"] if chance(random, 0.7) else _small(random)) > 0:
            status[key] = count
    return made


def _pod(random: Random, sets: Sequence[Document], number: int) -> Document:
    made = make.pod(random, f"pod-{number}")
    owner = random.choice(sets)["metadata"]
    reference = {**_OWNER, "kind": "ReplicaSet", "name": owner["name"], "uid": owner["uid"]}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def refusal(random: Random, sets: Sequence[Document]) -> Document:
    """A request that the server refuses the first or second time and ever after, and how."""
    paths = [f"{REPLICA_SETS}/{rs['metadata']['name']}" for rs in sets]
    method, path = random.choice(
        [
            ("POST", REPLICA_SETS),
            ("PUT", f"{DEPLOYMENT}/status"),
            ("PUT", DEPLOYMENT),
            ("GET", DEPLOYMENT),
            *((method, path) for path in paths for method in ("PUT", "PUT", "PATCH", "DELETE")),
        ]
    )
    return refuse(random, method, path)


def refuse(random: Random, method: str, path: str) -> Document:
    """The refusal of certain requests."""
    codes = _CREATION_REFUSALS if method == "POST" else _REFUSALS
    reason = random.choice(list(codes))
    status: Document = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    status |= {"reason": reason, "code": codes[reason], "message": f"refused: {reason}"}
    if reason == "Forbidden" and chance(random, 0.5):
        status["details"] = {"causes": [{"reason": "NamespaceTerminating", "message": "going"}]}
    return {"method": method, "path": path, "granted": random.choice((0, 0, 1)), "status": status}


def successor(random: Random, before: Document, outcome: Document) -> Document:
    """The world after a sync that nothing was refused to: its writes are seen, and ReplicaSets have got on with their pods."""
    deployment = before["deployment"]
    sets = {rs["metadata"]["name"]: rs for rs in before["replicaSets"]}
    for write in outcome["writes"]:
        method, path, body = write["method"], write["path"], write["body"]
        name = path.rpartition("/")[2]
        if method == "PUT" and path.startswith(DEPLOYMENT):
            deployment = body
        elif method == "PUT":
            sets[name] = body
        elif method == "POST":
            meta = body["metadata"]
            fresh = {"uid": f"uid-{meta['name']}", "generation": 1, "creationTimestamp": format_time(NOW)}
            sets[meta["name"]] = {**body, "metadata": {**meta, **fresh}, "status": {"replicas": 0}}
        elif method == "DELETE":
            del sets[name]
    for rs in sets.values():
        if chance(random, 0.6):
            rs["status"] = _progressed(random, rs)
    return {**before, "deployment": deployment, "replicaSets": list(sets.values())}


def _progressed(random: Random, replica_set: Document) -> Document:
    replicas = max(0, replica_set["spec"]["replicas"])
    status: Document = {"replicas": replicas, "terminatingReplicas": 0}
    status["observedGeneration"] = replica_set["metadata"]["generation"]
    if (ready := replicas if chance(random, 0.7) else random.randrange(replicas + 1)) > 0:
        status |= {"readyReplicas": ready, "availableReplicas": ready}
    return status


# What a world may be about


def rolling(_random: Random, made: Document) -> None:
    """A rolling update."""
    strategy = made["deployment"]["spec"]["strategy"]
    if "rollingUpdate" not in strategy:
        made["deployment"]["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}


def stumbling(random: Random, made: Document) -> None:
    """A rolling update in which a ReplicaSet cannot be written, or lags behind."""
    rolling(random, made)
    for rs in made["replicaSets"]:
        if chance(random, 0.3):
            rs["status"]["availableReplicas"] = min(rs["spec"]["replicas"] + 1, make.MAX_INT32)
    if made["replicaSets"]:
        name = random.choice(made["replicaSets"])["metadata"]["name"]
        made["refusals"] = [refuse(random, "PUT", f"{REPLICA_SETS}/{name}")]


def recreating(random: Random, made: Document) -> None:
    """Recreation; old ReplicaSets are often down already, and their pods over."""
    made["deployment"]["spec"]["strategy"] = {"type": "Recreate"}
    for rs in made["replicaSets"]:
        if chance(random, 0.6):
            rs["spec"]["replicas"] = 0
            rs["status"] = {"replicas": 0}


def pausing(random: Random, made: Document) -> None:
    """A Deployment that is or was paused, with a deadline."""
    spec = made["deployment"]["spec"]
    spec.setdefault("progressDeadlineSeconds", 600)
    if chance(random, 0.7):
        spec["paused"] = True
        if chance(random, 0.1):
            made["deployment"]["metadata"].setdefault("annotations", {})[make.ROLLBACK] = "1"


def rolling_back(random: Random, made: Document) -> None:
    """A rollback is asked for, most often to a revision that there is."""
    revision = random.choice(("0", "0", "1", "2", "3", "+1", "x", "", "-1"))
    made["deployment"]["metadata"].setdefault("annotations", {})[make.ROLLBACK] = revision


def claiming(random: Random, made: Document) -> None:
    """ReplicaSets that are somebody else's or nobody's, or match no more; the Deployment may be going or gone."""
    meta = made["deployment"]["metadata"]
    if chance(random, 0.2):
        meta["deletionTimestamp"] = make.past(random)
    if chance(random, 0.1):
        made["deployment"]["spec"]["selector"] = make.selector(random) or {}
    if chance(random, 0.3):
        gone: Document = random.choice(
            ({"uid": "uid-another"}, {"deletionTimestamp": make.past(random)}, {"generation": 9})
        )
        made["live"] = {**made["deployment"], "metadata": {**meta, **gone}}
    others: list[Document] = [{**_OWNER, "uid": "uid-other"}, {**_OWNER, "controller": False}]
    for rs in made["replicaSets"]:
        if chance(random, 0.5):
            rs["metadata"]["labels"]["app"] = random.choice(("web", "web", "db"))
            rs["metadata"]["ownerReferences"] = [random.choice((_OWNER, *others))]
            if chance(random, 0.4):
                del rs["metadata"]["ownerReferences"]
    if made["replicaSets"] and chance(random, 0.3):
        name = random.choice(made["replicaSets"])["metadata"]["name"]
        path = random.choice((("PATCH", f"{REPLICA_SETS}/{name}"), ("GET", DEPLOYMENT)))
        made["refusals"] = [refuse(random, *path)]


def creating(random: Random, made: Document) -> None:
    """No new ReplicaSet is known, and often the server does not let one be made; its name may be taken."""
    made["deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] = "web:new"
    if chance(random, 0.4):
        made["deployment"]["status"]["collisionCount"] = random.choice((0, 1, 1, make.MAX_INT32))
    if chance(random, 0.6):
        made["refusals"] = [{**refuse(random, "POST", REPLICA_SETS), "granted": 0}]
    if not made["replicaSets"] or chance(random, 0.4):
        return
    taken = made["replicaSets"][0]
    owner = from_document(Deployment, _copy(made["deployment"]))
    taken["metadata"]["name"] = f"web-{compute_hash(owner, owner.status.collision_count)}"
    taken["metadata"]["deletionTimestamp"] = format_time(NOW)
    if chance(random, 0.5):
        # It is left out for its labels, but has this very template.
        taken["metadata"]["labels"]["app"] = "db"
        taken["spec"]["template"] = _copy(owner.document()["spec"]["template"])


def anything(random: Random, made: Document) -> None:
    """All of these, each sometimes."""
    for focus in (pausing, rolling_back, claiming):
        if chance(random, 0.1):
            focus(random, made)
