"""The tutorial "change a prompt with confidence", step by step, as a reader follows it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, Block, blocks

TUTORIAL = DOCS / "tutorials" / "change-a-prompt.md"
EDIT = re.compile(r"change `([^`]+)` to\s+`([^`]+)`\s+in `features.py`")


def test_the_commands_of_the_tutorial_print_what_it_shows(folder: Path) -> None:
    steps = list(blocks(TUTORIAL))
    edits = EDIT.findall(TUTORIAL.read_text())
    assert len(edits) == 2
    text = TUTORIAL.read_text().splitlines()
    done = 0
    for before, step in zip([None, *steps], steps, strict=False):
        between = "\n".join(text[before.line if before else 0 : step.line])
        for old, new in EDIT.findall(between):
            file = folder / "features.py"
            assert file.read_text().count(old) == 1
            file.write_text(file.read_text().replace(old, new))
            done += 1
        if step.title:
            (folder / step.title).write_text(step.text)
            if step.title == "live.py":
                _run(folder, sys.executable, "live.py")
        else:
            _check(folder, step)
    assert done == 2


def _check(folder: Path, step: Block) -> None:
    command, *shown = step.text.splitlines()
    arguments = shlex.split(command.removeprefix("$ "))
    printed = _run(folder, sys.executable, "-m", *arguments)
    pattern = r"(?:.*\n)*?".join(
        "".join(f"{re.escape(line).replace('…', '.*')}\n" for line in group.splitlines())
        for group in re.split(r"^…$\n?", "\n".join(shown), flags=re.M)
    )
    assert re.fullmatch(pattern, printed), f"line {step.line}:\n{printed}"


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
