"""A list cut anywhere, in the API server's form or another, gives the same objects."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcm.api.lists import ListReader
from kcm.api.resources import DEPLOYMENTS, PODS

TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(['},{"metadata"', '"},{"metadata":', "]}", '\\"},{"', '{"items":[{"metadata"']),
)
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.lists(st.fixed_dictionaries({"metadata": inner}), min_size=2, max_size=3)
    ),
    max_leaves=8,
)
PODS_JSON = st.lists(
    st.builds(
        lambda name, labels, extra: {"metadata": {"name": name, "labels": labels}, "future": extra},
        TEXT,
        st.dictionaries(TEXT, TEXT, max_size=3),
        NESTED,
    ),
    max_size=6,
)
FORMS: list[dict[str, Any]] = [{"separators": (",", ":"), "ensure_ascii": False}, {}, {"indent": 1}]


def read(body: bytes, cuts: set[int]) -> tuple[str, list[Any], int]:
    """The version, the objects and how many were given out before the end."""
    reader = ListReader(lambda data: (PODS.decode(data), bytes(data))[1])
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    early = [pod for start, end in itertools.pairwise(edges) for pod in reader.feed(body[start:end])]
    metadata, late = reader.close()
    return metadata.resource_version, [json.loads(pod) for pod in early + late], len(early)


@given(pods=PODS_JSON, cuts=st.sets(st.integers(0, 1500)), form=st.sampled_from(FORMS), head_first=st.booleans())
def test_no_cut_and_no_form_changes_a_list(
    pods: list[dict[str, Any]], cuts: set[int], form: dict[str, Any], head_first: bool
) -> None:
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}}
    document = {**head, "items": pods} if head_first else {"items": pods, **head}
    body = json.dumps(document, **form).encode() + b"\n"
    version, objects, early = read(body, cuts)
    assert (version, objects) == ("12", pods)
    if head_first and form is FORMS[0] and pods:
        assert early == len(pods) - 1


@given(pods=PODS_JSON.filter(bool), where=st.floats(0, 0.999))
def test_a_list_without_its_end_is_an_error(pods: list[dict[str, Any]], where: float) -> None:
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}, "items": pods}
    body = json.dumps(document, separators=(",", ":")).encode()
    reader = ListReader(PODS.decode)
    list(reader.feed(body[: int(len(body) * where)]))
    with pytest.raises(msgspec.DecodeError):
        reader.close()


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_an_empty_list_is_a_list(items: bytes) -> None:
    reader = ListReader(PODS.decode)
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"3"},"items":' + items + b"}"
    assert list(reader.feed(body)) == []
    metadata, rest = reader.close()
    assert (metadata.resource_version, rest) == ("3", [])


def test_an_object_of_the_wrong_shape_is_an_error() -> None:
    reader = ListReader(DEPLOYMENTS.decode)
    body = b'{"kind":"L","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":1}},{"metadata":{"name":"b"}}]}'
    with pytest.raises(msgspec.ValidationError):
        list(reader.feed(body))
