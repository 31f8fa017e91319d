"""`kcm check`: can this configuration work here, and whose work would it take over?

Reads, asks what it may do, and writes nothing: the one creation that shows the server's clock is a dry run.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from kcm import KUBERNETES_VERSION, __version__
from kcm.api.client import Client
from kcm.api.config import ClientConfig
from kcm.api.errors import StatusError, TransportError
from kcm.api.resources import LEASES
from kcm.api.types.coordination import LeaseSpec
from kcm.clock import REAL, Clock
from kcm.controllermanager import SERVICE_ACCOUNTS_NAMESPACE, open_transport, user_agent
from kcm.features import OLDEST_RELEASE, RELEASE, show
from kcm.gotext import format_duration
from kcm.options import IMPLEMENTED_CONTROLLERS, LeaderElectionOptions, Options

Result = Literal["ok", "warning", "failed"]
#: Seconds that two clocks may differ: client certificates and tokens are good for so long before their time.
TOLERATED_SKEW = 60.0
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_READ, _OWN = ("list", "watch"), ("get", "list", "watch", "update")
#: What each controller asks for: API group, resource or resource/subresource, verbs (bootstrappolicy/controller_policy.go).
PERMISSIONS: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "deployment-controller": (
        ("apps", "deployments", _OWN),
        ("apps", "deployments/status", ("update",)),
        ("apps", "deployments/finalizers", ("update",)),
        ("apps", "replicasets", ("get", "list", "watch", "create", "update", "patch", "delete")),
        ("", "pods", _READ),
    ),
    "replicaset-controller": (
        ("apps", "replicasets", _OWN),
        ("apps", "replicasets/status", ("update",)),
        ("apps", "replicasets/finalizers", ("update",)),
        ("", "pods", (*_READ, "create", "patch", "delete")),
    ),
    "replicationcontroller-controller": (
        ("", "replicationcontrollers", _OWN),
        ("", "replicationcontrollers/status", ("update",)),
        ("", "replicationcontrollers/finalizers", ("update",)),
        ("", "pods", (*_READ, "create", "patch", "delete")),
    ),
    "statefulset-controller": (
        ("apps", "statefulsets", ("get", "list", "watch")),
        ("apps", "statefulsets/status", ("update",)),
        ("apps", "statefulsets/finalizers", ("update",)),
        ("", "pods", (*_READ, "get", "create", "update", "patch", "delete")),
        ("apps", "controllerrevisions", ("get", "list", "watch", "create", "update", "patch", "delete")),
        ("", "persistentvolumeclaims", ("get", "list", "watch", "create", "update", "delete")),
    ),
}
_EVENTS = ("", "events", ("create", "patch"))


class Finding(NamedTuple):
    """One line of the table."""

    result: Result
    what: str
    text: str


def table(findings: Sequence[Finding]) -> str:
    """The findings in aligned columns."""
    width = max(len(finding.what) for finding in findings)
    return "".join(f"{result:<8} {what:<{width}}  {text}\n" for result, what, text in findings)


async def check(options: Options, config: ClientConfig, *, clock: Clock = REAL) -> list[Finding]:
    """Everything that there is to find; what cannot be asked is a finding too."""
    async with open_transport(config) as transport:
        client = Client(transport, user_agent=user_agent("check"), qps=50, burst=100)
        findings = [
            Finding("ok", "kcm", f"{__version__}, as Kubernetes {options.version}, {platform.python_version()}")
        ]
        try:
            findings.append(await _server(client))
        except (StatusError, TransportError, msgspec.DecodeError) as error:
            return [*findings, Finding("failed", "API server", f"{client.host}: {error}")]
        findings += [finding async for finding in _permissions(client, options)]
        if options.leader_election.leader_elect:
            findings.append(await _skew(client, options.leader_election, clock))
            findings += [finding async for finding in _leases(client, options, clock)]
        else:
            findings.append(
                Finding("warning", "election", "off: nothing keeps a second manager from doing the same work")
            )
    return findings


async def _server(client: Client) -> Finding:
    version = msgspec.json.decode(await client.request("GET", "/version"))["gitVersion"]
    major, minor = (int(part) for part in version.removeprefix("v").split(".")[:2])
    text = f"{client.host}: {version}"
    if not OLDEST_RELEASE <= (major, minor) <= (RELEASE[0], RELEASE[1] + 1):
        supported = f"{show(OLDEST_RELEASE)} to {RELEASE[0]}.{RELEASE[1] + 1}"
        return Finding(
            "warning", "API server", f"{text}; kcm follows {KUBERNETES_VERSION} and is tested with {supported}"
        )
    return Finding("ok", "API server", text)


async def _permissions(client: Client, options: Options) -> AsyncIterator[Finding]:
    enabled = [name for name in IMPLEMENTED_CONTROLLERS if options.generic.is_enabled(name)]
    election = options.leader_election
    if election.leader_elect:
        wanted = [("coordination.k8s.io", "leases", ("get", "create", "update"))]
        yield await _may(client, "Lease", [*wanted, _EVENTS], namespace=election.resource_namespace)
    if options.generic.use_service_account_credentials:
        accounts = [("", "serviceaccounts", ("get", "create")), ("", "serviceaccounts/token", ("create",))]
        yield await _may(client, "service accounts", accounts, namespace=SERVICE_ACCOUNTS_NAMESPACE)
        return
    for name in enabled:
        yield await _may(client, name, [*PERMISSIONS[name], _EVENTS])
    if not enabled:
        yield Finding("warning", "controllers", "none of those that kcm has is enabled")


async def _may(
    client: Client, what: str, wanted: Iterable[tuple[str, str, tuple[str, ...]]], *, namespace: str = ""
) -> Finding:
    questions = [(group, resource, verb) for group, resource, verbs in wanted for verb in verbs]

    async def ask(group: str, resource: str, verb: str) -> bool:
        name, _, subresource = resource.partition("/")
        attributes = {
            "group": group,
            "resource": name,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = msgspec.json.decode(await client.request("POST", ACCESS_REVIEWS, body=body))
        return bool(answer["status"].get("allowed"))

    try:
        allowed = await asyncio.gather(*(ask(*question) for question in questions))
    except (StatusError, TransportError) as error:
        return Finding("failed", what, f"what is allowed cannot be asked: {error}")
    missing = [f"{verb} {resource}" for (_, resource, verb), may in zip(questions, allowed, strict=True) if not may]
    where = f" in {namespace}" if namespace else ""
    if missing:
        return Finding("failed", what, f"not allowed{where}: {', '.join(missing)}")
    return Finding("ok", what, f"all {len(questions)} verbs are allowed{where}")


async def _skew(client: Client, election: LeaderElectionOptions, clock: Clock) -> Finding:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"generateName": "kcm-check-", "namespace": election.resource_namespace},
    }
    before = clock.now()
    try:
        answer = await client.request(
            "POST", LEASES.path(election.resource_namespace), params={"dryRun": "All"}, body=body
        )
    except (StatusError, TransportError) as error:
        return Finding("warning", "clock", f"the server's cannot be seen: {error}")
    after = clock.now()
    there = datetime.fromisoformat(msgspec.json.decode(answer)["metadata"]["creationTimestamp"])
    # The server's time has whole seconds.
    skew = (there - before).total_seconds() if there < before else max(0.0, (there - after).total_seconds())
    if abs(skew) > TOLERATED_SKEW:
        return Finding("warning", "clock", f"differs from the server's by {format_duration(round(abs(skew)))}")
    return Finding("ok", "clock", "agrees with the server's")


async def _leases(client: Client, options: Options, clock: Clock) -> AsyncIterator[Finding]:
    election, stock = options.leader_election, LeaderElectionOptions()
    yield await _lease(client, election.resource_namespace, election.resource_name, clock)
    missing = options.generic.missing_controllers()
    if (election.resource_namespace, election.resource_name) == (stock.resource_namespace, stock.resource_name):
        if missing:
            yield Finding(
                "warning",
                "take-over",
                f"under the stock manager's Lease nobody would run {', '.join(missing)}; with "
                "--leader-elect-resource-name=kcm the stock manager goes on with them",
            )
        return
    try:
        spec = (await client.get(LEASES, stock.resource_namespace, stock.resource_name)).spec
    except (StatusError, TransportError):
        return
    if _is_held(spec, clock):
        ours = ", ".join(name for name in IMPLEMENTED_CONTROLLERS if options.generic.is_enabled(name))
        yield Finding("warning", "stock manager", f"{_holder(spec, clock)}; it must run without {ours}")


async def _lease(client: Client, namespace: str, name: str, clock: Clock) -> Finding:
    what = f"Lease {namespace}/{name}"
    try:
        spec = (await client.get(LEASES, namespace, name)).spec
    except StatusError as error:
        return Finding("ok", what, "not there yet") if error.code == 404 else Finding("failed", what, str(error))
    except TransportError as error:
        return Finding("failed", what, str(error))
    return Finding("ok", what, _holder(spec, clock))


def _holder(spec: LeaseSpec, clock: Clock) -> str:
    if not spec.holder_identity or spec.renew_time is None:
        return "free"
    state = "held" if _is_held(spec, clock) else "expired, last held"
    return f"{state} by {spec.holder_identity}, renewed {format_duration(round(_age(spec.renew_time, clock)))} ago"


def _is_held(spec: LeaseSpec, clock: Clock) -> bool:
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return _age(spec.renew_time, clock) <= (spec.lease_duration_seconds or 0)


def _age(time: datetime, clock: Clock) -> float:
    return max(0.0, (clock.now() - time).total_seconds())
