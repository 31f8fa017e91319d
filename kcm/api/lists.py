"""Cutting the answer to a list into its objects while it arrives, so that no list has to be decoded at a stretch.

A server that answers from its watch cache ignores `limit`: 20,000 pods are one answer of 48 MB, and decoding it in one call
would keep everything else waiting for 0.3 s.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

# What the API server puts before the first object, and how that object begins.
_HEAD: Final = re.compile(
    rb'(?P<head>\{"kind":"[^"\\]*","apiVersion":"[^"\\]*","metadata":\{[^{}]*\},"items":\[)(?P<first>\{"[^"\\]*")'
)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Where a list stands: its version, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class ListReader(Generic[T]):
    """Collects the bytes of a list and gives out its objects.

    An object may be over wherever a new one seems to begin, and is over if what stands before that place can be decoded: within
    an object its braces would not be even. Without the objects that were given out, the rest is still a list of the same
    meaning. So an answer in another form than the API server's is read as well, only at a stretch.
    """

    def __init__(self, decode: Callable[[bytes | msgspec.Raw], T]) -> None:
        self._decode = decode
        self._head = b""
        self._separator = b""
        self._rest = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> Iterator[T]:
        """Add bytes and give out the objects that they complete; all of them must be taken before the next call.

        Raises:
            msgspec.ValidationError: an object of the wrong shape.
        """
        self._rest += chunk
        if not self._separator:
            begin = _HEAD.match(self._rest)
            if begin is None:
                return
            self._head, self._separator = begin["head"], b"}," + begin["first"]
            del self._rest[: len(self._head)]
        start = 0
        while (end := self._rest.find(self._separator, self._searched)) >= 0:
            self._searched = end + 1
            try:
                obj = self._decode(bytes(self._rest[start : end + 1]))
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                continue
            start = end + 2
            yield obj
        self._searched = max(self._searched, len(self._rest) - len(self._separator) + 1) - start
        del self._rest[:start]

    def close(self) -> tuple[ListMeta, list[T]]:
        """What the list says of itself, and the objects not given out yet.

        Raises:
            msgspec.DecodeError: the answer is not a list, or not whole.
        """
        rest = msgspec.json.decode(self._head + self._rest, type=_RawList)
        return rest.metadata, [self._decode(item) for item in rest.items or ()]
