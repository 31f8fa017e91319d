"""The certificates of one control plane: an authority, what it signs, and kubeconfigs that carry it.

Everything is made for one run and thrown away with it: P-256 keys, because they cost a hundredth of an RSA key's time.
"""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A demo may run for days, and two clocks may differ.
_LIFETIME = datetime.timedelta(days=365)
_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.crt and NAME.key, readable for this user only."""
        certificate = write_private(directory / f"{name}.crt", self.certificate)
        return certificate, write_private(directory / f"{name}.key", self.key)


class Authority:
    """A certificate authority that lives in memory."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """The identity of a user, as kube-apiserver reads it: the common name, with organizations as groups."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._sign(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def serving(self, name: str, hosts: Sequence[str] = ()) -> KeyPair:
        """A server's certificate for localhost, 127.0.0.1 and `hosts`."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in ("localhost", *hosts)]
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._sign(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _sign(self, subject: x509.Name, purpose: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority, critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _private_pem(key))


def signing_key() -> tuple[bytes, bytes]:
    """A key pair for service account tokens: the private and the public half as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _private_pem(key), public


def kubeconfig(*, server: str, authority: bytes, identity: KeyPair, user: str) -> bytes:
    """A kubeconfig that needs no other file."""
    name = "kcm-testing"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(identity.certificate),
                    "client-key-data": _base64(identity.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


def write_private(path: Path, content: bytes) -> Path:
    """Writes a file that only this user may read; returns its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # SEC 1 is what kube-apiserver reads for a service account's key as well as for TLS.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
