"""The Python blocks of the documentation run and print the output that is shown.

The blocks of a page run one after the other in one namespace and in an empty folder. A block with
a title is saved under that name instead: a features file is loaded, tests are run by pytest, and a
script, which shows its output, is run as a reader runs it, in a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwater.store.loader import load_store
from tests.docs.pages import PAGES, Block, blocks, name_of

_NAMESPACE = "documented"
_OUTPUT = "#> "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are removed after the test."""
    for name in list(os.environ):
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    _forget_modules(tmp_path)
    sys.modules.pop(_NAMESPACE, None)


def _forget_modules(folder: Path) -> None:
    """Remove the modules that were imported from a folder, as a new process would begin."""
    for name, module in list(sys.modules.items()):
        if _is_below(module, folder):
            del sys.modules[name]


def _is_below(module: ModuleType, folder: Path) -> bool:
    return (module.__file__ or "").startswith(str(folder)) if "__file__" in vars(module) else False


def _runs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" or block.title]


@pytest.mark.parametrize("page", [page for page in PAGES if _runs(page)], ids=name_of)
def test_the_code_of_a_page_runs_and_prints_the_shown_output(page: Path, folder: Path) -> None:
    namespace = sys.modules[_NAMESPACE] = ModuleType(_NAMESPACE)
    for block in _runs(page):
        printed = _save(block, folder) if block.title else _run(block, vars(namespace))
        assert printed == _said(block), f"{name_of(page)}, the block of line {block.line}"


def _run(block: Block, names: dict[str, object]) -> list[str]:
    # Moved down to where it stands, so that a traceback names the line of the page.
    code = compile("\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue().splitlines()


def _said(block: Block) -> list[str]:
    lines = [line.lstrip() for line in block.text.splitlines()]
    return [line.removeprefix(_OUTPUT) for line in lines if line.startswith(_OUTPUT.rstrip())]


def _save(block: Block, folder: Path) -> list[str]:
    """Save a block, use the file as a reader does, and return the lines that it prints."""
    file = folder / block.title
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text, encoding="utf-8")
    if file.name.startswith("test_"):
        _run_tests(file)
    elif _said(block):
        return _run_script(file)
    elif file.suffix == ".py":
        _forget_modules(folder)
        load_store(file)
    return []


def _run_script(file: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", file.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _run_tests(file: Path) -> None:
    # Of pytest's plugins only the one that the pages name: the others take a second to load.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto", file.name],
        cwd=file.parent,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
