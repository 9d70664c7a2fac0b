"""Do what a stranger does, in an empty home: clone, the two commands, the package (`make fresh`).

Each step is timed and has its output in a file. What has been committed is cloned, nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

ROOT = Path(__file__).parents[1]
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_MEGABYTE = 1_000_000
# As `python -X importtime` sees it, without what starting Python itself takes.
_IMPORT_TIME = """
import time
began = time.perf_counter()
import headwater
print(f"{(time.perf_counter() - began) * 1000:.0f} ms")
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make fresh", description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="leave out `make test`")
    arguments = parser.parse_args()
    home = Path(mkdtemp(prefix="headwater-fresh-"))
    stranger = Stranger(home)
    clone = home / "headwater"
    stranger.run("clone", "git", "clone", "--quiet", str(ROOT), str(clone))
    stranger.run("make demo", "make", "demo", cwd=clone)
    if not arguments.no_tests:
        stranger.run("make test", "make", "test", cwd=clone)
    uv = str(clone / ".tools" / "bin" / "uv")
    stranger.run("package", uv, "build", "--quiet", "--out-dir", str(home / "dist"), cwd=clone)
    [wheel], [sdist] = home.glob("dist/*.whl"), home.glob("dist/*.tar.gz")
    stranger.say(f"wheel {size(wheel)}, sdist {size(sdist)}")
    for version in _PYTHONS:
        if subprocess.run([uv, "python", "find", "--quiet", version], check=False).returncode:
            stranger.say(f"Python {version}: not installed here, so not tried")
        else:
            stranger.install(version, uv, wheel)
    stranger.install("3.11", uv, sdist)
    stranger.run(
        "uvx headwater demo", f"{uv}x", "--quiet", "--from", str(wheel), "headwater", "demo"
    )
    shutil.rmtree(home)


class Stranger:
    """Runs commands with a home of its own, and no caches."""

    def __init__(self, home: Path) -> None:
        self._home = home
        kept = {name: text for name, text in os.environ.items() if not _is_ours(name)}
        self._variables = kept | {"HOME": str(home), "UV_PYTHON_DOWNLOADS": "never"}

    def run(self, name: str, *command: str, cwd: Path | None = None) -> str:
        """Run a command and print how long it took; return what it printed."""
        log = self._home / f"{name.replace(' ', '-').replace('/', '-')}.log"
        began = time.monotonic()
        with log.open("w") as output:
            ran = subprocess.run(
                command,
                cwd=cwd or self._home,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        self.say(f"{name}: {time.monotonic() - began:.1f} s")
        if ran.returncode:
            sys.exit(f"{name} failed with status {ran.returncode}; its output is in {log}")
        return log.read_text()

    def install(self, version: str, uv: str, package: Path) -> None:
        """Install a package into an empty environment, and run the demonstration there."""
        kind = "sdist" if package.name.endswith(".tar.gz") else "wheel"
        name = f"Python {version}, {kind}"
        environment = self._home / f"{kind}-{version}"
        self.run(f"{name}: venv", uv, "venv", "--quiet", f"--python={version}", str(environment))
        python = environment / "bin" / "python"
        install: Sequence[str] = ("pip", "install", "--quiet", f"--python={python}", str(package))
        self.run(f"{name}: install", uv, *install)
        took = self.run(f"{name}: import", str(python), "-c", _IMPORT_TIME).strip()
        self.run(f"{name}: headwater demo", str(environment / "bin" / "headwater"), "demo")
        self.say(f"{name}: installed {size(environment)}, import headwater {took}")

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def size(path: Path) -> str:
    """Return the size of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [*path.rglob("*")]
    return f"{sum(file.lstat().st_size for file in files) / _MEGABYTE:.1f} MB"


def _is_ours(variable: str) -> bool:
    """Return whether a variable would let a command use what this checkout has."""
    return variable.startswith(("HEADWATER_", "XDG_")) or variable in {
        "VIRTUAL_ENV",
        "MAKEFLAGS",
        "MAKELEVEL",
        "MFLAGS",
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "UV_CACHE_DIR",
        "PIP_CACHE_DIR",
    }


if __name__ == "__main__":
    main()
