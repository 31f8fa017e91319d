"""The server's side of TLS. Follows apiserver pkg/server/secure_serving.go and component-base cli/flag/ciphersuites_flag.go.

Differences from the reference, all of them OpenSSL's doing: TLS 1.0 and 1.1 are accepted as lowest version but mean 1.2,
because its default security level has no signatures for them; of the insecure suites only those that it still has work.
"""

import _ssl
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cryptography import x509

from kcm.api.credentials import path_to
from kcm.clock import REAL, Clock
from kcm.gotext import quote
from kcm.logs import get_logger
from kcm.options import SecureServingOptions
from kcm.serving.authentication import Peer
from kcm.serving.authorities import Authorities
from kcm.serving.certificates import KeyPair, PairFiles, ServingError, find_pair

log = get_logger(__name__)

_DER = _ssl.ENCODING_DER

TLS_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

#: Always on with TLS 1.3, in Go as in OpenSSL.
TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
#: Go's names of the other suites, with OpenSSL's.
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
INSECURE_SUITES = {
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
}


#: OpenSSL's names of the key exchange groups that Go numbers so (crypto/tls CurveID).
CURVES = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}


class _Shown:
    """A certificate for some names, or for all others, in the context that shows it."""

    def __init__(self, options: SecureServingOptions, pair: PairFiles | KeyPair, names: Sequence[str] = ()) -> None:
        self._options = options
        self._files = pair if isinstance(pair, PairFiles) else None
        # Taken before reading, so that what changes meanwhile is read again.
        self._stamp = self._files.stamp() if self._files is not None else ()
        self._pair = pair.read() if isinstance(pair, PairFiles) else pair
        self._given_names = tuple(names)
        self._trusted: bytes | None = None
        self._load()

    def _load(self) -> None:
        self.context = make_context(self._options, self._pair)
        self.names = self._given_names or _names_of(self._pair)
        if self._trusted is not None:
            trust(self.context, self._trusted)

    def refresh(self, trusted: bytes | None) -> None:
        """Load what has changed: the files of the pair, or the authorities of clients."""
        if self._files is not None and (now := self._files.stamp()) != self._stamp:
            self._stamp = now
            before = self._pair
            try:
                self._pair = self._files.read()
                self._load()
            except ServingError as error:
                self._pair = before
                log.error("Unable to reload the serving certificate, the old one stays", err=error)
            else:
                log.info(
                    "Loaded a new cert/key pair",
                    v=2,
                    certificate=str(self._files.certificate),
                    key=str(self._files.key),
                )
        if trusted != self._trusted:
            self._trusted = trusted
            self._load()


class ServerTLS:
    """A context for the server's connections, which shows at each handshake the certificate that is in its files then.

    With authorities of clients it asks for a client's certificate, and ends a handshake in which one of another authority is
    shown (the reference answers such requests with 401: OpenSSL has no way to let them through).
    A pair that cannot be used is logged once, and the last good one stays.
    """

    def __init__(
        self, options: SecureServingOptions, *, authorities: Sequence[Authorities] = (), clock: Clock = REAL
    ) -> None:
        """Prepare the context.

        Raises:
            ServingError: something in the options cannot be used.
        """
        self._authorities = authorities
        self._default = _Shown(options, find_pair(options, clock))
        self._named = []
        for certificate, key, names in options.tls_sni_cert_key:
            try:
                self._named.append(_Shown(options, PairFiles(Path(certificate), Path(key)), names))
            except ServingError as error:
                raise ServingError(f"failed to load SNI cert and key: {error}") from error
        self._refresh()
        #: What to listen with.
        self.context = self._default.context
        self.context.sni_callback = self._on_client_hello

    def _refresh(self) -> None:
        for authorities in self._authorities:
            authorities.refresh()
        trusted = b"\n".join(authorities.pem for authorities in self._authorities) if self._authorities else None
        for shown in (self._default, *self._named):
            shown.refresh(trusted)

    def _on_client_hello(self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        self._refresh()
        connection.context = self._choose(name or "").context

    def _choose(self, name: str) -> _Shown:
        name = name.lower().rstrip(".")
        wildcard = "*." + name.partition(".")[2]
        for wanted in (name, wildcard):
            for shown in self._named:
                if wanted in shown.names:
                    return shown
        return self._default


def trust(context: ssl.SSLContext, pem: bytes) -> None:
    """Ask clients for a certificate, which must be of these authorities if it is shown; without any, none is good.

    Raises:
        ServingError: OpenSSL cannot use them.
    """
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Go, every certificate given may end a chain
    if not pem.strip():
        return
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise ServingError(f"unable to use the authorities of client certificates: {error}") from error


def peer_of(connection: ssl.SSLObject) -> Peer | None:
    """The certificate that the client has shown, with the authority that OpenSSL found it to be of."""
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        return None
    chain = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined] # public from Python 3.13 on
    return Peer(certificate, chain[-1].public_bytes(_DER))


def _names_of(pair: KeyPair) -> tuple[str, ...]:
    try:
        certificate = x509.load_pem_x509_certificates(pair.certificate)[0]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))


def make_context(options: SecureServingOptions, pair: KeyPair) -> ssl.SSLContext:
    """A context with a certificate, the lowest version and the suites that the options ask for.

    Raises:
        ServingError: an unknown version or suite, no suite that there is, or an unusable pair.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if options.tls_min_version not in TLS_VERSIONS:
        raise ServingError(f"unknown tls version {quote(options.tls_min_version)}")
    context.minimum_version = TLS_VERSIONS[options.tls_min_version]
    if options.tls_curve_preferences:
        _choose_curve(context, options.tls_curve_preferences)
    if options.tls_cipher_suites:
        _choose_suites(context, options.tls_cipher_suites)

    def no_passphrase() -> NoReturn:
        raise ServingError("unable to load serving certificate: the key is encrypted")

    try:
        with path_to(pair.certificate) as certificate, path_to(pair.key) as key:
            context.load_cert_chain(certificate, key, password=no_passphrase)
    except OSError as error:
        reason = (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or ""
        raise ServingError(
            f"unable to load serving certificate: not a PEM certificate and its key: {reason.replace('_', ' ').lower()}"
        ) from error
    return context


def _choose_curve(context: ssl.SSLContext, numbers: Sequence[int]) -> None:
    for number in numbers:
        if number in CURVES:
            context.set_ecdh_curve(CURVES[number])
            return
    raise ServingError(
        f"--tls-curve-preferences: {ssl.OPENSSL_VERSION} has none of the key exchange groups {list(numbers)}"
    )


def _choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    known = SUITES | INSECURE_SUITES
    for name in names:
        if name not in known and name not in TLS13_SUITES:
            raise ServingError(f"Cipher suite {name} not supported or doesn't exist")
        if name in INSECURE_SUITES:
            log.warning("Use of insecure cipher detected", cipher=name)
    wanted = [known[name] for name in names if name in known]
    if not wanted:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError as error:
        raise ServingError(f"{ssl.OPENSSL_VERSION} has none of the cipher suites {', '.join(names)}") from error
