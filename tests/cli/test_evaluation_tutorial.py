"""The tutorial "change a prompt with confidence", step by step, as a reader follows it."""

from pathlib import Path

from tests.docs.pages import DOCS
from tests.docs.reader import EDIT, Reader, reading

TUTORIAL = DOCS / "tutorials" / "change-a-prompt.md"


def test_the_commands_of_the_tutorial_print_what_it_shows(folder: Path) -> None:
    assert len(EDIT.findall(TUTORIAL.read_text(encoding="utf-8"))) == 2
    with reading(Reader(folder)) as reader:
        reader.follow(TUTORIAL)
    assert "python live.py" in reader.commands
