"""Exponential delays for any base, cap and history."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kcm.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

seconds = st.floats(min_value=1e-9, max_value=1e6)


@given(base=seconds, cap=seconds, failures=st.integers(min_value=1, max_value=200))
def test_delays_double_until_the_cap_and_never_shrink(base: float, cap: float, failures: int) -> None:
    limiter = ItemExponentialFailureRateLimiter(base, cap)
    delays = [limiter.when("a") for _ in range(failures)]
    assert delays[0] == min(base, cap)
    assert all(later == min(2 * earlier, cap) for earlier, later in pairwise(delays))
    assert limiter.num_requeues("a") == failures


@given(history=st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=50))
def test_keys_do_not_influence_each_other(history: list[tuple[str, bool]]) -> None:
    limiter = ItemExponentialFailureRateLimiter(1, 2.0**60)
    failures = {"a": 0, "b": 0}
    for key, failed in history:
        if failed:
            assert limiter.when(key) == 2.0 ** failures[key]
            failures[key] += 1
        else:
            limiter.forget(key)
            failures[key] = 0
        assert {name: limiter.num_requeues(name) for name in failures} == failures
