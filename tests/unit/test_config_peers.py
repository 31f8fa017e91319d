"""What we read out of a kubeconfig against what the `kubernetes` package reads out of it."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client, config

from kcm.api.config import load_config
from kcm.api.credentials import ConfigCredentials
from kcm.testing.certificates import Authority


def kubeconfig(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "elsewhere", "context": {"cluster": "wrong", "user": "wrong"}},
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "wrong", "cluster": {"server": "https://wrong"}}, {"name": "c", "cluster": cluster}],
        "users": [{"name": "wrong", "user": {}}, {"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("credential", ["token", "tokenFile"])
async def test_both_read_the_same(tmp_path: Path, credential: str, *, embedded: bool) -> None:
    authority = Authority("test").certificate
    (tmp_path / "ca.pem").write_bytes(authority)
    (tmp_path / "token").write_text("from-file\n")
    cluster: dict[str, Any] = {"server": "https://api.example:6443", "tls-server-name": "kubernetes"}
    if embedded:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    else:
        cluster["certificate-authority"] = "ca.pem"
    user = {
        "token": {"token": "given"},
        "tokenFile": {"tokenFile": str(tmp_path / "token")},
    }[credential]
    file = kubeconfig(tmp_path, cluster=cluster, user=user)

    ours = load_config(kubeconfig=str(file), master="", environ={})
    theirs = client.Configuration()
    await config.load_kube_config(config_file=str(file), client_configuration=theirs)

    assert ours.server == theirs.host
    assert ours.tls_server_name == theirs.tls_server_name
    assert (ours.ca_data or Path(ours.ca_file).read_bytes()) == Path(theirs.ssl_ca_cert).read_bytes()
    # Theirs keeps the line feed at the end of a token file, which no header may have.
    assert await ConfigCredentials(ours).authorization() == theirs.api_key["BearerToken"].strip()
