"""Names, slots and new objects of StatefulSets."""

from typing import Any

import msgspec
import pytest

from kcm.api.intstr import IntOrStringError
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document
from kcm.controllers.statefulset.stateful_set_utils import (
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    REVISION_LABEL,
    RevisionError,
    Slots,
    assign_slots,
    identity_matches,
    in_ordinal_range,
    is_created,
    is_member_of,
    is_running_and_ready,
    is_terminal,
    is_terminating,
    is_unavailable,
    max_unavailable,
    new_claim_documents,
    new_pod_document,
    parent_and_ordinal,
    pod_revision,
    repaired_pod,
    starts_at_current,
    storage_matches,
    template_of,
    unborn_pod,
)
from tests.clocks import START
from tests.unit.fakes import NAMESPACE, pod_template
from tests.unit.stateful_set_world import (
    R1,
    claim_template,
    make_revision,
    make_stateful_pod,
    make_stateful_set,
    reference_to_set,
    stateful_pod_document,
)


@pytest.mark.row("S-086")
@pytest.mark.parametrize(
    ("name", "parent", "ordinal"),
    [
        ("web-0", "web", 0),
        ("web-01", "web", 1),
        ("a-1-2", "a-1", 2),
        ("a--1", "a-", 1),
        ("web-2147483647", "web", 2147483647),
        ("web-2147483648", "web", -1),
        ("web-99999999999999999999", "web", -1),
        ("web", "", -1),
        ("web-", "", -1),
        ("web-1a", "", -1),
        ("7", "", -1),
        ("-7", "", 7),
        ("web-٣", "", -1),
    ],
)
def test_names_speak_of_sets_and_ordinals(name: str, parent: str, ordinal: int) -> None:
    assert parent_and_ordinal(name) == (parent, ordinal)


@pytest.mark.row("S-047")
def test_a_pod_is_a_member_by_its_name_whatever_its_number() -> None:
    stateful_set = make_stateful_set()
    assert is_member_of(stateful_set, make_stateful_pod(0))
    assert is_member_of(stateful_set, make_stateful_pod(name="web-99999999999"))
    assert not is_member_of(stateful_set, make_stateful_pod(name="web-a-0"))
    assert not is_member_of(stateful_set, make_stateful_pod(name="web"))


def slots_of(pods: list[Pod], **options: Any) -> Slots:
    stateful_set = make_stateful_set(**options)
    template = template_of(make_revision())
    return assign_slots(stateful_set, pods, lambda ordinal: unborn_pod(stateful_set, template, R1, ordinal))


def names(pods: object) -> list[str]:
    assert isinstance(pods, list)
    return [pod.metadata.name + ("" if is_created(pod) else " (unborn)") for pod in pods]


@pytest.mark.row("S-087", "S-090", "S-091", "S-092")
def test_pods_go_into_slots_or_are_condemned() -> None:
    pods = [make_stateful_pod(name=f"web-{ordinal}") for ordinal in (9, 4, 1, 2, 5, 99999999999)]
    slots = slots_of(pods, start=2, replicas=3)
    assert names(slots.replicas) == ["web-2", "web-3 (unborn)", "web-4"]
    assert names(slots.condemned) == ["web-9", "web-5", "web-1"]
    assert slots_of(pods, replicas=0).replicas == []


@pytest.mark.row("S-088", "S-089")
def test_of_two_pods_of_one_ordinal_the_later_counts() -> None:
    first, second = make_stateful_pod(1), make_stateful_pod(name="web-01")
    assert slots_of([first, second], replicas=2).replicas[1] is second
    slots = slots_of([second, first], replicas=2)
    assert slots.replicas[1] is first
    assert slots.condemned == []
    assert identity_matches(make_stateful_set(), first)
    assert not identity_matches(make_stateful_set(), second)


@pytest.mark.row("S-095")
def test_the_first_unavailable_pod_is_the_lowest() -> None:
    good = make_stateful_pod(0)
    broken = {ordinal: make_stateful_pod(ordinal, ready=False) for ordinal in (1, 3, 4)}
    assert slots_of([good, *broken.values()], replicas=2).first_unavailable(0, START) is broken[1]
    assert slots_of([good, broken[3], broken[4]], replicas=1).first_unavailable(0, START) is broken[3]
    unborn = slots_of([good, broken[3]], replicas=2)
    assert unborn.first_unavailable(0, START) is unborn.replicas[1]
    assert slots_of([good], replicas=1).first_unavailable(0, START) is None


@pytest.mark.row("S-096", "S-097", "S-099")
@pytest.mark.parametrize(
    ("phase", "ready", "deleted", "expected"),
    [
        ("", True, False, {"unready", "unavailable"}),
        ("Pending", True, False, {"created", "unready", "unavailable"}),
        ("Running", True, False, {"created"}),
        ("Running", False, False, {"created", "unready", "unavailable"}),
        ("Running", True, True, {"created", "terminating", "unavailable", "unready"}),
        ("Failed", True, False, {"created", "unready", "unavailable", "terminal"}),
        ("Succeeded", True, True, {"created", "unready", "unavailable", "terminal", "terminating"}),
        ("Unknown", True, False, {"created", "unready", "unavailable"}),
    ],
)
def test_what_a_pod_is(phase: str, ready: bool, deleted: bool, expected: set[str]) -> None:
    pod = make_stateful_pod(phase=phase, ready=ready, deleted=deleted)
    found = {
        "created": is_created(pod),
        "unready": not is_running_and_ready(pod),
        "unavailable": is_unavailable(pod, 0, START),
        "terminal": is_terminal(pod),
        "terminating": is_terminating(pod),
    }
    assert {name for name, value in found.items() if value} == expected


@pytest.mark.row("S-098", "S-099")
def test_the_phase_does_not_make_a_pod_unavailable() -> None:
    document = msgspec.to_builtins(make_stateful_pod(ready_for=30))
    document["status"]["phase"] = "Unknown"
    pod = msgspec.convert(document, Pod)
    assert not is_running_and_ready(pod)
    assert not is_unavailable(pod, 30, START)
    assert is_unavailable(pod, 31, START)
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert is_unavailable(msgspec.convert(document, Pod), 0, START)


@pytest.mark.row("S-100")
def test_a_pod_without_the_label_is_of_no_revision() -> None:
    assert pod_revision(make_stateful_pod()) == R1
    assert pod_revision(make_stateful_pod(labels={"app": "web"})) == ""


@pytest.mark.row("S-101")
def test_identity_is_name_namespace_and_name_label() -> None:
    stateful_set, pod = make_stateful_set(), make_stateful_pod(1)
    labels = {"app": "web", POD_NAME_LABEL: "web-1"}
    assert identity_matches(stateful_set, pod)
    assert identity_matches(stateful_set, make_stateful_pod(1, labels=labels, owner=None))
    assert not identity_matches(stateful_set, make_stateful_pod(1, labels={"app": "web"}))
    assert not identity_matches(stateful_set, make_stateful_pod(1, labels={**labels, POD_NAME_LABEL: "web-2"}))
    assert not identity_matches(make_stateful_set("other"), pod)
    assert not identity_matches(make_stateful_set(metadata={"namespace": "other"}), pod)
    assert not identity_matches(stateful_set, make_stateful_pod(name="web-99999999999"))


@pytest.mark.row("S-102")
def test_storage_is_a_volume_for_each_claim_template() -> None:
    stateful_set = make_stateful_set(claims=("data", "logs"))
    assert storage_matches(stateful_set, make_stateful_pod(1, claims=("logs", "data")))
    assert not storage_matches(stateful_set, make_stateful_pod(1, claims=("data",)))
    assert storage_matches(make_stateful_set(), make_stateful_pod(1, claims=("data",)))
    assert not storage_matches(make_stateful_set(), make_stateful_pod(name="web-99999999999"))
    other = make_stateful_pod(2, claims=("data", "logs"))
    renamed = msgspec.structs.replace(other, metadata=make_stateful_pod(1).metadata)
    assert not storage_matches(stateful_set, renamed)
    document = stateful_pod_document(1, claims=("data",))
    document["spec"]["volumes"].append({"name": "logs", "emptyDir": {}})
    assert not storage_matches(stateful_set, msgspec.convert(document, Pod))


@pytest.mark.row("S-093")
@pytest.mark.parametrize(
    ("options", "current"),
    [
        ({"partition": None}, {3, 4}),
        ({"partition": 0}, set()),
        ({"partition": 3}, {3, 4, 5}),
        ({"strategy": "OnDelete"}, set()),
        ({"strategy": "Recreate"}, set()),
        ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}, {3}),
    ],
)
def test_which_revision_a_new_pod_gets(options: Document, current: set[int]) -> None:
    stateful_set = make_stateful_set(start=3, replicas=4, status={"replicas": 4, "currentReplicas": 2}, **options)
    assert {ordinal for ordinal in range(3, 7) if starts_at_current(stateful_set, ordinal)} == current


@pytest.mark.row("S-195", "S-158")
@pytest.mark.parametrize(
    ("value", "replicas", "expected"),
    [
        (None, 10, 1),
        (3, 10, 3),
        (3, 0, 3),
        (0, 0, 1),
        ("10%", 25, 2),
        ("100%", 5, 5),
        ("50%", 5, 2),
        ("10%", 5, 1),
        ("1%", 0, 1),
        ("0%", 0, 1),
        (30, 3, 30),
    ],
)
def test_how_many_pods_may_be_unavailable(value: int | str | None, replicas: int, expected: int) -> None:
    assert max_unavailable(make_stateful_set(max_unavailable=value, replicas=replicas)) == expected


@pytest.mark.row("S-158")
def test_one_pod_may_be_unavailable_without_a_bound_and_text_is_none() -> None:
    assert max_unavailable(make_stateful_set(partition=None)) == 1
    with pytest.raises(IntOrStringError):
        max_unavailable(make_stateful_set(max_unavailable="many"))


@pytest.mark.row("S-103", "S-104", "S-105", "S-106", "S-107")
def test_a_new_pod_is_a_copy_of_the_template_with_a_name() -> None:
    template = pod_template("web:1")
    template["metadata"] |= {
        "labels": {"app": "web", POD_INDEX_LABEL: "no", POD_NAME_LABEL: "no", REVISION_LABEL: "no"},
        "annotations": {"note": "kept"},
        "finalizers": ["example.com/kept"],
        "name": "dropped",
    }
    template["spec"] |= {
        "hostname": "replaced",
        "subdomain": "replaced",
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}}],
        "notKnownHere": {"deep": [1]},
    }
    stateful_set = make_stateful_set(start=3, claims=("logs", "data"), template=template)
    made = new_pod_document(stateful_set, stateful_set.spec.template, R1, 4)
    assert msgspec.json.decode(msgspec.json.encode(made)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-4",
            "generateName": "web-",
            "namespace": NAMESPACE,
            "labels": {"app": "web", POD_INDEX_LABEL: "4", POD_NAME_LABEL: "web-4", REVISION_LABEL: R1},
            "annotations": {"note": "kept"},
            "finalizers": ["example.com/kept"],
            "ownerReferences": [reference_to_set()],
        },
        "spec": {
            **template["spec"],
            "hostname": "web-4",
            "subdomain": "web-service",
            "volumes": [
                {"name": "logs", "persistentVolumeClaim": {"claimName": "logs-web-4"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-4"}},
                {"name": "other", "emptyDir": {}},
            ],
        },
    }


@pytest.mark.row("S-105", "S-106", "S-009")
def test_a_new_pod_has_no_empty_fields() -> None:
    template = pod_template()
    template["spec"]["subdomain"] = "erased"
    stateful_set = make_stateful_set(serviceName="", template=template)
    made = new_pod_document(stateful_set, stateful_set.spec.template, R1, 0)
    assert made["spec"] == {**pod_template()["spec"], "hostname": "web-0"}
    assert made["metadata"].keys() == {"name", "generateName", "namespace", "labels", "ownerReferences"}
    assert stateful_set.spec.template.spec == template["spec"], "the template is not changed"


def test_an_unborn_pod_is_what_will_be_read_of_it() -> None:
    stateful_set = make_stateful_set(claims=("data",))
    template = stateful_set.spec.template
    read = msgspec.json.decode(msgspec.json.encode(new_pod_document(stateful_set, template, R1, 1)), type=Pod)
    unborn = unborn_pod(stateful_set, template, R1, 1)
    assert (unborn.metadata.key, unborn.metadata.labels) == (read.metadata.key, read.metadata.labels)
    assert (unborn.spec, unborn.status) == (read.spec, read.status)
    assert identity_matches(stateful_set, unborn)
    assert storage_matches(stateful_set, unborn)


@pytest.mark.row("S-108")
def test_claims_are_copies_of_their_templates() -> None:
    templates = [
        claim_template("data", labels={"app": "no", "size": "big"}, annotations={"note": "kept"}, finalizers=["a/b"]),
        claim_template("logs"),
    ]
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["db"]}],
    }
    stateful_set = make_stateful_set(volumeClaimTemplates=templates, selector=selector)
    made = new_claim_documents(stateful_set, 2)
    metadata = {
        "name": "data-web-2",
        "namespace": NAMESPACE,
        "labels": {"app": "web", "size": "big"},
        "annotations": {"note": "kept"},
        "finalizers": ["a/b"],
    }
    assert made == {
        "data-web-2": {**templates[0], "metadata": metadata},
        "logs-web-2": {
            **templates[1],
            "metadata": {"name": "logs-web-2", "namespace": NAMESPACE, "labels": {"app": "web"}},
        },
    }
    assert stateful_set.spec.volume_claim_templates[0]["metadata"]["name"] == "data"


@pytest.mark.row("S-139", "S-101", "S-102")
def test_a_repaired_pod_has_identity_and_storage() -> None:
    stateful_set = make_stateful_set(claims=("data",))
    good = make_stateful_pod(1, claims=("data",))
    assert repaired_pod(stateful_set, good) is good
    for bad in (
        make_stateful_pod(name="web-01", claims=("data",)),
        make_stateful_pod(1, labels={"app": "web"}),
        make_stateful_pod(1, claims=("other",)),
        msgspec.structs.replace(good, metadata=msgspec.structs.replace(good.metadata, namespace="elsewhere")),
    ):
        assert not (identity_matches(stateful_set, bad) and storage_matches(stateful_set, bad))
        repaired = repaired_pod(stateful_set, bad)
        assert identity_matches(stateful_set, repaired)
        assert storage_matches(stateful_set, repaired)
        assert repaired.metadata.labels["app"] == "web"
        assert repaired.status == bad.status
    assert repaired_pod(stateful_set, make_stateful_pod(1, labels={})).metadata.labels[POD_INDEX_LABEL] == "1"
    indexed = make_stateful_pod(1, claims=("data",), labels={POD_NAME_LABEL: "web-1", POD_INDEX_LABEL: "7"})
    assert repaired_pod(stateful_set, indexed) is indexed, "nobody looks at the index"


@pytest.mark.row("S-079")
def test_a_revision_gives_back_its_template() -> None:
    template = template_of(make_revision("web:7"))
    assert template.spec == pod_template("web:7")["spec"]
    assert template.metadata.labels == {"app": "web"}


@pytest.mark.parametrize(
    "data", [b"null", b"7", b"{}", b'{"spec":{"template":"x"}}', b'{"spec":{"template":{"spec":7}}}']
)
def test_data_that_is_no_template_is_an_error(data: bytes) -> None:
    with pytest.raises(RevisionError, match="no pod template in ControllerRevision ns/web-"):
        template_of(msgspec.structs.replace(make_revision(), data=data))


def test_ordinals_in_range() -> None:
    stateful_set = make_stateful_set(start=3, replicas=2)
    assert [ordinal for ordinal in range(-2, 9) if in_ordinal_range(stateful_set, ordinal)] == [3, 4]
