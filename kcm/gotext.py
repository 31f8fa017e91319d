"""Numbers, durations and strings in the text forms that the reference's flags and messages use.

Follows Go's strconv and time packages. Parsers raise ValueError with Go's own text, since those texts end up on a terminal
that people and scripts know from the stock manager.
"""

import csv
import io
import math
import re
import struct
from collections.abc import Iterable
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
# A quote in a field that does not begin with one, after any number of whole fields.
_BARE_QUOTE = re.compile(r'^(?:(?:"(?:[^"]|"")*"|[^",]*),)*[^",]+"')
_DURATION_PART = re.compile(r"([0-9]*)(\.?)([0-9]*)([^0-9.]*)")
_INTEGER = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|(0(?:_?[0-7])+)|0|[1-9](?:_?[0-9])*)"
)
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))|(?i:nan)")
_MAX_FLOAT32: Final = 3.4028235677973366e38  # halfway to the next power: what still rounds to a float32

_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    """The text in double quotes with Go's escapes, as strconv.Quote and %q write it."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8, kept by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote_slice(texts: Iterable[str]) -> str:
    """A slice of strings as %q writes it: `["a" "b"]`."""
    return "[" + " ".join(map(quote, texts)) + "]"


def parse_bool(text: str) -> bool:
    """The boolean that strconv.ParseBool reads, from `1`, `t`, `true` and their like."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise _syntax_error("ParseBool", text)


def parse_int(text: str, *, bits: int = 64) -> int:
    """The integer that strconv.ParseInt reads with base 0: decimal, or with the prefix 0x, 0o, 0b or 0.

    Args:
        text: What stood on the command line.
        bits: The size of the signed integer that must hold the value.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise _syntax_error("ParseInt", text)
    value = int(text, 8 if match[1] else 0)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _range_error("ParseInt", text)
    return value


def parse_uint(text: str, *, bits: int) -> int:
    """The decimal number that strconv.ParseUint reads with base 10, of at most this many bits."""
    if not (text.isascii() and text.isdigit()):
        raise _syntax_error("ParseUint", text)
    value = int(text)
    if value >= 1 << bits:
        raise _range_error("ParseUint", text)
    return value


def parse_float32(text: str) -> float:
    """The number that strconv.ParseFloat reads for 32 bits; the result keeps Python's precision."""
    if _FLOAT.fullmatch(text) is None:
        raise _syntax_error("ParseFloat", text)
    value = float(text)
    if abs(value) >= _MAX_FLOAT32 and "i" not in text.lower():
        raise _range_error("ParseFloat", text)
    return value


def parse_float64(text: str) -> float:
    """The number that strconv.ParseFloat reads for 64 bits."""
    if _FLOAT.fullmatch(text) is None:
        raise _syntax_error("ParseFloat", text)
    value = float(text)
    if math.isinf(value) and "i" not in text.lower():
        raise _range_error("ParseFloat", text)
    return value


def format_float64(value: float) -> str:
    """The shortest text that gives the same number, as strconv.FormatFloat(value, 'g', -1, 64) writes it up to 10¹⁶."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")


def format_float32(value: float) -> str:
    """The shortest text that gives the same 32-bit number, as strconv.FormatFloat(value, 'g', -1, 32) writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value) or abs(value) >= _MAX_FLOAT32:
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    wanted = struct.pack("f", value)
    (value,) = struct.unpack("f", wanted)
    digits = next(n for n in range(1, 10) if n == 9 or struct.pack("f", float(f"{value:.{n}g}")) == wanted)
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}" if -4 <= exponent < 6 else scientific


def parse_duration(text: str) -> float:
    """The seconds of a Go duration such as `1h30m`, `1.5h` or `500ms`; a bare number other than 0 has no meaning."""
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return 0.0
    total, position = 0, 0
    while position < len(rest) or not rest:
        match = _DURATION_PART.match(rest, position)
        if match is None or not (match[1] or match[3]):
            raise ValueError(f"time: invalid duration {_quote_time(text)}")
        whole, _, fraction, unit = match.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quote_time(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {_quote_time(unit)} in duration {_quote_time(text)}")
        scale = _NANOSECONDS[unit]
        fraction = fraction[:18]  # what fits the integer that Go collects it in
        total += int(whole or "0") * scale + int(float(fraction or "0") * (scale / 10.0 ** len(fraction)))
        position = match.end()
    if total > (1 << 63) - (not text.startswith("-")):
        raise ValueError(f"time: invalid duration {_quote_time(text)}")
    return (-total if text.startswith("-") else total) / 1e9


def format_duration(seconds: float) -> str:
    """The duration as Go's Duration.String writes it, to the nanosecond: `1m0s`, `1.5s`, `500ms`."""
    nanoseconds = round(seconds * 1e9)
    if nanoseconds == 0:
        return "0s"
    sign, rest = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    for unit in ("ns", "µs", "ms"):
        if rest < 1000 * _NANOSECONDS[unit]:
            return f"{sign}{_decimal(rest, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(rest, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    prefix = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{prefix}{_decimal(rest, _NANOSECONDS['s'])}s"


def parse_csv(text: str) -> tuple[str, ...]:
    """The fields of one line of comma-separated values; an empty text has none."""
    if bare := _BARE_QUOTE.search(text):
        raise ValueError(f'parse error on line 1, column {bare.end()}: bare " in non-quoted-field')
    try:
        return tuple(next(csv.reader(io.StringIO(text), strict=True), ()))
    except csv.Error as error:
        raise ValueError(f"parse error on line 1: {error}") from error


def format_csv(fields: Iterable[str]) -> str:
    """The fields as one line of comma-separated values, quoted where needed."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _decimal(nanoseconds: int, scale: int) -> str:
    whole, rest = divmod(nanoseconds, scale)
    fraction = str(rest).zfill(len(str(scale)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _quote_time(text: str) -> str:
    # The time package has its own quoting, which knows no letters beyond ASCII.
    plain = "".join(
        c if " " <= c < "\x80" else "".join(f"\\x{b:02x}" for b in c.encode("utf-8", "replace")) for c in text
    )
    return '"' + plain.replace('"', '\\"') + '"'


def _syntax_error(function: str, text: str) -> ValueError:
    return ValueError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")


def _range_error(function: str, text: str) -> ValueError:
    return ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
