"""The commands of the tutorial print the output that it shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, blocks, name_of
from tests.docs.test_commands import documented_arguments

TUTORIAL = DOCS / "tutorial.md"
DRAIN = "from contexts import store; store.sync.drain(); store.sync.close()"


def _python(*arguments: str) -> str:
    """Run Python in the working directory, as a reader does, and return the output."""
    environment = os.environ | {"HEADWATER_FEATURES": "contexts.py"}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _shown_after(command: str) -> list[str]:
    """Return the lines that the tutorial shows below a command, as patterns."""
    (text,) = (block.text for block in blocks(TUTORIAL) if f"$ {command}\n" in block.text)
    lines = text.partition(f"$ {command}\n")[2].partition("\n$ ")[0].splitlines()
    return [re.escape(line).replace("…", ".+") for line in lines]


def test_the_record_of_the_tutorial_is_verified_as_shown(folder: Path) -> None:
    for block in blocks(TUTORIAL):
        if block.title:
            (folder / block.title).write_text(block.text)
    commands = list(documented_arguments(name_of(TUTORIAL)))
    for arguments in commands:
        if "article_saved" in arguments:
            _python("-m", "headwater", *arguments)
    _python("-c", DRAIN)
    (assemble,) = (arguments for arguments in commands if "assemble" in arguments)
    made = json.loads(_python("-m", "headwater", *assemble, "--json"))

    verified = _python("-m", "headwater", "context", "verify", made["context_id"]).splitlines()

    shown = _shown_after("headwater context verify ID")
    assert len(verified) == len(shown) > 1
    for line, pattern in zip(verified, shown, strict=True):
        assert re.fullmatch(pattern, line), line
