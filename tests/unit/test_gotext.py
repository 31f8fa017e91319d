"""Texts of values, compared with what Go 1.26 reads and writes."""

import pytest

from kcm import gotext


@pytest.mark.row("C-145")
@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("0", 0.0, "0s"),
        ("+0", 0.0, "0s"),
        ("1h2m3s", 3723.0, "1h2m3s"),
        ("1.5h", 5400.0, "1h30m0s"),
        ("90m", 5400.0, "1h30m0s"),
        ("500ms", 0.5, "500ms"),
        ("1µs", 1e-6, "1µs"),
        ("1μs", 1e-6, "1µs"),
        ("1us", 1e-6, "1µs"),
        ("1.s", 1.0, "1s"),
        (".5s", 0.5, "500ms"),
        ("-.5s", -0.5, "-500ms"),
        ("1h1h", 7200.0, "2h0m0s"),
        ("1500ms", 1.5, "1.5s"),
        ("12ns", 12e-9, "12ns"),
        ("1m0.25s", 60.25, "1m0.25s"),
        ("8760h0m0s", 31536000.0, "8760h0m0s"),
    ],
)
def test_durations_are_read_and_written_as_go_does(text: str, seconds: float, written: str) -> None:
    assert gotext.parse_duration(text) == seconds
    assert gotext.format_duration(seconds) == written


@pytest.mark.row("C-145")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'time: invalid duration ""'),
        ("5", 'time: missing unit in duration "5"'),
        ("1h2", 'time: missing unit in duration "1h2"'),
        ("x", 'time: invalid duration "x"'),
        (".", 'time: invalid duration "."'),
        ("--1s", 'time: invalid duration "--1s"'),
        ("1x", 'time: unknown unit "x" in duration "1x"'),
        ("1 h", 'time: unknown unit " h" in duration "1 h"'),
        ("1é", 'time: unknown unit "\\xc3\\xa9" in duration "1\\xc3\\xa9"'),
        ('1"', 'time: unknown unit "\\"" in duration "1\\""'),
        ("99999999h", 'time: invalid duration "99999999h"'),
    ],
)
def test_what_is_no_duration_is_refused_in_gos_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        gotext.parse_duration(text)
    assert str(refusal.value) == problem


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("-5", -5), ("+5", 5), ("0x1F", 31), ("010", 8), ("0o10", 8), ("0b11", 3), ("1_000", 1000), ("0", 0)],
)
def test_integers_have_go_literals_as_their_text(text: str, value: int) -> None:
    assert gotext.parse_int(text, bits=32) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid syntax"),
        ("1.5", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("1_", "invalid syntax"),
        ("08", "invalid syntax"),
        ("٣", "invalid syntax"),
        ("2147483648", "value out of range"),
        ("-2147483649", "value out of range"),
    ],
)
def test_what_is_no_int32_is_refused_in_gos_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        gotext.parse_int(text, bits=32)
    assert str(refusal.value) == f'strconv.ParseInt: parsing "{text}": {problem}'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("20", "20"),
        ("0.1", "0.1"),
        ("1e3", "1000"),
        ("999999", "999999"),
        ("1000000", "1e+06"),
        ("1234567", "1.234567e+06"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("16777217", "1.6777216e+07"),
        ("372397.5427257312", "372397.53"),
        ("-2.5", "-2.5"),
        ("0", "0"),
        ("inf", "+Inf"),
        ("-Infinity", "-Inf"),
        ("NaN", "NaN"),
    ],
)
def test_floats_are_written_with_the_fewest_digits_of_a_float32(text: str, written: str) -> None:
    assert gotext.format_float32(gotext.parse_float32(text)) == written


@pytest.mark.parametrize(
    ("text", "problem"),
    [("abc", "invalid syntax"), ("", "invalid syntax"), ("-nan", "invalid syntax"), ("1e99", "value out of range")],
)
def test_what_is_no_float_is_refused_in_gos_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        gotext.parse_float32(text)
    assert str(refusal.value) == f'strconv.ParseFloat: parsing "{text}": {problem}'


@pytest.mark.parametrize(
    ("text", "fields"),
    [("", ()), ("a", ("a",)), ("a,b", ("a", "b")), ('"a,b",c', ("a,b", "c")), ("a,,b", ("a", "", "b"))],
)
def test_comma_separated_values(text: str, fields: tuple[str, ...]) -> None:
    assert gotext.parse_csv(text) == fields
    assert gotext.format_csv(fields) == text


def test_an_open_quote_is_no_comma_separated_value() -> None:
    with pytest.raises(ValueError, match="parse error on line 1"):
        gotext.parse_csv('"a')
