"""Postgres is unpacked once, completely, and where the environment of the project is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_servers import ROOT
from tests.wheels import UnpackError, postgres_installation

PROCESSES = 3

SAY_WHICH = """
import sys
from pathlib import Path
from tests.wheels import postgres_installation
print((postgres_installation(Path(sys.argv[1])) / "bin" / "postgres").stat().st_ino)
"""


def test_processes_that_need_postgres_at_once_unpack_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAY_WHICH, str(tmp_path)]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(PROCESSES)
    ]
    given = {process.communicate()[0] for process in started}
    assert all(process.returncode == 0 for process in started)
    assert len(given) == 1
    name = postgres_installation(tmp_path).name
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}.lock"}


def test_files_of_an_interrupted_unpacking_are_not_used(tmp_path: Path) -> None:
    name = postgres_installation().name
    half = tmp_path / f"{name}.new" / ".pg0" / "installation" / "18.1.0" / "bin" / "postgres"
    half.parent.mkdir(parents=True)
    half.touch()
    installation = postgres_installation(tmp_path)
    assert (installation / "bin" / "postgres").stat().st_size
    assert (installation / "share" / "extension" / "vector.control").exists()


def test_an_executable_that_does_not_unpack_is_quoted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = tmp_path / "bin" / "pg0"
    executable.parent.mkdir()
    executable.write_text("#!/bin/sh\necho no space left\nexit 1\n")
    executable.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("tests.wheels.package", lambda _: tmp_path)
        with pytest.raises(UnpackError, match="no space left"):
            postgres_installation(tmp_path)
    assert postgres_installation(tmp_path).exists()
