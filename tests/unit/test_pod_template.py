"""When two pod templates are the same, and what their hash looks like."""

import copy
from typing import Any

import msgspec
import pytest

from kcm.api.pod_template import (
    compute_hash,
    dump,
    equal_ignore_hash,
    normal_form,
    safe_encode_string,
    template_document,
    with_hash_label,
)
from kcm.api.types.meta import Document, Whole
from tests.unit.fakes import make_deployment, make_replica_set, pod_template


def edited(*path: str | int, value: Any) -> Document:
    """The usual template with one field set, or removed if the value is an ellipsis."""
    template = copy.deepcopy(pod_template())
    target: Any = template
    for step in path[:-1]:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is ...:
        target.pop(path[-1], None)
    else:
        target[path[-1]] = value
    return template


def container(field: str, value: Any) -> Document:
    return edited("spec", "containers", 0, field, value=value)


def same(first: Document, second: Document) -> bool:
    return normal_form(first) == normal_form(second)


@pytest.mark.row("D-052")
@pytest.mark.parametrize(
    "other",
    [
        edited("metadata", "labels", "pod-template-hash", value="x"),
        edited("metadata", "annotations", value={}),
        edited("metadata", "creationTimestamp", value=None),
        edited("spec", "nodeSelector", value={}),
        edited("spec", "tolerations", value=[]),
        container("resources", ...),
        container("resources", {"limits": {}, "requests": {}}),
        container("ports", []),
        edited("spec", "fieldFromTheFuture", value=0),
        container("fieldFromTheFuture", {"on": True}),
    ],
)
def test_unset_empty_and_unknown_are_the_same(other: Document) -> None:
    assert same(pod_template(), other)


@pytest.mark.row("D-052")
@pytest.mark.parametrize(
    "other",
    [
        edited("metadata", "labels", "more", value="x"),
        edited("metadata", "annotations", value={"a": ""}),
        edited("spec", "securityContext", value=...),
        edited("spec", "resources", value={}),
        edited("spec", "affinity", value={}),
        edited("spec", "affinity", value={"podAntiAffinity": {}}),
        edited("spec", "terminationGracePeriodSeconds", value=31),
        container("securityContext", {}),
        container("image", "web:2"),
        container("command", [""]),
        container("env", [{"name": "A"}, {"name": "B"}]),
    ],
)
def test_an_empty_struct_behind_a_pointer_is_not_an_absent_one_and_values_count(other: Document) -> None:
    assert not same(pod_template(), other)


def test_the_order_of_list_elements_counts_and_that_of_fields_does_not() -> None:
    one = container("env", [{"name": "A", "value": "1"}, {"name": "B"}])
    assert not same(one, container("env", [{"name": "B"}, {"name": "A", "value": "1"}]))
    assert same(one, container("env", [{"value": "1", "name": "A"}, {"name": "B"}]))


def limits(**amounts: str) -> Document:
    return container("resources", {"limits": amounts})


@pytest.mark.row("D-052")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1000m"),
        ("0.5", "500m"),
        (".5", "5e-1"),
        ("1.", "1"),
        ("1Ki", "1024"),
        ("1Mi", "1048576"),
        ("1G", "1e9"),
        ("1E", "1000P"),
        ("1E3", "1k"),
        ("+2", "2"),
        ("100n", "0.1u"),
        ("2000000000000000001", "2000000000000000001000m"),
    ],
)
def test_quantities_count_by_value(one: str, other: str) -> None:
    assert same(limits(cpu=one), limits(cpu=other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1001m"),
        ("1M", "1Mi"),
        ("2000000000000000001", "2000000000000000002"),
        ("-1", "1"),
    ],
)
def test_quantities_of_other_value_are_other_quantities(one: str, other: str) -> None:
    assert not same(limits(cpu=one), limits(cpu=other))


@pytest.mark.row("D-052")
def test_quantities_are_known_wherever_a_template_has_them() -> None:
    def template(one: str) -> Document:
        amounts = {"limits": {"cpu": one}, "requests": {"cpu": one}}
        spec: Document = {
            "resources": amounts,
            "overhead": {"cpu": one},
            "containers": [{"resources": amounts, "env": [{"valueFrom": {"resourceFieldRef": {"divisor": one}}}]}],
            "initContainers": [{"resources": amounts}],
            "ephemeralContainers": [{"resources": amounts}],
            "volumes": [
                {"emptyDir": {"sizeLimit": one}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": one}}}}}},
                {"downwardAPI": {"items": [{"resourceFieldRef": {"divisor": one}}]}},
            ],
        }
        return {"metadata": {}, "spec": spec}

    assert same(template("1"), template("1000m"))
    assert not same(template("1"), template("2"))


def test_an_unset_divisor_is_zero_but_an_unset_size_limit_is_not() -> None:
    def field_ref(**more: str) -> Document:
        return container("env", [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", **more}}}])

    def empty_dir(**more: str) -> Document:
        return edited("spec", "volumes", value=[{"name": "v", "emptyDir": more}])

    assert same(field_ref(), field_ref(divisor="0"))
    assert not same(field_ref(), field_ref(divisor="1"))
    assert not same(empty_dir(), empty_dir(sizeLimit="0"))


def test_what_stands_in_a_map_of_strings_is_taken_literally() -> None:
    """A label may be called like a field that is treated specially."""
    assert not same(
        edited("spec", "nodeSelector", value={"divisor": "0", "sizeLimit": "1"}),
        edited("spec", "nodeSelector", value={"sizeLimit": "1"}),
    )
    assert not same(
        edited("spec", "nodeSelector", value={"sizeLimit": "1"}),
        edited("spec", "nodeSelector", value={"sizeLimit": "1000m"}),
    )


@pytest.mark.parametrize(
    "template",
    [
        limits(cpu="no quantity"),
        container("image", 1),
        container("stdin", 1),
        container("ports", [{"containerPort": "80"}]),
        container("ports", [{"containerPort": 2**31}]),
        container("ports", {}),
        container("livenessProbe", {"tcpSocket": {"port": 0.5}}),
        container("securityContext", []),
        edited("spec", "nodeSelector", value=[]),
        edited("metadata", "creationTimestamp", value="yesterday"),
        edited("metadata", "creationTimestamp", value="2024-02-29T12:00:00"),
    ],
)
def test_what_no_server_would_send_is_an_error(template: Document) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        normal_form(template)


@pytest.mark.row("D-052")
def test_the_hash_label_does_not_count_on_either_side() -> None:
    """Whether it is there, has another value, or is missing; all other labels do count."""
    deployment = make_deployment()
    assert equal_ignore_hash(deployment, make_replica_set("one"))
    assert equal_ignore_hash(make_replica_set("one"), make_replica_set("two"))
    assert not equal_ignore_hash(deployment, make_replica_set(template=pod_template(app="web", tier="front")))
    labelled = make_deployment(template=with_hash_label(pod_template(), "x"))
    assert equal_ignore_hash(deployment, labelled)


def test_changing_the_label_leaves_the_template_alone() -> None:
    template = template_document(make_replica_set("one"))
    before = copy.deepcopy(template)
    assert with_hash_label(template, "x")["metadata"]["labels"] == {"app": "web", "pod-template-hash": "x"}
    assert with_hash_label(template, None)["metadata"]["labels"] == {"app": "web"}
    assert template == before
    assert with_hash_label({"spec": {}}, "x")["metadata"]["labels"] == {"pod-template-hash": "x"}


@pytest.mark.row("D-071")
def test_the_hash_is_spelt_with_consonants_and_digits() -> None:
    assert safe_encode_string("0123456789") == "456789bcdf"
    assert len(compute_hash(make_deployment(), None)) <= 10
    assert set(compute_hash(make_deployment(), None)) <= set("456789bcdf")


@pytest.mark.row("D-070")
def test_the_hash_is_that_of_the_template_and_the_collision_count() -> None:
    """Fields that are not known do not enter it; labels do, of whatever name."""
    deployment = make_deployment()
    plain = compute_hash(deployment, None)
    assert plain == compute_hash(make_deployment("other", replicas=7), None)
    assert plain == compute_hash(make_deployment(template=container("fieldFromTheFuture", 1)), None)
    assert len({plain, *(compute_hash(deployment, count) for count in range(3))}) == 4
    assert plain != compute_hash(make_deployment(template=pod_template("web:2")), None)
    assert plain != compute_hash(make_deployment(template=with_hash_label(pod_template(), "x")), None)


def one_container(**fields: Any) -> Document:
    return {"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}


NGINX = {
    "metadata": {"labels": {"app": "nginx"}},
    "spec": {
        **pod_template()["spec"],
        "containers": [{**pod_template()["spec"]["containers"][0], "name": "nginx", "image": "nginx:1.27"}],
    },
}


@pytest.mark.row("D-075")
@pytest.mark.parametrize(
    ("template", "collision_count", "pod_template_hash"),
    [
        ({}, None, "54f4c57dcb"),
        ({}, 1, "6554565b97"),
        (one_container(resources={"limits": {"cpu": "250m", "memory": "100Mi"}}), None, "96dc6fdf7"),
        (
            one_container(
                livenessProbe={"httpGet": {"path": "/h", "port": 8080, "scheme": "HTTP"}},
                readinessProbe={"tcpSocket": {"port": "http"}},
            ),
            None,
            "67c46cd5b4",
        ),
        (NGINX, None, "67dc647948"),
        (NGINX, 1, "8d7d4b69"),
        (one_container(resources={"limits": {"cpu": "1000m", "memory": "64Mi"}}), None, "6f5fdf6989"),
        (one_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "0.5"}}), None, "58f4d48d7"),
    ],
)
def test_hashes_are_those_of_the_reference(
    template: Document, collision_count: int | None, pod_template_hash: str
) -> None:
    owner = Whole(raw=msgspec.json.encode({"spec": {"template": template}}))
    assert compute_hash(owner, collision_count) == pod_template_hash


@pytest.mark.row("D-072", "D-073", "D-074")
def test_a_dump_has_every_field_with_its_go_type() -> None:
    template = one_container(command=[], args=["a", "b"], resources={"limits": {"b": "100Mi", "a": "64Mi"}})
    template["metadata"] = {"labels": {"b": "2", "a": "<1>"}}
    text = dump(template)
    assert text.startswith(
        "(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) Namespace:"
    )
    for part in (
        "CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}",
        " Labels:(map[string]string)map[a:<1> b:2] Annotations:(map[string]string)<nil> ",
        " Containers:([]v1.Container)[{Name:(string)c Image:(string)i Command:([]string)[] Args:([]string)[a b] ",
        "{Limits:(v1.ResourceList)map[a:{i:(resource.int64Amount){value:(int64)67108864 scale:(resource.Scale)0}"
        " d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)BinarySI} b:{",
        " s:(string)100Mi Format:(resource.Format)BinarySI}] Requests:(v1.ResourceList)<nil> ",
        " LivenessProbe:(*v1.Probe)<nil> ",
    ):
        assert part in text
    assert text.endswith("EvictionResponders:([]v1.EvictionResponder)<nil>}}")
