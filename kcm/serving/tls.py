"""The server's side of TLS. Follows apiserver pkg/server/secure_serving.go and component-base cli/flag/ciphersuites_flag.go.

Differences from the reference, all of them OpenSSL's doing: TLS 1.0 and 1.1 are accepted as lowest version but mean 1.2,
because its default security level has no signatures for them; of the insecure suites only those that it still has work.
"""

import ssl
from collections.abc import Sequence
from typing import NoReturn

from kcm.api.credentials import path_to
from kcm.clock import REAL, Clock
from kcm.gotext import quote
from kcm.logs import get_logger
from kcm.options import SecureServingOptions
from kcm.serving.certificates import KeyPair, PairFiles, ServingError, find_pair

log = get_logger(__name__)

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


class ServerTLS:
    """A context for the server's connections, which shows at each handshake the certificate that is in its files then.

    A pair that cannot be used is logged once, and the last good one stays.
    """

    def __init__(self, options: SecureServingOptions, *, clock: Clock = REAL) -> None:
        """Prepare the context.

        Raises:
            ServingError: something in the options cannot be used.
        """
        self._options = options
        pair = find_pair(options, clock)
        self._files = pair if isinstance(pair, PairFiles) else None
        # Taken before reading, so that what changes meanwhile is read again.
        self._stamp = self._files.stamp() if self._files is not None else ()
        #: What to listen with.
        self.context = self._current = make_context(options, pair.read() if isinstance(pair, PairFiles) else pair)
        if self._files is not None:
            self.context.sni_callback = self._on_client_hello

    def _on_client_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._files is not None and (stamp := self._files.stamp()) != self._stamp:
            self._stamp = stamp
            self._reload(self._files)
        connection.context = self._current

    def _reload(self, files: PairFiles) -> None:
        try:
            self._current = make_context(self._options, files.read())
        except ServingError as error:
            log.error("Unable to reload the serving certificate, the old one stays", err=error)
        else:
            log.info("Loaded a new cert/key pair", v=2, certificate=str(files.certificate), key=str(files.key))


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
    if options.tls_cipher_suites:
        _choose_suites(context, options.tls_cipher_suites)

    def no_passphrase() -> NoReturn:
        raise ServingError("unable to load serving certificate: the key is encrypted")

    try:
        with path_to(pair.certificate) as certificate, path_to(pair.key) as key:
            context.load_cert_chain(certificate, key, password=no_passphrase)
    except OSError as error:
        raise ServingError(f"unable to load serving certificate: not a PEM certificate and its key: {error}") from error
    return context


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
