"""Values that are a number or a percentage. Follows apimachinery pkg/util/intstr/intstr.go."""

import re
from math import ceil, floor

_PERCENTAGE = re.compile(r"([+-]?)0*([0-9]{1,19})%\Z", re.ASCII)


class IntOrStringError(ValueError):
    """A string that is no percentage."""


def scaled_value(value: int | str | None, total: int, *, round_up: bool) -> int:
    """An absolute number, or that percentage of the total, rounded up or down (intstr.go:GetScaledValueFromIntOrPercent).

    Raises:
        IntOrStringError: the value is unset, or a string that is no whole percentage of 64 bits.
    """
    if value is None:
        raise IntOrStringError("nil value for IntOrString")
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise IntOrStringError("invalid value for IntOrString: invalid type: string is not a percentage")
    match = _PERCENTAGE.match(value)
    percent = int(match[1] + match[2]) if match else 2**63
    if not -(2**63) <= percent < 2**63:
        raise IntOrStringError(f'invalid value for IntOrString: invalid value "{value}"')
    share = float(percent) * total / 100
    return ceil(share) if round_up else floor(share)
