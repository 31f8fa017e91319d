"""Run upstream's integration tests one by one against a command: `make conformance ARGS="--suite replicaset"`.

The command is started as `COMMAND --kubeconfig=FILE --controllers=NAME --leader-elect=false --secure-port=0 …` and gets
SIGTERM when the test ends. A test passes if Go says so and the command did not end before it.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from kcm.options import IMPLEMENTED_CONTROLLERS
from kcm.testing import binaries
from tests.conformance import upstream


def run_test(binary: Path, name: str, *, command: list[str], log: Path, timeout: int) -> bool:
    """Run one test; its output goes to the log."""
    etcd = binaries.find("etcd").parent
    environment = {
        **os.environ,
        "CONFORMANCE_COMMAND": "\x1f".join(command),
        "PATH": f"{etcd}{os.pathsep}{os.environ['PATH']}",
    }
    with log.open("w") as output:
        try:
            status = subprocess.run(
                [binary, "-test.v", f"-test.run=^{name}$"],
                env=environment,
                cwd=binary.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    text = log.read_text(errors="replace")
    return status == 0 and "--- PASS" in text and "UNDER TEST:" not in text


def main() -> int:
    """Run what the arguments choose; 0 if all passed."""
    have = [suite for suite in upstream.SUITES if f"{suite}-controller" in IMPLEMENTED_CONTROLLERS]
    parser = argparse.ArgumentParser(prog="make conformance", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", action="append", choices=upstream.SUITES, help="by default all that kcm has")
    parser.add_argument("--test", default="", help="regular expression over the names of tests")
    parser.add_argument("--timeout", type=int, default=180, help="seconds for one test")
    parser.add_argument(
        "command", nargs="*", default=[sys.executable, "-m", "kcm"], help="what to test; by default kcm"
    )
    arguments = parser.parse_args()
    work = binaries.cache_directory() / "conformance"
    work.mkdir(parents=True, exist_ok=True)
    outcomes: list[bool] = []
    for suite in arguments.suite or have:
        print(f"building the {suite} suite, which takes minutes the first time", flush=True)
        binary = upstream.build(suite, work)
        for name in upstream.tests_of(suite):
            if not re.search(arguments.test, name):
                continue
            log, started = work / f"{suite}.{name}.log", time.monotonic()
            passed = run_test(binary, name, command=arguments.command, log=log, timeout=arguments.timeout)
            outcomes.append(passed)
            where = "" if passed else f"  see {log}"
            print(
                f"{'PASS' if passed else 'FAIL'} {suite}/{name} {time.monotonic() - started:.1f} s{where}", flush=True
            )
    print(f"{sum(outcomes)} passed, {len(outcomes) - sum(outcomes)} failed")
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
