"""Rewrite kcm/feature_gates.json from the reference's Go sources: `python tools/feature_gates.py [GOMODCACHE/k8s.io]`.

The sources come with the pinned stock manager (`go env GOMODCACHE`); only facts are taken over: each gate's name, its stage
and default at the followed release, whether it is locked, and which gates it requires.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

RELEASE = (1, 37)
PATCH = 2
#: What --min-compatibility-version is unless set: one minor release back.
MIN_COMPATIBILITY = (1, 36)

# The registries that a kube-controller-manager binary fills its gate with.
SOURCES = (
    f"kubernetes@v1.37.{PATCH}/pkg/features/kube_features.go",
    f"apiextensions-apiserver@v0.37.{PATCH}/pkg/features/kube_features.go",
    f"apiserver@v0.37.{PATCH}/pkg/features/kube_features.go",
    f"client-go@v0.37.{PATCH}/features/known_features.go",
    f"component-base@v0.37.{PATCH}/logs/api/v1/kube_features.go",
    f"component-base@v0.37.{PATCH}/metrics/features/kube_features.go",
    f"component-base@v0.37.{PATCH}/zpages/features/kube_features.go",
    f"controller-manager@v0.37.{PATCH}/pkg/features/kube_features.go",
)

NAME = re.compile(r'^\s*(\w+)(?:\s+(?:featuregate\.)?Feature)?\s*=\s*(?:featuregate\.Feature\()?"(\w+)"', re.MULTILINE)
GATE = re.compile(r"^\t+(?:\w+\.)?(\w+): \{\n((?:\s*(?://[^\n]*|\{Version:[^\n]*)\n)+)\s*\},", re.MULTILINE)
SPEC = re.compile(r"^\s*\{Version:.*?MustParse\(\"(\d+)\.(\d+)\"\)(.*)\}", re.MULTILINE)
REQUIRES = re.compile(r"^\t(?:\w+\.)?(\w+): \{([\w.,\s]+?)\},$", re.MULTILINE)


class Gate(NamedTuple):
    """One gate as it is at the followed release."""

    stage: str
    default: bool
    locked: bool


def gate_at_release(specs: str) -> Gate | None:
    """The last stage that the release and the minimum compatible version have reached."""
    reached = None
    for major, minor, rest in SPEC.findall(specs):
        least = re.search(r'MinCompatibilityVersion: version\.MustParse\("(\d+)\.(\d+)"\)', rest)
        too_new = least is not None and (int(least[1]), int(least[2])) > MIN_COMPATIBILITY
        if (int(major), int(minor)) > RELEASE or too_new:
            continue
        stage = re.search(r"PreRelease:\s*(?:\w+\.)?(\w+)", rest)
        reached = Gate(
            stage=stage[1].upper() if stage else "GA",
            default=bool(re.search(r"\bDefault:\s*true", rest)),
            locked=bool(re.search(r"LockToDefault:\s*true", rest)),
        )
    return reached


def read(modules: Path) -> dict[str, dict[str, object]]:
    """Every gate of the sources by name."""
    texts = [(modules / source).read_text() for source in SOURCES]
    names = {identifier: name for text in texts for identifier, name in NAME.findall(text)}
    table: dict[str, dict[str, object]] = {
        "AllAlpha": {"stage": "ALPHA", "default": False},
        "AllBeta": {"stage": "BETA", "default": False},
    }
    for text in texts:
        for identifier, specs in GATE.findall(text):
            gate = gate_at_release(specs)
            if gate is not None:
                table[names[identifier]] = {"stage": gate.stage, "default": gate.default}
                if gate.locked:
                    table[names[identifier]]["locked"] = True
    for text in texts:
        for identifier, required in REQUIRES.findall(text):
            gates = [names[item.strip().rpartition(".")[2]] for item in required.split(",") if item.strip()]
            if gates:
                table[names[identifier]]["requires"] = gates
    return dict(sorted(table.items()))


def main() -> None:
    """Write the table, one gate a line."""
    if len(sys.argv) > 1:
        modules = Path(sys.argv[1])
    else:
        cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)  # noqa: S607
        modules = Path(cache.stdout.strip()) / "k8s.io"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(gate)}" for name, gate in read(modules).items())
    target = Path(__file__).parent.parent / "kcm" / "feature_gates.json"
    target.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
