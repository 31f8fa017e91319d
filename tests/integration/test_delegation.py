"""What the flags leave open is looked up in the cluster."""

import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from kcm.testing import ControlPlane
from kcm.testing.certificates import Authority
from tests.integration.test_command import fetch, free_port
from tests.integration.test_serving_beside_stock import People, ask
from tests.managers import PATIENCE, Managers, serving

READER = "extension-apiserver-authentication-reader"


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with serving(ControlPlane()) as control_plane:
        yield control_plane


def flags(identity: Path, port: int) -> tuple[str, ...]:
    return (
        "--leader-elect=false",
        "--controllers=statefulset",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--authentication-kubeconfig={identity}",
        f"--authorization-kubeconfig={identity}",
    )


@pytest.mark.row("C-099")
async def test_the_clusters_authorities_count(control_plane: ControlPlane, managers: Managers, tmp_path: Path) -> None:
    people = People(control_plane, tmp_path)
    await people.add_reader()
    server = f"https://127.0.0.1:{(port := free_port())}"
    managers.start(*flags(control_plane.kubeconfig, port))
    assert await fetch(f"{server}/healthz") == "ok"
    wanted = {
        "jane": 200,
        "proxy for jane": 200,
        "jane as a proxy": 200,
        "reader": 200,
        "other": 403,
        "anonymous": 403,
        "bad token": 401,
    }
    found = {name: (await ask(f"{server}/metrics", people.known[name]))[0] for name in wanted}
    assert found == wanted


@pytest.mark.row("C-099")
async def test_authorities_that_cannot_be_read_end_the_start_unless_that_is_tolerated(
    control_plane: ControlPlane, managers: Managers
) -> None:
    identity = control_plane.write_kubeconfig(user="may-not-read")
    server = f"https://127.0.0.1:{(port := free_port())}"
    strict = managers.start(*flags(identity, port))
    assert await strict.exit_status() == 1
    assert re.search(r'"command failed" err=".*extension-apiserver-authentication-reader', strict.output)
    managers.start(*flags(identity, port), "--authentication-tolerate-lookup-failure")
    assert await fetch(f"{server}/healthz") == "ok"


async def test_a_certificate_of_a_strange_authority_ends_the_handshake(
    control_plane: ControlPlane, managers: Managers, tmp_path: Path
) -> None:
    server = f"https://127.0.0.1:{(port := free_port())}"
    managers.start(*flags(control_plane.kubeconfig, port))
    assert await fetch(f"{server}/healthz") == "ok"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*Authority("strangers").client("jane").write(tmp_path, "jane"))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.get(f"{server}/healthz", ssl=context)
    assert await fetch(f"{server}/healthz") == "ok"


async def test_new_authorities_in_a_file_count_for_the_next_connection(
    control_plane: ControlPlane, managers: Managers, tmp_path: Path
) -> None:
    before, after = Authority("before"), Authority("after")
    file = tmp_path / "ca.crt"
    file.write_bytes(before.certificate)
    server = f"https://127.0.0.1:{(port := free_port())}"
    managers.start(*flags(control_plane.kubeconfig, port), f"--client-ca-file={file}")
    assert await fetch(f"{server}/healthz") == "ok"

    async def status(authority: Authority) -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        pair = authority.client("root", ["system:masters"]).write(tmp_path, "root")
        context.load_cert_chain(*pair)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:
            try:
                async with session.get(f"{server}/metrics", ssl=context) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

    assert (await status(before), await status(after)) == (200, 0)
    file.write_bytes(after.certificate)
    assert (await status(before), await status(after)) == (0, 200)


async def test_what_the_configmap_says_of_headers_counts(control_plane: ControlPlane) -> None:
    found = json.loads(
        await control_plane.kubectl(
            "get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", "-ojson"
        )
    )["data"]
    # Which is what the tests above went by.
    assert json.loads(found["requestheader-username-headers"]) == ["X-Remote-User"]
    assert found["client-ca-file"].strip() == control_plane.ca_pem.decode().strip()
