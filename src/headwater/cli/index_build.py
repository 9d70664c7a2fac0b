"""`headwater index build`: load documents from files into an index."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headwater.cli.options import AnyStore
from headwater.cli.output import note, pluralize, span_text
from headwater.errors import InvalidInputError
from headwater.model.indexes import Document, LoadReport, OnLoaded
from headwater.retrieval.files.entries import Skipped
from headwater.retrieval.files.reading import DocumentFiles

_INTERRUPTED = 130
_SHOWN = 20
_SECONDS_BETWEEN_LINES = 10.0
_FEW = 10


class BuildReport(msgspec.Struct, frozen=True):
    """What a build has indexed and removed, and which parts of its files it left out."""

    index: str
    documents: int
    chunks: int
    unchanged: int
    removed: int
    invalid: int
    ignored: int


class Build:
    """One run of a build."""

    def __init__(self, index: str, files: DocumentFiles, *, skips_invalid: bool) -> None:
        self._index = index
        self._files = files
        self._skips_invalid = skips_invalid
        self._loaded = LoadReport()
        self._removed = 0
        self._invalid = 0
        self._ignored: list[Skipped] = []

    async def load(self, store: AnyStore) -> None:
        """Load all documents."""
        with load_progress(self._files) as show:

            def update(report: LoadReport) -> None:
                self._loaded = report
                show(report)

            await store.indexes.load(self._index, self._documents(), progress=update)

    def report(self) -> BuildReport:
        """Return what the run has loaded and removed."""
        return BuildReport(
            self._index,
            self._loaded.documents,
            self._loaded.chunks,
            self._loaded.unchanged,
            self._removed,
            self._invalid,
            len(self._ignored),
        )

    def _documents(self) -> Iterator[Document]:
        for content in self._files:
            if isinstance(content, Document):
                yield content
            elif content.is_invalid:
                self._skip(content)
            else:
                self._ignored.append(content)

    def _skip(self, skipped: Skipped) -> None:
        if not self._skips_invalid:
            raise InvalidInputError(
                f"{skipped}; {self._done()}; correct it and run the command again, or pass "
                "--skip-invalid to leave it out"
            )
        self._invalid += 1
        if self._invalid <= _SHOWN:
            note(f"skipped {skipped}")
        elif self._invalid == _SHOWN + 1:
            note("more invalid documents are skipped and counted")

    async def count_missing(self, store: AnyStore) -> int:
        """Return how many documents of the index the files do not have."""
        if self._invalid:
            note(
                "No documents were removed, because the skipped ones may be among them; "
                "correct these first."
            )
            return 0
        if not self._files.ids:
            raise InvalidInputError(
                f"no documents were found, so --delete-missing would remove all of {self._index}; "
                f"check the paths, or run `headwater index drop {self._index}`"
            )
        stored = {index.name: index.documents for index in await store.indexes.list()}
        return stored[self._index] - len(self._files.ids)

    async def remove_missing(self, store: AnyStore) -> None:
        """Remove the documents that the files do not have."""
        self._removed = await store.indexes.retain(self._index, self._files.ids)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Print, when the user stops the command, how to continue it."""
        try:
            yield
        except KeyboardInterrupt:
            note(f"Interrupted; {self._done()}. Run the command again to continue.")
            raise typer.Exit(_INTERRUPTED) from None

    def _done(self) -> str:
        done = pluralize(self._loaded.documents + self._loaded.unchanged, "document")
        return f"{done} of {self._index} are up to date"


def summary(report: BuildReport) -> str:
    """Return the result of a build in words."""
    parts = [f"No new or changed documents for {report.index}"]
    if report.documents:
        documents = pluralize(report.documents, "document")
        parts = [f"Indexed {documents} in {report.index}: {pluralize(report.chunks, 'chunk')}"]
    if report.unchanged:
        parts.append(f"{report.unchanged} unchanged")
    if report.removed:
        parts.append(f"{report.removed} removed")
    if report.invalid:
        parts.append(f"{report.invalid} invalid, skipped")
    if report.ignored:
        parts.append(f"{pluralize(report.ignored, 'other file')} ignored")
    return "; ".join(parts) + "."


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
