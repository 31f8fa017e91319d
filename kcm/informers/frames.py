"""Cutting a watch's byte stream into its lines, wherever the network cut it."""

from collections.abc import Iterator


class FrameSplitter:
    """Collects bytes and gives out whole lines, of any length, without their line feed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add bytes and give out the lines that they complete; empty lines are left out."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return (line for line in lines if line)

    @property
    def pending(self) -> bool:
        """Whether the beginning of a line is waiting for its end."""
        return bool(self._parts)
