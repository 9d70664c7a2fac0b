"""The progress of a bulk load: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headwater.cli.output import note, pluralize, span_text
from headwater.model.indexes import LoadReport, OnLoaded
from headwater.retrieval.files.reading import DocumentFiles

_SECONDS_BETWEEN_LINES = 10.0
_FEW = 10


@contextmanager
def load_progress(files: DocumentFiles) -> Iterator[OnLoaded]:
    """Show how far files are loaded, and yield the function that updates it."""
    started = time.monotonic()
    if not sys.stderr.isatty():
        yield _lines(files, started)
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("Reading", total=files.total_bytes)

        def update(report: LoadReport) -> None:
            numbers = _numbers(report, time.monotonic() - started)
            progress.update(task, completed=files.read_bytes, description=numbers)

        yield update


def _lines(files: DocumentFiles, started: float) -> Callable[[LoadReport], None]:
    printed = started

    def update(report: LoadReport) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed < _SECONDS_BETWEEN_LINES:
            return
        printed = now
        share = files.read_bytes / max(1, files.total_bytes)
        left = span_text(round(1000 * (now - started) * (1 - share) / max(share, 1e-9)))
        note(f"{share:.0%} read: {_numbers(report, now - started)}, {left} left")

    return update


def _numbers(report: LoadReport, seconds: float) -> str:
    done = report.documents + report.unchanged
    rate = done / max(seconds, 1e-3)
    shown = f"{rate:.1f}" if rate < _FEW else f"{rate:.0f}"
    return f"{pluralize(done, 'document')} ({shown}/s), {pluralize(report.chunks, 'chunk')}"
