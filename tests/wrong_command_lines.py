"""Wrong command lines, what the stock manager says to each, and what kcm says: `python -m tests.wrong_command_lines`.

Writes docs/command-line-errors.md. Both run as processes, so that status and streams are what a shell sees.
"""

import asyncio
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from kcm.testing.control_plane import ControlPlane
from kcm.testing.process import reserve_port

PAGE = Path(__file__).parents[1] / "docs" / "command-line-errors.md"
HEAD = """\
# Wrong command lines

What the stock manager and kcm answer to the same wrong command line, both with exit status 1. An empty last column means that
kcm says the same. Files stand in ``/DIR`; both got a kubeconfig of a server that is never reached.

This table is made by `python -m tests.wrong_command_lines` from the pinned stock manager and kcm, and a test keeps it so.

| command line | stock manager | kcm, where it differs |
|---|---|---|
"""

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: ""}}]
current-context: c
"""

# PORT is a port in use, DIR a directory.
LINES = """
--nope
--nope=1
-x
-vx
--=1
---v
start now
--leader-elect false
--leader-elect=maybe
--kube-api-qps
--kube-api-qps=abc
--kube-api-qps=1e99
--kube-api-burst=1.5
--kube-api-burst=99999999999
--min-resync-period=1d
--min-resync-period=5
--controller-start-interval=
--leader-elect-lease-duration=abc
--leader-elect-resource-lock=configmaps
--controllers=foo
--controllers=foo,-bar
--controllers=-*
--controllers=a"b
--feature-gates=Nope=true
--feature-gates=PodDeletionCost
--feature-gates=PodDeletionCost=maybe
--feature-gates=foo:PodDeletionCost=true
--feature-gates=PodDeletionCost=true --feature-gates=kube:PodDeletionCost=true
--feature-gates=ProbeHostPodSecurityStandards=false
--emulated-version=1.35 --feature-gates=DeclarativeValidationBeta=true
--emulated-version=1.20
--emulated-version=abc
--emulated-version=1.36.1
--emulated-version=wardle=1.2
--emulated-version=1.36,1.37
--emulated-version=1.36 --min-compatibility-version=1.37
--version=v9.9.9
--version=foo
--secure-port=-1
--secure-port=70000
--secure-port=x
--secure-port=PORT --permit-port-sharing=false
--bind-address=300.1.1.1
--bind-address=host
--bind-address=192.0.2.1
--tls-min-version=VersionTLS9
--tls-cipher-suites=FOO
--tls-cert-file=DIR/none
--tls-cert-file=DIR/none --tls-private-key-file=DIR/none
--tls-cert-file=DIR/text --tls-private-key-file=DIR/text
--tls-sni-cert-key=a
--tls-sni-cert-key=a,b:
--tls-sni-cert-key=DIR/none,DIR/none
--tls-curve-preferences=x
--logging-format=xml
--logging-format=json --vmodule=a=1
--vmodule=a
--vmodule=a=x
-v=x
--v=-1
--log-flush-frequency=0
--log-json-split-stream
--log-text-info-buffer-size=1x
--log-text-info-buffer-size=1Ki
--kubeconfig=DIR/none
--kubeconfig=DIR/text
--kubeconfig=
--concurrent-statefulset-syncs=0
--concurrent-deployment-syncs=x
--concurrent-job-syncs=0
--concurrent-daemonset-syncs=-1
--concurrent-resourceclaim-syncs=0
--concurrent-service-endpoint-syncs=51
--max-endpoints-per-slice=1001
--mirroring-max-endpoints-per-subset=0
--cluster-signing-kubelet-client-key-file=DIR/none
--cluster-signing-cert-file=DIR/none --cluster-signing-legacy-unknown-cert-file=DIR/none
--service-cluster-ip-range=10.0.0.0/16,fd00::/108,10.1.0.0/16
--cloud-provider=aws
--cidr-allocator-type=CloudAllocator
--attach-detach-reconcile-sync-period=1ms
--horizontal-pod-autoscaler-tolerance=x
--requestheader-username-headers=a,,b
--requestheader-allowed-names=a,,b
--requestheader-uid-headers=foo
--disabled-metrics=1a
--allow-metric-labels=foo
--allow-metric-labels=foo=bar
--allow-metric-labels-manifest=DIR/none
--allow-metric-labels-manifest=DIR/text
--show-hidden-metrics-for-version=1.20
--authorization-always-allow-paths=/a*b
--client-ca-file=DIR/none
--client-ca-file=DIR/text
--requestheader-client-ca-file=DIR/none
--authentication-kubeconfig=DIR/none
--authorization-kubeconfig=DIR/none
--enable-leader-migration --leader-migration-config=DIR/none
--controllers=foo --secure-port=-1 --concurrent-job-syncs=0
""".strip().splitlines()


class Answer(NamedTuple):
    """What a shell sees."""

    status: int
    message: str


class Both(NamedTuple):
    """One line's answers."""

    line: str
    stock: Answer
    kcm: Answer


async def ask(command: list[str], arguments: list[str], directory: Path) -> Answer:
    """The answer to one command line; nothing may run on."""
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "", "HOME": str(directory), "PYTHONPATH": str(PAGE.parents[1])},
    )
    try:
        async with asyncio.timeout(60):
            _, log = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Answer(-1, "runs on")
    text = log.decode().replace(str(directory), "/DIR")
    failed = re.findall(r'"command failed" err=("(?:[^"\\]|\\.)*"|<\n(?:\t.*\n)* >)', text)
    wrong = re.findall(r"^Error: (.*)$", text, re.MULTILINE)
    message = failed[-1] if failed else wrong[-1] if wrong else text[-200:]
    return Answer(
        process.returncode or 0, re.sub(r"\s+", " ", message.replace('\\"', '"').removeprefix('"').removesuffix('"'))
    )


async def run() -> list[Both]:
    """Every line's answers."""
    commands = ([str(ControlPlane.binary("kube-controller-manager"))], [sys.executable, "-m", "kcm"])
    turns = asyncio.Semaphore(2)
    with tempfile.TemporaryDirectory() as name, reserve_port() as free, socket.create_server(("127.0.0.1", 0)) as taken:
        directory = Path(name)
        (directory / "text").write_text("neither a certificate nor a kubeconfig\n")
        (directory / "kubeconfig").write_text(KUBECONFIG)
        always = [
            f"--kubeconfig={directory / 'kubeconfig'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free.getsockname()[1]}",
            "--permit-port-sharing",
        ]
        port, free_port = str(taken.getsockname()[1]), str(free.getsockname()[1])

        async def both(line: str) -> Both:
            arguments = [part.replace("PORT", port).replace("DIR", name) for part in line.split(" ")]
            async with turns:
                answers = [await ask(command, [*always, *arguments], directory) for command in commands]
            return Both(
                line,
                *(
                    answer._replace(message=answer.message.replace(port, "PORT").replace(free_port, "PORT"))
                    for answer in answers
                ),
            )

        return list(await asyncio.gather(*map(both, LINES)))


def page(answers: list[Both]) -> str:
    """The whole page."""
    rows = []
    for line, stock, kcm in answers:
        cells = [f"`{line.replace('DIR', '/DIR')}`", stock.message, "" if kcm.message == stock.message else kcm.message]
        rows.append("| " + " | ".join(cell.replace("|", r"\|").replace("<", "&lt;") for cell in cells) + " |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    found = asyncio.run(run())
    for line, stock, kcm in found:
        if stock.status != 1 or kcm.status != 1:
            print(f"{line}: stock {stock.status}, kcm {kcm.status}")  # noqa: T201
    PAGE.write_text(page(found))
