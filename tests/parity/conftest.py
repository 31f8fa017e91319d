"""The differential ring: kcm's pure functions and the reference's Go functions on the same random input.

PARITY_INPUTS is how many inputs each function gets, PARITY_SEED what they are made from.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcm.logs import set_verbosity
from tests.parity import oracle
from tests.parity.oracle import Oracle
from tests.parity.ring import Ring

INPUTS = 5_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(oracle.BUILD_TIMEOUT + 300))


@pytest.fixture(scope="session")
def ring() -> Ring:
    """The oracle, built if need be, with the settings of this run."""
    inputs = int(os.environ.get("PARITY_INPUTS", INPUTS))
    return Ring(Oracle(oracle.build()), inputs, int(os.environ.get("PARITY_SEED", "1")))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nonsense in the inputs is not worth a log line each."""
    set_verbosity(-1)
    yield
    set_verbosity(0)
