"""Who kcm is: tokens, certificates and plugins, and how they change while it runs. TLS here is real, on loopback."""

import asyncio
import base64
import json
import os
import ssl
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kcm.api import credentials as module
from kcm.api.config import EXEC_V1, EXEC_V1BETA1, ClientConfig, EnvVar, ExecConfig
from kcm.api.credentials import RELOAD_PERIOD, ConfigCredentials
from kcm.api.errors import ConfigError, TransportError
from kcm.api.transport import Answer, Transport
from kcm.logs import capture


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def at(self, seconds: float) -> str:
        """RFC 3339 of a moment that is so many seconds away."""
        return (self.now() + timedelta(seconds=seconds)).isoformat()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Authority:
    """A certificate and key, PEM, that can sign others."""

    def __init__(
        self, name: str, *, issuer: "Authority | None" = None, sans: tuple[str, ...] = (), ca: bool = True
    ) -> None:
        self._key: ec.EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        self._subject: x509.Name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self._subject)
            .issuer_name(issuer._subject if issuer else self._subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            names = [_general_name(san) for san in sans]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(issuer._key if issuer else self._key, hashes.SHA256())
        self.cert: bytes = certificate.public_bytes(serialization.Encoding.PEM)
        self.key: bytes = self.encoded(serialization.NoEncryption())

    def encoded(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        return self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

    def issue(self, name: str, *sans: str) -> "Authority":
        return Authority(name, issuer=self, sans=sans, ca=False)


def _general_name(san: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(san)) if san[0].isdigit() else x509.DNSName(san)


CA = Authority("authority")
SERVER = CA.issue("server", "127.0.0.1")
ALICE, BOB = CA.issue("alice"), CA.issue("bob")


class Server:
    """Answers with the Authorization header and the client certificate's name that it saw."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.load_verify_locations(cadata=CA.cert.decode())
        self.identify(SERVER)
        self.url = ""
        self.seen: list[str | None] = []
        self.refused: set[str | None] = set()
        self.chain: list[str] = []

    def identify(self, identity: Authority) -> None:
        """Show this certificate in handshakes from now on."""
        pem = self._folder / "server.pem"
        pem.write_bytes(identity.cert + identity.key)
        self.tls.load_cert_chain(pem)

    async def handle(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization")
        self.seen.append(authorization)
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        if peer:  # what the client sent has a public name from Python 3.13
            sent = request.transport.get_extra_info("ssl_object")._sslobj.get_unverified_chain()
            self.chain = [certificate.public_bytes() for certificate in sent]
        names = [value for rdn in peer.get("subject", ()) for key, value in rdn if key == "commonName"]
        refused = authorization in self.refused
        return web.json_response([authorization, *names], status=401 if refused else 200)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    app = web.Application()
    app.router.add_get("/", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.tls).start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def config(server: Server) -> ClientConfig:
    """An anonymous client of the server, which trusts its authority."""
    return ClientConfig(server=server.url, source="test", ca_data=CA.cert)


@asynccontextmanager
async def connect(config: ClientConfig, credentials: ConfigCredentials | None = None) -> AsyncIterator[Transport]:
    credentials = credentials or ConfigCredentials(config)
    try:
        async with Transport(config.endpoint(), credentials) as transport:
            yield transport
    finally:
        await credentials.close()


async def ask(transport: Transport) -> Answer:
    return await transport.send("GET", "/", params=None, headers={}, body=None, timeout=20, fence=None)


async def seen(transport: Transport) -> list[str | None]:
    """What the server saw: the header, and the name in the client's certificate if it had one."""
    return msgspec.json.decode((await ask(transport)).body, type=list[str | None])


BASIC = "Basic " + base64.b64encode(b"me:p:w").decode()


@pytest.mark.parametrize(
    ("identity", "header"),
    [({}, None), ({"token": "abc\n"}, "Bearer abc"), ({"username": "me", "password": "p:w"}, BASIC)],
)
async def test_a_fixed_identity_is_sent_over_tls(
    config: ClientConfig, identity: dict[str, str], header: str | None
) -> None:
    async with connect(replace(config, **identity)) as transport:  # type: ignore[arg-type] # names of str fields
        assert await seen(transport) == [header]


async def test_nothing_secret_is_sent_without_tls() -> None:
    config = ClientConfig(server="http://127.0.0.1:1", source="test", token="secret", token_file="/nonexistent")
    credentials = ConfigCredentials(config)
    assert await credentials.authorization() is None
    assert await credentials.tls() is None


async def test_a_token_file_is_read_again_after_a_minute_or_a_401(
    server: Server, config: ClientConfig, tmp_path: Path, clock: FakeClock
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    config = replace(config, token_file=str(token), token="older")
    async with connect(config, ConfigCredentials(config, clock=clock)) as transport:
        assert await seen(transport) == ["Bearer one"]
        token.write_text("two")
        clock.seconds += RELOAD_PERIOD - 1
        assert await seen(transport) == ["Bearer one"]
        clock.seconds += 1
        assert await seen(transport) == ["Bearer two"]

        token.write_text("three")
        server.refused = {"Bearer two"}
        assert (await ask(transport)).status == 401
        assert await seen(transport) == ["Bearer three"]


@pytest.mark.parametrize("content", [None, b"", b" \n", b"a b\x00", "é".encode()])
async def test_a_token_file_that_goes_bad_keeps_the_last_token(
    tmp_path: Path, clock: FakeClock, content: bytes | None
) -> None:
    token = tmp_path / "token"
    token.write_text("good")
    credentials = ConfigCredentials(ClientConfig(server="https://x", source="test", token_file=str(token)), clock=clock)
    token.unlink()
    if content is not None:
        token.write_bytes(content)
    clock.seconds += RELOAD_PERIOD
    with capture() as records:
        assert await credentials.authorization() == "Bearer good"
        assert await credentials.authorization() == "Bearer good"
    assert [record.message for record in records] == ["Unable to rotate token"]
    token.write_text("better")
    clock.seconds += RELOAD_PERIOD
    assert await credentials.authorization() == "Bearer better"


async def test_until_the_token_file_is_there_the_token_serves(tmp_path: Path, clock: FakeClock) -> None:
    token = tmp_path / "token"
    config = ClientConfig(server="https://x", source="test", token_file=str(token))
    with pytest.raises(ConfigError, match=f"token file {token}: No such file"):
        ConfigCredentials(config)
    credentials = ConfigCredentials(replace(config, token="spare"), clock=clock)
    assert await credentials.authorization() == "Bearer spare"
    token.write_text("found")
    clock.seconds += RELOAD_PERIOD
    assert await credentials.authorization() == "Bearer found"


async def test_a_ca_file_is_loaded_again_and_new_connections_trust_it(
    server: Server, config: ClientConfig, tmp_path: Path, clock: FakeClock
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(CA.cert)
    config = replace(config, ca_data=b"", ca_file=str(ca))
    credentials = ConfigCredentials(config, clock=clock)
    async with connect(config, credentials) as transport:
        await seen(transport)
        before = await credentials.tls()

        successor = Authority("successor")
        server.identify(successor.issue("server", "127.0.0.1"))
        clock.seconds += RELOAD_PERIOD
        assert await credentials.tls() is before
        async with connect(config, credentials) as other:
            with pytest.raises(TransportError, match="certificate verify failed"):
                await ask(other)

        ca.write_bytes(successor.cert)
        assert await credentials.tls() is before
        clock.seconds += RELOAD_PERIOD
        await seen(transport)
        assert await credentials.tls() is not before
        async with connect(config, credentials) as other:
            await seen(other)


async def test_a_client_certificate_is_loaded_again_but_not_half_written(
    config: ClientConfig, tmp_path: Path, clock: FakeClock
) -> None:
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"
    cert.write_bytes(ALICE.cert)
    key.write_bytes(ALICE.key)
    config = replace(config, client_certificate_file=str(cert), client_key_file=str(key))
    credentials = ConfigCredentials(config, clock=clock)
    async with connect(config, credentials) as transport:
        assert await seen(transport) == [None, "alice"]

        cert.write_bytes(BOB.cert)
        clock.seconds += RELOAD_PERIOD
        with capture() as records:
            assert await seen(transport) == [None, "alice"]
            assert await seen(transport) == [None, "alice"]
            clock.seconds += RELOAD_PERIOD
            assert await seen(transport) == [None, "alice"]
        assert [record.message for record in records if record.level == "error"] == [
            "Reloading TLS files failed, the previous ones stay in use"
        ] * 2
        assert str(cert) in str(records[0].pairs["err"])

        key.write_bytes(BOB.key)
        clock.seconds += RELOAD_PERIOD
        assert await seen(transport) == [None, "bob"]


async def test_a_401_makes_a_changed_client_certificate_count_at_once(
    server: Server, config: ClientConfig, tmp_path: Path, clock: FakeClock
) -> None:
    pem = tmp_path / "client.pem"
    pem.write_bytes(ALICE.cert + ALICE.key)
    config = replace(config, client_certificate_file=str(pem), client_key_file=str(pem))
    async with connect(config, ConfigCredentials(config, clock=clock)) as transport:
        assert await seen(transport) == [None, "alice"]
        pem.write_bytes(BOB.cert + BOB.key)
        server.refused = {None}
        assert await seen(transport) == [None, "alice"]
        assert await seen(transport) == [None, "bob"]


@pytest.mark.parametrize("anonymous_files", [True, False])
async def test_an_embedded_key_leaves_no_file(
    config: ClientConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anonymous_files: bool
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    if not anonymous_files:
        monkeypatch.delattr(os, "memfd_create")
    used: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def observe(context: ssl.SSLContext, certfile: str, keyfile: str, password: Callable[[], str]) -> None:
        used.append(stat.S_IMODE(Path(keyfile).stat().st_mode))
        assert any(folder.iterdir()) is not anonymous_files
        load(context, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", observe)
    identity = replace(config, client_certificate_data=ALICE.cert, client_key_data=ALICE.key)
    credentials = ConfigCredentials(identity)
    assert not any(folder.iterdir())
    assert len(used) == 1
    assert anonymous_files or used == [0o600]
    async with connect(identity, credentials) as transport:
        assert await seen(transport) == [None, "alice"]


NAMED = CA.issue("kubernetes", "kubernetes.default")
UNNAMED = CA.issue("kubernetes.default")
STRANGER = Authority("stranger").issue("server", "127.0.0.1")
INTERMEDIATE = Authority("intermediate", issuer=CA)
BELOW = INTERMEDIATE.issue("server", "127.0.0.1")


@pytest.mark.parametrize(
    ("identity", "changes", "refusal"),
    [
        (SERVER, {}, None),
        (SERVER, {"ca_data": b"# a comment, h\xc3\xa9\n" + STRANGER.cert + CA.cert}, None),
        (STRANGER, {}, "certificate verify failed"),
        (SERVER, {"ca_data": b""}, "certificate verify failed"),
        (STRANGER, {"ca_data": b"", "insecure_skip_tls_verify": True}, None),
        (NAMED, {}, "IP address mismatch"),
        (NAMED, {"tls_server_name": "kubernetes.default"}, None),
        (NAMED, {"tls_server_name": "elsewhere"}, "Hostname mismatch"),
        (UNNAMED, {"tls_server_name": "kubernetes.default"}, "Hostname mismatch"),
        (BELOW, {"ca_data": INTERMEDIATE.cert}, None),
    ],
)
async def test_whom_a_client_trusts(
    server: Server, config: ClientConfig, identity: Authority, changes: dict[str, str], refusal: str | None
) -> None:
    server.identify(identity)
    async with connect(replace(config, **changes)) as transport:  # type: ignore[arg-type] # names of fields
        if refusal is None:
            assert await seen(transport) == [None]
        else:
            with pytest.raises(TransportError, match=refusal):
                await ask(transport)
            assert server.seen == []


BELOW_ALICE = INTERMEDIATE.issue("alice")


@pytest.mark.parametrize(
    ("certificate", "key", "chain"),
    [
        # Never the authority, which OpenSSL would add, and which the API server would verify anew for each request.
        (ALICE.cert, ALICE.key, [ALICE.cert, ALICE.cert]),
        (BELOW_ALICE.cert + INTERMEDIATE.cert, BELOW_ALICE.key, [BELOW_ALICE.cert, INTERMEDIATE.cert]),
    ],
    ids=["issued by the authority", "issued by an intermediate"],
)
async def test_only_the_certificates_given_are_sent(
    server: Server, config: ClientConfig, certificate: bytes, key: bytes, chain: list[bytes]
) -> None:
    identity = replace(config, client_certificate_data=certificate, client_key_data=key)
    async with connect(identity) as transport:
        assert await seen(transport) == [None, "alice"]
    assert server.chain == [pem.decode() for pem in chain]


async def test_nothing_older_than_tls_1_2_is_spoken(config: ClientConfig) -> None:
    context = await ConfigCredentials(config).tls()
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


ENCRYPTED = ALICE.encoded(serialization.BestAvailableEncryption(b"passphrase"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"ca_data": b"junk"}, "unable to load certificate-authority-data of test: "),
        ({"ca_data": b"", "ca_file": "/nonexistent/ca"}, "certificate-authority: No such file or directory: /nonexi"),
        ({"client_certificate_data": b"junk", "client_key_data": ALICE.key}, "client-certificate-data"),
        ({"client_certificate_data": ALICE.cert, "client_key_data": BOB.key}, "client-key-data"),
        ({"client_certificate_data": ALICE.cert, "client_key_file": "/nonexistent/key"}, "/nonexistent/key"),
        ({"client_certificate_data": ALICE.cert, "client_key_data": ENCRYPTED}, "the key is encrypted"),
        ({"token": "two\nlines"}, "is not a token"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(changes: dict[str, bytes], part: str) -> None:
    config = ClientConfig(server="https://x", source="test", ca_data=CA.cert)
    with pytest.raises(ConfigError, match=part):
        ConfigCredentials(replace(config, **changes))  # type: ignore[arg-type] # names of fields


class Plugin:
    """A credential plugin in a folder: it notes each run and what it was told, and prints `answer`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = folder / "plugin"
        self.script('cat "$FOLDER/answer"')

    @property
    def config(self) -> ExecConfig:
        return ExecConfig(
            command=str(self._command),
            args=("for", "kcm"),
            env=(EnvVar("FOLDER", str(self._folder)),),
            api_version=EXEC_V1,
            interactive_mode="Never",
        )

    @property
    def runs(self) -> int:
        log = self._folder / "runs"
        return len(log.read_text().splitlines()) if log.exists() else 0

    @property
    def told(self) -> dict[str, object]:
        return msgspec.json.decode((self._folder / "info").read_bytes(), type=dict[str, object])

    def script(self, body: str) -> None:
        self._command.write_text(
            f'#!/bin/sh\necho "$@" >> "$FOLDER/runs"\nprintf %s "$KUBERNETES_EXEC_INFO" > "$FOLDER/info"\n{body}\n'
        )
        self._command.chmod(0o700)

    def answer(self, *, version: str = EXEC_V1, **status: object) -> None:
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self._folder / "answer").write_text(json.dumps(answer))

    def gate(self) -> Path:
        """Make each run wait until somebody writes its answer into the pipe that is returned."""
        pipe = self._folder / "pipe"
        os.mkfifo(pipe)
        self.script('cat "$FOLDER/pipe"')
        return pipe

    def open(self, pipe: Path) -> None:
        pipe.write_bytes((self._folder / "answer").read_bytes())


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    folder = tmp_path / "exec"
    folder.mkdir()
    return Plugin(folder)


async def test_a_plugin_gives_the_token_and_is_told_how_it_runs(config: ClientConfig, plugin: Plugin) -> None:
    plugin.answer(token="abc", expirationTimestamp=None)
    async with connect(replace(config, exec=plugin.config)) as transport:
        assert await seen(transport) == ["Bearer abc"]
        assert await seen(transport) == ["Bearer abc"]
    assert plugin.runs == 1
    assert plugin.told == {"apiVersion": EXEC_V1, "kind": "ExecCredential", "spec": {"interactive": False}}


async def test_a_plugin_is_told_the_cluster_if_it_wants(config: ClientConfig, plugin: Plugin) -> None:
    plugin.answer(version=EXEC_V1BETA1, token="abc")
    config = replace(
        config,
        tls_server_name="127.0.0.1",
        exec=msgspec.structs.replace(plugin.config, api_version=EXEC_V1BETA1, provide_cluster_info=True),
        exec_extension={"audience": "x"},
    )
    async with connect(config) as transport:
        assert await seen(transport) == ["Bearer abc"]
    assert plugin.told["spec"] == {
        "interactive": False,
        "cluster": {
            "server": config.server,
            "tls-server-name": "127.0.0.1",
            "certificate-authority-data": base64.b64encode(CA.cert).decode(),
            "disable-compression": True,
            "config": {"audience": "x"},
        },
    }


async def test_a_plugin_runs_once_for_all_who_wait_even_if_one_gives_up(config: ClientConfig, plugin: Plugin) -> None:
    plugin.answer(token="abc")
    pipe = plugin.gate()
    credentials = ConfigCredentials(replace(config, exec=plugin.config))
    try:
        waiting = [asyncio.create_task(credentials.authorization()) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, timeout=0)
        assert not done
        waiting[0].cancel()
        await asyncio.to_thread(plugin.open, pipe)
        assert await asyncio.gather(*waiting[1:]) == ["Bearer abc", "Bearer abc"]
        assert waiting[0].cancelled()
        assert plugin.runs == 1
    finally:
        await credentials.close()


async def test_expired_credentials_are_replaced_before_the_next_request(
    config: ClientConfig, plugin: Plugin, clock: FakeClock
) -> None:
    config = replace(config, exec=plugin.config)
    async with connect(config, ConfigCredentials(config, clock=clock)) as transport:
        plugin.answer(token="one", expirationTimestamp=clock.at(3600))
        assert await seen(transport) == ["Bearer one"]
        plugin.answer(token="two")
        clock.seconds += 3600
        assert await seen(transport) == ["Bearer two"]
        clock.seconds += 10**6
        assert await seen(transport) == ["Bearer two"]
    assert plugin.runs == 2


async def test_credentials_close_to_their_end_are_replaced_while_they_still_serve(
    config: ClientConfig, plugin: Plugin, clock: FakeClock
) -> None:
    credentials = ConfigCredentials(replace(config, exec=plugin.config), clock=clock)
    try:
        plugin.answer(token="one", expirationTimestamp=clock.at(3600))
        assert await credentials.authorization() == "Bearer one"
        plugin.answer(token="two")
        clock.seconds += 3600 - 61
        assert await credentials.authorization() == "Bearer one"
        assert plugin.runs == 1
        clock.seconds += 1
        pipe = plugin.gate()
        assert await credentials.authorization() == "Bearer one"
        await asyncio.to_thread(plugin.open, pipe)
        await finished(credentials)
        assert await credentials.authorization() == "Bearer two"
    finally:
        await credentials.close()


async def test_a_failed_early_replacement_is_tried_again_and_fails_requests_only_at_the_end(
    config: ClientConfig, plugin: Plugin, clock: FakeClock
) -> None:
    credentials = ConfigCredentials(replace(config, exec=plugin.config), clock=clock)
    try:
        plugin.answer(token="one", expirationTimestamp=clock.at(3600))
        assert await credentials.authorization() == "Bearer one"
        plugin.script("exit 3")
        clock.seconds += 3600 - 60
        with capture() as records:
            for runs in (2, 3):
                assert await credentials.authorization() == "Bearer one"
                await finished(credentials)
                assert await credentials.authorization() == "Bearer one"
                assert not running(credentials)
                assert plugin.runs == runs
                clock.seconds += 10
        assert [record.message for record in records] == ["Refreshing credentials failed"] * 2
        clock.seconds += 40
        with pytest.raises(TransportError, match="exit code 3"):
            await credentials.authorization()
    finally:
        await credentials.close()


def running(credentials: ConfigCredentials) -> asyncio.Task[object] | None:
    """The plugin that runs beside, if it does."""
    assert credentials._plugin is not None
    return credentials._plugin._run


async def finished(credentials: ConfigCredentials) -> None:
    run = running(credentials)
    if run is not None:  # else it is over already
        await asyncio.wait([run])


async def test_a_clock_that_is_ahead_does_not_run_the_plugin_for_each_request(
    config: ClientConfig, plugin: Plugin, clock: FakeClock
) -> None:
    plugin.answer(token="old", expirationTimestamp=clock.at(-3600))
    config = replace(config, exec=plugin.config)
    async with connect(config, ConfigCredentials(config, clock=clock)) as transport:
        for runs in (1, 2):
            assert await seen(transport) == ["Bearer old"]
            assert await seen(transport) == ["Bearer old"]
            assert plugin.runs == runs
            clock.seconds += 10


async def test_a_401_makes_the_plugin_run_again(server: Server, config: ClientConfig, plugin: Plugin) -> None:
    async with connect(replace(config, exec=plugin.config)) as transport:
        plugin.answer(token="one")
        assert await seen(transport) == ["Bearer one"]
        plugin.answer(token="two")
        server.refused = {"Bearer one"}
        assert (await ask(transport)).status == 401
        assert await seen(transport) == ["Bearer two"]
    assert plugin.runs == 2


async def test_a_late_401_to_an_old_token_does_not_run_the_plugin(config: ClientConfig, plugin: Plugin) -> None:
    plugin.answer(token="two")
    credentials = ConfigCredentials(replace(config, exec=plugin.config))
    await credentials.authorization()
    await credentials.rejected("Bearer one")
    await credentials.authorization()
    assert plugin.runs == 1


def ready(**status: object) -> str:
    return json.dumps({"apiVersion": EXEC_V1, "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("exit 3", "failed with exit code 3"),
        ("kill -9 $$", "failed with exit code -9"),
        ("echo no json", "printed no ExecCredential"),
        ("printf '\\377'", "printed no ExecCredential"),
        ("echo '{}'", 'printed kind "" in version ""'),
        ("echo '" + ready(token="a").replace("/v1", "/v1beta1") + "'", "instead of an ExecCredential in version"),
        ("echo '" + ready(token="a").replace('"status"', '"state"') + "'", "printed no status"),
        ("echo '" + ready() + "'", "neither a token nor a certificate and key"),
        ("echo '" + ready(token="a", clientCertificateData="b") + "'", "only a certificate or a key"),
        ("echo '" + ready(token="a", clientKeyData="b") + "'", "only a certificate or a key"),
        ("echo '" + ready(token="\x01") + "'", "is not a token"),
        ("echo '" + ready(token="a", expirationTimestamp="soon") + "'", "expirationTimestamp"),
        ("echo '" + ready(clientCertificateData="a", clientKeyData="b") + "'", "not a PEM certificate and its key"),
    ],
)
async def test_a_plugin_that_fails_fails_the_request_and_nothing_is_sent(
    server: Server, config: ClientConfig, plugin: Plugin, script: str, part: str
) -> None:
    plugin.script(script)
    async with connect(replace(config, exec=plugin.config)) as transport:
        with capture() as records, pytest.raises(TransportError) as raised:
            await ask(transport)
        assert part in str(raised.value)
        assert "exec: " in str(raised.value)
        assert records == []  # the caller tells of it
        plugin.answer(token="works")
        plugin.script('cat "$FOLDER/answer"')
        assert await seen(transport) == ["Bearer works"]
    assert server.seen == ["Bearer works"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"command": "no-such-plugin", "install_hint": "get\nit \x1b[1m"}, "no-such-plugin not found (get it [1m)"),
        ({"command": "/nonexistent/plugin"}, "executable /nonexistent/plugin not found"),
        ({"interactive_mode": "Always"}, "standard input is not a terminal"),
        ({"args": ("a\0b",)}, "cannot be started"),
    ],
)
async def test_a_plugin_that_cannot_run_fails_the_request(
    config: ClientConfig, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], part: str
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: False)
    plugin.answer(token="abc")
    broken = msgspec.structs.replace(plugin.config, **changes)
    async with connect(replace(config, exec=broken)) as transport:
        with pytest.raises(TransportError) as raised:
            await ask(transport)
    assert part in str(raised.value)


async def test_a_plugin_that_hangs_is_killed_with_its_children(
    config: ClientConfig, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLUGIN_TIMEOUT", 0.3)
    plugin.script('sleep 600 & echo $$ $! > "$FOLDER/pids"; wait')
    async with connect(replace(config, exec=plugin.config)) as transport:
        with pytest.raises(TransportError, match=r"did not finish within 0\.3 s"):
            await ask(transport)
    shell, child = (int(pid) for pid in (tmp_path / "exec/pids").read_text().split())
    for pid in (shell, child):
        assert not alive(pid)


async def test_closing_stops_a_plugin(config: ClientConfig, plugin: Plugin, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    plugin.script(f'echo $$ > "{ready}"; exec sleep 600')
    credentials = ConfigCredentials(replace(config, exec=plugin.config))
    request = asyncio.create_task(credentials.authorization())
    pid = int(await asyncio.to_thread(ready.read_text))
    assert alive(pid)
    request.cancel()
    await credentials.close()
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_plugins_certificate_is_shown_and_a_new_one_makes_new_connections(
    config: ClientConfig, plugin: Plugin, clock: FakeClock
) -> None:
    config = replace(config, exec=plugin.config)
    credentials = ConfigCredentials(config, clock=clock)

    def certificate(identity: Authority) -> None:
        plugin.answer(
            clientCertificateData=identity.cert.decode(),
            clientKeyData=identity.key.decode(),
            expirationTimestamp=clock.at(100),
        )

    async with connect(config, credentials) as transport:
        certificate(ALICE)
        assert await seen(transport) == [None, "alice"]
        before = await credentials.tls()

        clock.seconds += 100
        certificate(ALICE)
        assert await seen(transport) == [None, "alice"]
        assert plugin.runs == 2
        assert await credentials.tls() is before

        clock.seconds += 100
        certificate(BOB)
        assert await seen(transport) == [None, "bob"]
        assert plugin.runs == 3


async def test_a_new_certificate_without_its_ca_fails_requests_until_the_ca_is_back(
    config: ClientConfig, plugin: Plugin, clock: FakeClock, tmp_path: Path
) -> None:
    plugin.answer(clientCertificateData=ALICE.cert.decode(), clientKeyData=ALICE.key.decode())
    ca = tmp_path / "ca.crt"
    ca.write_bytes(CA.cert)
    config = replace(config, ca_data=b"", ca_file=str(ca), exec=plugin.config)
    async with connect(config, ConfigCredentials(config, clock=clock)) as transport:
        ca.unlink()
        with pytest.raises(TransportError, match="getting credentials: unable to read certificate-authority"):
            await ask(transport)
        ca.write_bytes(CA.cert)
        assert await seen(transport) == [None, "alice"]
    assert plugin.runs == 1


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ({"token": "abc"}, ["Bearer abc"]),
        ({"username": "me", "password": "p:w"}, [BASIC]),
        ({"client_certificate_data": ALICE.cert, "client_key_data": ALICE.key}, [None, "alice"]),
    ],
)
async def test_a_fixed_identity_goes_before_a_plugin(
    config: ClientConfig, plugin: Plugin, identity: dict[str, str], expected: list[str | None]
) -> None:
    plugin.answer(token="plugin")
    config = replace(config, exec=plugin.config, **identity)  # type: ignore[arg-type] # names of fields
    async with connect(config) as transport:
        assert await seen(transport) == expected
    assert plugin.runs == 0
