"""The HTTPS port of kcm and of the stock manager answer the same requests of the same people alike."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kcm.testing import ControlPlane
from tests.integration.test_command import free_port
from tests.managers import KCM, PATIENCE, Managers, serving

STOCK = (str(ControlPlane.binary("kube-controller-manager")),)
RBAC = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: other, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{nonResourceURLs: [/metrics, /metrics/slis], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
- {kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}
"""


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with serving(ControlPlane(service_account_admission=False)) as control_plane:
        yield control_plane


@dataclass
class Person:
    """Somebody who asks: with a token, with a certificate, or with neither."""

    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: tuple[Path, Path] | None = None


class People:
    """Those who ask."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._plane = control_plane
        self._directory = directory
        pki = control_plane.directory / "pki"
        proxy = (pki / "front-proxy-client.crt", pki / "front-proxy-client.key")
        admin = (pki / "admin.crt", pki / "admin.key")
        jane = self._with_certificate("jane")
        self.known = {
            "anonymous": Person(),
            "bad token": Person({"Authorization": "Bearer nonsense"}),
            "no bearer": Person({"Authorization": "Basic bm9ib2R5Om5v"}),
            "admin": Person(certificate=admin),
            "jane": Person(certificate=jane),
            "jane with a bad token": Person({"Authorization": "Bearer nonsense"}, jane),
            "proxy alone": Person(certificate=proxy),
            "proxy for jane": Person({"X-Remote-User": "jane"}, proxy),
            "proxy for a master": Person({"X-Remote-User": "joe", "X-Remote-Group": "system:masters"}, proxy),
            "jane as a proxy": Person({"X-Remote-User": "joe", "X-Remote-Group": "system:masters"}, jane),
        }

    def _with_certificate(self, name: str) -> tuple[Path, Path]:
        user = yaml.safe_load(self._plane.write_kubeconfig(user=name).read_text())["users"][0]["user"]
        files = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        for file, kind in zip(files, ("certificate", "key"), strict=True):
            file.write_bytes(base64.b64decode(user[f"client-{kind}-data"]))
        return files

    async def add_reader(self) -> None:
        """Two with service account tokens: one may read metrics, the other nothing."""
        await self._plane.kubectl("apply", "-f", "-", input=RBAC)
        for name in ("reader", "other"):
            token = await self._plane.kubectl("create", "token", name)
            self.known[name] = Person({"Authorization": f"Bearer {token.strip()}"})


async def ask(
    url: str, person: Person, method: str = "GET", *, accept: str | None = None, body: str | None = None
) -> tuple[int, str, str]:
    """Status, content type and body of an answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if person.certificate is not None:
        context.load_cert_chain(*person.certificate)
    headers = dict(person.headers) | ({"Accept": accept} if accept is not None else {})
    skip = ["Accept"] if accept is None else []
    async with (
        aiohttp.ClientSession(trust_env=False, skip_auto_headers=skip) as session,
        asyncio.timeout(PATIENCE),
    ):
        while True:
            try:
                async with session.request(method, url, headers=headers, ssl=context, data=body) as answer:
                    return answer.status, answer.headers["Content-Type"], await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)


async def until_all_run(url: str) -> None:
    """Wait for the checks of the controllers, which come last."""
    async with asyncio.timeout(PATIENCE):
        while True:
            _, _, text = await ask(f"{url}/healthz?verbose", Person())
            if "statefulset-controller" in text:
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def both(control_plane: ControlPlane, managers: Managers, *flags: str) -> AsyncIterator[tuple[str, str]]:
    """The addresses of the stock manager and kcm, started alike and well."""
    urls = []
    for program in (STOCK, KCM):
        port = free_port()
        managers.start(
            "--leader-elect=false",
            "--controllers=deployment,statefulset",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *flags,
            program=program,
        )
        urls.append(f"https://127.0.0.1:{port}")
    for url in urls:
        await until_all_run(url)
    yield urls[0], urls[1]


def delegating(control_plane: ControlPlane) -> tuple[str, ...]:
    pki = control_plane.directory / "pki"
    return (
        f"--authentication-kubeconfig={control_plane.kubeconfig}",
        f"--authorization-kubeconfig={control_plane.kubeconfig}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
    )


def flags(text: str) -> list[list[str]]:
    """Names and values on /flagz, whose stock form separates them by what chance says; that of the port left out."""
    lines = [re.split(r"[:=\s]+", line, maxsplit=1) for line in text.splitlines()[3:]]
    return [line for line in lines if line[0] != "secure-port"]


PATHS = ("/healthz", "/healthz/ping", "/metrics", "/metrics/slis", "/nothing", "/", "/configz")


@pytest.mark.row("C-094", "C-095", "C-096", "C-097", "C-119")
async def test_each_gets_what_the_stock_manager_gives_them(
    control_plane: ControlPlane, managers: Managers, tmp_path: Path
) -> None:
    people = People(control_plane, tmp_path)
    await people.add_reader()
    async with both(control_plane, managers, *delegating(control_plane)) as (stock, ours):
        seen = {}
        for name, person in people.known.items():
            for path in PATHS:
                theirs, own = await ask(f"{stock}{path}", person), await ask(f"{ours}{path}", person)
                seen[name, path] = own[0]
                assert own[0] == theirs[0], (name, path, theirs, own)
                assert own[1].split(";")[0] == theirs[1].split(";")[0], (name, path)
                if own[0] != 200 or path == "/healthz":
                    assert own[2] == theirs[2], (name, path)
        assert seen["reader", "/metrics"] == seen["jane", "/metrics"] == seen["proxy for jane", "/metrics"] == 200
        assert seen["anonymous", "/metrics"] == seen["other", "/metrics"] == seen["jane", "/configz"] == 403
        assert seen["bad token", "/healthz"] == seen["proxy alone", "/healthz"] == 401
        assert seen["proxy for a master", "/nothing"] == seen["admin", "/nothing"] == 404
        assert seen["jane as a proxy", "/configz"] == 403
        counted = [
            sorted(
                line
                for line in (await ask(f"{url}/metrics", people.known["admin"]))[2].splitlines()
                if re.match(r"auth\w+_(attempts|requests)", line) and "error" not in line
            )
            for url in (stock, ours)
        ]
        assert [line.split("{")[0] for line in counted[0]] == [line.split("{")[0] for line in counted[1]]


@pytest.mark.row("C-094", "C-098")
async def test_without_their_kubeconfigs_tokens_count_for_nothing(
    control_plane: ControlPlane, managers: Managers, tmp_path: Path
) -> None:
    people = People(control_plane, tmp_path)
    await people.add_reader()
    async with both(control_plane, managers) as (stock, ours):
        for name in ("anonymous", "bad token", "reader", "admin"):
            for path in PATHS:
                theirs, own = [await ask(f"{url}{path}", people.known[name]) for url in (stock, ours)]
                assert own == theirs, (name, path)


@pytest.mark.row("C-107", "C-108", "C-109", "C-110", "C-106")
async def test_the_pages_of_the_process_are_those_of_the_stock_manager(
    control_plane: ControlPlane, managers: Managers
) -> None:
    admin = Person(
        certificate=(control_plane.directory / "pki" / "admin.crt", control_plane.directory / "pki" / "admin.key")
    )
    async with both(
        control_plane, managers, *delegating(control_plane), "--kube-api-qps=33", "--node-sync-period=1s"
    ) as urls:

        async def compare(path: str, method: str = "GET", **how: Any) -> list[tuple[int, str, str]]:
            return [await ask(f"{url}{path}", admin, method, **how) for url in urls]

        theirs, own = await compare("/configz")
        configs = [json.loads(body)["kubecontrollermanager.config.k8s.io"] for _, _, body in (theirs, own)]
        assert configs[0] == configs[1]
        assert (theirs[:2], configs[1]["Generic"]["ClientConnection"]["qps"]) == (own[:2], 33)

        for accept in (None, "*/*", "text/plain", "text/html, text/plain;q=0.5"):
            theirs, own = await compare("/flagz", accept=accept)
            assert own[:2] == theirs[:2], accept
            assert flags(own[2]) == flags(theirs[2])
        for kind in ("Flagz", "Statusz"):
            for version in ("v1alpha1", "v1beta1", "v2"):
                accept = f"application/json;g=config.k8s.io;v={version};as={kind}"
                theirs, own = await compare(f"/{kind.lower()}", accept=accept)
                assert own[:2] == theirs[:2], accept
                assert json.loads(own[2]).keys() == json.loads(theirs[2]).keys()
        for accept in ("application/json", "image/png"):
            theirs, own = await compare("/statusz", accept=accept)
            assert (own[0], json.loads(own[2])) == (theirs[0], json.loads(theirs[2]))
        theirs, own = await compare("/statusz")
        names = [re.findall(r"^(\w+(?: version)?)", body, re.MULTILINE) for _, _, body in (theirs, own)]
        assert names[0] == names[1]

        for method, body in (("PUT", "3"), ("PUT", "x"), ("GET", None), ("POST", "3")):
            theirs, own = await compare("/debug/flags/v", method, body=body)
            assert (own[0], own[2]) == (theirs[0], theirs[2])
        for path in ("/debug/pprof/", "/debug/pprof", "/debug/pprof/goroutine?debug=1"):
            theirs, own = await compare(path)
            assert own[0] == theirs[0], path

        await compare("/healthz")
        theirs, own = await compare("/metrics/slis")
        shown = [
            sorted(re.findall(r"^kubernetes\w+\{(?!name=\"ping\").*\}", body, re.MULTILINE))
            for _, _, body in (theirs, own)
        ]
        assert shown[0] == shown[1]
        theirs, own = await compare("/metrics/slis", "DELETE")
        assert (own[0], own[2]) == (theirs[0], theirs[2])
        assert "kubernetes_healthcheck{" not in (await compare("/metrics/slis"))[1][2]
