"""All flags of the stock manager, and the `Options` that their values make.

Flags that concern what kcm does stand here with the field that each fills; all others of stock_flags.json, which
`python -m tools.stock_flags` makes from the pinned stock manager, are read and checked and have no effect.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from kcm import KUBERNETES_VERSION
from kcm.features import RELEASE, parse_feature_gates, parse_release, show, split_feature_gates
from kcm.flags import (
    BOOL,
    DURATION,
    FLOAT,
    FLOAT32,
    INT,
    INT32,
    INT32S,
    IP,
    LEVEL,
    QUANTITY,
    STRING,
    STRING_MAP,
    STRINGS,
    VMODULE,
    Flag,
    FlagType,
    ListType,
)
from kcm.gotext import parse_bool, quote
from kcm.options import (
    DISABLED_BY_DEFAULT,
    IMPLEMENTED_CONTROLLERS,
    KNOWN_CONTROLLERS,
    ForeignOptions,
    NamedCertificate,
    Options,
)

T = TypeVar("T")


def _write_feature_gates(value: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{component}:{setting}" for component, setting in sorted(value, key=lambda pair: pair[0]))


class _VersionType(FlagType[str]):
    """`false`, `true` and `raw` say what to print; `vX.Y.Z…` what release to report, if it is the one that kcm follows."""

    name = "version"
    bare = "true"

    def read(self, text: str) -> str:
        if text == "raw":
            return text
        if not text.startswith("v"):
            return "true" if parse_bool(text) else "false"
        found = re.fullmatch(r"v(\d+\.\d+\.\d+)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", text)
        if found is None:
            raise ValueError(f"could not parse {quote(text)} as version")
        if f"v{found[1]}" != KUBERNETES_VERSION:
            raise ValueError(
                f"version {quote(text)} must match major/minor/patch of default version {quote(KUBERNETES_VERSION)}"
            )
        return text

    def write(self, value: str) -> str:
        return value

    def is_zero(self, value: str) -> bool:
        return value == "false"


def _read_named_certificate(text: str) -> tuple[NamedCertificate, ...]:
    pair, colon, names = (part.strip() for part in text.partition(":"))
    if colon and not names:
        raise ValueError("empty names list is not allowed")
    paths = [path.strip() for path in pair.split(",")]
    if len(paths) != 2:
        raise ValueError("expected comma separated certificate and key file paths")
    return (NamedCertificate(paths[0], paths[1], tuple(name.strip() for name in names.split(",")) if colon else ()),)


def _write_named_certificates(value: tuple[NamedCertificate, ...]) -> str:
    shown = (f"{pair.certificate},{pair.key}{':' if pair.names else ''}{','.join(pair.names)}" for pair in value)
    return f"[{';'.join(shown)}]"


_FEATURE_GATES = ListType("colonSeparatedMultimapStringString", split_feature_gates, _write_feature_gates)
_NAMED_CERTIFICATES = ListType("namedCertKey", _read_named_certificate, _write_named_certificates)
_TYPES: dict[str, FlagType[Any]] = {kind.name: kind for kind in (BOOL, DURATION, FLOAT, FLOAT32, INT, INT32, STRING)}
_STOCK = json.loads(files("kcm").joinpath("stock_flags.json").read_text())
_DEFAULTS = Options()

_CONTROLLERS_HELP = (
    "Controllers to run: '*' stands for all that are on by default, 'foo' switches the controller named 'foo' on, '-foo' "
    "switches it off; the first item that names a controller counts.\n"
    f"Controllers in kcm: {', '.join(IMPLEMENTED_CONTROLLERS)}\n"
    f"Accepted too: {', '.join(name for name in KNOWN_CONTROLLERS if name not in IMPLEMENTED_CONTROLLERS)}\n"
    f"Disabled by default: {', '.join(sorted(DISABLED_BY_DEFAULT))}"
)


class _Own(NamedTuple):
    """A flag and the field of `Options` that it fills, as `section.field` or `field`."""

    target: str
    flag: Flag[Any]


def _flag(target: str, kind: FlagType[T], text: str, *, name: str = "", shorthand: str = "") -> _Own:
    """A flag whose default is that of its field, and whose name is the field's unless given."""
    default = attrgetter(target)(_DEFAULTS)
    name = name or target.rpartition(".")[2].replace("_", "-")
    return _Own(target, Flag(name, kind, default, text, group=_group(name), shorthand=shorthand))


def _group(name: str) -> str:
    group: str = _STOCK["flags"][name]["group"]
    return group


_OWN = (
    _flag("debugging.profiling", BOOL, "Serve a profiler under /debug/pprof/, and PUT /debug/flags/v."),
    _flag("debugging.contention_profiling", BOOL, "Accepted; kcm has no locks to wait for."),
    _flag(
        "leader_migration.enabled",
        BOOL,
        "Run controllers that move between managers under a Lease of their own.",
        name="enable-leader-migration",
    ),
    _flag(
        "leader_migration.config",
        STRING,
        "File with a LeaderMigrationConfiguration, group controllermanager.config.k8s.io; without it the stock one.",
        name="leader-migration-config",
    ),
    _flag(
        "generic.min_resync_period",
        DURATION,
        "Informers go over all of their objects again after a random time between this and twice this.",
    ),
    _flag("generic.kube_api_content_type", STRING, "Accepted; kcm uses the content types that it needs."),
    _flag("generic.kube_api_qps", FLOAT32, "Requests per second of each client to the API server in the long run."),
    _flag("generic.kube_api_burst", INT32, "Requests of each client to the API server at once after a pause."),
    _flag(
        "generic.controller_start_interval",
        DURATION,
        "Each controller starts after a random time between this and twice this.",
    ),
    _flag(
        "generic.controller_shutdown_timeout",
        DURATION,
        "How long to wait for the controllers when the process is told to stop; 0 waits without limit.",
    ),
    _flag("generic.controllers", STRINGS, _CONTROLLERS_HELP),
    _flag(
        "generic.use_service_account_credentials",
        BOOL,
        "Each controller speaks as its own service account in kube-system, with a token asked for it.",
    ),
    _flag("leader_election.leader_elect", BOOL, "Act only while holding the Lease, so that several replicas may run."),
    _flag(
        "leader_election.lease_duration",
        DURATION,
        "How long the other replicas take an unrenewed Lease for held.",
        name="leader-elect-lease-duration",
    ),
    _flag(
        "leader_election.renew_deadline",
        DURATION,
        "How long the leader tries to renew the Lease before it gives up; less than the lease duration.",
        name="leader-elect-renew-deadline",
    ),
    _flag(
        "leader_election.retry_period",
        DURATION,
        "Time between two attempts to take or to renew the Lease.",
        name="leader-elect-retry-period",
    ),
    _flag(
        "leader_election.resource_lock",
        STRING,
        "Kind of object that is the lock; only 'leases'.",
        name="leader-elect-resource-lock",
    ),
    _flag(
        "leader_election.resource_name",
        STRING,
        "Name of the Lease. Beside a stock manager that keeps the default, choose another.",
        name="leader-elect-resource-name",
    ),
    _flag(
        "leader_election.resource_namespace",
        STRING,
        "Namespace of the Lease.",
        name="leader-elect-resource-namespace",
    ),
    _flag("serving.bind_address", IP, "Address to serve HTTPS on; blank, 0.0.0.0 and :: stand for all interfaces."),
    _flag("serving.secure_port", INT, "Port to serve HTTPS on; 0 serves nothing."),
    _flag(
        "serving.cert_dir",
        STRING,
        "Directory of the serving certificate, made there if it is missing; not used with --tls-cert-file.",
    ),
    _flag(
        "serving.tls_cert_file",
        STRING,
        "File with the serving certificate and its chain; without it a self-signed one is made.",
    ),
    _flag("serving.tls_private_key_file", STRING, "File with the private key of --tls-cert-file."),
    _flag(
        "serving.tls_min_version",
        STRING,
        "Lowest TLS version to serve: VersionTLS12 (unless set) or VersionTLS13; older names are taken for VersionTLS12.",
    ),
    _flag("serving.tls_cipher_suites", STRINGS, "Cipher suites to serve with, by their names in Go's crypto/tls."),
    _flag(
        "serving.tls_curve_preferences",
        INT32S,
        "Key exchange groups to serve with, by their numbers in Go's crypto/tls; of several the first that OpenSSL has.",
    ),
    _flag(
        "serving.tls_sni_cert_key",
        _NAMED_CERTIFICATES,
        "Files with a further certificate and its key, and the names it is for: 'cert,key' or 'cert,key:*.foo.com,foo.com'. "
        "May be repeated.",
    ),
    _flag("serving.permit_address_sharing", BOOL, "Bind the port with SO_REUSEADDR."),
    _flag("serving.permit_port_sharing", BOOL, "Bind the port with SO_REUSEPORT, so that other processes may too."),
    _flag(
        "authentication.kubeconfig",
        STRING,
        "File with the API server's address and credentials that may create TokenReviews; without it tokens count for nothing.",
        name="authentication-kubeconfig",
    ),
    _flag(
        "authentication.skip_lookup",
        BOOL,
        "Do not look up in the cluster which authorities client certificates have.",
        name="authentication-skip-lookup",
    ),
    _flag(
        "authentication.tolerate_lookup_failure",
        BOOL,
        "Start even if these authorities cannot be looked up; their certificates then count for nothing.",
        name="authentication-tolerate-lookup-failure",
    ),
    _flag(
        "authentication.token_cache_ttl",
        DURATION,
        "How long an answer about a token is kept.",
        name="authentication-token-webhook-cache-ttl",
    ),
    _flag(
        "authentication.client_ca_file",
        STRING,
        "File with the authorities whose client certificates name users.",
    ),
    _flag(
        "authentication.request_header.client_ca_file",
        STRING,
        "File with the authorities of proxies that say in headers for whom they ask.",
        name="requestheader-client-ca-file",
    ),
    _flag(
        "authentication.request_header.allowed_names",
        STRINGS,
        "Common names that such a proxy's certificate may have; any if empty.",
        name="requestheader-allowed-names",
    ),
    _flag(
        "authentication.request_header.username_headers",
        STRINGS,
        "Headers with the user's name.",
        name="requestheader-username-headers",
    ),
    _flag(
        "authentication.request_header.uid_headers",
        STRINGS,
        "Headers with the user's UID.",
        name="requestheader-uid-headers",
    ),
    _flag(
        "authentication.request_header.group_headers",
        STRINGS,
        "Headers with the user's groups.",
        name="requestheader-group-headers",
    ),
    _flag(
        "authentication.request_header.extra_headers_prefix",
        STRINGS,
        "Beginnings of headers with what else is known of the user.",
        name="requestheader-extra-headers-prefix",
    ),
    _flag(
        "authorization.kubeconfig",
        STRING,
        "File with the API server's address and credentials that may create SubjectAccessReviews; without it only the open "
        "paths can be read.",
        name="authorization-kubeconfig",
    ),
    _flag(
        "authorization.authorized_ttl",
        DURATION,
        "How long a permission is kept.",
        name="authorization-webhook-cache-authorized-ttl",
    ),
    _flag(
        "authorization.unauthorized_ttl",
        DURATION,
        "How long a refusal is kept.",
        name="authorization-webhook-cache-unauthorized-ttl",
    ),
    _flag(
        "authorization.always_allow_paths",
        STRINGS,
        "Paths that everybody may read; '*' at the end stands for all that begin so.",
        name="authorization-always-allow-paths",
    ),
    _flag("metrics.disabled", STRINGS, "Full names of metrics that are not shown.", name="disabled-metrics"),
    _flag(
        "metrics.allow_labels",
        STRING_MAP,
        "Values of labels that are shown, as metric,label='v1,v2'; any other value becomes 'unexpected'.",
        name="allow-metric-labels",
    ),
    _flag(
        "metrics.allow_labels_manifest",
        STRING,
        "YAML file with such a mapping.",
        name="allow-metric-labels-manifest",
    ),
    _flag(
        "metrics.show_hidden_for_version",
        STRING,
        "The minor release before this one, to show what it deprecated; kcm hides nothing.",
        name="show-hidden-metrics-for-version",
    ),
    *(
        flag
        for format in ("json", "text")  # noqa: A001 - the flag's own name
        for flag in (
            _flag(
                f"logging.{format}.split_stream",
                BOOL,
                f"In {format} format, write what is no error to standard output (gate LoggingAlphaOptions).",
                name=f"log-{format}-split-stream",
            ),
            _flag(
                f"logging.{format}.info_buffer_size",
                QUANTITY,
                "Accepted; every line is written at once (gate LoggingAlphaOptions).",
                name=f"log-{format}-info-buffer-size",
            ),
        )
    ),
    _flag("workers.concurrent_deployment_syncs", INT32, "Deployments worked on at once."),
    _flag("workers.concurrent_statefulset_syncs", INT32, "StatefulSets worked on at once."),
    _flag("workers.concurrent_replicaset_syncs", INT32, "ReplicaSets worked on at once."),
    _flag("workers.concurrent_rc_syncs", INT32, "ReplicationControllers worked on at once."),
    _flag(
        "logging.format",
        STRING,
        "Format of the log, which goes to standard error: text or json.",
        name="logging-format",
    ),
    _flag(
        "logging.flush_frequency",
        DURATION,
        "Accepted; every line is written at once.",
        name="log-flush-frequency",
    ),
    _flag(
        "logging.verbosity",
        LEVEL,
        "Verbosity of the log; the higher, the more it tells.",
        name="v",
        shorthand="v",
    ),
    _flag(
        "logging.vmodule",
        VMODULE,
        "Patterns of module names, each with a verbosity for these modules, such as replica_set=4 (text format only).",
    ),
    _flag("master", STRING, "URL of the API server, which wins over the one in the kubeconfig."),
    _flag(
        "kubeconfig",
        STRING,
        "File with the API server's address and the credentials; without it and --master, those of the pod this runs in.",
    ),
)
_TOGETHER = (
    Flag(
        "emulated-version",
        STRINGS,
        (),
        "The Kubernetes release, [kube=]1.34 to 1.37, whose feature gates are acted on.",
        group="Generic",
    ),
    Flag(
        "min-compatibility-version",
        STRINGS,
        (),
        "The oldest release, [kube=]1.34 to the emulated one, that the control plane still has to work with.",
        group="Generic",
    ),
    Flag(
        "feature-gates",
        _FEATURE_GATES,
        (),
        "Feature gates to set, as [kube:]Name=true|false,...; gates of all Kubernetes components are accepted. May be "
        "repeated.",
        group="Generic",
    ),
    Flag(
        "version",
        _VersionType(),
        "false",
        "Prints the Kubernetes release that this follows, or all that there is to tell with --version=raw, and exits; "
        "--version=vX.Y.Z... sets the release that is reported",
        group="Global",
    ),
)
_OWN_NAMES = frozenset(flag.long for flag in (*(own.flag for own in _OWN), *_TOGETHER))


def _foreign(name: str, facts: Mapping[str, Any]) -> Flag[Any]:
    kind = _TYPES[facts["type"]]
    return Flag(
        name,
        kind,
        kind.read(facts["default"]),
        "Accepted without effect.",
        group=facts["group"],
        deprecated="it has no effect" if facts.get("hidden") else "",
    )


_FOREIGN = tuple(_foreign(name, facts) for name, facts in _STOCK["flags"].items() if name not in {*_OWN_NAMES, "help"})
#: All but --help, in the order of the stock manager's help.
FLAGS: tuple[Flag[Any], ...] = tuple(
    sorted(
        (*(own.flag for own in _OWN), *_TOGETHER, *_FOREIGN),
        key=lambda flag: (_STOCK["groups"].index(flag.group), flag.long),
    )
)


def options_from_flags(values: Mapping[str, Any]) -> Options:
    """The tree that the values of `FLAGS` fill, by the flags' Python names.

    Raises:
        ValueError: The feature gates or the releases to emulate are wrong.
    """
    sections: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for target, flag in _OWN:
        section, _, name = target.rpartition(".")
        sections[section][name or target] = values[str(flag.name)]
    # A section of a section is filled before the one that it stands in.
    for section in sorted(sections, key=lambda path: path.count("."), reverse=True):
        if section:
            outer, _, name = section.rpartition(".")
            sections[outer][name] = replace(attrgetter(section)(_DEFAULTS), **sections.pop(section))
    foreign = {flag.long: values[str(flag.name)] for flag in _FOREIGN if values[str(flag.name)] != flag.value}
    gates = parse_feature_gates(
        values["feature_gates"],
        emulated=parse_release(values["emulated_version"]),
        min_compatibility=parse_release(values["min_compatibility_version"]),
    )
    reported = values["version"] if values["version"].startswith("v") else KUBERNETES_VERSION
    return replace(
        _DEFAULTS, **sections[""], foreign=ForeignOptions(values=foreign), feature_gates=gates, version=reported
    )


def flag_values(options: Options) -> dict[str, Any]:
    """The values of `FLAGS` that make these options, by the flags' names: the inverse of `options_from_flags`."""
    values = {flag.long: options.foreign.values.get(flag.long, flag.value) for flag in _FOREIGN}
    values |= {flag.long: attrgetter(target)(options) for target, flag in _OWN}
    gates = options.feature_gates
    values["emulated-version"] = () if gates.emulated == RELEASE else (show(gates.emulated),)
    values["min-compatibility-version"] = () if gates.min_compatibility is None else (show(gates.min_compatibility),)
    values["feature-gates"] = tuple(("", f"{name}={'true' if on else 'false'}") for name, on in gates.settings.items())
    values["version"] = "false" if options.version == KUBERNETES_VERSION else options.version
    return values


def flag_texts(options: Options) -> dict[str, str]:
    """The same as texts, as they are logged, with --help."""
    values = flag_values(options)
    return {"help": "false"} | {flag.long: flag.value_type.write(values[flag.long]) for flag in FLAGS}
