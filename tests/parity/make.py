"""Random objects, as an API server would write them, with edge cases far more often than life has them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar

from kcm.api.types.meta import Document, format_time

T = TypeVar("T")
#: Makes something at random.
Maker = Callable[[Random], T]

#: The instant at which all decisions are taken. It lies in the past, so that the oracle can tell real times from made ones.
NOW = datetime(2001, 9, 9, 1, 46, 40, 123456, tzinfo=UTC)
NAMESPACE = "ns"
MAX_INT32 = 2**31 - 1

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
ROLLBACK = "deprecated.deployment.rollback.to"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_NO_NUMBERS = ("", "x", " 1", "1 ", "1_0", "+1", "-1", "007", "+", "-", "0x1", "1e1", "٣", "1.0")
#: More digits than `int` takes.
_LONG = "9" * 5000
_BOUNDARIES = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1)


def chance(random: Random, probability: float) -> bool:
    """Whether it happens."""
    return random.random() < probability


def instant(moment: datetime = NOW) -> str:
    """A time in full precision."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def past(random: Random, *, spread: int = 400) -> str:
    """A time as the API stores it: often one that many others share, sometimes in the future."""
    kind = random.random()
    if kind < 0.5:
        seconds = random.choice((0, 1, 5, 10, 60, 600))
    elif kind < 0.8:
        seconds = random.randrange(spread)
    elif kind < 0.95:
        # Where an age's binary logarithm changes, in seconds or in nanoseconds.
        seconds = random.choice((2 ** random.randrange(28), 2 ** random.randrange(30, 58) // 10**9)) + random.randrange(
            -1, 2
        )
    else:
        seconds = -random.randrange(1, 100)
    return format_time(NOW - timedelta(seconds=seconds))


def size(random: Random) -> int:
    """A number of pods."""
    kind = random.random()
    if kind < 0.9:
        return random.choice((0, 1, 2, 3, 3, 5, 10, random.randrange(20)))
    return (
        random.choice((99, 100, 1000, 20_000, 2**30, MAX_INT32 - 1, MAX_INT32))
        if kind < 0.97
        else random.randrange(2**31)
    )


def number(random: Random) -> str:
    """The text of an annotation that should be a number."""
    kind = random.random()
    if kind < 0.75:
        return str(size(random))
    if kind < 0.85:
        return str(random.choice(_BOUNDARIES))
    return random.choice(_NO_NUMBERS) if kind < 0.99 else _LONG


def bound(random: Random) -> int | str:
    """A maxSurge or maxUnavailable; one in ten is invalid."""
    kind = random.random()
    if kind < 0.4:
        return size(random)
    if kind < 0.9:
        return f"{random.choice((0, 1, 10, 25, 33, 50, 99, 100, 101, random.randrange(300), 10**9))}%"
    return random.choice((*_NO_NUMBERS, *(f"{text}%" for text in _NO_NUMBERS), f"{2**63}%", f"{_LONG}%", "%", "5"))


def labels(random: Random) -> dict[str, str]:
    """A few labels out of a small stock, so that they often match."""
    stock = {"app": ("web", "db", ""), "tier": ("a", "b"), "example.com/x": ("1",)}
    return {key: random.choice(values) for key, values in stock.items() if chance(random, 0.6)}


def name_part(random: Random) -> str:
    """Something like a label's key or value, valid or nearly so."""
    text = "".join(random.choice("aZ0-_./é \n") for _ in range(random.randrange(5)))
    kind = random.random()
    if kind < 0.5:
        return random.choice(("app", "web", "tier", "a", "x.y-z_0", "A"))
    if kind < 0.6:
        return "a" * random.choice((62, 63, 64)) + text
    if kind < 0.7:
        return random.choice(("example.com", "Example.com", "a" * 253, "a" * 254, "a..b", "-a.b", "a/b")) + "/" + text
    return text


def selector(random: Random) -> Document | None:
    """A label selector, none, or one that the API would refuse."""
    if chance(random, 0.05):
        return None
    wild = chance(random, 0.4)
    part = name_part if wild else _tame
    made = {
        "matchLabels": {part(random): part(random) for _ in range(random.choice((0, 0, 1, 1, 2)))},
        "matchExpressions": [_expression(random, part) for _ in range(random.choice((0, 0, 0, 1, 2)))],
    }
    return _served(made)


def _served(fields: Document) -> Document:
    """Without empty lists and maps, which a server leaves out."""
    return {key: value for key, value in fields.items() if value not in ({}, [])}


def _tame(random: Random) -> str:
    return random.choice(("app", "tier", "example.com/x", "web", "a"))


def _expression(random: Random, part: Maker[str]) -> Document:
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    if chance(random, 0.03):
        operator = random.choice(("in", "", "Gt", "exists"))
    made: Document = {"key": part(random), "operator": operator}
    if (operator in {"In", "NotIn"}) != chance(random, 0.05):
        made["values"] = [random.choice(("web", "db", "", "a", part(random))) for _ in range(random.randrange(1, 3))]
    return made


def template(random: Random, variety: int = 2) -> Document:
    """A pod template; of two, one in `variety` or so is equal to the other, though maybe written differently."""
    container: Document = {
        "name": "web",
        "image": f"web:{random.randrange(variety)}",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    if chance(random, 0.5):
        container["resources"]["limits"] = {"memory": random.choice(("1024", "1Ki"))}
    made: Document = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    }
    return made


def pod(random: Random, name: str = "pod", *, wild: bool = True) -> Document:
    """A pod; a tame one has what no server would refuse and kubelets write."""
    status: Document = {"phase": random.choice(("Pending", "Running", "Running", "Running", "Unknown"))}
    if chance(random, 0.1):
        status["phase"] = random.choice(("Succeeded", "Failed", ""))
    status["conditions"] = [_pod_condition(random, "Ready")] if chance(random, 0.85) else []
    if wild and chance(random, 0.2):
        status["conditions"].insert(0, _pod_condition(random, random.choice(("Ready", "ContainersReady"))))
    if chance(random, 0.8):
        status["containerStatuses"] = _container_statuses(random, "c")
    meta: Document = {"name": name, "namespace": NAMESPACE, "uid": f"{random.randrange(16):x}-{name}"}
    if not wild or chance(random, 0.95):
        meta["creationTimestamp"] = past(random)
    if chance(random, 0.5):
        meta["labels"] = labels(random)
    if chance(random, 0.1):
        meta["deletionTimestamp"] = past(random)
    if chance(random, 0.4):
        cost = number(random) if wild else str(random.randrange(3))
        meta["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    spec: Document = {"containers": [{"name": "c", "resources": {}}]}
    if chance(random, 0.85):
        spec["nodeName"] = random.choice(("one", "two"))
    if chance(random, 0.3):
        spec["initContainers"] = [_init_container(random, f"i{number}") for number in range(random.randrange(1, 3))]
        status["initContainerStatuses"] = _container_statuses(random, "i")
    return {"metadata": _served(meta), "spec": spec, "status": _served(status)}


def _pod_condition(random: Random, kind: str) -> Document:
    made: Document = {"type": kind, "status": random.choice(("True", "True", "True", "False", "Unknown"))}
    made["lastTransitionTime"] = past(random) if chance(random, 0.9) else None
    return made


def _container_statuses(random: Random, prefix: str) -> list[Document]:
    restarts = (0, 0, 1, 2, 9001)
    return [
        {
            "name": f"{prefix}{number}",
            "restartCount": random.choice(restarts),
            "ready": True,
            "image": "",
            "imageID": "",
        }
        for number in range(random.randrange(3))
    ]


def _init_container(random: Random, name: str) -> Document:
    made: Document = {"name": name, "resources": {}}
    if chance(random, 0.6):
        made["restartPolicy"] = random.choice(("Always", "Always", "OnFailure"))
    return made


def annotations(random: Random) -> dict[str, str]:
    """Annotations of a Deployment or ReplicaSet: those that mean something, and others."""
    made: dict[str, str] = {}
    for key in (REVISION, DESIRED, MAXIMUM):
        if chance(random, 0.7):
            made[key] = number(random)
    if chance(random, 0.3):
        made[HISTORY] = history(random)
    for key, values in {
        "note": ("a", "b", ""),
        "other": ("a", "é"),
        APPLIED: ("{}", "{ }"),
        ROLLBACK: ("1", ""),
    }.items():
        if chance(random, 0.3):
            made[key] = random.choice(values)
    return made


def history(random: Random) -> str:
    """A list of former revisions, sometimes of about the length that is allowed at most."""
    kind = random.random()
    if kind < 0.2:
        return random.choice(("", ",", ",1", "1,", "x", "é,1"))
    count = random.randrange(1, 8) if kind < 0.8 else random.randrange(480, 520)
    return ",".join(str(random.randrange(1, 1000)) for _ in range(count))


def replica_set(random: Random, name: str = "rs") -> Document:
    """A ReplicaSet, settled or not."""
    wanted = size(random)
    have = wanted if chance(random, 0.6) else size(random)
    ready = have if chance(random, 0.6) else size(random)
    status: Document = {"replicas": have}
    counters = {"readyReplicas": ready, "availableReplicas": ready if chance(random, 0.8) else size(random)}
    status |= {key: value for key, value in counters.items() if value}
    if chance(random, 0.8):
        status["terminatingReplicas"] = random.choice((0, 0, 1, size(random)))
    if chance(random, 0.9):
        status["observedGeneration"] = random.randrange(1, 4)
    if chance(random, 0.2):
        status["conditions"] = [_replica_set_condition(random) for _ in range(random.randrange(1, 3))]
    meta: Document = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": random.randrange(1, 4)}
    if chance(random, 0.95):
        meta["creationTimestamp"] = past(random, spread=5)
    if chance(random, 0.9):
        meta["labels"] = labels(random)
    if made := annotations(random):
        meta["annotations"] = made
    if chance(random, 0.1):
        meta["deletionTimestamp"] = past(random)
    spec: Document = {"replicas": wanted, "selector": {"matchLabels": {"app": "web"}}, "template": template(random)}
    if chance(random, 0.3):
        spec["minReadySeconds"] = random.choice((1, 5, 60))
    return {"metadata": _served(meta), "spec": spec, "status": status}


def replica_sets(random: Random, most: int = 6) -> list[Document]:
    """Some ReplicaSets of one namespace, in no order."""
    sets = [replica_set(random, f"rs-{number}") for number in range(random.randrange(most + 1))]
    random.shuffle(sets)
    return sets


def _replica_set_condition(random: Random) -> Document:
    made: Document = {"type": random.choice(("ReplicaFailure", "ReplicaFailure", "Other")), "status": "True"}
    if chance(random, 0.9):
        made["lastTransitionTime"] = past(random)
    if chance(random, 0.9):
        made["reason"] = random.choice(("FailedCreate", "FailedDelete"))
    made["message"] = random.choice(("quota", "denied"))
    return made


def strategy(random: Random) -> Document:
    """A strategy; RollingUpdate has its bounds as the server would have set them, or one of them is missing."""
    kind = random.choice(("RollingUpdate", "RollingUpdate", "RollingUpdate", "Recreate"))
    if chance(random, 0.02):
        kind = random.choice(("", "OnDelete"))
    if kind != "RollingUpdate":
        return {"type": kind} if kind else {}
    bounds = {key: bound(random) for key in ("maxSurge", "maxUnavailable") if chance(random, 0.95)}
    return {"type": kind, "rollingUpdate": bounds}


def deployment(random: Random, name: str = "web") -> Document:
    """A Deployment."""
    meta: Document = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": random.randrange(1, 4)}
    meta["creationTimestamp"] = past(random)
    meta["labels"] = {"app": "web"}
    if made := annotations(random):
        meta["annotations"] = made
    spec: Document = {
        "replicas": size(random),
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(random),
        "strategy": strategy(random),
    }
    if chance(random, 0.8):
        spec["progressDeadlineSeconds"] = random.choice((1, 10, 60, 600, 600, 10**8, MAX_INT32))
    if chance(random, 0.8):
        spec["revisionHistoryLimit"] = random.choice((0, 1, 2, 10, MAX_INT32))
    if chance(random, 0.3):
        spec["minReadySeconds"] = random.choice((1, 5, 60))
    return {"metadata": meta, "spec": spec, "status": deployment_status(random, spec["replicas"], meta["generation"])}


def deployment_status(random: Random, replicas: int = 3, generation: int = 1) -> Document:
    """A Deployment's status, complete or not."""
    keys = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
    made = {key: replicas if chance(random, 0.7) else size(random) for key in keys}
    made["observedGeneration"] = generation if chance(random, 0.7) else random.randrange(4)
    status: Document = {key: value for key, value in made.items() if value}
    if chance(random, 0.5):
        status["terminatingReplicas"] = size(random)
    if chance(random, 0.3):
        status["collisionCount"] = random.choice((0, 1, MAX_INT32))
    if chance(random, 0.8):
        status["conditions"] = [condition(random) for _ in range(random.randrange(1, 4))]
    return status


def condition(random: Random) -> Document:
    """A condition of a Deployment."""
    kind = random.choice(("Available", "Progressing", "Progressing", "ReplicaFailure", "example.com/Other"))
    reasons = {
        "Available": ("MinimumReplicasAvailable", "MinimumReplicasUnavailable"),
        "Progressing": (
            "NewReplicaSetAvailable",
            "ReplicaSetUpdated",
            "ProgressDeadlineExceeded",
            "DeploymentPaused",
            "DeploymentResumed",
            "NewReplicaSetCreated",
        ),
    }
    made: Document = {"type": kind, "status": random.choice(("True", "True", "False", "Unknown"))}
    for key in ("lastUpdateTime", "lastTransitionTime"):
        if chance(random, 0.95):
            made[key] = past(random)
    if chance(random, 0.95):
        made["reason"] = random.choice(reasons.get(kind, ("FailedCreate", "FailedDelete")))
    if chance(random, 0.9):
        made["message"] = random.choice(("one", "two"))
    return made
