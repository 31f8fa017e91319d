"""What holds of any pod template, and of any amount."""

import copy
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcm.api.pod_template import compute_hash, dump, normal_form, revision_data
from kcm.api.pod_template_defaults import set_defaults
from kcm.api.pod_template_types import type_named
from kcm.api.quantity import Quantity
from kcm.api.types.meta import Document, Whole
from tests.parity.templates import Templates, tame_quantity

randoms = st.integers(0, 2**32).map(Random)
templates = randoms.map(lambda random: Templates(random).template())


def data_of(template: Document) -> bytes:
    return revision_data({"spec": {"template": template}})


@given(templates)
def test_filling_in_defaults_again_changes_nothing_more(template: Document) -> None:
    kind = type_named("v1.PodTemplateSpec")
    value = kind.decode(template)
    set_defaults(value)
    once = kind.encode(value)
    set_defaults(value)
    assert kind.encode(value) == once


@pytest.mark.row("S-055")
@given(templates, randoms)
def test_neither_the_order_of_fields_nor_those_of_newer_servers_matter(template: Document, random: Random) -> None:
    other = rearranged(template, random)
    spec = other.get("spec") or {}
    for struct in (other, other.get("metadata"), spec, *(spec.get("containers") or ()), *(spec.get("volumes") or ())):
        if struct is not None:
            struct["fromANewerServer"] = random.choice((None, 0, "x", [], {}, {"a": 1}))
    assert data_of(other) == data_of(template)
    assert normal_form(other) == normal_form(template)
    assert dump(other) == dump(template)


@given(templates)
def test_reading_leaves_the_template_alone(template: Document) -> None:
    before = copy.deepcopy(template)
    revision_data({"spec": {"template": template}}, with_defaults=True)
    normal_form(template)
    compute_hash(Whole(raw=msgspec.json.encode({"spec": {"template": template}})), 1)
    assert template == before


@given(randoms.map(tame_quantity))
def test_an_amount_is_written_as_a_text_of_the_same_value(text: str) -> None:
    amount = Quantity.parse(text)
    number, exponent = amount.value
    if -9 <= exponent <= 18 or "e" in str(amount):  # beyond, the reference knows no suffix and drops it
        assert Quantity.parse(str(amount)).value == (number, exponent)


@given(randoms.map(tame_quantity), st.integers(-9, 3))
def test_an_amount_is_rounded_away_from_zero_by_less_than_a_unit(text: str, exponent: int) -> None:
    amount = Quantity.parse(text)
    before, after, unit = _exact(amount), _exact(amount.rounded(exponent)), Fraction(10) ** exponent
    assert abs(before) <= abs(after) < abs(before) + unit
    assert after % unit == 0


def _exact(amount: Quantity) -> Fraction:
    return amount.unscaled * Fraction(10) ** amount.exponent


def rearranged(value: Any, random: Random) -> Any:
    """The same with the fields in another order, except in what Go keeps as text."""
    if isinstance(value, list):
        return [rearranged(item, random) for item in value]
    if not isinstance(value, dict):
        return value
    items = [(key, item if key == "fieldsV1" else rearranged(item, random)) for key, item in value.items()]
    random.shuffle(items)
    return dict(items)
