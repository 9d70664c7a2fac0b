"""The examples run as they say they do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store

EXAMPLES = Path(__file__).parents[1] / "examples"

SAID = {
    "contexts": "the record is valid: True",
    "retrieval": "the next context has the new text: True",
    "spend": "after two purchases: gold customer who spent 120.0",
    "orders_sql": "favourite: chair (as of 2026-01-15, online)",
    "testing_features": "3 tests passed",
    "training_set": "10 Mar ada 120.0 gold",
    "windows": "history has what was served: True",
}


def test_every_example_is_run() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_from_a_plain_command(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SAID)
def test_an_example_is_a_features_file(name: str) -> None:
    assert runtime_of(load_store(EXAMPLES / f"{name}.py")).registry.features


@pytest.mark.parametrize(
    ("tests", "passed"), [("testing_features.py", "3 passed"), ("bank", "7 passed")]
)
def test_the_tests_of_an_example_pass_under_pytest(tests: str, passed: str) -> None:
    done = _run("pytest", "-q", "-p", "no:cacheprovider", f"examples/{tests}", cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stdout
    assert passed in done.stdout


def test_the_bank_passes_mypy_strict_and_has_no_makeshifts() -> None:
    files = sorted(file.name for file in (EXAMPLES / "bank").glob("*.py"))
    done = _run("mypy", "--strict", *files, cwd=EXAMPLES / "bank")
    assert done.returncode == 0, done.stdout
    code = "\n".join((EXAMPLES / "bank" / name).read_text(encoding="utf-8") for name in files)
    assert not re.search(r"type: ignore|\bsleep\(|\bwhile\b", code)


def _run(module: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )
