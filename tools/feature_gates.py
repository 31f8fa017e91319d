"""Rewrite kcm/feature_gates.json from the reference's Go sources: `python tools/feature_gates.py [GOMODCACHE/k8s.io]`.

The sources come with the pinned stock manager (`go env GOMODCACHE`); only facts are taken over: each gate's name, its stages
with their releases and defaults, whether it is locked, and which gates it requires.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

PATCH = 2

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


def stages(specs: str) -> list[dict[str, object]]:
    """What a gate has been since which release, oldest first."""
    found = []
    for major, minor, rest in SPEC.findall(specs):
        stage = re.search(r"PreRelease:\s*(?:\w+\.)?(\w+)", rest)
        entry: dict[str, object] = {
            "since": [int(major), int(minor)],
            "stage": stage[1].upper() if stage else "GA",
            "default": bool(re.search(r"\bDefault:\s*true", rest)),
        }
        if re.search(r"LockToDefault:\s*true", rest):
            entry["locked"] = True
        if least := re.search(r'MinCompatibilityVersion: version\.MustParse\("(\d+)\.(\d+)"\)', rest):
            entry["min_compatibility"] = [int(least[1]), int(least[2])]
        found.append(entry)
    return found


def read(modules: Path) -> dict[str, dict[str, object]]:
    """Every gate of the sources by name."""
    texts = [(modules / source).read_text() for source in SOURCES]
    names = {identifier: name for text in texts for identifier, name in NAME.findall(text)}
    table: dict[str, dict[str, object]] = {
        "AllAlpha": {"stages": [{"since": [0, 0], "stage": "ALPHA", "default": False}]},
        "AllBeta": {"stages": [{"since": [0, 0], "stage": "BETA", "default": False}]},
    }
    for text in texts:
        for identifier, specs in GATE.findall(text):
            table[names[identifier]] = {"stages": stages(specs)}
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
