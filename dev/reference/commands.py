"""The commands: arguments and options with their help."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from dev.reference.tables import anchor, code, prose, table
from headwater.cli import app
from headwater.settings.schema import SETTINGS

# The options of every command; the beginning of the page describes them.
_OF_ALL = {"url", "key"}
_SETTINGS = "|".join(re.escape(path) for path in SETTINGS if "." in path)
_CODE = re.compile(rf"(?<![`\w.-])(--[a-z][a-z-]+|{_SETTINGS})(?![`\w])")


@cache
def commands() -> dict[str, Any]:
    """Return every command by its words."""
    return dict(_leaves(get_command(app), "headwater"))


def _leaves(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield words, command
        return
    for verb in command.commands:
        context = command.make_context("headwater", [], resilient_parsing=True)
        _, below, _ = command.resolve_command(context, [verb])
        yield from _leaves(below, f"{words} {verb}")


def subjects() -> Collection[str]:
    """Return the commands by their words."""
    return commands().keys()


def overview() -> Iterator[str]:
    """Yield the table of all commands, each with a link to its section."""
    return table(
        ("command", "purpose"),
        (
            (f"[`{words}`]({anchor(words)})", _marked(command.help.split("\n\n")[0]))
            for words, command in sorted(commands().items())
        ),
    )


def options(words: Sequence[str]) -> Iterator[str]:
    """Yield the table of the arguments and options of a command."""
    rows = [row for name in words for row in map(_row, commands()[name].params) if row]
    return table(("argument or option", "meaning"), rows) if rows else iter(["No options."])


def _row(parameter: Any) -> tuple[str, str] | None:
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name.upper()).removesuffix("...")
        return code(name), " ".join([_marked(parameter.help), *_notes(parameter)])
    if parameter.hidden or parameter.name in _OF_ALL:
        return None
    names = sorted((*parameter.opts, *parameter.secondary_opts), key=_is_long)
    return code(*names), " ".join([_marked(parameter.help), *_notes(parameter)])


def _is_long(option: str) -> bool:
    return option.startswith("--")


def _notes(parameter: Any) -> Iterator[str]:
    is_option = parameter.param_type_name == "option"
    if parameter.required and is_option:
        yield "Required."
    if parameter.max is not None:
        yield f"At most {parameter.max:,}."
    if parameter.default is not None and not (is_option and parameter.is_flag):
        yield f"Default: `{parameter.default}`."


def _marked(help_: str) -> str:
    """Return a help text with names of options and settings as code."""
    return _CODE.sub(r"`\1`", prose(help_))
