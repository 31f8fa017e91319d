"""How long a key waits before it is tried again. Follows client-go util/workqueue/default_rate_limiters.go."""

import math
from typing import Protocol

from kcm.api.flowcontrol import TokenBucket
from kcm.clock import REAL, Clock

#: Doublings after which every delay is at its cap: with a base of 1 ns they make the longest duration that Go can express.
_MAX_DOUBLINGS = 63


class RateLimiter(Protocol):
    """Decides how long a key that failed waits."""

    def when(self, key: str) -> float:
        """Note a failure of the key and return the seconds until it may be tried again."""
        ...

    def forget(self, key: str) -> None:
        """Forget the key's failures, because it succeeded or was given up."""
        ...

    def num_requeues(self, key: str) -> int:
        """The key's failures since it was last forgotten."""
        ...


class ItemExponentialFailureRateLimiter:
    """Delays each key by `base_delay` seconds, doubled with every further failure, up to `max_delay` seconds."""

    def __init__(self, base_delay: float, max_delay: float) -> None:
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._failures: dict[str, int] = {}

    def when(self, key: str) -> float:
        """Note a failure of the key and return the seconds until it may be tried again."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(math.ldexp(self._base_delay, min(failures, _MAX_DOUBLINGS)), self._max_delay)

    def forget(self, key: str) -> None:
        """Start over with the base delay."""
        self._failures.pop(key, None)

    def num_requeues(self, key: str) -> int:
        """The key's failures since it was last forgotten."""
        return self._failures.get(key, 0)


class BucketRateLimiter:
    """Delays keys by a token bucket that they all share; knows nothing of single keys."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket

    def when(self, key: str) -> float:
        """Take a token, now or in advance, and return the seconds until it may be used."""
        del key
        return self._bucket.reserve()

    def forget(self, key: str) -> None:
        """Do nothing: a token that was taken is not given back."""

    def num_requeues(self, key: str) -> int:
        """Always 0."""
        del key
        return 0


class MaxOfRateLimiter:
    """Delays keys as the slowest of several limiters does; each of them notes every failure."""

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters

    def when(self, key: str) -> float:
        """The longest delay that any of the limiters asks for."""
        return max((limiter.when(key) for limiter in self._limiters), default=0.0)

    def forget(self, key: str) -> None:
        """Have all limiters forget the key."""
        for limiter in self._limiters:
            limiter.forget(key)

    def num_requeues(self, key: str) -> int:
        """The most failures that any of the limiters counts."""
        return max((limiter.num_requeues(key) for limiter in self._limiters), default=0)


def default_controller_rate_limiter(*, clock: Clock = REAL) -> RateLimiter:
    """What controllers use: 5 ms doubling to 1000 s for each key, and ten retries a second (100 at once) over all keys."""
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(0.005, 1000.0), BucketRateLimiter(TokenBucket(10, 100, clock=clock))
    )
