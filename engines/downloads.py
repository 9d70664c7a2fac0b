"""Jars of Maven, programs of Go and environments of Python, fetched once into `.engines`.

A jar is added as a dependency of a profile in `engines/pom.xml`, with its version; a program of
Go is a constant of the tests that use it, such as
``go_program("github.com/versity/versitygw/cmd/versitygw@v1.8.0")``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".engines"
_POM = ROOT / "engines" / "pom.xml"


def jars(profile: str) -> list[Path]:
    """Return the jars of a profile of the pom, with all that they need."""
    version = sha256(_POM.read_bytes()).hexdigest()[:12]
    folder = FOLDER / "jars" / f"{profile}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={new}")
            _run("mvn", "--batch-mode", "--quiet", f"--file={_POM}", f"-P{profile}", *goal)
            new.rename(folder)
    return sorted(folder.glob("*.jar"))


def maven_archive(artifact: str) -> Path:
    """Return the folder of an unpacked archive, such as ``group:name:version:tar.gz:all``."""
    _, name, version, *_ = artifact.split(":")
    folder = FOLDER / "archives" / f"{name}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            goal = ("dependency:unpack", f"-Dartifact={artifact}", f"-DoutputDirectory={new}")
            _run("mvn", "--batch-mode", "--quiet", f"--file={_POM}", *goal)
            new.rename(folder)
    return folder


def go_program(package: str, *, tags: str = "") -> Path:
    """Return the program of a package at a version, such as ``example.com/tool@v1.2.3``."""
    name, _, version = package.partition("@")
    folder = FOLDER / "go" / f"{Path(name).name}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            _run("go", "install", f"-tags={tags}", package, GOBIN=str(new))
            new.rename(folder)
    return folder / Path(name).name


def environment(name: str) -> Path:
    """Return the Python of an environment with the packages of ``requirements/NAME.txt`` alone.

    It is for engines that need other versions than those of the project's own environment.
    """
    locked = ROOT / "requirements" / f"{name}.txt"
    folder = FOLDER / "environments" / f"{name}-{sha256(locked.read_bytes()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    with _downloading(folder):
        if not (folder / "ready").exists():
            uv = str(ROOT / ".tools" / "bin" / "uv")
            _run(uv, "venv", "--quiet", "--clear", f"--python={sys.executable}", str(folder))
            install = ("pip", "install", "--quiet", "--require-hashes", f"--python={python}")
            _run(uv, *install, f"--requirements={locked}")
            (folder / "ready").touch()
    return python


@contextmanager
def _downloading(folder: Path) -> Iterator[None]:
    """Let one process at a time look for a download, and fetch it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(program: str, *arguments: str, **variables: str) -> None:
    if shutil.which(program) is None:
        raise FileNotFoundError(f"`make check-engines` needs {program}, which is not installed")
    subprocess.run([program, *arguments], check=True, env=os.environ | variables)
