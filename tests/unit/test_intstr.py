"""Numbers and percentages."""

import pytest

from kcm.api.intstr import IntOrStringError, scaled_value


@pytest.mark.row("D-092")
@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [(3, 10, 3, 3), ("25%", 10, 3, 2), ("100%", 7, 7, 7), ("0%", 7, 0, 0), ("1%", 1, 1, 0), ("-10%", 15, -1, -2)],
)
def test_percentages_round_as_asked(value: int | str, total: int, up: int, down: int) -> None:
    assert scaled_value(value, total, round_up=True) == up
    assert scaled_value(value, total, round_up=False) == down


@pytest.mark.parametrize("value", [None, "", "3", "3 %", "%", "1.5%", "1_0%", "٣%"])
def test_what_is_no_percentage_is_an_error(value: str | None) -> None:
    with pytest.raises(IntOrStringError):
        scaled_value(value, 10, round_up=True)
