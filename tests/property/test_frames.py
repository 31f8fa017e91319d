"""A stream cut anywhere gives the same lines."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcm.informers.frames import FrameSplitter

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")), max_size=12)


@pytest.mark.row("M-133")
@given(lines=LINES, rest=st.binary(max_size=10).map(lambda b: b.replace(b"\n", b"")), cuts=st.sets(st.integers(0, 500)))
def test_lines_survive_any_cut(lines: list[bytes], rest: bytes, cuts: set[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + rest
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    splitter = FrameSplitter()
    out = [line for start, end in itertools.pairwise(edges) for line in splitter.feed(stream[start:end])]
    assert out == [line for line in lines if line]
    assert splitter.pending == bool(rest)
