"""The examples run as they say they do: their tests, and the commands of their READMEs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from tests.docs.pages import blocks
from tests.docs.reader import Reader, reading

EXAMPLES = Path(__file__).parents[1] / "examples"

SAID = {
    "spend": "after two purchases: gold customer who spent 120.0",
    "testing_features": "3 tests passed",
}
SMALL = ("support", "fraud", "voice", "recommendations", "mcp_agent", "fastapi_app", "notebook")
SERVING = {"fastapi_app"}
"""Their READMEs begin with a server, which their tests run as well."""
MOST_LINES = 200
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_every_example_is_run() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(SAID)
    tested = {file.parent.name for file in EXAMPLES.glob("*/test_*.py")}
    assert tested == {*SMALL, "bank"}


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_from_a_plain_command(name: str, tmp_path: Path) -> None:
    done = _run(str(EXAMPLES / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SAID)
def test_an_example_is_a_features_file(name: str) -> None:
    assert runtime_of(load_store(EXAMPLES / f"{name}.py")).registry.features


def test_the_tests_of_an_example_pass_under_pytest() -> None:
    done = _run(*PYTEST, "examples/testing_features.py", cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["bank", *SMALL])
def test_the_tests_of_an_example_pass_in_a_copy_of_its_folder(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    plugins = [plugin for plugin in ("asyncio",) if f"pytest-{plugin}" in readme]
    named = [word for plugin in plugins for word in ("-p", f"pytest_{plugin}.plugin")]
    done = _run(*PYTEST, *named, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name in SMALL if name not in SERVING])
def test_the_commands_of_a_readme_print_what_it_shows(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
    first = next(block for block in blocks(folder / "README.md") if block.language == "console")
    with reading(Reader(folder)) as reader:
        reader.play(first)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_example_has_few_lines(name: str) -> None:
    files = [file for file in (EXAMPLES / name).glob("*.py") if not file.name.startswith("test_")]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < MOST_LINES


def test_the_bank_passes_mypy_strict_and_has_no_makeshifts() -> None:
    files = sorted(file.name for file in (EXAMPLES / "bank").glob("*.py"))
    done = _run("-m", "mypy", "--strict", *files, cwd=EXAMPLES / "bank")
    assert done.returncode == 0, done.stdout
    code = "\n".join((EXAMPLES / "bank" / name).read_text(encoding="utf-8") for name in files)
    assert not re.search(r"type: ignore|\bsleep\(|\bwhile\b", code)


def _run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments."""
    command = [sys.executable, *arguments]
    environment = os.environ | variables
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
