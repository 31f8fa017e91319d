"""Rewrite kcm/stock_flags.json from the pinned stock manager: `python -m tools.stock_flags`.

Only facts are taken over: the order of the groups in its help, and each flag's name, group, type and default. A test keeps
kcm's own flags to them, and all others are accepted by them.
"""

import json
import re
import subprocess
from pathlib import Path

from kcm.testing.control_plane import ControlPlane

TARGET = Path(__file__).parents[1] / "kcm" / "stock_flags.json"

HEADING = re.compile(r"^(\S.*) flags:$")
IN_HELP = re.compile(r"^ {2}(?:-\w, | {4})--([\w-]+)(?: (\S+?))?(?:\[=\w+\])?(?: {3}.*)?$")
IN_LOG = re.compile(r'FLAG: --([\w-]+)="(.*)"$', re.MULTILINE)
#: Flags that the help leaves out, with where they belong.
HIDDEN = {"allow-untagged-cloud": ("Generic", ""), "node-sync-period": ("Generic", "duration")}


def read() -> dict[str, object]:
    """The table."""
    binary = ControlPlane.binary("kube-controller-manager")
    text = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    # It ends where it finds no configuration, after it has told all of its values.
    log = subprocess.run(
        [binary, "--v=1", "--kubeconfig=/nonexistent"], capture_output=True, text=True, check=False
    ).stderr
    defaults = dict(IN_LOG.findall(log))
    groups: list[str] = []
    flags = {}
    for line in text.splitlines():
        if found := HEADING.match(line):
            groups.append(found[1])
        elif groups and (found := IN_HELP.match(line)):
            name, kind = found[1], found[2] or ""
            flags[name] = {"group": groups[-1], "type": kind, "default": defaults[name]}
    for name, (group, kind) in HIDDEN.items():
        flags[name] = {"group": group, "type": kind, "default": defaults[name], "hidden": True}
    if missing := defaults.keys() - flags.keys():
        raise SystemExit(f"flags without a place in the help: {', '.join(sorted(missing))}")
    flags["kubeconfig"]["default"], flags["v"]["default"] = "", "0"  # which reading them set
    return {"groups": groups, "flags": dict(sorted(flags.items()))}


def main() -> None:
    """Write the table, one flag a line."""
    table = read()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(flag)}" for name, flag in table["flags"].items())  # type: ignore[attr-defined]
    TARGET.write_text(f'{{"groups": {json.dumps(table["groups"])},\n"flags": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
