"""Selectors, numbers, versions and templates."""

from random import Random

import msgspec
import pytest

from kcm.api.intstr import scaled_value
from kcm.api.pod_template import equal_ignore_hash
from kcm.api.resource_version import compare_resource_versions
from kcm.api.selectors import selector_of
from kcm.api.types.apps import Deployment
from kcm.api.types.meta import Document, LabelSelector, from_document
from tests.parity import make
from tests.parity.mutate import mutated_pair
from tests.parity.ring import Ring


def test_selectors_select_the_same(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        return {"selector": make.selector(random), "labels": [make.labels(random) for _ in range(4)]}

    def ours(given: Document) -> Document:
        selector = selector_of(msgspec.convert(given["selector"], LabelSelector | None))
        return {"empty": selector.empty, "matches": [selector.matches(labels) for labels in given["labels"]]}

    ring.agree("selector", random_input, ours)


def test_numbers_and_percentages_scale_the_same(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        return {"value": make.bound(random), "total": make.size(random), "roundUp": make.chance(random, 0.5)}

    ring.agree(
        "scaledValue",
        random_input,
        lambda given: scaled_value(given["value"], given["total"], round_up=given["roundUp"]),
    )


@pytest.mark.row("R-068")
def test_versions_compare_the_same(ring: Ring) -> None:
    def version(random: Random) -> str:
        text = str(random.choice((0, 1, 9, 10, 99, 2**63, 2**64, 10**40)) + random.randrange(-1, 3))
        malformed = random.choice((f"0{text}", f"{text} ", "", "٣", "²", "1_0", "+1"))
        return text if make.chance(random, 0.8) else malformed

    def random_input(random: Random) -> list[str]:
        return [version(random), version(random)]

    ring.agree("compareResourceVersions", random_input, lambda given: compare_resource_versions(*given))


@pytest.mark.row("D-052")
def test_templates_are_equal_to_the_same_ones(ring: Ring) -> None:
    """Templates have random values in any field that reflection finds; each pair differs in two places at most."""
    random = ring.random("templates")
    count = max(1, ring.inputs // 8)
    seeds: list[Document] = [
        {"seed": random.randrange(2**62), "nilChance": random.choice((0.5, 0.7, 0.9))} for _ in range(count // 10 + 1)
    ]
    templates = [answer.out for answer in ring.oracle.ask("randomTemplate", seeds)]
    pairs = [mutated_pair(random, random.choice(templates)) for _ in range(count)]
    ring.compare("equalIgnoreHash", pairs, ring.oracle.ask("equalIgnoreHash", pairs), _equal)


def _equal(pair: list[Document]) -> Document:
    first, second = (from_document(Deployment, {"spec": {"template": template}}) for template in pair)
    return {"equal": equal_ignore_hash(first, second)}
