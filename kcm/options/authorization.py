"""What whoever asks may read. Follows apiserver pkg/server/options/authorization.go."""

from dataclasses import dataclass

from kcm.gotext import quote


@dataclass(frozen=True, kw_only=True)
class AuthorizationOptions:
    """Delegated authorization: paths that are open, and SubjectAccessReviews that the API server answers for the others."""

    kubeconfig: str = ""
    """Where SubjectAccessReviews are asked; without it all but the open paths is refused, save to system:masters."""
    authorized_ttl: float = 10.0
    """Seconds for which a permission is kept."""
    unauthorized_ttl: float = 10.0
    """Seconds for which a refusal is kept."""
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    """Paths that everybody may read; one that ends in `*` stands for all that begin so."""

    def validate(self) -> list[str]:
        """A `*` elsewhere than at the end of a path (apiserver pkg/authorization/path)."""
        return [
            f"only trailing * allowed in {quote(path)}"
            for path in (path.removeprefix("/") for path in self.always_allow_paths)
            if "*" in path[:-1]
        ]
