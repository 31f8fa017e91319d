"""What the HTTPS port answers, and with which certificate."""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kcm.logs import Record, capture
from kcm.options import NamedCertificate, SecureServingOptions
from kcm.serving import SecureServer, ServingError, secure_serving
from kcm.serving.authentication import Authenticator
from kcm.serving.authorization import Authorizer
from kcm.serving.certificates import KeyPair, self_signed
from kcm.serving.healthz import HealthChecks
from kcm.serving.metrics_pages import MetricsPage
from kcm.serving.secure_serving import Delegation
from kcm.serving.tls import SUITES, make_context
from kcm.testing.certificates import Authority

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return NOW


class RealNow(FixedClock):
    """Clients check dates."""

    def now(self) -> datetime:
        return datetime.now(UTC)


# Making keys takes longer than everything else here.
PAIR = self_signed(ipaddress.ip_address("127.0.0.1"), RealNow())
OTHER_PAIR = self_signed(ipaddress.ip_address("127.0.0.1"), RealNow())


REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def write(file: str | Path, content: bytes | None) -> None:
    """Write a file, or remove it."""
    if content is None:
        Path(file).unlink()
    else:
        Path(file).write_bytes(content)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def pair_files(tmp_path: Path) -> SecureServingOptions:
    """Options that name files with a certificate and its key."""
    (tmp_path / "tls.crt").write_bytes(PAIR.certificate)
    (tmp_path / "tls.key").write_bytes(PAIR.key)
    return SecureServingOptions(
        bind_address="127.0.0.1",
        secure_port=free_port(),
        tls_cert_file=str(tmp_path / "tls.crt"),
        tls_private_key_file=str(tmp_path / "tls.key"),
    )


@asynccontextmanager
async def serving(options: SecureServingOptions) -> AsyncIterator[SecureServer]:
    delegation = Delegation(Authenticator(), Authorizer(["/*"]))
    handlers = {"/metrics": MetricsPage(lambda: b"up 1\n")}
    async with SecureServer(options, handlers=handlers, delegation=delegation) as server:
        yield server


@asynccontextmanager
async def client(server: SecureServer) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=trusting(PAIR))
    async with aiohttp.ClientSession(server.url, connector=connector) as session:
        yield session


def trusting(pair: KeyPair) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pair.certificate.decode())


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as response:
        return response.status, await response.text()


async def shown_certificate(
    port: int, host: str = "127.0.0.1", *, server_hostname: str | None = None, **settings: Any
) -> x509.Certificate:
    """What a client sees that trusts everybody."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in settings.items():
        setattr(context, name, value)
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=server_hostname)
    tls = writer.get_extra_info("ssl_object")
    der = tls.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


def common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def well() -> str | None:
    return None


def ill() -> str | None:
    return "password=hunter2 did not work"


# Health


@pytest.mark.row("C-100")
async def test_healthz_says_ok_and_nothing_more(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session, session.get("/healthz") as response:
        assert (response.status, await response.read()) == (200, b"ok")
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-cache, private"


@pytest.mark.row("C-100", "C-103")
def test_checks_are_listed_in_the_order_they_came_and_ping_only_without_any() -> None:
    health = HealthChecks("healthz")
    assert health.report(verbose=True) == (200, "[+]ping ok\nhealthz check passed\n")
    health.add({"leaderElection": well})
    health.add({"replicaset-controller": well, "deployment-controller": well})
    assert health.report(verbose=True).text == (
        "[+]leaderElection ok\n[+]replicaset-controller ok\n[+]deployment-controller ok\nhealthz check passed\n"
    )


def test_a_name_is_taken_once() -> None:
    health = HealthChecks("healthz")
    health.add({"a": well})
    with pytest.raises(ValueError, match="healthz already has checks named a"):
        health.add({"a": ill, "b": ill})
    assert health.report().status == 200


@pytest.mark.row("C-101")
async def test_verbose_lists_and_exclude_skips(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session:
        server.add_checks(healthz={"a": well, "b": ill})
        assert await get(session, "/healthz?exclude=b") == (200, "ok")
        assert await get(session, "/healthz?verbose&exclude=b") == (
            200,
            "[+]a ok\n[+]b excluded: ok\nhealthz check passed\n",
        )
        assert await get(session, '/healthz?verbose=0&exclude=b&exclude=z&exclude=y"') == (
            200,
            "[+]a ok\n[+]b excluded: ok\n"
            'warn: some health checks cannot be excluded: no matches for "y\\"","z"\nhealthz check passed\n',
        )


@pytest.mark.row("C-102")
async def test_a_failure_lists_all_checks_but_no_reason(pair_files: SecureServingOptions) -> None:
    with capture() as records:
        async with serving(pair_files) as server, client(server) as session:
            server.add_checks(healthz={"a": ill, "b": well})
            assert await get(session, "/healthz") == (
                500,
                "[-]a failed: reason withheld\n[+]b ok\nhealthz check failed\n",
            )
    logged = next(record for record in records if record.message == "Health check failed")
    assert (logged.v, logged.pairs) == (2, {"path": "/healthz", "failures": {"a": "password=hunter2 did not work"}})


async def test_the_three_health_paths_have_checks_of_their_own(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session:
        # As the controllers' thread does it.
        adder = threading.Thread(target=lambda: server.add_checks(livez={"loop": well}, readyz={"caches": ill}))
        adder.start()
        adder.join()
        assert await get(session, "/livez?verbose") == (200, "[+]loop ok\nlivez check passed\n")
        assert await get(session, "/readyz") == (500, "[-]caches failed: reason withheld\nreadyz check failed\n")
        assert await get(session, "/healthz?verbose") == (200, "[+]ping ok\nhealthz check passed\n")


# Paths and methods


async def test_metrics_are_what_the_renderer_gives(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session, session.get("/metrics") as response:
        assert (response.status, await response.text()) == (200, "up 1\n")
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/healthz/ping", "/metrics/", "/healthzz", "/debug/pprof/"])
async def test_other_paths_are_not_found(path: str, pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session:
        assert await get(session, path) == (404, "404 page not found\n")


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_nothing_but_reading_is_allowed(path: str, pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server, client(server) as session:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            async with session.request(method, path) as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        async with session.head(path) as response:
            assert (response.status, await response.read()) == (200, b"")


@pytest.mark.row("C-093")
async def test_plain_http_gets_no_answer(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        assert b"HTTP/" not in await reader.read()
        writer.close()


async def test_a_connection_without_a_request_is_closed(
    pair_files: SecureServingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure_serving, "REQUEST_TIMEOUT", 0.1)
    async with serving(pair_files) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(PAIR))
        used_reader, used_writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(PAIR))
        used_writer.write(REQUEST)
        assert (await used_reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        used_writer.write(REQUEST)
        assert (await used_reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK\r\n")
        used_writer.close()
        writer.close()


async def test_leaving_ends_open_connections_and_frees_the_port(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(PAIR))
    assert (server.port, server.url) == (None, None)
    assert await reader.read() == b""
    writer.close()
    async with serving(pair_files) as server, client(server) as session:
        assert await get(session, "/healthz") == (200, "ok")


async def test_starting_says_where_and_that_metrics_are_open(pair_files: SecureServingOptions) -> None:
    with capture(verbosity=0) as records:
        async with serving(pair_files):
            pass
    assert [record.message for record in records] == [
        f"Serving securely on 127.0.0.1:{pair_files.secure_port}",
    ]


# Addresses


async def test_port_0_serves_nothing() -> None:
    with capture() as records:
        async with serving(SecureServingOptions(secure_port=0, tls_cert_file="missing")) as server:
            server.add_checks(healthz={"a": well})
            assert (server.port, server.url) == (None, None)
    assert records == []


@pytest.mark.row("C-048")
async def test_a_port_in_use_is_told_by_its_address(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files):
        with pytest.raises(ServingError) as caught:
            async with serving(pair_files):
                raise AssertionError("two servers on one port")
    assert str(caught.value) == (
        f"failed to create listener: failed to listen on 127.0.0.1:{pair_files.secure_port}: Address already in use"
    )


async def test_an_address_of_another_machine_is_refused(pair_files: SecureServingOptions) -> None:
    with pytest.raises(ServingError, match=r"failed to listen on 192\.0\.2\.1:"):
        async with serving(replace(pair_files, bind_address="192.0.2.1")):
            raise AssertionError("listens on a documentation address")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", ""])
async def test_an_unspecified_address_stands_for_all_of_both_families(
    address: str, pair_files: SecureServingOptions
) -> None:
    async with serving(replace(pair_files, bind_address=address)) as server, client(server) as session:
        assert server.url == f"https://127.0.0.1:{server.port}"
        assert await get(session, "/healthz") == (200, "ok")
        if socket.has_dualstack_ipv6():
            assert server.port is not None
            assert common_name(await shown_certificate(server.port, "::1")).startswith("localhost@")


async def test_an_ipv6_address_is_bracketed(pair_files: SecureServingOptions) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with serving(replace(pair_files, bind_address="::1")) as server:
        assert server.url == f"https://[::1]:{server.port}"


# Certificates


@pytest.mark.row("C-090")
@pytest.mark.parametrize(
    ("address", "addresses"),
    [("0.0.0.0", ["127.0.0.1"]), ("::", ["127.0.0.1"]), ("10.1.2.3", ["127.0.0.1", "10.1.2.3"])],
)
def test_a_self_signed_certificate_names_this_machine(address: str, addresses: list[str]) -> None:
    pair = self_signed(ipaddress.ip_address(address), FixedClock())
    certificate, authority = x509.load_pem_x509_certificates(pair.certificate)
    assert common_name(certificate) == f"localhost@{int(NOW.timestamp())}"
    assert common_name(authority) == f"localhost-ca@{int(NOW.timestamp())}"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == addresses
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_after_utc == NOW - timedelta(hours=1) + timedelta(days=365)
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.key_size == 2048
    certificate.verify_directly_issued_by(authority)
    authority.verify_directly_issued_by(authority)


@pytest.mark.row("C-090")
async def test_without_certificate_flags_one_is_made_in_memory() -> None:
    options = SecureServingOptions(bind_address="127.0.0.1", secure_port=free_port())
    with capture() as records:
        async with serving(options) as server:
            assert server.port is not None
            first = await shown_certificate(server.port)
        async with serving(options) as server:
            assert server.port is not None
            assert await shown_certificate(server.port) != first
    assert common_name(first).startswith("localhost@")
    assert [record.message for record in records].count("Generated self-signed cert in-memory") == 2


@pytest.mark.row("C-091")
async def test_a_certificate_in_cert_dir_is_made_once(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    options = SecureServingOptions(bind_address="127.0.0.1", secure_port=free_port(), cert_dir=str(directory))
    async with serving(options) as server:
        assert server.port is not None
        first = await shown_certificate(server.port)
    certificate, key = directory / "kube-controller-manager.crt", directory / "kube-controller-manager.key"
    assert key.stat().st_mode & 0o077 == 0
    assert x509.load_pem_x509_certificates(certificate.read_bytes())[0] == first
    async with serving(options) as server:
        assert server.port is not None
        assert await shown_certificate(server.port) == first


async def test_half_a_pair_in_cert_dir_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kube-controller-manager.crt").write_bytes(PAIR.certificate)
    options = SecureServingOptions(bind_address="127.0.0.1", secure_port=free_port(), cert_dir=str(tmp_path))
    with pytest.raises(ServingError, match=r"no .*kube-controller-manager\.key"):
        async with serving(options):
            raise AssertionError("serves with half a pair")


async def test_a_cert_dir_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = SecureServingOptions(
        bind_address="127.0.0.1", secure_port=free_port(), cert_dir=str(tmp_path / "file" / "x")
    )
    with pytest.raises(ServingError, match="Not a directory"):
        async with serving(options):
            raise AssertionError("serves without a certificate")


@pytest.mark.row("C-048")
@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        (None, PAIR.key, "No such file"),
        (PAIR.certificate, None, "No such file"),
        (b"", PAIR.key, "not a PEM certificate"),
        (PAIR.certificate, b"nonsense", "not a PEM certificate"),
        (PAIR.certificate, OTHER_PAIR.key, "not a PEM certificate and its key"),
    ],
)
async def test_files_without_a_usable_pair_end_the_start(
    certificate: bytes | None, key: bytes | None, problem: str, pair_files: SecureServingOptions
) -> None:
    write(pair_files.tls_cert_file, certificate)
    write(pair_files.tls_private_key_file, key)
    with pytest.raises(ServingError, match=problem):
        async with serving(pair_files):
            raise AssertionError("serves without a certificate")


async def test_an_encrypted_key_is_an_error_and_no_question(pair_files: SecureServingOptions) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    write(pair_files.tls_private_key_file, locked)
    with pytest.raises(ServingError, match="encrypted"):
        async with serving(pair_files):
            raise AssertionError("serves without a key")


async def test_a_certificate_file_needs_a_key_file(pair_files: SecureServingOptions) -> None:
    with pytest.raises(ServingError, match="must be given together"):
        async with serving(replace(pair_files, tls_private_key_file="")):
            raise AssertionError("serves without a key")


@pytest.mark.row("C-027", "C-150")
async def test_replaced_files_are_shown_at_the_next_handshake(pair_files: SecureServingOptions) -> None:
    first, second = (x509.load_pem_x509_certificates(pair.certificate)[0] for pair in (PAIR, OTHER_PAIR))
    with capture() as records:
        async with serving(pair_files) as server:
            assert server.port is not None
            assert await shown_certificate(server.port) == first
            write(pair_files.tls_cert_file, OTHER_PAIR.certificate)
            # The key does not fit yet.
            assert await shown_certificate(server.port) == first
            assert await shown_certificate(server.port) == first
            write(pair_files.tls_private_key_file, OTHER_PAIR.key)
            assert await shown_certificate(server.port) == second
            write(pair_files.tls_cert_file, None)
            assert await shown_certificate(server.port) == second
            # By name, as with SNI, and with either version.
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                assert await shown_certificate(server.port, "localhost", maximum_version=version) == second
    assert [(record.level, record.message) for record in records if "Serving" not in record.message] == [
        ("error", "Unable to reload the serving certificate, the old one stays"),
        ("info", "Loaded a new cert/key pair"),
        ("error", "Unable to reload the serving certificate, the old one stays"),
    ]


@pytest.mark.row("C-027")
async def test_a_swapped_symlink_is_a_replaced_file(tmp_path: Path) -> None:
    for version, pair in (("1", PAIR), ("2", OTHER_PAIR)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / version / "tls.key").write_bytes(pair.key)
    current, following = tmp_path / "current", tmp_path / "following"
    current.symlink_to("1")
    options = SecureServingOptions(
        bind_address="127.0.0.1",
        secure_port=free_port(),
        tls_cert_file=str(current / "tls.crt"),
        tls_private_key_file=str(current / "tls.key"),
    )
    async with serving(options) as server:
        assert server.port is not None
        following.symlink_to("2")
        following.rename(current)
        shown = await shown_certificate(server.port)
    assert shown == x509.load_pem_x509_certificates(OTHER_PAIR.certificate)[0]


# TLS settings


def options(version: str = "", *suites: str) -> SecureServingOptions:
    return SecureServingOptions(tls_min_version=version, tls_cipher_suites=suites)


@pytest.mark.row("C-029")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (options("TLS1.2"), 'unknown tls version "TLS1.2"'),
        (options("", "TLS_NO_SUCH_SUITE"), "Cipher suite TLS_NO_SUCH_SUITE not supported or doesn't exist"),
        (options("", "ECDHE-RSA-AES128-GCM-SHA256"), "Cipher suite ECDHE-RSA-AES128-GCM-SHA256 not supported"),
    ],
)
def test_unknown_names_are_errors(settings: SecureServingOptions, text: str) -> None:
    with pytest.raises(ServingError, match=text):
        make_context(settings, PAIR)


@pytest.mark.parametrize(
    ("settings", "lowest"),
    [
        (options(), ssl.TLSVersion.TLSv1_2),
        (options("VersionTLS10"), ssl.TLSVersion.TLSv1_2),
        (options("VersionTLS12"), ssl.TLSVersion.TLSv1_2),
        (options("VersionTLS13"), ssl.TLSVersion.TLSv1_3),
        (options("", "TLS_AES_128_GCM_SHA256"), ssl.TLSVersion.TLSv1_3),
    ],
)
def test_the_lowest_version(settings: SecureServingOptions, lowest: ssl.TLSVersion) -> None:
    assert make_context(settings, PAIR).minimum_version == lowest


def test_only_the_suites_asked_for_are_offered() -> None:
    settings = options("", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    offered = {str(suite["name"]) for suite in make_context(settings, PAIR).get_ciphers()}
    assert {name for name in offered if not name.startswith("TLS_")} == {"ECDHE-RSA-AES256-GCM-SHA384"}


def test_every_secure_suite_exists_here() -> None:
    for name, openssl in SUITES.items():
        offered = {str(suite["name"]) for suite in make_context(options("", name), PAIR).get_ciphers()}
        assert openssl in offered


def test_an_insecure_suite_is_warned_of() -> None:
    with capture() as records:
        make_context(options("", "TLS_RSA_WITH_AES_128_GCM_SHA256"), PAIR)
    assert records == [
        Record("warning", "Use of insecure cipher detected", 0, {"cipher": "TLS_RSA_WITH_AES_128_GCM_SHA256"})
    ]


def test_a_suite_that_openssl_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "TLS_OF_OLD", "OF-OLD")
    with pytest.raises(ServingError, match="has none of the cipher suites TLS_OF_OLD"):
        make_context(options("", "TLS_OF_OLD"), PAIR)


async def test_a_version_below_the_lowest_is_refused(pair_files: SecureServingOptions) -> None:
    async with serving(replace(pair_files, tls_min_version="VersionTLS13")) as server:
        assert server.port is not None
        with pytest.raises(OSError):  # noqa: PT011 - an alert or a closed connection
            await shown_certificate(server.port, maximum_version=ssl.TLSVersion.TLSv1_2)
        await shown_certificate(server.port)


# Certificates for names, and what connections are made with


@pytest.mark.row("C-028")
async def test_a_client_is_shown_the_certificate_for_the_name_that_it_asks_for(
    pair_files: SecureServingOptions, tmp_path: Path
) -> None:
    authority = Authority("names")
    named = []
    for index, names in enumerate(((), ("*.example.org",), ("given.example.net",))):
        pair = authority.serving(f"pair{index}", [f"own{index}.example.com"]).write(tmp_path, f"pair{index}")
        named.append(NamedCertificate(str(pair[0]), str(pair[1]), names))
    async with serving(replace(pair_files, tls_sni_cert_key=tuple(named))) as server:
        assert server.port is not None
        shown = {
            name: common_name(await shown_certificate(server.port, server_hostname=name))
            for name in (
                "own0.example.com",
                "OWN0.example.com",
                "a.example.org",
                "a.b.example.org",
                "given.example.net",
                "own2.example.com",
                "other",
            )
        }
        default = common_name(await shown_certificate(server.port))
    assert shown == {
        "own0.example.com": "pair0",
        "OWN0.example.com": "pair0",
        "a.example.org": "pair1",
        "a.b.example.org": default,
        "given.example.net": "pair2",
        "own2.example.com": default,
        "other": default,
    }


async def test_a_further_certificate_that_cannot_be_read_ends_the_start(pair_files: SecureServingOptions) -> None:
    options = replace(pair_files, tls_sni_cert_key=(NamedCertificate("/nonexistent", "/nonexistent"),))
    with pytest.raises(ServingError, match=r"failed to load SNI cert and key: .*: /nonexistent"):
        async with serving(options):
            pass


@pytest.mark.row("C-092")
async def test_the_lowest_version_is_1_2_unless_set(pair_files: SecureServingOptions) -> None:
    async with serving(pair_files) as server:
        assert server.port is not None
        await shown_certificate(server.port, maximum_version=ssl.TLSVersion.TLSv1_2)
    async with serving(replace(pair_files, tls_min_version="VersionTLS13")) as server:
        assert server.port is not None
        await shown_certificate(server.port)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown_certificate(server.port, maximum_version=ssl.TLSVersion.TLSv1_2)


async def test_key_exchange_groups_have_the_numbers_of_go(pair_files: SecureServingOptions) -> None:
    async with serving(replace(pair_files, tls_curve_preferences=(4588, 24, 23))) as server:
        context = trusting(PAIR)
        context.set_ecdh_curve("secp384r1")
        assert server.port is not None
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.close()
        context.set_ecdh_curve("prime256v1")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    with pytest.raises(ServingError, match=r"none of the key exchange groups \[1, 2\]"):
        async with serving(replace(pair_files, tls_curve_preferences=(1, 2))):
            pass


async def test_a_port_is_shared_if_both_say_so(pair_files: SecureServingOptions) -> None:
    sharing = replace(pair_files, permit_port_sharing=True)
    async with serving(sharing) as first, serving(sharing) as second:
        assert first.port == second.port
    async with serving(pair_files):
        with pytest.raises(ServingError, match="Address already in use"):
            async with serving(sharing):
                pass
