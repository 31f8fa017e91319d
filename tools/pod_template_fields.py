"""Rewrite kcm/api/pod_template_fields.json: `python -m tools.pod_template_fields`.

The table is what Go's reflection tells of the pod template in the pinned modules: each struct's fields in the order of their
declaration, each as its Go name, its JSON name, the options of its JSON tag and its Go type, and what each other named type is
made of. That is a better source than the server's OpenAPI document, which knows neither that order nor what is a pointer. Only
such facts are taken over. The Go side is in tests/parity/oracle; a test there compares the table with a fresh answer.
"""

import json
from pathlib import Path

from tests.parity.oracle import Oracle, build

TARGET = Path(__file__).parent.parent / "kcm" / "api" / "pod_template_fields.json"


def main() -> None:
    """Write the table, one type a line."""
    types = Oracle(build()).ask("podTemplateTypes", [{}])[0].out
    lines = (f"{json.dumps(name)}: {json.dumps(types[name], separators=(',', ':'))}" for name in sorted(types))
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
