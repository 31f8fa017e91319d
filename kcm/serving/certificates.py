"""The certificate that the server shows.

Follows apiserver pkg/server/options/serving.go:MaybeDefaultWithSelfSignedCerts, pkg/server/dynamiccertificates/
dynamic_serving_content.go and client-go util/cert/{cert,io}.go.
"""

import ipaddress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kcm.api.credentials import stamp
from kcm.clock import Clock
from kcm.logs import get_logger
from kcm.options import SecureServingOptions

log = get_logger(__name__)

#: Name of the files in --cert-dir, without .crt and .key.
PAIR_NAME = "kube-controller-manager"
#: Whom a self-signed certificate is for.
PUBLIC_NAME = "localhost"
LIFETIME = timedelta(days=365)
#: How far clocks of clients may be behind.
SKEW = timedelta(hours=1)


class ServingError(Exception):
    """The server cannot start: its address, certificate or TLS settings cannot be used; the text says which and why."""


class KeyPair(NamedTuple):
    """A certificate with its chain, and its key; both PEM."""

    certificate: bytes
    key: bytes


class PairFiles(NamedTuple):
    """The files of a pair, which somebody may replace at any time."""

    certificate: Path
    key: Path

    def read(self) -> KeyPair:
        """Read both.

        Raises:
            ServingError: one cannot be read.
        """
        try:
            return KeyPair(self.certificate.read_bytes(), self.key.read_bytes())
        except OSError as error:
            raise ServingError(f"unable to read serving certificate: {error.strerror}: {error.filename}") from error

    def stamp(self) -> tuple[object, ...]:
        """What changes when a file is written or replaced."""
        return stamp(self.certificate), stamp(self.key)


def find_pair(options: SecureServingOptions, clock: Clock) -> PairFiles | KeyPair:
    """The pair to serve with: the files of --tls-*, or of --cert-dir, where they are made if missing, or one in memory.

    Raises:
        ServingError: only half of a pair is given, or the directory cannot be used.
    """
    if options.tls_cert_file or options.tls_private_key_file:
        if not (options.tls_cert_file and options.tls_private_key_file):
            raise ServingError("--tls-cert-file and --tls-private-key-file must be given together")
        return PairFiles(Path(options.tls_cert_file), Path(options.tls_private_key_file))
    address = ipaddress.ip_address(options.bind_address or "::")
    if not options.cert_dir:
        pair = self_signed(address, clock)
        log.plain("Generated self-signed cert in-memory")
        return pair
    directory = Path(options.cert_dir)
    files = PairFiles(directory / f"{PAIR_NAME}.crt", directory / f"{PAIR_NAME}.key")
    missing = [str(file) for file in files if not file.exists()]
    if len(missing) == 1:
        raise ServingError(f"certificate and key must be supplied as a pair, but there is no {missing[0]}")
    if missing:
        _write(files, self_signed(address, clock))
        log.plain(f"Generated self-signed cert ({files.certificate}, {files.key})")
    return files


def self_signed(address: ipaddress.IPv4Address | ipaddress.IPv6Address, clock: Clock) -> KeyPair:
    """Make a certificate for this machine, signed by an authority that is made for it and forgotten.

    It is good for localhost, 127.0.0.1 and the address if that is a particular one, from an hour ago for 365 days.
    """
    now = clock.now()
    start = now - SKEW
    authority_key, key = _new_key(), _new_key()
    authority_name = _name(f"{PUBLIC_NAME}-ca@{int(now.timestamp())}")
    authority = (
        x509.CertificateBuilder(
            issuer_name=authority_name,
            subject_name=authority_name,
            public_key=authority_key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=start + LIFETIME,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    addresses = [ipaddress.ip_address("127.0.0.1")]
    if not address.is_unspecified and address not in addresses:
        addresses.append(address)
    names: list[x509.GeneralName] = [x509.DNSName(PUBLIC_NAME), *map(x509.IPAddress, addresses)]
    certificate = (
        x509.CertificateBuilder(
            issuer_name=authority_name,
            subject_name=_name(f"{PUBLIC_NAME}@{int(now.timestamp())}"),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=start + LIFETIME,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    chain = certificate.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM)
    return KeyPair(chain, key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(files: PairFiles, pair: KeyPair) -> None:
    try:
        files.certificate.parent.mkdir(parents=True, exist_ok=True)
        files.certificate.write_bytes(pair.certificate)
        files.key.touch(mode=0o600)
        files.key.write_bytes(pair.key)
    except OSError as error:
        raise ServingError(f"unable to keep the self-signed certificate: {error.strerror}: {error.filename}") from error
