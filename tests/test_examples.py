"""The examples run as they say they do."""

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


def test_the_example_of_tests_passes_under_pytest() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "testing_features.py")],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
