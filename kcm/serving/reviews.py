"""Questions to the API server about tokens and permissions, with their caches.

Follows apiserver plugin/pkg/authenticator/token/webhook, plugin/pkg/authorizer/webhook and pkg/authentication/token/cache.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from kcm.api.client import Client
from kcm.api.errors import StatusError, TransportError
from kcm.clock import REAL, Clock
from kcm.serving.authentication import AuthenticationError, User
from kcm.serving.authorization import AuthorizationError, Decision

T = TypeVar("T")

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Answers that one cache keeps.
CACHE_SIZE = 4096
#: Seconds before each further try of a question that got no answer.
RETRY_WAITS = (0.5, 0.75, 1.125, 1.6875)


class AnswerCache(Generic[T]):
    """Answers by question for some time; the same question is asked once at a time. Errors are not kept."""

    def __init__(self, lifetime: Callable[[T], float], *, clock: Clock = REAL) -> None:
        """Make an empty one.

        Args:
            lifetime: For how many seconds an answer is kept.
            clock: Says how late it is.
        """
        self._lifetime = lifetime
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[T]] = {}

    async def get(self, question: bytes, ask: Callable[[], Awaitable[T]]) -> T:
        """The kept answer, or a new one."""
        kept = self._answers.get(question)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        task = self._asked.get(question)
        if task is None:
            task = self._asked[question] = asyncio.ensure_future(self._ask(question, ask))
            task.add_done_callback(lambda done: self._finish(question, done))
        return await asyncio.shield(task)

    def _finish(self, question: bytes, task: asyncio.Task[T]) -> None:
        self._asked.pop(question, None)
        if not task.cancelled():
            task.exception()  # which whoever still waits gets; perhaps nobody does

    async def _ask(self, question: bytes, ask: Callable[[], Awaitable[T]]) -> T:
        answer = await ask()
        self._answers[question] = (self._clock.monotonic() + self._lifetime(answer), answer)
        self._answers.move_to_end(question)
        if len(self._answers) > CACHE_SIZE:
            self._answers.popitem(last=False)
        return answer


class TokenReviews:
    """Asks the API server who has a token; fits `kcm.serving.authentication.TokenReviewer`."""

    def __init__(self, client: Client, *, ttl: float, clock: Clock = REAL) -> None:
        """Make one whose answers are kept for `ttl` seconds."""
        self._client = client
        self._cache: AnswerCache[User | None] = AnswerCache(lambda _: ttl, clock=clock)

    async def __call__(self, token: str) -> User | None:
        """Who has it; see the protocol."""

        async def ask() -> User | None:
            spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            try:
                status = await _review(self._client, TOKEN_REVIEWS, spec)
            except (StatusError, TransportError) as error:
                raise AuthenticationError(f"token review: {error}") from error
            if not status.get("authenticated"):
                return None
            user = status.get("user", {})
            return User(
                name=user.get("username", ""),
                uid=user.get("uid", ""),
                groups=tuple(user.get("groups") or ()),
                extra=user.get("extra") or {},
            )

        return await self._cache.get(hashlib.sha256(token.encode()).digest(), ask)


class AccessReviews:
    """Asks the API server what a user may do; fits `kcm.serving.authorization.AccessReviewer`."""

    def __init__(self, client: Client, *, authorized_ttl: float, unauthorized_ttl: float, clock: Clock = REAL) -> None:
        """Make one whose permissions and refusals are kept for so many seconds."""
        self._client = client
        self._cache: AnswerCache[Decision] = AnswerCache(
            lambda decision: authorized_ttl if decision.allowed else unauthorized_ttl, clock=clock
        )

    async def __call__(self, user: User, verb: str, path: str) -> Decision:
        """Whether it is allowed; see the protocol."""
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
        }

        async def ask() -> Decision:
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            try:
                status = await _review(self._client, ACCESS_REVIEWS, body)
            except (StatusError, TransportError) as error:
                raise AuthorizationError(f"access review: {error}") from error
            return Decision(bool(status.get("allowed")), status.get("reason", ""))

        return await self._cache.get(json.dumps(spec, sort_keys=True).encode(), ask)


async def _review(client: Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The status of a review; asked again where a later try may get an answer.

    Raises:
        StatusError: refused.
        TransportError: no answer.
    """
    for wait in (*RETRY_WAITS, None):
        try:
            answer = await client.request("POST", path, body=body)
        except (StatusError, TransportError) as error:
            passing = isinstance(error, TransportError) or error.code == 429 or error.code >= 500
            if wait is None or not passing:
                raise
            await asyncio.sleep(wait)
        else:
            status: dict[str, Any] = msgspec.json.decode(answer).get("status", {})
            return status
    raise AssertionError("unreachable")
