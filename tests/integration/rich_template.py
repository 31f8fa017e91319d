"""A pod template with many fields, most of which kcm never looks at, and none that the server changes in pods made from it."""

from tests.managers import Document

_SELECTOR = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a", "b"]}]}
_PROBE = {"httpGet": {"path": "/h", "port": "http", "scheme": "HTTPS", "httpHeaders": [{"name": "X", "value": "1"}]}}

RICH_TEMPLATE: Document = {
    "metadata": {
        "labels": {"app": "web", "example.com/empty": ""},
        "annotations": {
            "example.com/text": 'quotes " and \\, <angles> & ampersands,\ttabs\nand lines\u2028, ünïcödé, 東京, \U0001f600',
            "example.com/number": "12345678901234567890.10",
            "example.com/empty": "",
        },
        "finalizers": ["example.com/kept"],
    },
    "spec": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]},
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "zone",
                            "labelSelector": _SELECTOR,
                            "namespaceSelector": {},
                        },
                    }
                ]
            },
        },
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "web",
                "image": "registry.test/web:1",
                "imagePullPolicy": "Always",
                "command": ["sh", "-c"],
                "args": ["echo $(ONE) '<>&'"],
                "workingDir": "/work",
                "env": [
                    {"name": "EMPTY", "value": ""},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                    {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
                ],
                "envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}],
                "ports": [{"name": "http", "containerPort": 8443}, {"containerPort": 53, "protocol": "UDP"}],
                "resources": {
                    "requests": {"cpu": "0.5", "memory": "1.5Gi", "example.com/gpu": "2"},
                    "limits": {"cpu": "1500m", "memory": "1e10", "example.com/gpu": "2"},
                    "claims": [{"name": "gpu", "request": "one"}],
                },
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                "livenessProbe": {**_PROBE, "initialDelaySeconds": 3, "terminationGracePeriodSeconds": 9},
                "readinessProbe": {"grpc": {"port": 9000, "service": "ready"}},
                "startupProbe": {"exec": {"command": ["true"]}, "failureThreshold": 30},
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}, "postStart": {"exec": {"command": ["true"]}}},
                "securityContext": {
                    "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                    "runAsUser": 2000000000,
                    "seccompProfile": {"type": "Localhost", "localhostProfile": "profile.json"},
                    "appArmorProfile": {"type": "RuntimeDefault"},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "stdin": True,
                "stdinOnce": True,
                "tty": True,
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/scratch", "subPathExpr": "$(NODE)", "mountPropagation": "None"},
                    {"name": "config", "mountPath": "/config", "readOnly": True, "recursiveReadOnly": "Enabled"},
                ],
                "volumeDevices": [{"name": "claim", "devicePath": "/dev/block"}],
            }
        ],
        "dnsConfig": {"nameservers": ["192.0.2.1"], "options": [{"name": "ndots", "value": "2"}, {"name": "debug"}]},
        "dnsPolicy": "None",
        "enableServiceLinks": False,
        "hostAliases": [{"ip": "192.0.2.2", "hostnames": ["one", "two"]}],
        "hostname": "host",
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [
            {
                "name": "sidecar",
                "image": "registry.test/sidecar:1",
                "restartPolicy": "Always",
                "startupProbe": {"tcpSocket": {"port": 1}},
            }
        ],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "os": {"name": "linux"},
        "preemptionPolicy": "PreemptLowerPriority",
        "readinessGates": [{"conditionType": "example.com/gate"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "schedulerName": "nobody",
        "schedulingGates": [{"name": "example.com/closed"}],
        "securityContext": {
            "fsGroup": 3000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "supplementalGroups": [1, 2],
            "supplementalGroupsPolicy": "Strict",
            "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
        },
        "serviceAccountName": "builder",
        "setHostnameAsFQDN": True,
        "shareProcessNamespace": True,
        "subdomain": "sub",
        "terminationGracePeriodSeconds": 7,
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "minDomains": 3,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": _SELECTOR,
                "nodeTaintsPolicy": "Honor",
            }
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "0.5Gi"}},
            {"name": "plain", "emptyDir": {}},
            {
                "name": "config",
                "configMap": {"name": "c", "defaultMode": 256, "items": [{"key": "k", "path": "p", "mode": 0}]},
            },
            {"name": "secret", "secret": {"secretName": "s", "optional": False}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "p", "readOnly": True}},
            {"name": "csi", "csi": {"driver": "csi.example.com", "volumeAttributes": {"a": "", "b": "1"}}},
            {"name": "image", "image": {"reference": "registry.test/data:1", "pullPolicy": "IfNotPresent"}},
            {"name": "nfs", "nfs": {"server": "192.0.2.3", "path": "/"}},
            {
                "name": "made",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"l": "1"}},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1000Mi"}}},
                    }
                },
            },
            {
                "name": "all",
                "projected": {
                    "defaultMode": 292,
                    "sources": [
                        {"serviceAccountToken": {"audience": "a", "expirationSeconds": 7200, "path": "token"}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                    ],
                },
            },
        ],
    },
}
