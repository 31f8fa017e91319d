"""The patched copy of the reference that the tests are built from.

The upstream packages test/integration/{deployment,replicaset,…} start a kube-apiserver in the test process and run a controller
beside it. In the copy, the controllers' Run starts the command under test instead, with a kubeconfig for that API server.
Versions come from controlplane/kubernetes/go.mod; nothing of the reference is kept in this repository.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from kcm.testing import binaries

HERE = Path(__file__).parent
SUITES = ("deployment", "replicaset", "replicationcontroller", "statefulset")
#: These switch a gate on and off in the test's own process, halfway: no process beside it can follow.
IN_PROCESS_ONLY = {"deployment/TestTerminatingReplicasDeploymentStatus", "replicaset/TestTerminatingReplicas"}
GATES = (
    "DeploymentReplicaSetTerminatingReplicas",
    "MaxUnavailableStatefulSet",
    "PodDeletionCost",
    "StaleControllerConsistencyReplicaSet",
    "StaleControllerConsistencyStatefulSet",
    "StatefulSetRecreateStrategy",
    "StatefulSetSemanticRevisionComparison",
)
#: File, receiver of Run, and a Go expression for the controller's name.
CONTROLLERS = (
    ("deployment/deployment_controller.go", "dc *DeploymentController", '"deployment-controller"'),
    ("replicaset/replica_set.go", "rsc *ReplicaSetController", 'strings.ToLower(rsc.Kind) + "-controller"'),
    ("statefulset/stateful_set.go", "ssc *StatefulSetController", '"statefulset-controller"'),
)
#: File, the statement after which the API server is up, the type of its client configuration, and what writes it down.
SERVERS = (
    (
        "cmd/kube-apiserver/app/testing/testserver.go",
        "\treturn result, nil\n",
        "restclient.Config",
        "\treturn result, writeKubeconfig(result.ClientConfig)\n",
    ),
    (
        "test/integration/framework/test_server.go",
        "\treturn kubeAPIServerClient, kubeAPIServerClientConfig, tearDownFn\n",
        "rest.Config",
        "\tif err := writeKubeconfig(kubeAPIServerClientConfig); err != nil {\n\t\tt.Fatal(err)\n\t}\n"
        "\treturn kubeAPIServerClient, kubeAPIServerClientConfig, tearDownFn\n",
    ),
)


class ReferenceChangedError(Exception):
    """The reference no longer has what is patched; the patch has to follow it."""


def reference() -> Path:
    """The reference's source in Go's module cache."""
    version = binaries.pinned("kubernetes", "k8s.io/kubernetes")
    answer = _go("mod", "download", "-json", f"k8s.io/kubernetes@{version}", cwd=Path("/"))
    return Path(json.loads(answer)["Dir"])


def tests_of(suite: str) -> list[str]:
    """The names of a suite's tests that a process can take part in."""
    found: list[str] = []
    for file in sorted((reference() / "test/integration" / suite).glob("*_test.go")):
        found += re.findall(r"^func (Test\w+)\(", file.read_text(), re.MULTILINE)
    return [name for name in found if name != "TestMain" and f"{suite}/{name}" not in IN_PROCESS_ONLY]


def build(suite: str, work: Path) -> Path:
    """Build a suite's test binary, or find it built.

    Raises:
        ReferenceChangedError: the patches do not fit.
        subprocess.CalledProcessError: the build failed; Go has said why.
    """
    binary = work / f"{suite}.test"
    if not binary.exists():
        copy = _patched_copy(work)
        _write_module(work, copy)
        package = f"k8s.io/kubernetes/test/integration/{suite}"
        subprocess.run(
            [binaries.go_command(), "test", "-c", "-vet=off", "-mod=mod", "-o", f"{binary}.new", package],
            cwd=work,
            env=binaries.go_environment(),
            check=True,
        )
        Path(f"{binary}.new").rename(binary)
    return binary


def _write_module(work: Path, copy: Path) -> None:
    modules = binaries.modules_directory() / "kubernetes"
    pins = re.sub(r"\ntool \(.*?\n\)\n", "\n", (modules / "go.mod").read_text(), flags=re.DOTALL)
    (work / "go.mod").write_text(f"{pins}\nreplace k8s.io/kubernetes => {copy}\n")
    shutil.copyfile(modules / "go.sum", work / "go.sum")


def _patched_copy(work: Path) -> Path:
    source, copy = reference(), work / "kubernetes"
    if not copy.exists():
        unfinished = work / "kubernetes.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished, ignore=shutil.ignore_patterns("CHANGELOG", "logo"))
        for folder, _, files in os.walk(unfinished):
            Path(folder).chmod(0o755)
            for file in files:
                (Path(folder) / file).chmod(0o644)
        unfinished.rename(copy)
    external = (HERE / "external.go.txt").read_text()
    gates = ", ".join(f'"{gate}"' for gate in GATES)
    (copy / "pkg/controller/external.go").write_text(external.replace("GATES", gates))
    for name, receiver, argument in CONTROLLERS:
        _patch_run(source, copy, f"pkg/controller/{name}", receiver, argument)
    for name, statement, config, replacement in SERVERS:
        text = _replace_once((source / name).read_text(), statement, replacement)
        text += (HERE / "kubeconfig.go.txt").read_text().replace("CONFIG", config, 1)
        (copy / name).write_text(_with_imports(text, "encoding/base64", "fmt", "os"))
    # The controllers' goroutines never run in the test's process, so its leak check has nothing to say.
    name, check = "test/integration/framework/etcd.go", "\tif err := goleakFindRetry(goleakOpts...); err != nil {\n"
    text = _replace_once((source / name).read_text(), check, f"\tos.Exit(result)\n{check}")
    (copy / name).write_text(text)
    return copy


def _patch_run(source: Path, copy: Path, name: str, receiver: str, argument: str) -> None:
    head = f"func ({receiver}) Run(ctx context.Context, workers int) {{\n"
    # The branch keeps what follows reachable, and thereby all imports used.
    call = f"\tif true {{\n\t\tcontroller.RunExternal(ctx, {argument})\n\t\treturn\n\t}}\n"
    text = _replace_once((source / name).read_text(), head, head + call)
    (copy / name).write_text(_with_imports(text, "strings") if "strings." in argument else text)


def _replace_once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ReferenceChangedError(f"{old!r} stands {text.count(old)} times in the reference, not once")
    return text.replace(old, new)


def _with_imports(text: str, *packages: str) -> str:
    missing = "".join(f'\t"{package}"\n' for package in packages if f'\t"{package}"\n' not in text)
    return text.replace("import (\n", f"import (\n{missing}", 1)


def _go(*arguments: str, cwd: Path) -> str:
    run = subprocess.run(
        [binaries.go_command(), *arguments],
        cwd=cwd,
        env=binaries.go_environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout
