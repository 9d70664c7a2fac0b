"""Files of events that `headwater events load` publishes, with their progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headwater.cli.commands import AnyStore
from headwater.cli.output import STANDARD_STREAM, ProgressLines, bar, note, pluralize
from headwater.model.events import EventLoadReport, OnEventsLoaded

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


class FileLoads:
    """The loads of one command, in the order of its files."""

    def __init__(self, columns: Mapping[str, Any], rate: float | None, *, skips_bad: bool) -> None:
        self._columns, self._rate, self._skips_bad = columns, rate, skips_bad
        self._reports: dict[str, EventLoadReport] = {}

    async def load(self, file: Path, store: AnyStore) -> None:
        """Load a file, and show how far that is."""
        name = str(file)
        with _read_file(file) as path, _progress(name) as show:

            def update(report: EventLoadReport) -> None:
                self._reports[name] = report
                show(report)

            rejects = _rejects(name) if self._skips_bad else None
            self._reports[name] = await store.bus.load(
                path, **self._columns, rate=self._rate, rejects=rejects, progress=update
            )

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Print, when the user stops the command, how to continue it."""
        try:
            yield
        except KeyboardInterrupt:
            rows = pluralize(sum(report.rows for report in self._reports.values()), "row")
            note(f"Interrupted; {rows} are loaded. Run the command again to continue.")
            raise typer.Exit(130) from None

    def plain(self) -> list[dict[str, Any]]:
        """Return the reports as JSON."""
        return [
            {"file": name, "published": report.published, **msgspec.to_builtins(report)}
            for name, report in self._reports.items()
        ]

    def table(self) -> Sequence[Sequence[object]]:
        """Return a row of a table for each file."""
        return [
            (name, r.rows, r.published, r.loaded_before + r.duplicates, r.erased, r.rejected)
            for name, r in self._reports.items()
        ]

    def remark(self) -> str | None:
        """Return where the rejected rows are, if there are some."""
        files = [str(_rejects(name)) for name, r in self._reports.items() if r.rejected]
        return f"Rejected rows: {', '.join(files)}" if files else None


def _rejects(name: str) -> Path:
    return Path("stdin.rejects.jsonl" if name == str(STANDARD_STREAM) else f"{name}.rejects.jsonl")


@contextmanager
def _read_file(file: Path) -> Iterator[Path]:
    """Yield the file to read; standard input is copied to one, because a load may read it twice."""
    if file != STANDARD_STREAM:
        yield file
        return
    with TemporaryDirectory(prefix="headwater-") as folder:
        copied = Path(folder, "stdin.jsonl")
        with copied.open("wb") as target:
            copyfileobj(typer.get_binary_stream("stdin"), target)
        yield copied


@contextmanager
def _progress(name: str) -> Iterator[OnEventsLoaded]:
    """Show how far a file is loaded, and yield the function that updates it."""
    lines = ProgressLines()
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with bar(*columns, TimeRemainingColumn()) as update:

        def show(report: EventLoadReport) -> None:
            text = f"{name}: {report.rows:,} rows"
            if report.rejected:
                text += f", {report.rejected:,} rejected"
            if update:
                update(total=report.total_bytes, completed=report.read_bytes, description=text)
            elif lines.is_due():
                note(f"{text} ({report.read_bytes / max(1, report.total_bytes):.0%} of the file)")

        yield show


def parse_rate(text: str) -> float:
    """Return a rate such as 5000/s, 300/m or 5000 as a number for a second."""
    count, _, unit = text.partition("/")
    with suppress(ValueError, KeyError):
        rate = float(count) / _SECONDS[unit]
        if 0 < rate < float("inf"):
            return rate
    raise typer.BadParameter(f"{text!r} is not a rate; write one such as 5000/s or 300/m")
