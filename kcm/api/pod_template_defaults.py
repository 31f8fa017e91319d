"""What an API server of v1.37 fills in where a pod template leaves it open.

Follows pkg/apis/core/v1/defaults.go, as far as pkg/apis/apps/v1/zz_generated.defaults.go calls it for pod templates; what
only pods themselves get is not among it. The one gate that it asks, ImageVolume, is locked at this release.
"""

import re
from itertools import chain
from typing import Any, Final

from kcm.api.pod_template_types import Value, type_named

_MILLI: Final = -3

# An image's name, of which only the tag matters and whether there is a digest (github.com/distribution/reference regexp.go).
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_DOMAIN}/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>.+))?",
    re.ASCII,
)
_DIGEST = re.compile("sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}")
_IDENTIFIER = re.compile("[a-f0-9]{64}")
_MAX_PATH: Final = 255


def set_defaults(template: Value) -> None:
    """Fill in a decoded `v1.PodTemplateSpec` (zz_generated.defaults.go:SetObjectDefaults_StatefulSet)."""
    spec = template["spec"]
    _pod_spec(spec)
    for volume in spec["volumes"] or ():
        _volume(volume)
    for container in chain.from_iterable(
        spec[field] or () for field in ("initContainers", "containers", "ephemeralContainers")
    ):
        _container(container)
    _resource_list(spec["overhead"])
    if spec["resources"] is not None:
        _resources(spec["resources"])


def image_tag(image: str) -> str:
    """The tag of an image's name, by default `latest` (pkg/util/parsers/parsers.go:ParseImageName).

    It is empty if the name is malformed, or has a digest and no tag.
    """
    if _IDENTIFIER.fullmatch(image):
        return ""
    domain, path = _split_domain(image)
    match = _IMAGE.fullmatch(f"{domain}/{path}")
    if match is None or len(match["path"]) > _MAX_PATH or (match["digest"] and not _DIGEST.fullmatch(match["digest"])):
        return ""
    return match["tag"] or ("" if match["digest"] else "latest")


def _split_domain(name: str) -> tuple[str, str]:
    """An image's registry and what is asked there (reference/normalize.go:splitDockerDomain)."""
    domain, slash, path = name.partition("/")
    if domain == "index.docker.io":
        domain = "docker.io"
    if not slash or not (domain == "localhost" or "." in domain or ":" in domain or domain.lower() != domain):
        domain, path = "docker.io", name
    if domain == "docker.io" and "/" not in path:
        path = f"library/{path}"
    return domain, path


def _pod_spec(spec: Value) -> None:
    _set_empty(spec, serviceAccountName=spec["serviceAccount"])
    spec["serviceAccount"] = spec["serviceAccountName"]
    _set_empty(spec, dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")
    _set_nil(spec, securityContext=_zero("v1.PodSecurityContext"), terminationGracePeriodSeconds=30)


def _volume(volume: Value) -> None:
    sources = {key: source for key, source in volume.items() if key != "name" and source is not None}
    if not sources:
        volume["emptyDir"] = _zero("v1.EmptyDirVolumeSource")
    for kind, source in sources.items():
        match kind:
            case "image":
                _set_empty(source, pullPolicy=_pull_policy(source["reference"]))
            case "hostPath":
                _set_nil(source, type="")
            case "secret" | "configMap":
                _set_nil(source, defaultMode=0o644)
            case "downwardAPI":
                _set_nil(source, defaultMode=0o644)
                _downward_items(source)
            case "projected":
                _set_nil(source, defaultMode=0o644)
                _projections(source)
            case "iscsi":
                _set_empty(source, iscsiInterface="default")
            case "rbd":
                _set_empty(source, pool="rbd", user="admin", keyring="/etc/ceph/keyring")
            case "azureDisk":
                _set_nil(source, cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared")
            case "scaleIO":
                _set_empty(source, storageMode="ThinProvisioned", fsType="xfs")
            case "ephemeral" if (claim := source["volumeClaimTemplate"]) is not None:
                _set_nil(claim["spec"], volumeMode="Filesystem")
                _resources(claim["spec"]["resources"])


def _projections(projected: Value) -> None:
    for source in projected["sources"] or ():
        if source["downwardAPI"] is not None:
            _downward_items(source["downwardAPI"])
        if source["serviceAccountToken"] is not None:
            _set_nil(source["serviceAccountToken"], expirationSeconds=3600)


def _downward_items(source: Value) -> None:
    for item in source["items"] or ():
        _field_ref(item["fieldRef"])


def _container(container: Value) -> None:
    _set_empty(
        container,
        imagePullPolicy=_pull_policy(container["image"]),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    for port in container["ports"] or ():
        _set_empty(port, protocol="TCP")
    for variable in container["env"] or ():
        if (source := variable["valueFrom"]) is not None:
            _field_ref(source["fieldRef"])
            if source["fileKeyRef"] is not None:
                _set_nil(source["fileKeyRef"], optional=False)
    _resources(container["resources"])
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container[kind]) is not None:
            _set_empty(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _http_get(probe["httpGet"])
            if probe["grpc"] is not None:
                _set_nil(probe["grpc"], service="")
    if (lifecycle := container["lifecycle"]) is not None:
        for kind in ("postStart", "preStop"):
            if (handler := lifecycle[kind]) is not None:
                _http_get(handler["httpGet"])


def _field_ref(selector: Value | None) -> None:
    if selector is not None:
        _set_empty(selector, apiVersion="v1")


def _http_get(action: Value | None) -> None:
    if action is not None:
        _set_empty(action, path="/", scheme="HTTP")


def _pull_policy(image: str) -> str:
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


def _resources(resources: Value) -> None:
    _resource_list(resources["limits"])
    _resource_list(resources["requests"])


def _resource_list(amounts: Value | None) -> None:
    if amounts is not None:
        amounts.update({name: amount.rounded(_MILLI) for name, amount in amounts.items()})


def _zero(name: str) -> Value:
    zero: Value = type_named(name).decode(None)
    return zero


def _set_empty(struct: Value, **defaults: Any) -> None:
    """Set values that are empty or zero."""
    struct.update((field, default) for field, default in defaults.items() if not struct[field])


def _set_nil(struct: Value, **defaults: Any) -> None:
    """Set what is a pointer in Go, and nil."""
    struct.update((field, default) for field, default in defaults.items() if struct[field] is None)
