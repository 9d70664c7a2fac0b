"""Every command in the documentation parses: its verbs, arguments and options exist."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from headwater.cli import VERBS, app
from tests.docs.pages import PAGES, blocks, name_of

_ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<"}
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


def _commands() -> Iterator[tuple[str, str]]:
    """Yield every command line of a console block, with its page."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                lines = block.text.replace("\\\n", " ").splitlines()
                yield from ((name_of(page), line[2:]) for line in lines if line.startswith("$ "))


def _arguments(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``headwater`` command in a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    for ends, words in itertools.groupby(lexer, _ENDS.__contains__):
        command = itertools.dropwhile(_ASSIGNMENT.match, words)
        if not ends and Path(next(command, "")).name == "headwater":
            yield list(command)


def documented_arguments(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``headwater`` command on a page."""
    for name, line in _commands():
        if name == page:
            yield from filter(None, _arguments(line))


_CASES = [(page, line) for page, line in _commands() if list(_arguments(line))]


@pytest.mark.parametrize(("page", "line"), _CASES, ids=[f"{p}: {line}" for p, line in _CASES])
def test_a_command_of_the_documentation_parses(page: str, line: str) -> None:
    for arguments in _arguments(line):
        parse(arguments)


def parse(arguments: list[str]) -> None:
    """Parse arguments; raise if a command or an option does not exist."""
    _parse(get_command(app), arguments)


def _parse(command: Any, arguments: list[str]) -> None:
    """Parse arguments as the command line does."""
    if isinstance(command, TyperGroup) and arguments and not arguments[0].startswith("-"):
        context = command.make_context("headwater", [], resilient_parsing=True)
        _, verb, rest = command.resolve_command(context, arguments)
        _parse(verb, rest)
    else:
        with contextlib.suppress(typer.Exit):  # what --version and --help end with
            command.make_context("headwater", list(arguments))


def test_the_documentation_shows_every_command() -> None:
    shown = {arguments[0] for _, line in _CASES for arguments in _arguments(line) if arguments}
    assert set(VERBS) <= shown
