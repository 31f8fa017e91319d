"""Who kcm is to the API server, kept up to date while it runs.

Follows client-go transport/{round_trippers,token_source,cert_rotation,ca_rotation}.go and plugin/pkg/client/auth/exec/exec.go.

Guarantees:
- A token file is read again once a minute and after a 401; CA, certificate and key files are looked at once a minute and after
  a 401. What cannot be read then is logged, and the last good state stays in use.
- A new certificate or CA means a new TLS context, so that the next connection is a new one. Open connections live on.
- An exec plugin runs once at a time, whoever waits for it, and again before its credentials expire and after a 401. While there
  are no credentials, its failure is the failure of the request: nothing is ever sent without them.
- A key that is not in a file never gets a name on a disk where there are anonymous files (Linux).
- Nothing secret is sent to a server without TLS.

Not guaranteed: that a rotation is seen within less than a minute.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import msgspec

from kcm.api.config import ClientConfig, ExecConfig
from kcm.api.errors import ConfigError, TransportError
from kcm.clock import REAL, Clock
from kcm.logs import get_logger

log = get_logger(__name__)

#: Seconds after which files are looked at again.
RELOAD_PERIOD = 60.0
#: Seconds that an exec plugin may take.
PLUGIN_TIMEOUT = 60.0
#: A plugin runs again this long before its credentials expire, or when a tenth of their life is left if that is later.
PLUGIN_LEEWAY = timedelta(seconds=60)
#: A plugin that failed to replace good credentials early runs again after this time, and new credentials count as good for as
#: long: a clock that is ahead must not make the plugin run for each request.
PLUGIN_RETRY = timedelta(seconds=10)

_NEVER = datetime.max.replace(tzinfo=UTC)
_PLUGIN_PAIR = "the plugin's clientCertificateData and clientKeyData"


class KeyPair(NamedTuple):
    """A client certificate, with its chain, and its key; both PEM."""

    certificate: bytes
    key: bytes


class ConfigCredentials:
    """What a configuration says about identity, as `kcm.api.transport.Credentials`. For one event loop.

    Raises:
        ConfigError: a certificate, key or token cannot be used.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock = REAL) -> None:
        self._tls = _TLS(config, clock) if config.secure else None
        self._header: str | None = None
        self._token_file: _TokenFile | None = None
        self._plugin: _Plugin | None = None
        if not config.secure:
            return
        if config.token_file:
            self._token_file = _TokenFile(config, clock)
        elif config.token:
            self._header = _bearer(config.token, config.source)
        elif config.username:
            pair = f"{config.username}:{config.password}".encode()
            self._header = f"Basic {base64.b64encode(pair).decode()}"
        elif config.exec is not None and not config.client_certificate_data and not config.client_certificate_file:
            self._plugin = _Plugin(config, config.exec, clock)

    async def authorization(self) -> str | None:
        """The Authorization header to send now.

        Raises:
            TransportError: the exec plugin failed.
        """
        if self._plugin is not None:
            return (await self._plugin.credential()).header
        if self._token_file is not None:
            return self._token_file.header()
        return self._header

    async def tls(self) -> ssl.SSLContext | None:
        """The context for new connections; the same one as long as nothing changed. None for a server without TLS.

        Raises:
            TransportError: the exec plugin failed, or the CA cannot be read to go with its new certificate.
        """
        if self._tls is None:
            return None
        if self._plugin is None:
            return self._tls.context(None)
        try:
            return self._tls.context((await self._plugin.credential()).pair)
        except ConfigError as error:
            raise TransportError(f"getting credentials: {error}") from error

    async def rejected(self, authorization: str | None) -> None:
        """Look at everything again before the next request, unless the header was an old one anyway."""
        if self._tls is not None:
            self._tls.expire()
        if self._token_file is not None:
            self._token_file.expire()
        if self._plugin is not None:
            self._plugin.reject(authorization)

    async def close(self) -> None:
        """Stop a plugin that is running. Close the transport first."""
        if self._plugin is not None:
            await self._plugin.close()


class _TokenFile:
    """A bearer token that somebody else renews in a file (NewCachedFileTokenSource)."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._path = config.token_file
        self._clock = clock
        try:
            self._header = self._read()
        except ConfigError:
            if not config.token:
                raise
            self._header = _bearer(config.token, config.source)
        self._read_again = clock.monotonic() + RELOAD_PERIOD

    def header(self) -> str:
        if self._clock.monotonic() >= self._read_again:
            self._read_again = self._clock.monotonic() + RELOAD_PERIOD
            try:
                self._header = self._read()
            except ConfigError as error:
                log.error("Unable to rotate token", err=error)
        return self._header

    def expire(self) -> None:
        self._read_again = self._clock.monotonic()

    def _read(self) -> str:
        origin = f"token file {self._path}"
        return _bearer(_read_file(self._path, origin).decode(errors="replace"), origin)


class _TLS:
    """Makes TLS contexts, and new ones when the files that they were made from have changed."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        files = (
            "" if config.ca_data else config.ca_file,
            "" if config.client_certificate_data else config.client_certificate_file,
            "" if config.client_key_data else config.client_key_file,
        )
        self._files = [Path(file) for file in files if file]
        self._pair: KeyPair | None = None
        self._stamps = self._look()
        self._look_again = clock.monotonic() + RELOAD_PERIOD
        self._context = self._make(None)

    def context(self, pair: KeyPair | None) -> ssl.SSLContext:
        """The context to use now, with a plugin's certificate if it gave one.

        Raises:
            ConfigError: there is no context for a new one.
        """
        if pair != self._pair:
            self._context, self._pair = self._make(pair), pair
        elif self._files and self._clock.monotonic() >= self._look_again:
            self._look_again = self._clock.monotonic() + RELOAD_PERIOD
            self._reload()
        return self._context

    def expire(self) -> None:
        self._look_again = self._clock.monotonic()

    def _reload(self) -> None:
        # Before reading: a change in between is seen the next time.
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            self._context = self._make(self._pair)
        except ConfigError as error:
            # Perhaps half written. The stamps stay old, so the next look tries again.
            log.error("Reloading TLS files failed, the previous ones stay in use", err=error)
            return
        self._stamps = stamps
        log.info("Reloaded TLS files", v=1, files=", ".join(map(str, self._files)))

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [stamp(file) for file in self._files]

    def _make(self, pair: KeyPair | None) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # As crypto/x509: what is trusted need not be a root, and only a subject alternative name is a name.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.hostname_checks_common_name = False
        if config.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif config.ca_data or config.ca_file:
            origin, pem = _material(config, "certificate-authority", config.ca_data, config.ca_file)
            try:
                context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(f"unable to load {origin}: {error}") from error
        else:
            context.load_default_certs()
        if pair is not None:
            _load_pair(context, pair, _PLUGIN_PAIR)
        elif config.client_certificate_data or config.client_certificate_file:
            certificate_origin, certificate = _material(
                config, "client-certificate", config.client_certificate_data, config.client_certificate_file
            )
            key_origin, key = _material(config, "client-key", config.client_key_data, config.client_key_file)
            _load_pair(context, KeyPair(certificate, key), f"{certificate_origin} with {key_origin}")
        return context


class _Cluster(msgspec.Struct, kw_only=True, rename="kebab", omit_defaults=True):
    server: str
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    disable_compression: bool
    config: object


class _Spec(msgspec.Struct, omit_defaults=True):
    interactive: bool
    cluster: _Cluster | None = None


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


@dataclass(frozen=True, kw_only=True)
class _Credential:
    header: str | None
    pair: KeyPair | None
    expires: datetime


class _Plugin:
    """A command that prints credentials. One task runs it, for all who wait, whether or not they go on waiting."""

    def __init__(self, config: ClientConfig, plugin: ExecConfig, clock: Clock) -> None:
        self._config = config
        self._plugin = plugin
        self._clock = clock
        self._credential: _Credential | None = None
        self._refresh_at = _NEVER
        self._run: asyncio.Task[_Credential] | None = None

    async def credential(self) -> _Credential:
        """The plugin's credentials; close to their end the plugin runs beside, after it everybody waits for it."""
        current, now = self._credential, self._clock.now()
        if current is not None and now < self._refresh_at:
            return current
        if self._run is None:
            self._run = asyncio.create_task(self._refresh(), name="credential plugin")
            self._run.add_done_callback(self._finished)
        if current is not None and now < current.expires:
            return current
        return await asyncio.shield(self._run)

    def reject(self, header: str | None) -> None:
        if self._credential is not None and self._credential.header == header:
            self._credential = None

    async def close(self) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])

    def _finished(self, run: asyncio.Task[_Credential]) -> None:
        self._run = None
        if run.cancelled() or (error := run.exception()) is None:
            return
        if self._credential is not None:  # else it is the error of a request
            log.error("Refreshing credentials failed", err=error, command=self._plugin.command)

    async def _refresh(self) -> _Credential:
        self._refresh_at = self._clock.now() + PLUGIN_RETRY
        output = await self._output()
        now = self._clock.now()
        credential = self._parse(output, now)
        self._refresh_at = credential.expires - min(PLUGIN_LEEWAY, (credential.expires - now) / 10)
        self._credential = credential
        return credential

    async def _output(self) -> bytes:
        """Run the command and return what it printed."""
        plugin = self._plugin
        path = shutil.which(plugin.command)
        if path is None:
            hint = " ".join("".join(c if c.isprintable() else " " for c in plugin.install_hint).split())
            self._fail(f"executable {plugin.command} not found{f' ({hint})' if hint else ''}")
        interactive = plugin.interactive_mode != "Never" and os.isatty(0)
        if plugin.interactive_mode == "Always" and not interactive:
            self._fail(f"{plugin.command} must be interactive, but standard input is not a terminal")
        environ = {**os.environ, **{variable.name: variable.value for variable in plugin.env}}
        environ["KUBERNETES_EXEC_INFO"] = self._exec_info(interactive=interactive)
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *plugin.args,
                env=environ,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # A group of its own can be killed whole; at a terminal it must stay in the foreground's.
                start_new_session=not interactive,
            )
        except (OSError, ValueError) as error:
            self._fail(f"executable {plugin.command} cannot be started: {error}", cause=error)
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                output, _ = await process.communicate()
        except (TimeoutError, asyncio.CancelledError) as error:
            await _stop(process, group=not interactive)
            if isinstance(error, asyncio.CancelledError):
                raise
            self._fail(f"executable {plugin.command} did not finish within {PLUGIN_TIMEOUT:g} s")
        if process.returncode != 0:
            self._fail(f"executable {plugin.command} failed with exit code {process.returncode}")
        return output

    def _exec_info(self, *, interactive: bool) -> str:
        config = self._config
        cluster: _Cluster | None = None
        if self._plugin.provide_cluster_info:
            cluster = _Cluster(
                server=config.server,
                tls_server_name=config.tls_server_name,
                insecure_skip_tls_verify=config.insecure_skip_tls_verify,
                certificate_authority_data=self._ca(),
                proxy_url=config.proxy_url,
                disable_compression=True,
                config=config.exec_extension,
            )
        info = {
            "apiVersion": self._plugin.api_version,
            "kind": "ExecCredential",
            "spec": _Spec(interactive=interactive, cluster=cluster),
        }
        return msgspec.json.encode(info).decode()

    def _ca(self) -> bytes:
        config = self._config
        if not config.ca_data and not config.ca_file:
            return b""
        try:
            return _material(config, "certificate-authority", config.ca_data, config.ca_file)[1]
        except ConfigError as error:
            self._fail(str(error), cause=error)

    def _parse(self, output: bytes, now: datetime) -> _Credential:
        command = self._plugin.command
        try:
            printed = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._fail(f"{command} printed no ExecCredential: {error}", cause=error)
        if (printed.kind, printed.api_version) != ("ExecCredential", self._plugin.api_version):
            self._fail(
                f'{command} printed kind "{printed.kind}" in version "{printed.api_version}" instead of an '
                f"ExecCredential in version {self._plugin.api_version}"
            )
        status = printed.status
        if status is None:
            self._fail(f"{command} printed no status")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            self._fail(f"{command} printed only a certificate or a key, not both")
        if not status.token and not status.client_certificate_data:
            self._fail(f"{command} printed neither a token nor a certificate and key")
        pair = None
        try:
            header = _bearer(status.token, "the plugin's token") if status.token else None
            if status.client_certificate_data:
                pair = KeyPair(status.client_certificate_data.encode(), status.client_key_data.encode())
                # Credentials that only fail later would be kept until they expire.
                _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair, _PLUGIN_PAIR)
        except ConfigError as error:
            self._fail(str(error), cause=error)
        return _Credential(
            header=header, pair=pair, expires=max(status.expiration_timestamp or _NEVER, now + PLUGIN_RETRY)
        )

    def _fail(self, problem: str, *, cause: Exception | None = None) -> NoReturn:
        raise TransportError(f"getting credentials: exec: {problem}") from cause


async def _stop(process: asyncio.subprocess.Process, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # Reads to the end as well, which closes the pipe; whoever left the group may still hold it.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.communicate(), 1)


def _bearer(token: str, origin: str) -> str:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{origin}: {'is empty' if not token else 'is not a token of printable ASCII'}")
    return f"Bearer {token}"


def _material(config: ClientConfig, name: str, data: bytes, file: str) -> tuple[str, bytes]:
    """What a field says, from the data or else the file, and how to call it in a message."""
    if data:
        return f"{name}-data of {config.source}", data
    return f"{name} {file}", _read_file(file, name)


def _read_file(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"unable to read {name}: {error.strerror}: {path}") from error


def stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None while it cannot be looked at."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load_pair(context: ssl.SSLContext, pair: KeyPair, origin: str) -> None:
    def no_passphrase() -> NoReturn:
        raise ConfigError(f"unable to load {origin}: the key is encrypted")

    try:
        with path_to(_without_issuer(pair.certificate)) as certificate, path_to(pair.key) as key:
            context.load_cert_chain(certificate, key, password=no_passphrase)
    except OSError as error:
        raise ConfigError(f"unable to load {origin}: not a PEM certificate and its key: {error}") from error


def _without_issuer(pem: bytes) -> bytes:
    """The certificates to load so that OpenSSL sends them alone.

    A single certificate is sent with its issuer where the trusted CAs have it, as `SSL_MODE_NO_AUTO_CHAIN` is out of Python's
    reach. The API server, which verifies what was sent for each request and against two CAs, then spends a tenth of its time
    on signatures, so give OpenSSL a chain that is no issuer of anything: the certificate again.
    """
    return pem + b"\n" + pem if pem.count(b"-----BEGIN ") == 1 else pem


@contextlib.contextmanager
def path_to(data: bytes) -> Iterator[str]:
    """Give data a path, which OpenSSL insists on, for a moment: in memory, or else in a file that only we can read."""
    try:
        descriptor = os.memfd_create("kcm", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    with os.fdopen(descriptor, "wb") as anonymous:
        anonymous.write(data)
        anonymous.flush()
        yield f"/proc/self/fd/{descriptor}"
