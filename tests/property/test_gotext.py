"""What was written is read back as the same value."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from kcm import gotext


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_a_written_duration_is_read_back_to_the_nanosecond(nanoseconds: int) -> None:
    text = gotext.format_duration(nanoseconds / 1e9)
    assert round(gotext.parse_duration(text) * 1e9) == nanoseconds


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_written_float_is_the_same_float32(value: float) -> None:
    read = gotext.parse_float32(gotext.format_float32(value))
    assert struct.pack("f", read) == struct.pack("f", value + 0.0)


@given(st.text())
def test_a_quoted_text_is_one_line_that_begins_and_ends_with_a_quote(text: str) -> None:
    quoted = gotext.quote(text)
    assert quoted.isprintable() or "\ufffd" in quoted
    assert quoted[0] == quoted[-1] == '"'
    assert '"' not in quoted[1:-1].replace("\\\\", "").replace('\\"', "")
