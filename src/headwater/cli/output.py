"""What verbs print: JSON, tables and notes; colour only on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from headwater.errors import InvalidInputError
from headwater.http.json_values import plain

NOTHING = "–"
STANDARD = Path("-")
"""The file that is no file, but the standard input or output."""


def print_json(data: object) -> None:
    """Prints data as one JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))


def print_json_line(data: object) -> None:
    """Prints data as one line of JSON, for a reader that waits for it."""
    typer.echo(msgspec.json.encode(data))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, whole: int = 1
) -> None:
    """Prints rows under headings: fitted to a terminal, or aligned and never cut elsewhere."""
    if sys.stdout.isatty():
        Console(highlight=False).print(fitted_table(columns, rows, whole=whole))
        return
    cells = [[shown(cell) for cell in row] for row in rows]
    typer.echo(_aligned([[name.upper() for name in columns], *cells]))


def fitted_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, whole: int = 1
) -> Table:
    """The table that a terminal shows: the first columns name a row, and are whole on one line."""
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
        header_style="bold",
    )
    cells = [[shown(cell) for cell in row] for row in rows]
    for place, name in enumerate(columns):
        # Folded, not cut: what is shown is there to be copied.
        named = place < whole
        longest = max([len(name), *(len(row[place]) for row in cells)]) if named else None
        table.add_column(name, overflow="fold", no_wrap=named, min_width=longest)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Draws how much is done on a terminal, where a person waits; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield tell


def write(content: bytes, file: Path | None, *, force: bool = False) -> None:
    """Writes bytes as they are, so that their hash stays what it is."""
    if file in (None, STANDARD):
        stream = typer.get_binary_stream("stdout")
        stream.write(content)
        stream.flush()
        if stream.isatty() and not content.endswith(b"\n"):
            typer.echo()
        return
    try:
        # A device or a pipe is there to be written to.
        with file.open("wb" if force or (file.exists() and not file.is_file()) else "xb") as opened:
            opened.write(content)
    except FileExistsError as error:
        raise InvalidInputError(
            f"{file} is there already; name another file, or pass --force to replace it"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from error


def note(text: str) -> None:
    """Says something to a person that is no part of the data."""
    typer.echo(text, err=True)


def shown(value: object) -> str:
    """A value as people read it, on one line and without control characters."""
    told = msgspec.to_builtins(plain(value))
    if told is None or told == "":
        return NOTHING
    if isinstance(told, str) and told.isprintable():
        return told
    return msgspec.json.encode(told).decode()


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things, as people say it."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def on_terminal() -> bool:
    """Says whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
