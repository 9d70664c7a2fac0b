"""The commits of one task of a replay: what exists of its results, and where to continue.

Results are written under random names; a commit then names them. Commits are numbered, and each is
created only if its number is free. So a process that dies leaves nothing but unnamed files, and of
processes that replay the same events at once each step of one of them counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from headwater.model.backfills import ReplayReport
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import Cell, ServiceEvent, new_id

T = TypeVar("T")

_PROGRESS = "progress"


class ReplayedValue(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A new value of one entity; ``online`` is False if it was late and is only history."""

    entity_id: str
    cell: Cell
    cause: str
    online: bool


class EntityProgress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last value of an entity whose events have not all been replayed.

    Its ``written_at`` is when the event was received, so that it expires as it would have; history
    has ``written_at``.
    """

    cell: Cell | None
    written_at: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a task: the events that are done so far, and the files with new results."""

    report: ReplayReport = ReplayReport()
    """Counts of the whole task up to here."""
    values: str | None = None
    failures: str | None = None
    state: str | None = None
    is_last: bool = False


_encode = msgspec.json.Encoder().encode
_decode_commit = msgspec.json.Decoder(Commit).decode
_decode_values = msgspec.json.Decoder(list[ReplayedValue]).decode
_decode_failures = msgspec.json.Decoder(list[DeadLetter]).decode
_decode_entities = msgspec.json.Decoder(dict[str, EntityProgress]).decode


class Commits:
    """The commits of one task, in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Commit]:
        """Return the commits in order."""
        return [_decode_commit(file.read_bytes()) for file in self._files()]

    def last(self) -> tuple[int, Commit]:
        """Return the number of commits, and the last one; an empty one if there is none."""
        files = self._files()
        return len(files), _decode_commit(files[-1].read_bytes()) if files else Commit()

    def entities(self, commit: Commit) -> dict[str, EntityProgress]:
        """Return the entities in the middle of their events."""
        if commit.state is None:
            return {}
        return _decode_entities((self.folder / commit.state).read_bytes())

    def add(self, number: int, commit: Commit) -> bool:
        """Make a commit durable under its number; return False if there is one."""
        file = self.new_file("commit")
        file.write(commit)
        unnamed = self.folder / str(file.finish())
        try:
            # A link is created with all its content or not at all, and only if the name is free.
            os.link(unnamed, self.folder / f"commit-{number:06}.json")
        except FileExistsError:
            for name in (commit.values, commit.failures, commit.state):
                if name is not None:
                    (self.folder / name).unlink()
            return False
        finally:
            unnamed.unlink()
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return True

    def show_progress(self, events: int) -> None:
        """Let other processes see how many events are done, between two commits."""
        (self.folder / _PROGRESS).write_text(str(events))

    def progress(self) -> int:
        """Return how many events are done, about."""
        last = self.last()[1]
        try:
            shown = int((self.folder / _PROGRESS).read_text() or 0)
        except FileNotFoundError:
            shown = 0
        return last.report.events if last.is_last else max(shown, last.report.events)

    def new_file(self, kind: str) -> ResultFile:
        """Return a new file for results, which count when a commit names it."""
        return ResultFile(self.folder, kind)

    def pages(self) -> Iterator[list[ReplayedValue]]:
        """Yield the committed values in pages; those of an entity in order."""
        for commit in self.all():
            yield from self._lines(commit.values, _decode_values)

    def failures(self) -> Iterator[DeadLetter]:
        """Yield the committed failures."""
        for commit in self.all():
            for failures in self._lines(commit.failures, _decode_failures):
                yield from failures

    def keep_failures(self, is_kept: Callable[[ServiceEvent], bool]) -> None:
        """Remove the committed values, and the failures of events that are not kept."""
        for commit in self.all():
            for name in (commit.values, commit.state):
                if name is not None:
                    (self.folder / name).unlink(missing_ok=True)
            if commit.failures is not None:
                kept = self.new_file("failures")
                kept.write([])  # so that there is a file
                for letters in self._lines(commit.failures, _decode_failures):
                    kept.write([letter for letter in letters if is_kept(letter.event)])
                os.replace(self.folder / str(kept.finish()), self.folder / commit.failures)

    def _lines(self, name: str | None, decode: Callable[[bytes], T]) -> Iterator[T]:
        if name is not None:
            with (self.folder / name).open("rb") as lines:
                yield from map(decode, lines)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("commit-??????.json"))


class ResultFile:
    """A file of JSON lines under a random name; it does not exist without a line."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._path = folder / f"{kind}-{new_id()}.ndjson"
        self._file: BinaryIO | None = None

    def write(self, item: object) -> None:
        """Write a line."""
        if self._file is None:
            self._file = self._path.open("xb")
        self._file.write(_encode(item) + b"\n")

    def finish(self) -> str | None:
        """Make the file durable and return its name, or None if it has no line."""
        if self._file is None:
            return None
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        self._file = None
        return self._path.name

    def discard(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._path.unlink()
