"""The reference's sorting algorithm, for orders that are not consistent. Follows Go's sort.Sort (pattern-defeating quicksort).

Where a comparison is no strict weak order, as that of pods for deletion, the outcome depends on which elements are compared
with which. Choosing the same pods as the reference therefore takes its algorithm: insertion sort up to 12 elements, else
quicksort that looks for patterns, and heap sort once too many pivots were bad. Deterministic; not stable.
"""

from collections.abc import MutableSequence
from typing import Any, Protocol, TypeVar


class Ordered(Protocol):
    """Anything with `<`."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Ordered)

_MAX_INSERTION = 12
_SHORTEST_NINTHER = 50
_SHORTEST_SHIFTING = 50
_MAX_SHIFTS = 5
_MAX_SWAPS = 12
_MASK = (1 << 64) - 1


def pdqsort(items: MutableSequence[T]) -> None:
    """Sort in place by `<`, with the comparisons and exchanges that the reference makes."""
    _sort(items, 0, len(items), len(items).bit_length())


def _sort(items: MutableSequence[T], low: int, high: int, bad_pivots_left: int) -> None:
    balanced = partitioned = True
    while True:
        length = high - low
        if length <= _MAX_INSERTION:
            _insertion_sort(items, low, high)
            return
        if bad_pivots_left == 0:
            _heap_sort(items, low, high)
            return
        if not balanced:
            _break_patterns(items, low, high)
            bad_pivots_left -= 1
        pivot, swaps = _choose_pivot(items, low, high)
        ascending = swaps == 0
        if swaps == _MAX_SWAPS:
            _reverse(items, low, high)
            pivot = high - 1 - (pivot - low)
            ascending = True
        if balanced and partitioned and ascending and _finish_nearly_sorted(items, low, high):
            return
        if low > 0 and not items[low - 1] < items[pivot]:
            low = _partition_equal(items, low, high, pivot)
            continue
        middle, partitioned = _partition(items, low, high, pivot)
        left, right = middle - low, high - middle
        balanced = min(left, right) >= length // 8
        # The shorter side is sorted first; the longer one is the next turn of the loop.
        if left < right:
            _sort(items, low, middle, bad_pivots_left)
            low = middle + 1
        else:
            _sort(items, middle + 1, high, bad_pivots_left)
            high = middle


def _swap(items: MutableSequence[T], one: int, other: int) -> None:
    items[one], items[other] = items[other], items[one]


def _sink_left(items: MutableSequence[T], start: int, end: int) -> None:
    """Move an element left while it goes before its neighbour, down to `end`."""
    while start > end and items[start] < items[start - 1]:
        _swap(items, start, start - 1)
        start -= 1


def _insertion_sort(items: MutableSequence[T], low: int, high: int) -> None:
    for start in range(low + 1, high):
        _sink_left(items, start, low)


def _heap_sort(items: MutableSequence[T], low: int, high: int) -> None:
    size = high - low
    for root in range((size - 1) // 2, -1, -1):
        _sift_down(items, root, size, low)
    for last in range(size - 1, -1, -1):
        _swap(items, low, low + last)
        _sift_down(items, 0, last, low)


def _sift_down(items: MutableSequence[T], root: int, size: int, first: int) -> None:
    while (child := 2 * root + 1) < size:
        if child + 1 < size and items[first + child] < items[first + child + 1]:
            child += 1
        if not items[first + root] < items[first + child]:
            return
        _swap(items, first + root, first + child)
        root = child


def _partition(items: MutableSequence[T], low: int, high: int, pivot: int) -> tuple[int, bool]:
    """Put what goes before the pivot to its left; give its place, and whether everything stood right already."""
    _swap(items, low, pivot)
    left, right = low + 1, high - 1
    exchanged = False
    while True:
        while left <= right and items[left] < items[low]:
            left += 1
        while left <= right and not items[right] < items[low]:
            right -= 1
        if left > right:
            _swap(items, right, low)
            return right, not exchanged
        _swap(items, left, right)
        exchanged = True
        left += 1
        right -= 1


def _partition_equal(items: MutableSequence[T], low: int, high: int, pivot: int) -> int:
    """Put what equals the pivot to the left of what goes after it, and give where the latter begins."""
    _swap(items, low, pivot)
    left, right = low + 1, high - 1
    while True:
        while left <= right and not items[low] < items[left]:
            left += 1
        while left <= right and items[low] < items[right]:
            right -= 1
        if left > right:
            return left
        _swap(items, left, right)
        left += 1
        right -= 1


def _finish_nearly_sorted(items: MutableSequence[T], low: int, high: int) -> bool:
    """Mend a few pairs that stand wrong; whether everything is sorted then."""
    at = low + 1
    for _ in range(_MAX_SHIFTS):
        while at < high and not items[at] < items[at - 1]:
            at += 1
        if at == high:
            return True
        if high - low < _SHORTEST_SHIFTING:
            return False
        _swap(items, at, at - 1)
        if at - low >= 2:
            _sink_left(items, at - 1, 0)
        if high - at >= 2:
            for follower in range(at + 1, high):
                if not items[follower] < items[follower - 1]:
                    break
                _swap(items, follower, follower - 1)
    return False


def _break_patterns(items: MutableSequence[T], low: int, high: int) -> None:
    """Scatter three elements, always the same ones for a length, to spoil inputs made to be slow."""
    length = high - low
    if length < 8:
        return
    random = length
    modulus = 1 << length.bit_length()
    centre = low + length // 4 * 2
    for index in range(centre - 1, centre + 2):
        random ^= random << 13 & _MASK
        random ^= random >> 7
        random ^= random << 17 & _MASK
        other = random & (modulus - 1)
        if other >= length:
            other -= length
        _swap(items, index, low + other)


def _choose_pivot(items: MutableSequence[T], low: int, high: int) -> tuple[int, int]:
    """The index of a good pivot, and how many pairs stood in descending order among those looked at."""
    length = high - low
    quarter = length // 4
    candidates = [low + quarter, low + quarter * 2, low + quarter * 3]
    swaps = 0
    if length >= 8:
        if length >= _SHORTEST_NINTHER:
            for place, centre in enumerate(candidates):
                candidates[place], more = _median(items, centre - 1, centre, centre + 1)
                swaps += more
        candidates[1], more = _median(items, *candidates)
        swaps += more
    return candidates[1], swaps


def _median(items: MutableSequence[T], one: int, two: int, three: int) -> tuple[int, int]:
    swaps = 0
    if items[two] < items[one]:
        one, two = two, one
        swaps += 1
    if items[three] < items[two]:
        two, three = three, two
        swaps += 1
    if items[two] < items[one]:
        one, two = two, one
        swaps += 1
    return two, swaps


def _reverse(items: MutableSequence[T], low: int, high: int) -> None:
    high -= 1
    while low < high:
        _swap(items, low, high)
        low += 1
        high -= 1
