"""Workloads of many shapes, and when nothing is left to do about them."""

from tests.integration.playing import claim, placed, workload
from tests.integration.rich_template import RICH_TEMPLATE
from tests.managers import Document, Namespace, complete

ODD_QUANTITIES = {
    "containers": [
        {
            "name": "c",
            "image": "registry.test/c:1",
            "env": [
                {"name": "TEXT", "value": '<a> & b \u2028 ünïcödé 東京 \U0001f600 \\ "'},
                {"name": "NONE"},
                *({"name": f"E{n}", "value": "x" * n} for n in range(100)),
            ],
            "resources": {
                "limits": {"cpu": "0.5", "memory": "1.5Gi", "ephemeral-storage": "1e9"},
                "requests": {"cpu": "100000u", "memory": "100M"},
            },
        }
    ],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "0.1Gi"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim("x", "2Gi")["spec"]}}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "c", "optional": True}}]}},
    ],
}


def shapes() -> list[Document]:
    """Workloads of many shapes, each with labels of its own."""
    odd = {"spec": ODD_QUANTITIES}
    retention = "persistentVolumeClaimRetentionPolicy"
    return [
        workload("Deployment", "d-rich", template=placed("d-rich", RICH_TEMPLATE)),
        workload(
            "Deployment", "d-odd", template=placed("d-odd", odd), strategy={"type": "Recreate"}, minReadySeconds=1
        ),
        workload("Deployment", "d-none", replicas=0, revisionHistoryLimit=0, progressDeadlineSeconds=2147483647),
        workload("Deployment", "d-paused", paused=True),
        workload(
            "Deployment",
            "d-percent",
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "30%", "maxUnavailable": "0%"}},
        ),
        workload("ReplicaSet", "r-rich", template=placed("r-rich", RICH_TEMPLATE), minReadySeconds=1),
        workload("ReplicaSet", "r-none", replicas=0),
        workload("ReplicationController", "c-odd", template=placed("c-odd", odd)),
        workload(
            "StatefulSet",
            "s-rich",
            template=placed("s-rich", RICH_TEMPLATE),
            serviceName="svc",
            volumeClaimTemplates=[claim("data", "1Gi"), claim("log", "0.5Gi")],
            **{retention: {"whenDeleted": "Delete", "whenScaled": "Delete"}},
        ),
        workload(
            "StatefulSet",
            "s-parallel",
            template=placed("s-parallel", odd),
            podManagementPolicy="Parallel",
            ordinals={"start": 5},
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": "50%"}},
            minReadySeconds=1,
        ),
        workload(
            "StatefulSet",
            "s-ondelete",
            updateStrategy={"type": "OnDelete"},
            volumeClaimTemplates=[claim("data", "1G")],
            revisionHistoryLimit=0,
            **{retention: {"whenDeleted": "Delete", "whenScaled": "Retain"}},
        ),
        workload(
            "StatefulSet",
            "s-" + "long" * 12,
            volumeClaimTemplates=[claim("data", "1024Mi")],
            **{retention: {"whenDeleted": "Retain", "whenScaled": "Delete"}},
        ),
        workload("StatefulSet", "s-none", replicas=0, podManagementPolicy="Parallel"),
    ]


def settled(document: Document) -> bool:
    """Whether nothing is left to do, as far as the spec allows."""
    spec, status = document["spec"], document.get("status", {})
    if spec.get("paused"):
        return bool(status.get("observedGeneration", 0) >= document["metadata"]["generation"])
    strategy = spec.get("updateStrategy", {})
    if strategy.get("type") == "OnDelete" or strategy.get("rollingUpdate", {}).get("partition"):
        seen: int = status.get("observedGeneration", 0)
        return bool(
            seen >= document["metadata"]["generation"] and status.get("availableReplicas", 0) == spec["replicas"]
        )
    if document["kind"] in {"ReplicaSet", "ReplicationController"} and not spec["replicas"]:
        return bool(status.get("observedGeneration", 0) >= document["metadata"]["generation"])
    return complete(document)


async def until_settled(ns: Namespace) -> None:
    def unsettled() -> list[str]:
        kinds = ("deployments", "replicasets", "replicationcontrollers", "statefulsets")
        return [found["metadata"]["name"] for kind in kinds for found in ns.all(kind) if not settled(found)]

    await ns.until(lambda: not unsettled(), "everything is settled")
