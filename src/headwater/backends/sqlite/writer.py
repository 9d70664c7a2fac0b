"""The writer thread of a process, in which concurrent writes share a durable commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from headwater.backends.sqlite.home import BUSY_SECONDS, CHECKPOINT_BYTES, Home
from headwater.core.futures import Settlement, settle
from headwater.core.logging import log
from headwater.errors import ClosedError, HeadwaterError

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
BulkJob = Callable[[Sequence[T], sqlite3.Connection], None]
"""A job that writes many items at once, all or none."""

_MAX_JOBS = 256
_RESTART_BYTES = 64 << 20
_COMMITS_PER_CHECKPOINT = 32
_ERASE_SECONDS = 2.0


class _Queued(NamedTuple):
    future: asyncio.Future[Any]
    job: Job[Any]
    wake: bool = False
    moves: bool = False
    single: bool = False
    erases: bool = False
    then: Job[None] | None = None
    bulk_job: BulkJob[Any] | None = None
    item: Any = None


# ValueError and OverflowError: a value that SQLite cannot bind, such as a lone surrogate.
_SYSTEM_FAILURES = (sqlite3.Error, OSError)
_FAILURES = (*_SYSTEM_FAILURES, HeadwaterError, ValueError, OverflowError)


@contextmanager
def erasing(db: sqlite3.Connection) -> Iterator[None]:
    """Overwrite the bytes that are removed; SQLite would only mark their pages as free."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF")


class Writer:
    """A thread that runs jobs in order and atomically, many per durable transaction."""

    def __init__(
        self, home: Home, wake: Callable[[], None], notify: Callable[[], None] = lambda: None
    ) -> None:
        self._home = home
        self._wake = wake
        self._notify = notify
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headwater-writer", daemon=True)
        self._lock = home.write_lock()
        with home.translated():
            self._connection = home.connect()
        self._wal = str(home.database) + "-wal"
        self._closed = False
        self._ended = False
        self._commits = 0
        self._erasing = False
        self._thread.start()

    async def run(
        self,
        job: Job[T],
        *,
        wake: bool = False,
        moves: bool = False,
        single: bool = False,
        erases: bool = False,
        then: Job[None] | None = None,
    ) -> T:
        """Run the job inside a write transaction and return its result when it is durable.

        Args:
            job: Called with the connection in the writer thread.
            wake: Wake the workers afterwards, because the job adds work.
            moves: Notify those who wait for commits, because the job moves a position.
            single: The job is one statement, which needs no explicit transaction when run alone.
            erases: Remove the deleted data from the WAL too, or log a warning if that fails.
            then: A read that runs after the job succeeded, outside of its transaction.
        """
        future: asyncio.Future[T] = self._future()
        self._queue.put(_Queued(future, job, wake, moves, single, erases, then))
        return await future

    async def run_bulk(self, job: BulkJob[T], item: T) -> None:
        """Write an item together with all other items that are queued for the same job.

        The cost is per statement, so ten items cost little more than one. If the bulk write fails,
        each item is written alone and gets its own result.
        """
        future: asyncio.Future[None] = self._future()
        self._queue.put(_Queued(future, partial(job, [item]), bulk_job=job, item=item))
        await future

    def _future(self) -> asyncio.Future[Any]:
        self._home.check_open()
        if self._closed:
            raise ClosedError("this store is closed")
        return asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Finish the queued jobs and end the thread; further calls do nothing."""
        if self._ended:
            return
        self._closed = self._ended = True
        self._queue.put(None)
        self._thread.join()
        self._connection.close()
        self._lock.close()

    def _run(self) -> None:
        batch: list[_Queued] = []
        try:
            while batch := self._next_batch():
                self._perform(self._connection, batch)
        finally:
            # Only a bug ends the thread early; the waiting callers must get an error.
            self._closed = True
            ended = ClosedError("the writer thread has failed; see its traceback")
            settle(Settlement(queued.future, error=ended) for queued in batch)

    def _perform(self, connection: sqlite3.Connection, batch: list[_Queued]) -> None:
        try:
            with self._lock:
                answers = self._transact(connection, batch)
                self._commits += 1
                if any([queued.erases for queued in batch]):
                    self._erase(connection, _ERASE_SECONDS)
                elif self._commits % _COMMITS_PER_CHECKPOINT == 0:
                    self._checkpoint(connection)
        except OSError as error:  # the lock itself
            failure = self._home.translate_os(error)
            answers = [Settlement(queued.future, error=failure) for queued in batch]
        wakes, moves = any([q.wake for q in batch]), any([q.moves for q in batch])
        reads = [pair for pair in zip(batch, answers, strict=True) if pair[0].then is not None]
        # The event loop is ready to run now and competes for the interpreter lock: do little here.
        if reads:
            settle(a for queued, a in zip(batch, answers, strict=True) if queued.then is None)
            self._settle_after_reads(connection, reads)
        else:
            settle(answers)
        if wakes:
            self._wake()
        if moves:
            self._notify()

    def _settle_after_reads(
        self, connection: sqlite3.Connection, reads: list[tuple[_Queued, Settlement]]
    ) -> None:
        """Run the reads one by one: the loop handles the first result while the next is read."""
        for queued, answer in reads:
            if answer.error is None and queued.then is not None:
                self._run_then(connection, queued.then)
            settle([answer])

    def _next_batch(self) -> list[_Queued]:
        first = self._queue.get()
        batch: list[_Queued] = []
        item: _Queued | None = first
        while item is not None:
            batch.append(item)
            if len(batch) == _MAX_JOBS:
                return batch
            try:
                item = self._queue.get_nowait()
            except Empty:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _run_then(self, connection: sqlite3.Connection, then: Job[None]) -> None:
        try:
            then(connection)
        except sqlite3.Error as error:
            # The job before it is committed, and the events can be read later.
            log.warning("prefetch failed", error=str(error))

    def _transact(self, connection: sqlite3.Connection, batch: list[_Queued]) -> list[Settlement]:
        """Run jobs in one transaction; a job that fails does not affect the others."""
        first, alone = batch[0], len(batch) == 1
        try:
            self._home.check_not_replaced()
            if alone and first.single:
                return [Settlement(first.future, first.job(connection))]
            connection.execute("BEGIN IMMEDIATE")
            if alone:
                answers = [Settlement(first.future, first.job(connection))]
            else:
                done = self._run_bulk_jobs(connection, batch)
                answers = [
                    done.get(queued.future) or self._attempt(connection, queued.job, queued.future)
                    for queued in batch
                ]
            connection.execute("COMMIT")
        except _FAILURES as error:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            failure = self._translated(error)
            return [Settlement(queued.future, error=failure) for queued in batch]
        return answers

    def _translated(self, error: Exception) -> Exception:
        return self._home.translate(error) if isinstance(error, _SYSTEM_FAILURES) else error

    def _run_bulk_jobs(
        self, connection: sqlite3.Connection, batch: list[_Queued]
    ) -> dict[asyncio.Future[Any], Settlement]:
        """Return the answers to the items that could be written in bulk."""
        jobs: dict[BulkJob[Any], list[_Queued]] = {}
        for queued in batch:
            if queued.bulk_job is not None:
                jobs.setdefault(queued.bulk_job, []).append(queued)
        done: dict[asyncio.Future[Any], Settlement] = {}
        for job, group in jobs.items():
            items = [queued.item for queued in group]
            if self._attempt(connection, partial(job, items), group[0].future).error is None:
                done |= {queued.future: Settlement(queued.future) for queued in group}
        return done

    def _attempt(
        self, connection: sqlite3.Connection, job: Job[Any], future: asyncio.Future[Any]
    ) -> Settlement:
        connection.execute("SAVEPOINT job")
        try:
            result = job(connection)
        except _FAILURES as error:
            if not connection.in_transaction:
                raise  # SQLite rolled back the whole transaction: a full disk, an I/O error
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            failure = self._translated(error)
            return Settlement(future, error=failure)
        connection.execute("RELEASE job")
        return Settlement(future, result)

    def _erase(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Empty the WAL; if a reader prevents it, a later checkpoint tries again."""
        connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1_000)}")
        try:
            held, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            problem = "it is being read" if held else None
        except sqlite3.Error as error:
            problem = str(error)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1_000)}")
        self._erasing = problem is not None
        if problem is not None and seconds:
            log.warning("erased data is still in the WAL", file=self._wal, problem=problem)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        if self._erasing:
            self._erase(connection, 0)
        try:
            size = os.stat(self._wal).st_size
            if size > CHECKPOINT_BYTES:
                # A passive checkpoint does not wait for readers. Above the second limit it does,
                # because the WAL would grow without bound.
                mode = "RESTART" if size > _RESTART_BYTES else "PASSIVE"
                connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except (sqlite3.Error, OSError) as error:
            # The commits before it are durable, so they must not fail.
            log.warning("checkpoint failed; retrying", error=str(error))
