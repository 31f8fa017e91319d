"""Where the API server is: flags, kubeconfig files, the in-cluster service account, proxies."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kcm.api.config import EXEC_V1, EXEC_V1BETA1, ClientConfig, EnvVar, load_config
from kcm.api.errors import ConfigError
from kcm.api.transport import Endpoint
from kcm.logs import capture

Values = dict[str, object]
WriteConfig = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> WriteConfig:
    """Write a kubeconfig with one context; arguments replace the fields of its parts."""

    def write(
        *, cluster: Values | None = None, user: Values | None = None, context: Values | None = None, **top: object
    ) -> str:
        file = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "ctx",
            "clusters": [{"name": "one", "cluster": {"server": "https://one.example:6443", **(cluster or {})}}],
            "users": [{"name": "me", "user": user or {}}],
            "contexts": [{"name": "ctx", "context": {"cluster": "one", "user": "me", **(context or {})}}],
            **top,
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(file))
        return str(path)

    return write


def load(kubeconfig: str = "", master: str = "", **environ: str) -> ClientConfig:
    return load_config(kubeconfig=kubeconfig, master=master, environ=environ, service_account=Path("/nonexistent"))


def service_account(folder: Path) -> Path:
    (folder / "token").write_text("in-cluster-token\n")
    (folder / "ca.crt").write_text("not PEM")
    return folder


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.row("C-025")
def test_master_overrides_the_kubeconfig_and_without_both_the_service_account_is_used(
    write: WriteConfig, tmp_path: Path
) -> None:
    kubeconfig = write(cluster={"tls-server-name": "one"}, user={"token": "secret"})
    folder = service_account(tmp_path)

    def server(kubeconfig: str, master: str) -> str:
        return load_config(kubeconfig=kubeconfig, master=master, environ=IN_CLUSTER, service_account=folder).server

    assert server(kubeconfig, "") == "https://one.example:6443"
    assert server(kubeconfig, "https://two.example") == "https://two.example"
    assert server("", "https://two.example") == "https://two.example"
    assert server("", "") == "https://10.96.0.1:443"

    overridden = load(kubeconfig, "https://two.example")
    assert (overridden.token, overridden.tls_server_name) == ("secret", "")
    assert load("", "https://two.example").token == ""
    with pytest.raises(ConfigError, match="no configuration has been provided"):
        load()


def test_the_default_kubeconfig_is_not_read_and_the_message_says_what_was_tried(write: WriteConfig) -> None:
    with pytest.raises(ConfigError) as raised:
        load(KUBECONFIG=write())
    text = str(raised.value)
    assert "\n" not in text
    for part in ("--kubeconfig", "--master", "KUBERNETES_SERVICE_HOST", "$KUBECONFIG is not read"):
        assert part in text


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    folder = service_account(tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with capture() as records:
        config = load_config(kubeconfig="", master="", environ=environ, service_account=folder)
    assert config.server == "https://[fd00::1]:6443"
    assert config.token_file == str(folder / "token")
    assert config.ca_file == ""
    assert [record.level for record in records] == ["error"]
    assert records[0].pairs["path"] == str(folder / "ca.crt")


def test_in_a_pod_without_a_token_the_message_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}/token: no such file or directory"):
        load_config(kubeconfig="", master="", environ=IN_CLUSTER, service_account=tmp_path)


def test_a_missing_kubeconfig_is_reported_as_by_the_reference() -> None:
    with pytest.raises(ConfigError) as raised:
        load("/nonexistent/kubeconfig")
    assert str(raised.value) == "stat /nonexistent/kubeconfig: no such file or directory"


def test_paths_are_relative_to_the_file_that_names_them(
    write: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca", "crt", "key", "token"):
        (tmp_path / name).write_text(name)
    path = write(
        cluster={"certificate-authority": "ca"},
        user={"client-certificate": "./crt", "client-key": str(tmp_path / "key"), "tokenFile": "x/../token"},
    )
    monkeypatch.chdir(tmp_path.parent)
    config = load(os.path.relpath(path))
    assert config.ca_file == str(tmp_path / "ca")
    assert config.client_certificate_file == str(tmp_path / "crt")
    assert config.client_key_file == str(tmp_path / "key")
    assert config.token_file == str(tmp_path / "token")


def test_embedded_data_is_decoded_and_never_shown(write: WriteConfig) -> None:
    def data(text: str) -> str:
        encoded = base64.b64encode(text.encode()).decode()
        return f"{encoded[:4]}\n{encoded[4:]}\n"

    config = load(
        write(
            cluster={"certificate-authority-data": data("authority")},
            user={
                "client-certificate-data": data("certificate"),
                "client-key-data": data("secret-key"),
                "token": "secret-token",
            },
        )
    )
    assert config.ca_data == b"authority"
    assert config.client_certificate_data == b"certificate"
    assert config.client_key_data == b"secret-key"
    assert config.token == "secret-token"
    assert "secret" not in repr(config)


def test_an_exec_plugin_is_taken_over(write: WriteConfig, tmp_path: Path) -> None:
    plugin = {
        "apiVersion": EXEC_V1BETA1,
        "command": "bin/login",
        "args": ["--for", "kcm"],
        "env": [{"name": "A", "value": "1"}],
        "provideClusterInfo": True,
        "installHint": "get it",
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x", "none": None}}
    config = load(write(cluster={"extensions": [{"name": "other"}, extension]}, user={"exec": plugin}))
    assert config.exec is not None
    assert config.exec.command == str(tmp_path / "bin/login")
    assert config.exec.args == ("--for", "kcm")
    assert config.exec.env == (EnvVar("A", "1"),)
    assert config.exec.provide_cluster_info
    assert config.exec.interactive_mode == "IfAvailable"
    assert config.exec_extension == {"audience": "x", "none": None}


def test_a_plugin_without_a_slash_is_looked_up_later_and_nulls_are_absent_fields(write: WriteConfig) -> None:
    plugin = {"apiVersion": EXEC_V1, "command": "login", "interactiveMode": "Never", "args": None, "env": None}
    config = load(write(user={"exec": plugin, "token": None}, preferences=None))
    assert config.exec is not None
    assert (config.exec.command, config.exec.args) == ("login", ())
    assert config.token == ""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("token: [secret", "line 1: expected ',' or ']'"),
        ("just text", "Expected `object`, got `str`"),
        ("clusters: 3", "$.clusters"),
        ("users: [{name: a, user: {token: 123}}]", "got `int` - at `$.users[0].user.token`"),
        ("clusters: [{name: a}, {name: a}]", 'two clusters "a"'),
        ("apiVersion: v7", 'version "v7"'),
        ("kind: Pod", 'kind "Pod"'),
        ("\x00", "error loading"),
    ],
)
def test_a_malformed_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(str(path))
    message = str(raised.value)
    assert message.startswith(f'error loading config file "{path}": ')
    assert part in message
    assert "\n" not in message
    assert "secret" not in message


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f'error loading config file "{tmp_path}": .*is a directory'):
        load(str(tmp_path))


def test_an_empty_file_serves_only_with_a_master(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("")
    with pytest.raises(ConfigError, match=r"current-context is not set \(it has no contexts\)"):
        load(str(path))
    assert load(str(path), "http://127.0.0.1:8080").server == "http://127.0.0.1:8080"


CERTIFICATE: Values = {"client-certificate-data": "YQ=="}
PLUGIN: Values = {"apiVersion": EXEC_V1, "command": "login", "interactiveMode": "Never"}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"current-context": ""}, "current-context is not set (contexts: ctx)"),
        ({"current-context": "x"}, 'there is no context "x" (contexts: ctx)'),
        ({"context": {"cluster": "x"}}, 'there is no cluster "x" (clusters: one)'),
        ({"context": {"cluster": ""}}, 'there is no cluster ""'),
        ({"context": {"user": "x"}}, 'there is no user "x" (users: me)'),
        ({"cluster": {"server": ""}}, 'cluster "one" has no server'),
        ({"cluster": {"server": "ftp://x"}}, 'server: "ftp://x" must be'),
        ({"cluster": {"server": "https://me:secret@x"}}, 'server: "x" must be'),
        ({"cluster": {"certificate-authority": "nofile"}}, "nofile: no such file"),
        ({"cluster": {"certificate-authority": "."}}, "is a directory"),
        ({"cluster": {"certificate-authority-data": "#"}}, "certificate-authority-data is not base64"),
        (
            {"cluster": {"certificate-authority-data": "YQ==", "certificate-authority": "kubeconfig"}},
            "certificate-authority-data and certificate-authority are both given",
        ),
        (
            {"cluster": {"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}},
            "insecure-skip-tls-verify",
        ),
        ({"cluster": {"proxy-url": "socks5://x:1"}}, 'proxy-url: "socks5://x:1" must be'),
        ({"cluster": {"proxy-url": "me:secret@x"}}, 'proxy-url: "x" must be'),
        ({"user": {"client-certificate": "nofile", "client-key": "nofile"}}, "client-certificate"),
        ({"user": {**CERTIFICATE, "client-key-data": "a"}}, "client-key-data is not base64"),
        ({"user": CERTIFICATE}, "needs client-key-data or client-key"),
        (
            {"user": {**CERTIFICATE, "client-certificate": "kubeconfig"}},
            "client-certificate-data and client-certificate are both given",
        ),
        (
            {"user": {**CERTIFICATE, "client-key-data": "YQ==", "client-key": "kubeconfig"}},
            "client-key-data and client-key are both given",
        ),
        ({"user": {"tokenFile": "nofile"}}, "tokenFile"),
        ({"user": {"token": "t", "username": "u", "password": "p"}}, "a token together with username"),
        ({"user": {"auth-provider": {"name": "oidc"}}}, 'auth-provider "oidc" is not supported'),
        ({"user": {"token": "t", "as": "viewer"}}, "impersonation"),
        ({"user": {"exec": {**PLUGIN, "command": ""}}}, "exec needs a command"),
        ({"user": {"exec": {**PLUGIN, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}}, "v1alpha1"),
        ({"user": {"exec": {**PLUGIN, "interactiveMode": ""}}}, "interactiveMode"),
        ({"user": {"exec": {**PLUGIN, "interactiveMode": "Sometimes"}}}, '"Sometimes"'),
        ({"user": {"exec": {**PLUGIN, "env": [{"value": "1"}]}}}, "without a name"),
    ],
)
def test_what_cannot_be_used_is_named(write: WriteConfig, changes: dict[str, Values], part: str) -> None:
    path = write(**changes)
    with pytest.raises(ConfigError) as raised:
        load(path)
    message = str(raised.value)
    assert message.startswith(f"invalid configuration: {path}: ")
    assert part in message
    assert "\n" not in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("https://one.example:6443/", "https://one.example:6443"),
        ("HTTPS://one.example", "https://one.example"),
        ("https://one.example/k8s/clusters/c-1/?x=1#y", "https://one.example/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("localhost:8080", "http://localhost:8080"),
        ("127.0.0.1:6443", "http://127.0.0.1:6443"),
        ("one.example", "http://one.example"),
    ],
)
def test_a_server_becomes_a_url_and_is_plain_http_without_a_scheme(write: WriteConfig, server: str, url: str) -> None:
    assert load("", server).server == url
    assert load(write(cluster={"server": server, "certificate-authority-data": "YQ=="})).server == url


@pytest.mark.parametrize(
    "server", ["a/b", "https://", "https://[::1", "https://x:99999", "https://x:0", "ftp://x", ":"]
)
def test_what_is_no_server_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match=r"--master: .* must be an http or https URL"):
        load("", server)


def test_a_contradiction_about_tls_does_not_matter_without_tls(write: WriteConfig) -> None:
    cluster: Values = {"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}
    assert load(write(cluster={**cluster, "server": "http://x"})).server == "http://x"


def test_the_endpoint_has_what_a_transport_needs(write: WriteConfig) -> None:
    cluster: Values = {"tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    assert load(write(cluster=cluster)).endpoint() == Endpoint(
        server="https://one.example:6443", tls_server_name="kubernetes", proxy="http://proxy:3128"
    )
    assert load(write(cluster={**cluster, "server": "http://x"})).endpoint().tls_server_name is None
    assert load("", "http://x").endpoint() == Endpoint(server="http://x")


def test_a_configured_proxy_goes_before_that_of_the_environment(write: WriteConfig) -> None:
    environ = {"HTTPS_PROXY": "http://other:3128", "NO_PROXY": "*"}
    path = write(cluster={"proxy-url": "http://proxy:3128"})
    assert load_config(kubeconfig=path, master="", environ=environ).proxy_url == "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        ("https://one.example", {}, ""),
        ("https://one.example", {"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://one.example", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("https://one.example", {"HTTP_PROXY": "http://proxy:3128"}, ""),
        ("http://one.example", {"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://proxy:3128"}, ""),
        ("https://127.3.2.1:6443", {"HTTPS_PROXY": "http://proxy:3128"}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://proxy:3128"}, ""),
    ],
)
def test_the_environment_names_a_proxy_by_the_servers_scheme(server: str, environ: dict[str, str], proxy: str) -> None:
    assert load("", server, **environ).proxy_url == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "bypassed"),
    [
        ("https://one.example", "*", True),
        ("https://one.example", "other,ONE.example", True),
        ("https://api.one.example", "one.example", True),
        ("https://api.one.example", ".one.example", True),
        ("https://api.one.example", "*.one.example", True),
        ("https://one.example", ".one.example", False),
        ("https://bone.example", "one.example", False),
        ("https://one.example:6443", "one.example:6443", True),
        ("https://one.example", "one.example:443", True),
        ("https://one.example", "one.example:6443", False),
        ("https://10.96.0.1", "10.96.0.0/12", True),
        ("https://10.96.0.1", "10.95.0.0/16, junk/8", False),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1:6443", "10.96.0.1:443", False),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://[fd00::1]", "fd00:0::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://one.example", " , ,", False),
    ],
)
def test_no_proxy_is_read_as_by_go(server: str, no_proxy: str, bypassed: bool) -> None:
    config = load("", server, HTTPS_PROXY="http://proxy:3128", NO_PROXY=no_proxy)
    assert (config.proxy_url == "") is bypassed


def test_a_proxy_that_cannot_be_used_is_named_without_its_password() -> None:
    with pytest.raises(ConfigError, match='HTTPS_PROXY: "proxy:1080" must be') as raised:
        load("", "https://one.example", HTTPS_PROXY="socks5://me:secret@proxy:1080")
    assert "secret" not in str(raised.value)
