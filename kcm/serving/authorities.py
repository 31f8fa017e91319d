"""Whose client certificates count. Follows apiserver pkg/server/dynamiccertificates (client CA providers)."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kcm.api.credentials import stamp
from kcm.logs import get_logger
from kcm.serving.certificates import ServingError

log = get_logger(__name__)


class Authorities:
    """Certificates of authorities, which may change while the server runs."""

    def __init__(self, name: str, pem: bytes = b"") -> None:
        """Take them.

        Args:
            name: What they are for, for error texts and the log.
            pem: The certificates; empty for none yet.

        Raises:
            ServingError: there is none in it.
        """
        self.name = name
        self.replace(pem)

    def replace(self, pem: bytes) -> None:
        """Take others. Raises as the constructor; the old ones then stay."""
        try:
            certificates = x509.load_pem_x509_certificates(pem) if pem else []
        except ValueError as error:
            raise ServingError(
                f'error loading CA bundle for "{self.name}": data does not contain any valid certificate'
            ) from error
        self.pem = pem
        self.certificates = frozenset(certificate.public_bytes(Encoding.DER) for certificate in certificates)

    def refresh(self) -> None:
        """Look whether they have changed."""


class FileAuthorities(Authorities):
    """Authorities in a file, which is read again when it changes."""

    def __init__(self, name: str, path: str) -> None:
        """Read them.

        Raises:
            ServingError: the file cannot be read, or has no certificate in it.
        """
        self.name = f"{name}::{path}"
        self._path = Path(path)
        self._stamp = stamp(self._path)
        super().__init__(self.name, self._read())

    def refresh(self) -> None:
        """Read the file if it has changed; what cannot be used is logged once, and the last good authorities stay."""
        if (now := stamp(self._path)) != self._stamp:
            self._stamp = now
            try:
                self.replace(self._read())
            except ServingError as error:
                log.error("Unable to reload authorities, the old ones stay", err=error)
            else:
                log.info("Loaded new authorities", v=2, name=self.name)

    def _read(self) -> bytes:
        try:
            pem = self._path.read_bytes()
        except OSError as error:
            raise ServingError(f"open {self._path}: {(error.strerror or str(error)).lower()}") from error
        if not pem.strip():
            raise ServingError(f'error loading CA bundle for "{self.name}": it is empty')
        return pem
