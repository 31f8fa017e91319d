"""Command-line flags with the habits of the reference's: pflag's syntax, value types, messages and help, on click's commands.

Follows github.com/spf13/pflag and component-base cli/flag/sectioned.go. What click's own parser does otherwise, and what
people's manifests and scripts rely on: underscores in a name are dashes; a boolean takes its value only after `=`; a name is
never abbreviated; each value is checked where it stands, so that the first bad one is reported; lists grow with each use and
the first replaces the default. The value types and `parse` know nothing of commands and can be used alone.
"""

import shutil
import sys
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import IO, Any, Generic, TypeVar

import click

from kcm.api.quantity import Quantity
from kcm.gotext import (
    format_csv,
    format_duration,
    format_float32,
    format_float64,
    parse_bool,
    parse_csv,
    parse_duration,
    parse_float32,
    parse_float64,
    parse_int,
    parse_uint,
    quote,
    quote_slice,
)

T = TypeVar("T")


class FlagType(click.ParamType[T]):
    """How values of one kind are read, written and put together.

    `name` is what help shows after the flag's name; `bare` is the value of a flag without one, None if it needs one.
    """

    bare: str | None = None

    @abstractmethod
    def read(self, text: str) -> T:
        """The value of a text; raises ValueError with the reference's words."""

    @abstractmethod
    def write(self, value: T) -> str:
        """The value as the reference logs it."""

    def is_zero(self, value: T) -> bool:
        """Whether help leaves this default out."""
        return not value

    def merge(self, _before: T, now: T) -> T:
        """What a flag given again stands for: the last value."""
        return now

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Click's way in; `parse` uses `read`."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Scalar(FlagType[T]):
    """A type of which `read` and `write` are two functions."""

    def __init__(
        self, name: str, read: Callable[[str], T], write: Callable[[T], str], *, bare: str | None = None
    ) -> None:
        self.name, self._read, self._write, self.bare = name, read, write, bare

    def read(self, text: str) -> T:
        return self._read(text)

    def write(self, value: T) -> str:
        return self._write(value)


class ListType(_Scalar[tuple[T, ...]]):
    """A type of several values, to which every further use of the flag adds."""

    def merge(self, before: tuple[T, ...], now: tuple[T, ...]) -> tuple[T, ...]:
        """All values, in the order in which they were given."""
        return before + now


def _read_ip(text: str) -> str:
    if not text:
        return "0.0.0.0"  # noqa: S104 - blank stands for all interfaces
    try:
        address = ip_address(text.strip())
    except ValueError:
        raise ValueError(f"failed to parse IP: {quote(text)}") from None
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.scope_id is not None:
        raise ValueError(f"failed to parse IP: {quote(text)}")
    return str(address.ipv4_mapped or address)


def _read_vmodule(text: str) -> tuple[tuple[str, int], ...]:
    patterns = []
    for item in filter(None, text.split(",")):
        pattern, _, level = item.partition("=")
        if not pattern or not level or "=" in level:
            raise ValueError(f"{quote(item)} does not have the pattern=N format")
        try:
            patterns.append((pattern, parse_uint(level, bits=31)))
        except ValueError as error:
            raise ValueError(f"parsing verbosity in {quote(item)}: {error}") from error
    return tuple(patterns)


def _read_string_map(text: str) -> dict[str, str]:
    pairs: Iterable[str] = (text.strip('"'),) if text.count("=") < 2 else parse_csv(text)
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{pair} must be formatted as key=value")
        values[key] = value
    return values


def _read_int32s(text: str) -> tuple[int, ...]:
    return tuple(parse_int(part, bits=32) for part in text.split(","))


def _read_quantity(text: str) -> str:
    try:
        amount = Quantity.parse(text)
        return str(amount) if amount.unscaled else ""
    except ValueError:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


BOOL = _Scalar("", parse_bool, _write_bool, bare="true")
STRING = _Scalar("string", str, str)
INT = _Scalar("int", parse_int, str)
INT32 = _Scalar("int32", lambda text: parse_int(text, bits=32), str)
FLOAT = _Scalar("float", parse_float64, format_float64)
FLOAT32 = _Scalar("float32", parse_float32, format_float32)
DURATION = _Scalar("duration", parse_duration, format_duration)  # in seconds
IP = _Scalar("ip", _read_ip, str)
LEVEL = _Scalar("Level", lambda text: parse_uint(text, bits=31), str)
STRINGS = ListType("strings", parse_csv, lambda value: f"[{format_csv(value)}]")
INT32S = ListType("int32Slice", _read_int32s, lambda value: f"[{','.join(map(str, value))}]")
QUANTITY = _Scalar("quantity", _read_quantity, lambda value: value or "0")
VMODULE = ListType("pattern=N,...", _read_vmodule, lambda value: ",".join(f"{pattern}={v}" for pattern, v in value))


class _StringMap(_Scalar[dict[str, str]]):
    """A type of pairs, to which every further use of the flag adds."""

    def merge(self, before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
        return before | now


STRING_MAP = _StringMap(
    "stringToString",
    _read_string_map,
    lambda value: f"[{format_csv(f'{key}={text}' for key, text in sorted(value.items()))}]",
)


class Flag(click.Option, Generic[T]):
    """One flag of a `FlagCommand`: a click option that also knows its group in the help and what it fills."""

    def __init__(
        self,
        name: str,
        type: FlagType[T],  # noqa: A002 - click's name for it
        default: T,
        help: str,  # noqa: A002 - click's name for it
        *,
        group: str,
        shorthand: str = "",
        deprecated: str = "",
    ) -> None:
        """Declares a flag.

        Args:
            name: The name without dashes in front.
            type: How its values are read and written.
            default: What it is when not given.
            help: What it is for, in one line.
            group: The heading that help shows it under.
            shorthand: A single letter that stands for it.
            deprecated: Why it should no longer be used, which is told to those who do; help leaves such flags out.
        """
        declarations = [f"--{name}", name.replace("-", "_")] + ([f"-{shorthand}"] if shorthand else [])
        super().__init__(declarations, type=type, default=default, help=help, is_flag=False, hidden=bool(deprecated))
        self.deprecation = deprecated
        self.long = name
        self.shorthand = shorthand
        self.value_type = type
        self.value = default
        self.text = help
        self.group = group

    def __str__(self) -> str:
        return f"-{self.shorthand}, --{self.long}" if self.shorthand else f"--{self.long}"


def parse(flags: Iterable[Flag[Any]], args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all flags that the arguments give, by name without dashes, and the arguments that are no flags.

    Raises:
        ValueError: With the reference's words for the first argument that is wrong.
    """
    by_name = {flag.long: flag for flag in flags}
    by_letter = {flag.shorthand: flag for flag in by_name.values() if flag.shorthand}
    values: dict[str, Any] = {}
    positional: list[str] = []
    rest = iter(args)

    def take(flag: Flag[Any], text: str | None, missing: str) -> None:
        if text is None:
            text = next(rest, None)
        if text is None:
            raise ValueError(f"flag needs an argument: {missing}")
        try:
            value = flag.value_type.read(text)
        except ValueError as error:
            raise ValueError(f"invalid argument {quote(text)} for {quote(str(flag))} flag: {error}") from error
        values[flag.long] = flag.value_type.merge(values[flag.long], value) if flag.long in values else value

    for arg in rest:
        if arg == "--":
            positional.extend(rest)
        elif arg.startswith("--"):
            name, equals, text = arg[2:].partition("=")
            if name.startswith("-") or not name:
                raise ValueError(f"bad flag syntax: {arg}")
            flag = by_name.get(name.replace("_", "-"))
            if flag is None:
                raise ValueError(f"unknown flag: --{name}")
            take(flag, text if equals else flag.value_type.bare, f"--{name}")
        elif arg.startswith("-") and arg != "-":
            letters = arg[1:]
            while letters:
                flag = by_letter.get(letters[0])
                if flag is None:
                    raise ValueError(f"unknown shorthand flag: '{letters[0]}' in -{letters}")
                missing = f"'{letters[0]}' in -{letters}"
                given = letters[1:]
                if len(given) > 1 and given[0] == "=":
                    take(flag, given[1:], missing)
                elif flag.value_type.bare is not None:
                    take(flag, flag.value_type.bare, missing)
                    letters = given
                    continue
                else:
                    take(flag, given or None, missing)
                letters = ""
        else:
            positional.append(arg)
    return values, positional


class FlagError(click.UsageError):
    """A command line that cannot be read. Prints the usage line and then what is wrong; the exit status is 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Writes the message to standard error."""
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), file=file, err=True)
        click.echo(f"Error: {self.format_message()}", file=file, err=True)


class FlagCommand(click.Command):
    """A click command whose parameters are all `Flag`s, read by `parse`; it takes no arguments.

    The callback gets the values by their Python names, as with any click command. `--help` is one of the flags, looked at
    when all of them have been read, as the reference does.
    """

    def __init__(self, name: str, flags: Sequence[Flag[Any]], callback: Callable[..., Any], help: str) -> None:  # noqa: A002
        self.flags = (*flags, Flag("help", BOOL, False, f"help for {name}", group="Global", shorthand="h"))
        super().__init__(
            name,
            params=list(self.flags),
            callback=callback,
            help=help,
            options_metavar="[flags]",
            add_help_option=False,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Fills the context's parameters; exits after printing help if that was asked for."""
        try:
            given, positional = parse(self.flags, args)
        except ValueError as error:
            if not ctx.resilient_parsing:
                raise FlagError(str(error), ctx) from error
            given, positional = {}, []
        for flag in self.flags:
            ctx.params[str(flag.name)] = given.get(flag.long, flag.value)
            if flag.deprecation and flag.long in given:
                click.echo(f"Flag {flag} has been deprecated, {flag.deprecation}", err=True)
            source = click.core.ParameterSource
            ctx.set_parameter_source(str(flag.name), source.COMMANDLINE if flag.long in given else source.DEFAULT)
        if not ctx.resilient_parsing:
            if ctx.params.pop("help"):
                click.echo(self.get_help(ctx))
                ctx.exit()
            if any(positional):
                message = f"{quote(ctx.command_path)} does not take any arguments, got {quote_slice(positional)}"
                raise click.ClickException(message)
        ctx.args = []
        return []

    def get_help(self, ctx: click.Context) -> str:
        """The description, the usage line, and the flags under their groups."""
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        parts = [f"{self.help}\n\nUsage:\n  {ctx.command_path} [flags]"]
        for group in dict.fromkeys(flag.group for flag in self.flags):
            members = sorted(
                (flag for flag in self.flags if flag.group == group and not flag.hidden), key=lambda flag: flag.long
            )
            parts.append(f"{group} flags:\n\n" + "\n".join(help_lines(members, columns)))
        return "\n\n".join(parts)

    def describe(self, values: Mapping[str, Any]) -> list[str]:
        """What the reference logs about its flags, `--name="value"` in alphabetical order; absent ones have their defaults."""
        return [
            f"FLAG: --{flag.long}={quote(flag.value_type.write(values.get(str(flag.name), flag.value)))}"
            for flag in sorted(self.flags, key=lambda flag: flag.long)
        ]


def help_lines(flags: Sequence[Flag[Any]], columns: int) -> Iterable[str]:
    """Help on each flag, its second column aligned, wrapped at this many columns; 0 wraps nothing."""
    heads = []
    for flag in flags:
        bare = flag.value_type.bare
        optional = f"[={bare}]" if bare is not None and flag.value_type.name else ""
        heads.append(f"{'' if flag.shorthand else '    '}{flag} {flag.value_type.name}".rstrip() + optional)
    width = max(map(len, heads)) + 5
    for flag, head in zip(flags, heads, strict=True):
        text = flag.text
        if not flag.value_type.is_zero(flag.value):
            default = flag.value_type.write(flag.value)
            text += f" (default {quote(default) if flag.value_type is STRING else default})"
        room = columns - width if columns - width >= 24 else sys.maxsize
        lines = [
            part for line in text.split("\n") for part in textwrap.wrap(line, room, break_long_words=False) or [""]
        ]
        yield f"  {head}".ljust(width) + f"\n{' ' * width}".join(lines)
