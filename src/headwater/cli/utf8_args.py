"""Words of a command line that are bytes and no text, which Python lets through."""

import os
from collections.abc import Sequence

import typer


def check_event_bytes(words: Sequence[str | None], undone: str) -> None:
    """Refuses words that are not text."""
    for word in words:
        if word is not None and not is_utf8(word):
            raise typer.BadParameter(f"{as_typed(word)} is not UTF-8 text; {undone}")


def is_utf8(word: str) -> bool:
    """Says whether a word is text; for bytes that are not, Python puts halves of characters."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def as_typed(word: str) -> str:
    """A word of the command line with the bytes in it that are not text."""
    return repr(os.fsencode(word)).removeprefix("b")
