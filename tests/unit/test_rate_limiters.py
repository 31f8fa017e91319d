"""The limiters of the work queue, each value as the reference gives it."""

import pytest

from kcm.api.flowcontrol import TokenBucket
from kcm.workqueue.rate_limiters import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    default_controller_rate_limiter,
)
from tests.clocks import FakeClock


@pytest.mark.row("M-092", "M-093")
def test_delays_of_one_key_double_from_5_ms_to_1000_s() -> None:
    limiter = default_controller_rate_limiter(clock=FakeClock())
    delays = [limiter.when("a") for _ in range(20)]
    assert delays[:9] == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28])
    assert delays[17] == pytest.approx(655.36)
    assert delays[18:] == [1000.0, 1000.0]


@pytest.mark.row("M-092")
def test_all_keys_share_a_bucket_of_100_refilled_10_times_a_second() -> None:
    clock = FakeClock()
    limiter = default_controller_rate_limiter(clock=clock)
    assert {limiter.when(f"key-{number}") for number in range(100)} == {0.005}
    assert [limiter.when(f"late-{number}") for number in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    clock.seconds += 10.3
    assert {limiter.when(f"again-{number}") for number in range(100)} == {0.005}


@pytest.mark.row("M-135")
@pytest.mark.parametrize("failures", [63, 1023, 1024, 5000])
def test_many_failures_neither_overflow_nor_raise(failures: int) -> None:
    limiter = ItemExponentialFailureRateLimiter(0.005, 1000.0)
    for _ in range(failures):
        limiter.when("a")
    assert limiter.when("a") == 1000.0


@pytest.mark.row("M-094")
def test_forget_resets_one_key_and_gives_no_token_back() -> None:
    bucket = TokenBucket(10, 1, clock=FakeClock())
    limiter = MaxOfRateLimiter(ItemExponentialFailureRateLimiter(0.001, 1000), BucketRateLimiter(bucket))
    for key in ("a", "a", "b"):
        limiter.when(key)
    assert (limiter.num_requeues("a"), limiter.num_requeues("b"), limiter.num_requeues("c")) == (2, 1, 0)
    limiter.forget("a")
    limiter.forget("never seen")
    assert (limiter.num_requeues("a"), limiter.num_requeues("b")) == (0, 1)
    assert limiter.when("a") == pytest.approx(0.3)


@pytest.mark.row("M-094")
def test_the_requeue_count_is_the_largest_and_a_bucket_counts_none() -> None:
    bucket = BucketRateLimiter(TokenBucket(1, 1, clock=FakeClock()))
    fast, slow = ItemExponentialFailureRateLimiter(1, 10), ItemExponentialFailureRateLimiter(2, 10)
    limiter = MaxOfRateLimiter(bucket, fast, slow)
    slow.when("a")
    limiter.when("a")
    assert bucket.num_requeues("a") == 0
    assert limiter.num_requeues("a") == 2


def test_the_slowest_limiter_decides_and_each_notes_the_failure() -> None:
    limiter = MaxOfRateLimiter(ItemExponentialFailureRateLimiter(1, 3), ItemExponentialFailureRateLimiter(0.5, 100))
    assert [limiter.when("a") for _ in range(5)] == [1, 2, 3, 4, 8]
