"""Erased entities in the folder of a backfill, which has stored events, results and failures."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from headwater.core.duckdb_session import glob_literal, session
from headwater.core.sql_literals import text
from headwater.history.backfill.commits import Commits
from headwater.model.values import new_id
from headwater.ports import Ledger

_LOCK = "running"
_KNOWN = "erasures"
_INSTALLED = "installed"
_PAGE = 10_000


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep the events and the results of a folder for the code inside."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def begin(folder: Path, entity: str, ledger: Ledger) -> None:
    """Begin a run, without what an earlier one has left if it has events of an erased entity."""
    file = folder / _KNOWN
    revision = int(file.read_text()) if file.exists() else ledger.revision

    def is_erased(entity_id: str) -> bool:
        tombstone = ledger.find(entity, entity_id)
        return tombstone is not None and tombstone.revision > revision

    if ledger.revision > revision and any(map(is_erased, _ids(folder))):
        _remove_run(folder)
    if not (folder / "events").exists():
        # A process that is killed here leaves no half of it, which could not be read again.
        unfinished = folder / f"{_KNOWN}-{new_id()}"
        unfinished.write_text(str(ledger.revision))
        unfinished.rename(file)


def is_installed(folder: Path) -> bool:
    """Return whether the results of a folder are in the store."""
    return (folder / _INSTALLED).exists()


def install(folder: Path, entity: str, ledger: Ledger) -> None:
    """Note that the results are in the store, and keep nothing but the failures."""
    (folder / _INSTALLED).touch()
    rmtree(folder / "events")
    for commits in _tasks(folder):
        commits.keep_failures(
            lambda event: ledger.voiding(event, lambda event: ((entity, event.entity_id),)) is None
        )


def erase(folder: Path, entity_id: str) -> bool:
    """Remove the data of an entity; return False if a run needs it, which removes it at its end."""
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if is_installed(folder):
            for commits in _tasks(folder):
                commits.keep_failures(lambda event: event.entity_id != entity_id)
        elif any(_ids(folder, f"WHERE entity_id = {text(entity_id)}")):
            _remove_run(folder)  # the next run begins with the events that are left
        return True


def _ids(folder: Path, condition: str = "") -> Iterator[str]:
    """Yield the ids of exported events, also of an export that was interrupted."""
    for file in folder.glob("events*/*.parquet"):
        with session(folder) as duck:
            cursor = duck.run(
                f"SELECT DISTINCT entity_id FROM read_parquet({glob_literal(file)}) {condition}"
            )
            while page := cursor.fetchmany(_PAGE):
                yield from (entity_id for (entity_id,) in page)


def _remove_run(folder: Path) -> None:
    for part in (*folder.glob("events*"), folder / "replay"):
        rmtree(part, ignore_errors=True)
    for file in folder.glob("history-*.parquet"):
        file.unlink()


def _tasks(folder: Path) -> list[Commits]:
    return [Commits(task) for task in (folder / "replay").glob("*") if any(task.glob("commit-*"))]
