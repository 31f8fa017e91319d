"""Where and how HTTPS is served. Follows apiserver pkg/server/options/serving.go."""

from dataclasses import dataclass
from typing import NamedTuple


class NamedCertificate(NamedTuple):
    """A certificate and its key, for clients that ask for one of the names; without names, for those in the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SecureServingOptions:
    """Where and with which certificates HTTPS is served."""

    bind_address: str = "0.0.0.0"  # noqa: S104 - the stock default: all interfaces
    secure_port: int = 10257
    """0 serves nothing."""
    cert_dir: str = ""
    """Where a self-signed certificate is kept; without it one is made in memory at each start."""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_min_version: str = ""
    """Go's name of the lowest TLS version to speak, such as VersionTLS13; 1.2 if empty."""
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names of the suites to offer below TLS 1.3; without any, OpenSSL's choice."""
    tls_curve_preferences: tuple[int, ...] = ()
    """Numbers of key exchange groups in Go's crypto/tls; without any, OpenSSL's choice."""
    tls_sni_cert_key: tuple[NamedCertificate, ...] = ()
    """Further certificates for certain names."""
    permit_address_sharing: bool = False
    """Whether the port is bound with SO_REUSEADDR."""
    permit_port_sharing: bool = False
    """Whether other processes may listen on the same port."""

    def validate(self) -> list[str]:
        """A port that there cannot be."""
        if self.secure_port > 65535:
            return [
                f"--secure-port {self.secure_port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            ]
        if self.secure_port < 0:
            return [
                f"--secure-port {self.secure_port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
            ]
        return []
