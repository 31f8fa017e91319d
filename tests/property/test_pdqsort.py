"""Sorting as the reference does."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kcm.controllers.pdqsort import pdqsort


class Counted:
    """A number that knows how often numbers were compared."""

    comparisons = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: "Counted") -> bool:
        Counted.comparisons += 1
        return self.value < other.value


@given(st.lists(st.integers(0, 50), max_size=300))
def test_a_consistent_order_is_reached(values: list[int]) -> None:
    items = list(values)
    pdqsort(items)
    assert items == sorted(values)


@given(st.integers(13, 400), st.sampled_from(["up", "down", "saw", "equal", "organ", "nearly"]))
def test_patterns_are_sorted_too(size: int, pattern: str) -> None:
    items = {
        "up": list(range(size)),
        "down": list(range(size, 0, -1)),
        "saw": [number % 7 for number in range(size)],
        "equal": [1] * size,
        "organ": [min(number, size - number) for number in range(size)],
        "nearly": [number + 3 * (number % 50 == 0) for number in range(size)],
    }[pattern]
    expected = sorted(items)
    pdqsort(items)
    assert items == expected


@given(st.lists(st.integers(), max_size=200))
def test_nothing_is_lost_under_an_order_that_contradicts_itself(values: list[int]) -> None:
    class Contrary(int):
        def __lt__(self, other: int) -> bool:
            return hash((int(self), int(other))) % 3 == 0

    items = [Contrary(value) for value in values]
    pdqsort(items)
    assert sorted(map(int, items)) == sorted(values)


def test_sorted_input_takes_one_look_and_random_input_no_more_than_quicksort() -> None:
    size = 4096
    items = [Counted(value) for value in range(size)]
    Counted.comparisons = 0
    pdqsort(items)
    assert Counted.comparisons < 2 * size
    random.Random(1).shuffle(items)
    Counted.comparisons = 0
    pdqsort(items)
    assert Counted.comparisons < 2 * size * size.bit_length()
