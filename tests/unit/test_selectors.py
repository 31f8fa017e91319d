"""What a selector selects."""

import pytest

from kcm.api.selectors import EVERYTHING, NOTHING, SelectorError, selector_of
from kcm.api.types.meta import LabelSelector, LabelSelectorRequirement


def _expression(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert selector_of(None) == NOTHING
    assert selector_of(LabelSelector()) == EVERYTHING
    assert not NOTHING.matches({})
    assert not NOTHING.empty
    assert EVERYTHING.matches({"a": "b"})
    assert EVERYTHING.empty


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (LabelSelector(match_labels={"app": "web"}), {"app": "web", "tier": "x"}, True),
        (LabelSelector(match_labels={"app": "web", "tier": "y"}), {"app": "web", "tier": "x"}, False),
        (_expression("app", "In", "web", "api"), {"app": "api"}, True),
        (_expression("app", "In", "web"), {}, False),
        (_expression("app", "NotIn", "web"), {}, True),
        (_expression("app", "NotIn", "web"), {"app": "web"}, False),
        (_expression("app", "Exists"), {"app": ""}, True),
        (_expression("app", "Exists"), {}, False),
        (_expression("app", "DoesNotExist"), {"app": ""}, False),
        (_expression("example.com/app", "DoesNotExist"), {}, True),
    ],
)
def test_requirements(selector: LabelSelector, labels: dict[str, str], *, selected: bool) -> None:
    assert selector_of(selector).matches(labels) is selected


@pytest.mark.parametrize(
    "selector",
    [
        _expression("app", "in", "web"),
        _expression("app", "In"),
        _expression("app", "NotIn"),
        _expression("app", "Exists", "x"),
        _expression("app", "DoesNotExist", "x"),
        _expression("", "Exists"),
        _expression("-app", "Exists"),
        _expression("UPPER.example/app", "Exists"),
        _expression("a" * 64, "Exists"),
        _expression("/app", "Exists"),
        _expression("app", "In", "not a value"),
        LabelSelector(match_labels={"app": "é"}),
    ],
)
def test_what_the_api_refuses_is_an_error(selector: LabelSelector) -> None:
    with pytest.raises(SelectorError):
        selector_of(selector)
