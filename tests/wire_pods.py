"""Pods as an API server sends them: each with a name, UID, address and times of its own, the rest alike within an owner."""

import uuid
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

#: How many pods share an owner.
PODS_PER_OWNER = 50
_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@lru_cache(maxsize=4096)
def _owner(number: int) -> tuple[str, str]:
    return f"web-{number:04d}-{0x9ABCDEF + number:x}", str(uuid.UUID(int=2**100 + number))


def wire_pod(number: int, version: int, *, phase: str = "Running") -> dict[str, Any]:
    """One pod's JSON document; pods of 50 successive numbers have one owner."""
    owner, owner_uid = _owner(number // PODS_PER_OWNER)
    created = _START + timedelta(seconds=number)
    ready = (created + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    born = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"app": owner.rsplit("-", 1)[0], "tier": "backend", "pod-template-hash": owner.rsplit("-", 1)[1]}
    ip = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "metadata": {
            "name": f"{owner}-{number:05x}",
            "generateName": f"{owner}-",
            "namespace": f"team-{number // (PODS_PER_OWNER * 20)}",
            "uid": str(uuid.UUID(int=2**110 + number * 7919)),
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": born,
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": owner_uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": ready,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, **{f"f:{key}": {} for key in labels}}}},
                }
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "volumes": [
                {
                    "name": f"kube-api-access-{number:05x}",
                    "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]},
                }
            ],
            "containers": [
                {
                    "name": "app",
                    "image": "registry.example/app:1.2.3",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    "volumeMounts": [{"name": f"kube-api-access-{number:05x}", "mountPath": "/var/run/secrets"}],
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "nodeName": f"node-{number % 200}",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
        },
        "status": {
            "phase": phase,
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
                for kind, when in (
                    ("PodReadyToStartContainers", ready),
                    ("Initialized", born),
                    ("Ready", ready),
                    ("ContainersReady", ready),
                    ("PodScheduled", born),
                )
            ],
            "hostIP": f"192.168.0.{number % 200}",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": born,
            "containerStatuses": [
                {
                    "name": "app",
                    "state": {"running": {"startedAt": ready}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": "registry.example/app:1.2.3",
                    "imageID": "",
                    "started": True,
                }
            ],
            "qosClass": "Burstable",
        },
    }


def encoded_pod(number: int, version: int, *, phase: str = "Running") -> bytes:
    """The same, as it goes over the wire."""
    return msgspec.json.encode(wire_pod(number, version, phase=phase))
