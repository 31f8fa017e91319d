"""What whoever asks may do. Follows apiserver pkg/server/options/authorization.go:toAuthorizer and its webhook's caches."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kcm.serving.authentication import User

#: The group whose members may do everything.
MASTERS = "system:masters"


class Decision(NamedTuple):
    """Whether it is allowed, and why, as far as that is known."""

    allowed: bool
    reason: str = ""


class AuthorizationError(Exception):
    """There is no answer; the text says why."""


class AccessReviewer(Protocol):
    """Asks whether a user may do something with a path."""

    async def __call__(self, user: User, verb: str, path: str) -> Decision:
        """The answer.

        Raises:
            AuthorizationError: there was none.
        """


class Authorizer:
    """Allows what the group is enough for, then open paths, then what a review allows."""

    def __init__(self, always_allow_paths: Sequence[str], review: AccessReviewer | None = None) -> None:
        """Make one; without `review` nothing else is allowed."""
        paths = [path.removeprefix("/") for path in always_allow_paths]
        self._paths = frozenset(path for path in paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))
        self._review = review

    async def authorize(self, user: User, verb: str, path: str) -> Decision:
        """Whether the user may do that.

        Args:
            user: Who asks.
            verb: The HTTP method in small letters.
            path: The path of the URL.

        Raises:
            AuthorizationError: that could not be found out.
        """
        if MASTERS in user.groups:
            return Decision(True)
        bare = path.removeprefix("/")
        if bare in self._paths or bare.startswith(self._prefixes):
            return Decision(True)
        return Decision(False) if self._review is None else await self._review(user, verb, path)
