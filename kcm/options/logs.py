"""What is logged, and how. Follows component-base logs/api/v1/options.go."""

from dataclasses import dataclass, field

from kcm.gotext import format_duration, quote


@dataclass(frozen=True, kw_only=True)
class OutputRouting:
    """Where the lines of one format go."""

    split_stream: bool = False
    info_buffer_size: str = ""
    """A quantity of bytes; without effect, since every line is written at once."""


@dataclass(frozen=True, kw_only=True)
class LoggingOptions:
    """What is logged, and how. Follows component-base logs/api/v1/options.go."""

    format: str = "text"
    """`text` for klog's lines, `json` for JSON lines."""
    verbosity: int = 0
    vmodule: tuple[tuple[str, int], ...] = ()
    """Patterns of module names with the verbosity that they raise it to; see `kcm.logs.configure`."""
    flush_frequency: float = 5.0
    """Seconds; without effect, since every line is written at once."""

    text: OutputRouting = field(default_factory=OutputRouting)
    json: OutputRouting = field(default_factory=OutputRouting)

    @property
    def split_stream(self) -> bool:
        """Whether only errors go to standard error, and the rest to standard output."""
        return (self.json if self.format == "json" else self.text).split_stream

    def validate(self, *, alpha: bool = False) -> list[str]:
        """An unknown format, what JSON cannot do, and what needs the gate LoggingAlphaOptions while `alpha` is false."""
        rules = (
            (
                self.flush_frequency > 0,
                f"flushFrequency: Invalid value: {quote(format_duration(self.flush_frequency))}: Must be greater than zero",
            ),
            (self.format in {"text", "json"}, f"format: Invalid value: {quote(self.format)}: Unsupported log format"),
            (not self.vmodule or self.format == "text", "vmodule: Forbidden: Only supported for text log format"),
        )
        errors = [message for holds, message in rules if not holds]
        for name, routing in (("text", self.text), ("json", self.json)):
            for field_name, is_set in (
                ("splitStream", routing.split_stream),
                ("infoBufferSize", routing.info_buffer_size),
            ):
                if is_set and not alpha:
                    errors.append(f"options.{name}.{field_name}: Forbidden: Feature LoggingAlphaOptions is disabled")
        return errors
