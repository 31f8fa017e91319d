"""Where the API server is and what to show it. Follows client-go tools/clientcmd/{client_config,loader,validation}.go.

The rules are the stock manager's: --kubeconfig names one file, --master replaces the server in it, and with neither of them
the pod's service account is used. $KUBECONFIG and ~/.kube/config are not read.

What is broken is found here, before anything is started, with one difference from the reference: a context that names a user
who is not in the file, and impersonation, are errors here. The reference goes on without a user in the first case; kcm cannot
impersonate, and must not act as the more powerful user instead.

Nothing is sent; the files that hold certificates, keys and tokens are only opened. `kcm.api.credentials` reads them, again and
again.
"""

import base64
import binascii
import ipaddress
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec
import yaml

from kcm.api.errors import ConfigError
from kcm.api.transport import Endpoint
from kcm.logs import get_logger

log = get_logger(__name__)

#: Where a pod finds its service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Versions of the exec plugins' protocol; the older one need not say whether it is interactive.
EXEC_V1 = "client.authentication.k8s.io/v1"
EXEC_V1BETA1 = "client.authentication.k8s.io/v1beta1"

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class EnvVar(msgspec.Struct, frozen=True):
    """A variable of a plugin's environment."""

    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A command that prints credentials (clientcmd api/v1 ExecConfig)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """One server and one identity; empty strings and bytes mean that there is none. Its repr shows no secret."""

    #: URL, always with a scheme and without a slash at its end.
    server: str
    #: Where this comes from, for messages.
    source: str
    #: Name to expect in the server's certificate instead of its host.
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    #: PEM; goes before `ca_file`. Without either the system's authorities count.
    ca_data: bytes = field(default=b"", repr=False)
    ca_file: str = ""
    client_certificate_data: bytes = field(default=b"", repr=False)
    client_certificate_file: str = ""
    client_key_data: bytes = field(default=b"", repr=False)
    client_key_file: str = ""
    #: Used as long as `token_file` has not been read.
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    exec: ExecConfig | None = field(default=None, repr=False)
    #: What the cluster's entry tells an exec plugin, as JSON types.
    exec_extension: object = field(default=None, repr=False)
    proxy_url: str = field(default="", repr=False)

    @property
    def secure(self) -> bool:
        """Whether the server speaks TLS. If not, credentials are not sent (rest IsConfigTransportTLS)."""
        return self.server.startswith("https:")

    def anonymous(self) -> "ClientConfig":
        """The same server for nobody in particular (rest AnonymousClientConfig)."""
        return replace(
            self,
            client_certificate_data=b"",
            client_certificate_file="",
            client_key_data=b"",
            client_key_file="",
            token="",
            token_file="",
            username="",
            password="",
            exec=None,
            exec_extension=None,
        )

    def endpoint(self) -> Endpoint:
        """Where a transport has to connect."""
        return Endpoint(
            server=self.server,
            tls_server_name=self.tls_server_name or None if self.secure else None,
            proxy=self.proxy_url or None,
        )


def load_config(
    *,
    kubeconfig: str,
    master: str,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find the configuration that the flags ask for (clientcmd BuildConfigFromFlags).

    Args:
        kubeconfig: Value of --kubeconfig; empty when it was not given.
        master: Value of --master; empty when it was not given.
        environ: The environment, for the in-cluster address and proxies.
        service_account: Folder of the in-cluster token and CA.

    Raises:
        ConfigError: nothing was found, or what was found cannot be used.
    """
    if kubeconfig:
        return _from_kubeconfig(kubeconfig, master, environ)
    if master:
        server = _server_url(master, "--master")
        return ClientConfig(server=server, source="--master", proxy_url=_environment_proxy(server, environ))
    return _in_cluster(environ, service_account)


def _in_cluster(environ: Mapping[str, str], service_account: Path) -> ClientConfig:
    """Use the pod's service account (rest InClusterConfig)."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        _nothing_found("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is not a pod")
    token_file, ca_file = service_account / "token", service_account / "ca.crt"
    try:
        token_file.read_bytes()
    except OSError as error:
        _nothing_found(_reason(error))
    source = "in-cluster service account"
    server = _server_url(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", source)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
        ca = str(ca_file)
    except OSError as error:
        log.error("The in-cluster CA cannot be used, only the system's are trusted", err=error, path=str(ca_file))
        ca = ""
    return ClientConfig(
        server=server,
        source=source,
        ca_file=ca,
        token_file=str(token_file),
        proxy_url=_environment_proxy(server, environ),
    )


def _nothing_found(reason: str) -> NoReturn:
    raise ConfigError(
        "invalid configuration: no configuration has been provided: neither --kubeconfig nor --master was given, and the "
        f"in-cluster service account cannot be used: {reason}; run with --kubeconfig=FILE ($KUBECONFIG is not read)"
    )


class _NamedExtension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: object = None


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[_NamedExtension, ...] = ()


class _AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    username: str = ""
    password: str = ""
    auth_provider: _AuthProvider | None = None
    exec: ExecConfig | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: _Cluster = _Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: _Context = _Context()


class _Kubeconfig(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = "v1"
    kind: str = "Config"
    current_context: str = msgspec.field(default="", name="current-context")
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


def _from_kubeconfig(path: str, master: str, environ: Mapping[str, str]) -> ClientConfig:
    """Use the current context of a file."""
    file = _read_kubeconfig(path)
    clusters = _by_name(path, "cluster", ((entry.name, entry.cluster) for entry in file.clusters))
    users = _by_name(path, "user", ((entry.name, entry.user) for entry in file.users))
    contexts = _by_name(path, "context", ((entry.name, entry.context) for entry in file.contexts))
    context, cluster, user = _Context(), _Cluster(), _User()
    if file.current_context:
        context = _pick(path, "context", file.current_context, contexts)
    elif not master:
        _invalid(path, f"current-context is not set ({_known('context', contexts)})")
    if context.user:
        user = _pick(path, "user", context.user, users)
    if context.cluster in clusters or not master:
        cluster = _pick(path, "cluster", context.cluster, clusters)
    if not cluster.server and not master:
        _invalid(path, f'cluster "{context.cluster}" has no server')

    section = _Section(path)
    origin = f"invalid configuration: {path}"
    server = _server_url(master, "--master") if master else _server_url(cluster.server, f"{origin}: server")
    proxy = _proxy_url(cluster.proxy_url, f"{origin}: proxy-url") if cluster.proxy_url else ""
    config = ClientConfig(
        server=server,
        source=f"{path} and --master" if master else path,
        # A server given on the command line has another name than the file's.
        tls_server_name="" if master else cluster.tls_server_name,
        insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
        ca_data=section.data("certificate-authority-data", cluster.certificate_authority_data),
        ca_file=section.file("certificate-authority", cluster.certificate_authority),
        client_certificate_data=section.data("client-certificate-data", user.client_certificate_data),
        client_certificate_file=section.file("client-certificate", user.client_certificate),
        client_key_data=section.data("client-key-data", user.client_key_data),
        client_key_file=section.file("client-key", user.client_key),
        token=user.token,
        token_file=section.file("tokenFile", user.token_file),
        username=user.username,
        password=user.password,
        exec=section.plugin(user.exec),
        exec_extension=next((entry.extension for entry in cluster.extensions if entry.name == _EXEC_EXTENSION), None),
        proxy_url=proxy or _environment_proxy(server, environ),
    )
    if problem := _contradiction(config) or _unsupported(user):
        _invalid(path, f'{problem} (cluster "{context.cluster}", user "{context.user}")')
    return config


def _contradiction(config: ClientConfig) -> str | None:
    """What must not stand together, or one without the other."""
    if config.ca_data and config.ca_file:
        return "certificate-authority-data and certificate-authority are both given"
    if config.secure and config.insecure_skip_tls_verify and (config.ca_data or config.ca_file):
        return "a certificate authority together with insecure-skip-tls-verify is not allowed"
    if config.client_certificate_data or config.client_certificate_file:
        if config.client_certificate_data and config.client_certificate_file:
            return "client-certificate-data and client-certificate are both given"
        if config.client_key_data and config.client_key_file:
            return "client-key-data and client-key are both given"
        if not config.client_key_data and not config.client_key_file:
            return "the client certificate needs client-key-data or client-key"
    if (config.token or config.token_file) and (config.username or config.password):
        return "a token together with username and password is not allowed"
    return None


def _unsupported(user: _User) -> str | None:
    if user.auth_provider is not None:
        return f'auth-provider "{user.auth_provider.name}" is not supported, use an exec plugin'
    if user.impersonate or user.as_uid or user.as_groups or user.as_user_extra:
        return "impersonation (as, as-uid, as-groups, as-user-extra) is not supported"
    return None


class _Section:
    """Makes the fields of one file usable, or says which of them is not."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = Path(path).absolute().parent

    def file(self, name: str, value: str) -> str:
        """Resolve a path against the folder of the file that names it, and see that it can be opened."""
        if not value:
            return ""
        resolved = self._resolve(value)
        try:
            with Path(resolved).open("rb") as opened:
                opened.read(1)
        except OSError as error:
            _invalid(self._path, f"unable to read {name}: {_reason(error)}", cause=error)
        return resolved

    def data(self, name: str, value: str) -> bytes:
        try:
            # Line breaks are ignored, as by Go's decoder.
            return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
        except (binascii.Error, ValueError) as error:
            _invalid(self._path, f"{name} is not base64: {error}", cause=error)

    def plugin(self, plugin: ExecConfig | None) -> ExecConfig | None:
        if plugin is None:
            return None
        if not plugin.command:
            _invalid(self._path, "exec needs a command")
        if plugin.api_version not in {EXEC_V1, EXEC_V1BETA1}:
            _invalid(self._path, f'exec apiVersion must be {EXEC_V1} or {EXEC_V1BETA1}, not "{plugin.api_version}"')
        if any(not variable.name for variable in plugin.env):
            _invalid(self._path, "exec env has a variable without a name")
        mode = plugin.interactive_mode or ("IfAvailable" if plugin.api_version == EXEC_V1BETA1 else "")
        if mode not in {"Never", "IfAvailable", "Always"}:
            _invalid(self._path, f'exec interactiveMode must be Never, IfAvailable or Always, not "{mode}"')
        # A bare name is looked up in $PATH when it runs.
        command = self._resolve(plugin.command) if "/" in plugin.command else plugin.command
        return msgspec.structs.replace(plugin, command=command, interactive_mode=mode)

    def _resolve(self, value: str) -> str:
        return os.path.normpath(self._folder / value)


def _read_kubeconfig(path: str) -> _Kubeconfig:
    try:
        Path(path).stat()
    except FileNotFoundError as error:
        raise ConfigError(f"stat {path}: no such file or directory") from error
    except OSError:
        pass  # reading it says more
    try:
        raw = yaml.safe_load(Path(path).read_bytes())
        file = msgspec.convert({} if raw is None else _without_nulls(raw), _Kubeconfig)
    except (OSError, yaml.YAMLError, msgspec.ValidationError, RecursionError, ValueError) as error:
        raise ConfigError(f'error loading config file "{path}": {_reason(error)}') from error
    if (file.api_version, file.kind) != ("v1", "Config"):
        raise ConfigError(
            f'error loading config file "{path}": it is of kind "{file.kind}" in version "{file.api_version}", '
            "not a Config in version v1"
        )
    return file


def _without_nulls(value: object) -> object:
    """Drop null fields, which mean the same as absent ones, except in what is passed on to plugins."""
    if isinstance(value, dict):
        return {
            key: item if key == "extension" else _without_nulls(item) for key, item in value.items() if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


V = TypeVar("V")


def _by_name(path: str, kind: str, entries: Iterable[tuple[str, V]]) -> dict[str, V]:
    found: dict[str, V] = {}
    for name, entry in entries:
        if name in found:
            raise ConfigError(f'error loading config file "{path}": there are two {kind}s "{name}"')
        found[name] = entry
    return found


def _pick(path: str, kind: str, name: str, entries: Mapping[str, V]) -> V:
    if name not in entries:
        _invalid(path, f'there is no {kind} "{name}" ({_known(kind, entries)})')
    return entries[name]


def _known(kind: str, entries: Mapping[str, object]) -> str:
    return f"{kind}s: {', '.join(entries)}" if entries else f"it has no {kind}s"


def _invalid(path: str, problem: str, *, cause: Exception | None = None) -> NoReturn:
    raise ConfigError(f"invalid configuration: {path}: {problem}") from cause


def _reason(error: Exception) -> str:
    """Say what was wrong in one line, without the contents of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{(error.strerror or str(error)).lower()}"
    return " ".join(str(error).split())


def _server_url(text: str, origin: str) -> str:
    """Make an address a URL; without a scheme it is plain HTTP, as in the reference (rest DefaultServerURL)."""
    url = _split(text)
    if url is None:
        url = _split(f"http://{text}")
        if url is not None and url.path not in {"", "/"}:
            url = None
    if url is None or url.scheme not in {"http", "https"} or url.username is not None:
        shown = text.rpartition("@")[2]
        raise ConfigError(f'{origin}: "{shown}" must be an http or https URL without a user, or host:port')
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def _proxy_url(text: str, origin: str) -> str:
    url = _split(text)
    if url is None or url.scheme not in {"http", "https"}:
        shown = text.rpartition("@")[2]
        raise ConfigError(f'{origin}: "{shown}" must be an http or https URL; other proxies are not supported')
    return text


def _split(text: str) -> SplitResult | None:
    """Split a URL; None if it is none, or has no host."""
    try:
        url = urlsplit(text)
        usable = bool(url.scheme and url.hostname) and url.port != 0
    except ValueError:
        return None
    return url if usable else None


def _environment_proxy(server: str, environ: Mapping[str, str]) -> str:
    """Choose the proxy that the environment names for a server (x/net http/httpproxy, which net/http uses)."""

    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.lower()) or ""

    url = urlsplit(server)
    name = f"{url.scheme.upper()}_PROXY"
    proxy = variable(name)
    port = url.port or (443 if url.scheme == "https" else 80)
    if not proxy or _bypasses_proxy(url.hostname or "", port, variable("NO_PROXY")):
        return ""
    return _proxy_url(proxy if "://" in proxy else f"http://{proxy}", name)


def _bypasses_proxy(host: str, port: int, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for rule in (part.strip() for part in no_proxy.lower().split(",")):
        if rule == "*":
            return True
        if "/" in rule:
            if address is not None and _in_network(address, rule):
                return True
            continue
        name, rule_port = rule, ""
        if rule.count(":") == 1 or "]:" in rule:
            name, _, rule_port = rule.rpartition(":")
        name = name.strip("[]").removeprefix("*")
        if not name or rule_port not in {"", str(port)}:
            continue
        if address is not None:
            if address == _address(name):
                return True
        elif host == name or host.endswith(name if name.startswith(".") else f".{name}"):
            return True
    return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
