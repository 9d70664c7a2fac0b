"""Output of commands: JSON, tables, files and notes; colour only on a terminal."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.core.codec import encode_custom
from headwater.core.durations import format_duration
from headwater.core.json_values import plain
from headwater.core.progress import ProgressLines as ProgressLines
from headwater.core.progress import bar as bar
from headwater.core.progress import progress_bar as progress_bar
from headwater.core.short_repr import is_printable, printable
from headwater.errors import InvalidInputError

EMPTY = "–"
STANDARD_STREAM = Path("-")
"""The file name that means standard input or standard output."""


def print_json(data: object) -> None:
    """Print data as one indented JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=encode_custom), indent=2))


def print_json_line(data: object) -> None:
    """Print data as one line of JSON, for a program that reads line by line."""
    typer.echo(msgspec.json.encode(data, enc_hook=encode_custom))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    unwrapped: int = 1,
    empty: str = "",
) -> None:
    """Print rows under headings: fitted to a terminal, or aligned and complete elsewhere.

    If there are no rows, print the sentence ``empty``, if there is one.
    """
    if empty and not rows:
        typer.echo(empty)
    elif sys.stdout.isatty():
        Console(highlight=False).print(fitted_table(columns, rows, unwrapped=unwrapped))
    else:
        table = [[name.upper() for name in columns]]
        table += [[cell_text(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            typer.echo("  ".join(padded).rstrip())


def fitted_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, unwrapped: int = 1
) -> Table:
    """Return a table for a terminal; its first columns identify a row and are never wrapped."""
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
        header_style="bold",
    )
    cells = [[cell_text(cell) for cell in row] for row in rows]
    for index, name in enumerate(columns):
        # Folded and not cut, so that users can copy every value.
        is_unwrapped = index < unwrapped
        width = max([len(name), *(len(row[index]) for row in cells)]) if is_unwrapped else None
        table.add_column(name, overflow="fold", no_wrap=is_unwrapped, min_width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def print_facts(facts: Mapping[str, object]) -> None:
    """Print named values, one for each line."""
    width = max(12, *map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {cell_text(value)}")


def write(content: bytes, file: Path | None, *, force: bool = False) -> None:
    """Write bytes unchanged to a file or to standard output, so that they keep their hash."""
    if file in (None, STANDARD_STREAM):
        stream = typer.get_binary_stream("stdout")
        stream.write(content)
        stream.flush()
        if stream.isatty() and not content.endswith(b"\n"):
            typer.echo()
        return
    try:
        # Devices and pipes exist already and are written to without --force.
        with file.open("wb" if force or (file.exists() and not file.is_file()) else "xb") as opened:
            opened.write(content)
    except FileExistsError as error:
        raise InvalidInputError(
            f"{file} exists already; name another file, or pass --force to replace it"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"cannot write {file}: {error.strerror}") from error


def note(text: str) -> None:
    """Print a message for the user on standard error, where it does not mix with the data."""
    typer.echo(text, err=True)


def cell_text(value: object) -> str:
    """Return a value as one printable line."""
    builtin = msgspec.to_builtins(plain(value), enc_hook=encode_custom)
    if builtin is None or builtin == "":
        return EMPTY
    if isinstance(builtin, str) and is_printable(builtin):
        return builtin
    # JSON escapes some control characters only.
    return printable(msgspec.json.encode(builtin).decode())


def span_text(milliseconds: int | None) -> str:
    """Return a duration for people."""
    return EMPTY if milliseconds is None else format_duration(milliseconds)


def score_text(score: float | str | None) -> str | None:
    """Return the score of a chunk for people."""
    return None if score is None else f"{float(score):.3f}"


def second_text(moment: datetime | None) -> str | None:
    """Return a time without the fractions of a second, for tables."""
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def pluralize(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: "1 value", "2 values"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def is_interactive() -> bool:
    """Return whether a user can answer a question on the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def check_terminal(purpose: str) -> None:
    """Raise BadParameter without a terminal to ask for confirmation on."""
    if not is_interactive():
        raise typer.BadParameter(
            f"cannot ask for confirmation without a terminal; pass --yes to {purpose}"
        )


def confirm(question: str, purpose: str) -> None:
    """Ask for confirmation; raise Abort if the user refuses."""
    check_terminal(purpose)
    typer.confirm(question, abort=True)
