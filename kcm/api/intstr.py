"""Values that are a number or a percentage. Follows apimachinery pkg/util/intstr/intstr.go."""

import re
from fractions import Fraction
from math import ceil, floor

_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


class IntOrStringError(ValueError):
    """A string that is no percentage."""


def scaled_value(value: int | str | None, total: int, *, round_up: bool) -> int:
    """An absolute number, or that percentage of the total, rounded up or down (intstr.go:GetScaledValueFromIntOrPercent).

    Raises:
        IntOrStringError: the value is unset, or a string that is no whole percentage.
    """
    if value is None:
        raise IntOrStringError("nil value for IntOrString")
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise IntOrStringError("invalid value for IntOrString: invalid type: string is not a percentage")
    if not _INTEGER.match(value[:-1]):
        raise IntOrStringError(f'invalid value for IntOrString: invalid value "{value}"')
    share = Fraction(int(value[:-1]) * total, 100)
    return ceil(share) if round_up else floor(share)
