"""Compares one of kcm's functions with the reference's on random input."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Any

import msgspec
import pytest

from tests.parity.oracle import Answer, Oracle

#: How many mismatches a failing test describes.
SHOWN = 3
#: Longest input that is described in full.
SHOWN_LENGTH = 3000


@dataclass(frozen=True)
class Ring:
    """What the tests compare with, how often, and with which random numbers."""

    oracle: Oracle
    inputs: int
    seed: int

    def random(self, purpose: str) -> Random:
        """Random numbers that depend on the seed and the purpose only."""
        return Random(f"{self.seed} {purpose}")

    def agree(
        self,
        function: str,
        make: Callable[[Random], Any],
        ours: Callable[[Any], Any],
        *,
        theirs: Callable[[Any], Any] = lambda out: out,
        share: float = 1.0,
    ) -> None:
        """Fail unless both sides make the same of every input.

        Results are compared as JSON without nulls; where the reference returns an error, `ours` has to raise ValueError.

        Args:
            function: The oracle's name for the reference's function.
            make: Makes one input.
            ours: Gives kcm's result for an input, which is its own copy.
            theirs: Makes the reference's result comparable.
            share: The part of the usual number of inputs, for those that cost more.
        """
        random = self.random(function)
        inputs = [make(random) for _ in range(max(1, int(self.inputs * share)))]
        answers = self.oracle.ask(function, inputs)
        answers = [answer if answer.err else Answer(out=theirs(answer.out)) for answer in answers]
        self.compare(function, inputs, answers, ours)

    def compare(self, function: str, inputs: list[Any], answers: list[Answer], ours: Callable[[Any], Any]) -> None:
        """Fail unless `ours` makes of every input what its answer says, or if the inputs have too little in them to show it."""
        kinds: set[bytes] = set()
        errors = 0
        mismatches: list[tuple[bytes, str, str]] = []
        for given, answer in zip(inputs, answers, strict=True):
            encoded = msgspec.json.encode(given)
            theirs = "error" if answer.err else _canonical(answer.out)
            try:
                mine = _canonical(ours(msgspec.json.decode(encoded)))
            except ValueError:
                mine = "error"
            kinds.add(theirs[:200].encode())
            errors += theirs == "error"
            if mine != theirs:
                mismatches.append((encoded, theirs if not answer.err else f"error: {answer.err}", mine))
        if mismatches:
            pytest.fail(self._describe(function, len(inputs), mismatches), pytrace=False)
        assert len(kinds) > 1, f"{function} gives the same for all inputs"
        assert errors <= 0.8 * len(inputs), f"{function} refuses nearly all inputs"

    def _describe(self, function: str, count: int, mismatches: list[tuple[bytes, str, str]]) -> str:
        lines = [f"{function}: {len(mismatches)} of {count} inputs differ (PARITY_SEED={self.seed}); the shortest:"]
        for encoded, theirs, mine in sorted(mismatches, key=lambda mismatch: len(mismatch[0]))[:SHOWN]:
            lines += [f"input:     {_shortened(encoded.decode())}", *_difference(theirs, mine), ""]
        return "\n".join(lines)


def _canonical(value: Any) -> str:
    return msgspec.json.encode(_without_nulls(value), order="sorted").decode()


def _without_nulls(value: Any) -> Any:
    """Go writes some unset fields as null, which means the same as leaving them out."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value


def _shortened(text: str) -> str:
    text = re.sub(r"(.)\1{40,}", lambda run: f"{run[1]}<{len(run[0])} times>", text)
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."


def _difference(theirs: str, mine: str) -> list[str]:
    begin = next(i for i, (a, b) in enumerate(zip_longest(theirs, mine)) if a != b)
    begin = max(0, begin - 200)
    parts = (theirs[begin : begin + SHOWN_LENGTH // 10], mine[begin : begin + SHOWN_LENGTH // 10])
    return [f"reference: {_shortened(parts[0])}", f"kcm:       {_shortened(parts[1])}"]
