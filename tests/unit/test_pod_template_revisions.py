"""What a StatefulSet's revision remembers of its pod template, and what an API server fills in."""

import copy
from typing import Any

import msgspec
import pytest

from kcm.api.pod_template import equal_with_defaults, revision_data
from kcm.api.pod_template_defaults import image_tag
from kcm.api.types.meta import Document
from tests.unit.fakes import pod_template


def data_of(template: Document) -> str:
    return revision_data({"spec": {"template": template, "replicas": 3, "serviceName": "db"}}).decode()


def defaulted(template: Document) -> Document:
    data: Document = msgspec.json.decode(revision_data({"spec": {"template": template}}, with_defaults=True))
    template = data["spec"]["template"]
    assert template.pop("$patch") == "replace"
    return template


def with_spec(**spec: Any) -> Document:
    template = copy.deepcopy(pod_template())
    template["spec"].update(spec)
    return template


@pytest.mark.row("S-053", "S-054", "S-055", "S-056", "S-060")
def test_the_data_is_the_reference_s_byte_for_byte() -> None:
    template = pod_template("pg:1", app="db")
    template["spec"]["containers"][0] |= {
        "name": "c",
        "env": [{"name": "X", "value": "a<b>&c é"}],
        "resources": {"requests": {"cpu": "500m"}},
    }
    assert data_of(template) == (
        r'{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"env":'
        r'[{"name":"X","value":"a\u003cb\u003e\u0026c é"}],"image":"pg:1","imagePullPolicy":"IfNotPresent","name":"c",'
        r'"resources":{"requests":{"cpu":"500m"}},"terminationMessagePath":"/dev/termination-log",'
        r'"terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always",'
        r'"schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}}}'
    )


@pytest.mark.row("S-054")
def test_the_data_has_what_the_reference_knows_and_writes() -> None:
    """Not what only a newer server has, nor what is unset; but empty structs, and lists that are always there."""
    template: Document = {
        "metadata": {"creationTimestamp": None, "labels": {}, "fromTheFuture": 1},
        "spec": {
            "containers": None,
            "hostNetwork": False,
            "tolerations": [],
            "securityContext": {},
            "Hostname": "x",
            "volumes": [{"name": "v", "projected": {"sources": []}, "fromTheFuture": {}}],
        },
        "status": {},
    }
    assert data_of(template) == (
        '{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"containers":null,"securityContext":{},'
        '"volumes":[{"name":"v","projected":{"sources":[]}}]}}}}'
    )
    assert template["metadata"]["fromTheFuture"] == 1
    assert revision_data({}) == revision_data({"spec": {"template": {}}})


@pytest.mark.row("S-057")
@pytest.mark.parametrize(
    ("number", "written"),
    [
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (-(2**53) - 1, "-9007199254740992"),
        (2**63 - 1, "9223372036854776000"),
    ],
)
def test_numbers_were_floats_for_a_moment(number: int, written: str) -> None:
    assert f'"runAsUser":{written}}}' in data_of(with_spec(securityContext={"runAsUser": number}))


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\b", "\f", "\x1f", "\x7f", '"', "\\", "/", "\U0001f600"])
def test_the_text_of_the_data_is_that_text(text: str) -> None:
    decoded = msgspec.json.decode(data_of(with_spec(hostname=text)))
    assert decoded["spec"]["template"]["spec"]["hostname"] == text


@pytest.mark.row("S-068")
def test_a_revision_of_an_older_server_is_still_the_current_one() -> None:
    older = copy.deepcopy(pod_template())
    older["metadata"]["creationTimestamp"] = None
    del older["spec"]["securityContext"], older["spec"]["containers"][0]["terminationMessagePolicy"]
    assert equal_with_defaults(pod_template(), older)
    assert equal_with_defaults(with_spec(fromTheFuture=True), older)
    assert not equal_with_defaults(pod_template("web:2"), older)
    assert not equal_with_defaults(older, pod_template()), "only what was stored is filled in"
    with pytest.raises(ValueError, match="belongs"):
        equal_with_defaults(pod_template(), with_spec(containers={}))


@pytest.mark.row("S-070")
def test_an_empty_pod_gets_its_defaults() -> None:
    bare = {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    assert defaulted(bare) == {**pod_template(), "metadata": {}}


def container(**fields: Any) -> Document:
    return {"spec": {"containers": [{"name": "c", **fields}]}}


def volume(**sources: Any) -> Document:
    return {"spec": {"volumes": [{"name": "v", **sources}]}}


@pytest.mark.row("S-070")
@pytest.mark.parametrize(
    ("template", "filled_in"),
    [
        (container(image="web"), {"imagePullPolicy": "Always"}),
        (container(image="web:1", imagePullPolicy="Never"), {"imagePullPolicy": "Never"}),
        (container(ports=[{"containerPort": 80}]), {"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
        (
            container(livenessProbe={"httpGet": {"port": "http"}, "periodSeconds": 5}),
            {
                "livenessProbe": {
                    "httpGet": {"port": "http", "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 5,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                }
            },
        ),
        (
            container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}}]},
        ),
        (
            container(resources={"requests": {"cpu": "0.1m", "memory": "1.5Gi"}}),
            {"resources": {"requests": {"cpu": "1m", "memory": "1536Mi"}}},
        ),
    ],
)
def test_containers_get_their_defaults(template: Document, filled_in: Document) -> None:
    (done,) = defaulted(template)["spec"]["containers"]
    assert filled_in.items() <= done.items()


@pytest.mark.row("S-070")
@pytest.mark.parametrize(
    ("given", "filled_in"),
    [
        ({}, {"emptyDir": {}}),
        ({"sourceFromTheFuture": {}}, {"emptyDir": {}}),
        ({"secret": {}}, {"secret": {"defaultMode": 420}}),
        ({"secret": {"defaultMode": 0}}, {"secret": {"defaultMode": 0}}),
        ({"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}),
        (
            {"azureDisk": {"diskName": "", "diskURI": "", "readOnly": False, "fsType": ""}},
            {
                "azureDisk": {
                    "diskName": "",
                    "diskURI": "",
                    "readOnly": False,
                    "fsType": "",
                    "cachingMode": "ReadWrite",
                    "kind": "Shared",
                }
            },
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1e-4"}}}}}},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {},
                        "spec": {"resources": {"requests": {"storage": "1e-3"}}, "volumeMode": "Filesystem"},
                    }
                }
            },
        ),
        (
            {"image": {"reference": "web@sha256:" + "0" * 64}},
            {"image": {"reference": "web@sha256:" + "0" * 64, "pullPolicy": "IfNotPresent"}},
        ),
    ],
)
def test_volumes_get_their_defaults(given: Document, filled_in: Document) -> None:
    assert defaulted(volume(**given))["spec"]["volumes"] == [{"name": "v", **filled_in}]


def test_either_name_of_the_service_account_gives_the_other() -> None:
    assert defaulted({"spec": {"serviceAccount": "a"}})["spec"]["serviceAccountName"] == "a"
    assert defaulted({"spec": {"serviceAccount": "a", "serviceAccountName": "b"}})["spec"]["serviceAccount"] == "b"


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("web", "latest"),
        ("web:1.27", "1.27"),
        ("registry.test:5000/web", "latest"),
        ("registry.test:5000/team/web:1", "1"),
        ("web@sha256:" + "0" * 64, ""),
        ("web:1@sha256:" + "0" * 64, "1"),
        ("web@sha256:00", ""),
        ("Web", ""),
        ("Registry/web", "latest"),
        ("docker.io/web", "latest"),
        ("0" * 64, ""),
        ("a" * 300, ""),
        ("", ""),
    ],
)
def test_an_image_has_a_tag_if_only_by_default(image: str, tag: str) -> None:
    assert image_tag(image) == tag
