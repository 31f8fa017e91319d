"""How amounts of resources are read, rounded and written."""

import pytest

from kcm.api.quantity import Quantity


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0"),
        ("00m", "0"),
        ("", None),
        (".", "0"),
        ("-", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1.", "1."),
        ("+5", "+5"),
        ("005", "005"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1E2", "100"),
        ("1000E", "1"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("9223372036854775808Ei", "9223372036854775807"),
        ("12345678901234567890", "12345678901234567890"),
        ("123456789012345678901234567890k", "123456789012345678901234567890k"),
        ("-Ei", None),
        ("1K", None),
        ("1 ", None),
        ("1e", None),
        ("1e1.5", None),
        ("1e99999999999999999999", None),
        ("١", None),
    ],
)
def test_amounts_are_written_in_the_reference_s_canonical_form(text: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(ValueError, match=r"quantity|suffix|digits"):
            Quantity.parse(text)
    else:
        assert str(Quantity.parse(text)) == written


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        ("1", "1"),
        ("+1", "+1"),
        ("1u", "1m"),
        ("-1u", "-1m"),
        ("1000u", "1m"),
        ("1500001n", "2m"),
        ("0.00000000001", "1m"),
    ],
)
def test_rounding_is_away_from_zero(text: str, rounded: str) -> None:
    assert str(Quantity.parse(text).rounded(-3)) == rounded


def test_equal_amounts_have_equal_values_in_any_notation() -> None:
    assert len({Quantity.parse(text).value for text in ("1", "1000m", "1e0", "1.000000000000000000000", "+1")}) == 1
    assert len({Quantity.parse(text).value for text in ("0", "0Mi", "-0", "0.000000000000000000000")}) == 1
    assert Quantity.parse("1k").value != Quantity.parse("1Ki").value
