"""How the server learns who asks. Follows apiserver pkg/server/options/authentication.go."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kcm.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class RequestHeaderOptions:
    """Which proxies may say in headers for whom they ask."""

    client_ca_file: str = ""
    """Authorities whose certificates such proxies have; without it, and without those of the cluster, nobody may."""
    allowed_names: tuple[str, ...] = ()
    """Common names that a proxy may have; any without one."""
    username_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)

    def validate(self, *, uid_allowed: bool = True) -> list[str]:
        """Blank names; `uid_allowed` is the gate RemoteRequestHeaderUID. Headers that aggregation does not use are logged."""
        errors = [
            f'empty value in "{flag}"'
            for flag, values in (
                ("requestheader-username-headers", self.username_headers),
                ("requestheader-group-headers", self.group_headers),
                ("requestheader-extra-headers-prefix", self.extra_headers_prefix),
                ("requestheader-allowed-names", self.allowed_names),
            )
            if _any_blank(values)
        ]
        for flag, values, standard in (
            ("username-headers", self.username_headers, "X-Remote-User"),
            ("group-headers", self.group_headers, "X-Remote-Group"),
            ("extra-headers-prefix", self.extra_headers_prefix, "X-Remote-Extra-"),
        ):
            if values and not _has(values, standard):
                log.warning(
                    "Requests through the API server's aggregator use the standard header", flag=flag, standard=standard
                )
        if self.uid_headers and not uid_allowed:
            errors.append('--requestheader-uid-headers requires the "RemoteRequestHeaderUID" feature to be enabled')
        elif _any_blank(self.uid_headers):
            errors.append('empty value in "requestheader-uid-headers"')
        elif self.uid_headers and not _has(self.uid_headers, "X-Remote-Uid"):
            errors.append(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - "
                "API aggregation will not work"
            )
        return errors


def _any_blank(values: Sequence[str]) -> bool:
    return any(not value.strip() for value in values)


def _has(values: Sequence[str], standard: str) -> bool:
    return any(value.lower() == standard.lower() for value in values)


@dataclass(frozen=True, kw_only=True)
class AuthenticationOptions:
    """Delegated authentication: client certificates, proxies, and tokens that the API server reviews."""

    kubeconfig: str = ""
    """Where TokenReviews are asked; without it tokens count for nothing, and who shows no certificate is anonymous."""
    skip_lookup: bool = False
    """Whether the authorities that the cluster publishes are left aside."""
    tolerate_lookup_failure: bool = False
    """Whether the start goes on when they cannot be read."""
    token_cache_ttl: float = 10.0
    """Seconds for which an answer about a token is kept."""
    client_ca_file: str = ""
    """Authorities whose certificates name users."""
    request_header: RequestHeaderOptions = field(default_factory=RequestHeaderOptions)

    def validate(self, *, uid_allowed: bool = True) -> list[str]:
        """What is wrong with the headers of proxies."""
        return self.request_header.validate(uid_allowed=uid_allowed)
