"""Who asks. Follows apiserver pkg/authentication/authenticatorfactory/delegating.go and the authenticators it puts together.

In order: headers of a trusted proxy, the client certificate, a bearer token that the API server reviews; who shows none of
these is anonymous. What is shown and not accepted by any of them is an error, so that a wrong token is not taken for no token.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import CIMultiDictProxy

from kcm.options import RequestHeaderOptions
from kcm.serving.authorities import Authorities

ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
AUTHENTICATED = "system:authenticated"
#: The extra that tells which certificate it was.
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, kw_only=True)
class User:
    """Who asks, in the words of the API server."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Peer(NamedTuple):
    """A client's certificate that TLS has verified, and the authority at the end of its chain; both DER."""

    certificate: bytes
    authority: bytes


class AuthenticationError(Exception):
    """What was shown is not accepted; the text is for the log."""


class TokenReviewer(Protocol):
    """Asks who has a token."""

    async def __call__(self, token: str) -> User | None:
        """The user, or None if nobody has it.

        Raises:
            AuthenticationError: there was no answer.
        """


class Authenticator:
    """Finds out who asks."""

    def __init__(
        self,
        *,
        client_authorities: Authorities | None = None,
        proxy_authorities: Authorities | None = None,
        request_header: RequestHeaderOptions | None = None,
        review: TokenReviewer | None = None,
    ) -> None:
        """Make one.

        Args:
            client_authorities: Whose certificates name users.
            proxy_authorities: Whose certificates proxies have.
            request_header: In which headers proxies name users.
            review: Asks about tokens; without it tokens count for nothing.
        """
        self._clients = client_authorities
        self._proxies = proxy_authorities
        self._headers = request_header or RequestHeaderOptions()
        self._review = review

    @property
    def authorities(self) -> tuple[Authorities, ...]:
        """All whose certificates may be shown."""
        return tuple(one for one in (self._clients, self._proxies) if one is not None)

    async def authenticate(self, headers: CIMultiDictProxy[str], peer: Peer | None) -> User:
        """Who sends these headers over a connection of this peer.

        Raises:
            AuthenticationError: what is shown is not accepted.
        """
        problems = []
        user = None
        if peer is not None and self._proxies is not None:
            try:
                user = self._from_proxy(headers, peer, self._proxies)
            except AuthenticationError as error:
                problems.append(str(error))
        if user is None and peer is not None and self._clients is not None:
            if peer.authority in self._clients.certificates:
                user = _from_certificate(peer)
            else:
                problems.append("the client's certificate is of another authority")
        if user is None and self._review is not None and (token := _bearer_token(headers)):
            user = await self._review(token)
            if user is None:
                problems.append("invalid bearer token")
        if user is not None:
            return _authenticated(user)
        if problems:
            raise AuthenticationError("; ".join(problems))
        return User(name=ANONYMOUS, groups=(UNAUTHENTICATED,))

    def _from_proxy(self, headers: CIMultiDictProxy[str], peer: Peer, authorities: Authorities) -> User | None:
        if peer.authority not in authorities.certificates:
            raise AuthenticationError("the certificate is not of a proxy's authority")
        allowed = self._headers.allowed_names
        name = _common_name(x509.load_der_x509_certificate(peer.certificate))
        if allowed and name not in allowed:
            raise AuthenticationError(f"subject with cn={name} is not in the allowed list")
        user = next((headers[header] for header in self._headers.username_headers if headers.get(header)), None)
        if user is None:
            return None
        extra: dict[str, list[str]] = {}
        for header, value in headers.items():
            for prefix in self._headers.extra_headers_prefix:
                if header.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
        return User(
            name=user,
            uid=next((headers[header] for header in self._headers.uid_headers if headers.get(header)), ""),
            groups=tuple(group for header in self._headers.group_headers for group in headers.getall(header, ())),
            extra=extra,
        )


def _from_certificate(peer: Peer) -> User | None:
    certificate = x509.load_der_x509_certificate(peer.certificate)
    name = _common_name(certificate)
    if not name:
        return None
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    fingerprint = hashlib.sha256(peer.certificate).hexdigest()
    return User(
        name=name,
        groups=tuple(str(group.value) for group in groups),
        extra={CREDENTIAL_ID: [f"X509SHA256={fingerprint}"]},
    )


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def _bearer_token(headers: CIMultiDictProxy[str]) -> str:
    kind, _, token = headers.get("Authorization", "").strip().partition(" ")
    return token.split(" ")[0] if kind.lower() == "bearer" else ""


def _authenticated(user: User) -> User:
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(name=user.name, uid=user.uid, groups=(*user.groups, AUTHENTICATED), extra=user.extra)
