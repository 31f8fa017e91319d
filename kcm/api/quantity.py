"""Amounts of resources. Follows apimachinery pkg/api/resource/{quantity,suffix,amount}.go.

An amount is compared by value, but written as it was parsed where that text counts as canonical, and otherwise in the notation
that it was parsed from: decimal suffixes, binary ones, or an exponent. Odd results are the reference's own: `+5` and `005` are
written as they are, and `1000E`, for which there is no suffix, as `1`.
"""

import re
from typing import Final

import msgspec

DECIMAL_EXPONENT: Final = "DecimalExponent"
DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"

_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,19})", re.ASCII)
_DECIMAL_SUFFIXES: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NOTATIONS: Final = {
    **{suffix: (DECIMAL_SI, exponent) for exponent, suffix in _DECIMAL_SUFFIXES.items()},
    **{suffix: (BINARY_SI, 10 * power) for power, suffix in enumerate(_BINARY_SUFFIXES) if power},
}

_NANO: Final = -9
_MAX: Final = 2**63 - 1
#: Decimal digits that surely fit in 64 bits.
_MAX_DIGITS: Final = 18


class Quantity(msgspec.Struct, frozen=True):
    """The amount `unscaled * 10**exponent`.

    Attributes:
        unscaled: All its digits.
        exponent: The power of ten that they count.
        format: The notation, empty for one that was never set.
        text: The text it was parsed from, if that is written again.
        scale: Digits after the point in the reference's big decimal, None for an amount that it keeps in 64 bits.
    """

    unscaled: int = 0
    exponent: int = 0
    format: str = ""
    text: str = ""
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """The amount that a text stands for, rounded away from zero to whole billionths (quantity.go:ParseQuantity).

        Raises:
            ValueError: It is no quantity.
        """
        if text == "0":
            return cls(format=DECIMAL_SI, text=text)
        match = _SYNTAX.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{text!r} is no quantity")
        sign, whole, fraction, suffix = match[1], match[2].lstrip("0") or "0", match[3] or "", match[4]
        notation, power = _notation(suffix)
        digits = whole + fraction
        unscaled = -int(digits) if sign == "-" else int(digits)
        if notation == BINARY_SI:
            canonical = unscaled % 8 != 0
            room = -1 if fraction else 14 - len(whole) - power * 3 // 10
            unscaled, exponent = unscaled << power, -len(fraction)
        else:
            exponent = _int32(power - len(fraction))
            canonical = exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
            room = _MAX_DIGITS - len(digits)
        if room >= 0 and exponent >= _NANO:
            return cls(unscaled, exponent, notation, text if canonical else "")
        if not match[2] and not fraction:  # which is zero with a smaller suffix
            raise ValueError(f"{text!r} has no digits")
        return _parse_big(unscaled, exponent, notation)

    @property
    def value(self) -> tuple[int, int]:
        """Digits and power of ten that equal amounts share, whatever their notation (quantity.go:Cmp)."""
        return _stripped(self.unscaled, self.exponent)

    def __str__(self) -> str:
        """The canonical text (quantity.go:CanonicalizeBytes)."""
        if self.text or not self.unscaled:
            return self.text or "0"
        number, exponent = _stripped(self.unscaled, self.exponent)
        if self.format == BINARY_SI and exponent >= 0 and abs(whole := number * 10**exponent) >= 1024:
            power = 0
            while whole % 1024 == 0:
                whole, power = whole // 1024, power + 1
            return f"{whole}{_BINARY_SUFFIXES[power]}"
        number, exponent = number * 10 ** (exponent % 3), exponent - exponent % 3
        if self.format in {DECIMAL_SI, BINARY_SI}:
            return f"{number}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        return f"{number}e{exponent}" if exponent else str(number)

    def rounded(self, exponent: int) -> "Quantity":
        """The amount, rounded away from zero to a multiple of this power of ten (quantity.go:RoundUp)."""
        if self.scale is None and self.exponent >= exponent:
            return self
        scale = None if self.scale is None else -exponent
        if self.exponent >= exponent:
            return Quantity(self.unscaled, self.exponent, self.format, scale=scale)
        return Quantity(_rounded(self.unscaled, exponent - self.exponent), exponent, self.format, scale=scale)


def _notation(suffix: str) -> tuple[str, int]:
    """What a suffix says: the notation and its power of ten or two."""
    if suffix in _NOTATIONS:
        return _NOTATIONS[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not -(2**63) <= int(match[1]) < 2**63:
        raise ValueError(f"{suffix!r} is no suffix of a quantity")
    return DECIMAL_EXPONENT, _int32(int(match[1]))


def _parse_big(unscaled: int, exponent: int, notation: str) -> Quantity:
    """What needs more than 64 bits or finer parts than billionths."""
    if not unscaled:
        return Quantity(0, 0, notation, scale=-exponent)
    scale = -_NANO
    if exponent < _NANO:
        unscaled, exponent = _rounded(unscaled, _NANO - exponent), _NANO
    if notation == BINARY_SI:
        if abs(unscaled) > _MAX * 10**-exponent:
            unscaled, exponent, scale = _MAX if unscaled > 0 else -_MAX, 0, 0
        elif abs(unscaled) < 10**-exponent:
            notation = DECIMAL_SI
    return Quantity(unscaled, exponent, notation, scale=scale)


def _rounded(unscaled: int, places: int) -> int:
    """The number without its last decimal places, rounded away from zero."""
    # A number has no more digits than bits, and what is smaller than one is one.
    unit: int = 10 ** min(places, unscaled.bit_length() + 1)
    return -(-unscaled // unit) if unscaled > 0 else unscaled // unit


def _stripped(unscaled: int, exponent: int) -> tuple[int, int]:
    if not unscaled:
        return 0, 0
    while unscaled % 10 == 0:
        unscaled, exponent = unscaled // 10, exponent + 1
    return unscaled, exponent


def _int32(number: int) -> int:
    """What is left of a number in 32 bits."""
    return (number + 2**31) % 2**32 - 2**31
