"""Arguments that are not UTF-8, which Python accepts as surrogate characters."""

import os
from collections.abc import Sequence

import typer


def check_utf8(arguments: Sequence[str | None], consequence: str) -> None:
    """Raise BadParameter if an argument is not UTF-8 text."""
    for argument in arguments:
        if argument is not None and not is_utf8(argument):
            raise typer.BadParameter(f"{quote_bytes(argument)} is not UTF-8 text; {consequence}")


def is_utf8(argument: str) -> bool:
    """Return whether an argument is text; Python replaces other bytes by surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def quote_bytes(argument: str) -> str:
    """Return an argument in quotes, with its invalid bytes escaped."""
    return repr(os.fsencode(argument)).removeprefix("b")
