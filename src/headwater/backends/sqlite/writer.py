"""The one thread of a process that writes, so that concurrent writes share a durable commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from headwater.backends.sqlite.home import BUSY_SECONDS, CHECKPOINT_BYTES, Home
from headwater.core.futures import Answer, send
from headwater.core.logging import log
from headwater.errors import ClosedError, HeadwaterError

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
SingleFlight = Callable[[Sequence[T], sqlite3.Connection], None]
"""A job for many items at once: for all of them or, where it fails, for none."""

_MOST_JOBS = 256
_RESTART_BYTES = 64 << 20
_COMMITS_BETWEEN_LOOKS = 32
_ERASING_SECONDS = 2.0


class _Queued(NamedTuple):
    job: Job[Any]
    wake: bool
    single: bool
    erases: bool
    then: Job[None] | None
    future: asyncio.Future[Any]
    together: SingleFlight[Any] | None = None
    item: Any = None


# A value that SQLite cannot bind, such as a lone surrogate, is the fault of its job alone.
_FAILURES = (sqlite3.Error, HeadwaterError, ValueError, OverflowError)


class Writer:
    """Runs jobs in order, each atomic, many to a transaction; an answer means it is durable."""

    def __init__(self, home: Home, wake: Callable[[], None]) -> None:
        self._home = home
        self._wake = wake
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
        single: bool = False,
        erases: bool = False,
        then: Job[None] | None = None,
    ) -> T:
        """Runs the job inside a write transaction and returns its result once it is durable.

        With ``wake``, the job gives workers something to do and they are woken. A ``single`` job
        is one statement, which is a transaction by itself when it comes alone. What a job that
        ``erases`` removed is gone from the WAL too when it returns, or a warning says why not yet.
        ``then`` runs after a job that succeeded, outside of its transaction; it is for reading.
        """
        future: asyncio.Future[T] = self._future()
        self._queue.put(_Queued(job, wake, single, erases, then, future))
        return await future

    async def run_together(self, job: SingleFlight[T], item: T) -> None:
        """The same for one of many items that a job takes at once.

        Each statement hands the interpreter over, so ten items cost little more than one. Those
        that wait are written together; where that fails, each alone, and each has its own answer.
        """
        future: asyncio.Future[None] = self._future()
        alone = partial(job, [item])
        self._queue.put(
            _Queued(
                alone,
                wake=False,
                single=False,
                erases=False,
                then=None,
                future=future,
                together=job,
                item=item,
            )
        )
        await future

    def _future(self) -> asyncio.Future[Any]:
        self._home.check_open()
        if self._closed:
            raise ClosedError("this store is closed")
        return asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Finishes what is queued and ends the thread; once is enough."""
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
            # Only a mistake of ours ends the thread early: then nobody is left waiting for it.
            self._closed = True
            ended = ClosedError("the thread that writes has ended; the traceback says why")
            send(Answer(queued.future, error=ended) for queued in batch)

    def _perform(self, connection: sqlite3.Connection, batch: list[_Queued]) -> None:
        try:
            with self._lock:
                answers = self._transact(connection, batch)
                self._commits += 1
                if any(queued.erases for queued in batch):
                    self._erase(connection, _ERASING_SECONDS)
                elif self._commits % _COMMITS_BETWEEN_LOOKS == 0:
                    self._checkpoint(connection)
        except OSError as error:  # the lock itself
            failure = self._home.translate_os(error)
            answers = [Answer(queued.future, error=failure) for queued in batch]
        # From here on the event loop wants to run: the less is done beside it, the sooner it can.
        send(a for queued, a in zip(batch, answers, strict=True) if queued.then is None)
        for queued, answer in zip(batch, answers, strict=True):
            if queued.then is not None:
                # One by one: the loop works on the first while the next one is read.
                if answer.error is None:
                    self._follow(connection, queued.then)
                send([answer])
        if any(queued.wake for queued in batch):
            self._wake()

    def _next_batch(self) -> list[_Queued]:
        first = self._queue.get()
        batch: list[_Queued] = []
        item: _Queued | None = first
        while item is not None:
            batch.append(item)
            if len(batch) == _MOST_JOBS:
                return batch
            try:
                item = self._queue.get_nowait()
            except Empty:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _follow(self, connection: sqlite3.Connection, then: Job[None]) -> None:
        try:
            then(connection)
        except sqlite3.Error as error:
            # What it reads can be read again; what was committed before it stays so.
            log.warning("reading ahead failed", error=str(error))

    def _transact(self, connection: sqlite3.Connection, batch: list[_Queued]) -> list[Answer]:
        """Runs jobs in one transaction; one that fails takes nothing of the others with it."""
        first, alone = batch[0], len(batch) == 1
        try:
            if alone and first.single:
                return [Answer(first.future, first.job(connection))]
            connection.execute("BEGIN IMMEDIATE")
            if alone:
                answers = [Answer(first.future, first.job(connection))]
            else:
                done = self._run_together(connection, batch)
                answers = [
                    done.get(queued.future) or self._attempt(connection, queued.job, queued.future)
                    for queued in batch
                ]
            connection.execute("COMMIT")
        except _FAILURES as error:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            failure = self._home.translate(error) if isinstance(error, sqlite3.Error) else error
            return [Answer(queued.future, error=failure) for queued in batch]
        return answers

    def _run_together(
        self, connection: sqlite3.Connection, batch: list[_Queued]
    ) -> dict[asyncio.Future[Any], Answer]:
        """The answers to those whose items could be written together."""
        jobs: dict[SingleFlight[Any], list[_Queued]] = {}
        for queued in batch:
            if queued.together is not None:
                jobs.setdefault(queued.together, []).append(queued)
        done: dict[asyncio.Future[Any], Answer] = {}
        for job, own in jobs.items():
            items = [queued.item for queued in own]
            if self._attempt(connection, partial(job, items), own[0].future).error is None:
                done |= {queued.future: Answer(queued.future) for queued in own}
        return done

    def _attempt(
        self, connection: sqlite3.Connection, job: Job[Any], future: asyncio.Future[Any]
    ) -> Answer:
        connection.execute("SAVEPOINT job")
        try:
            result = job(connection)
        except _FAILURES as error:
            if not connection.in_transaction:
                raise  # SQLite gave up the whole transaction: a full disk, an I/O error
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            failure = self._home.translate(error) if isinstance(error, sqlite3.Error) else error
            return Answer(future, error=failure)
        connection.execute("RELEASE job")
        return Answer(future, result)

    def _erase(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Empties the WAL; as long as somebody reads from it, it is tried again now and then."""
        connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1_000)}")
        try:
            held, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            problem = "somebody reads from it" if held else None
        except sqlite3.Error as error:
            problem = str(error)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1_000)}")
        self._erasing = problem is not None
        if problem is not None and seconds:
            log.warning(
                "what was erased is still in the WAL, and will be removed later",
                file=self._wal,
                problem=problem,
            )

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        if self._erasing:
            self._erase(connection, 0)
        try:
            size = os.stat(self._wal).st_size
            if size > CHECKPOINT_BYTES:
                # A passive checkpoint waits for nobody; past the second bound a pinned reader is
                # waited for, because the WAL would grow without end.
                mode = "RESTART" if size > _RESTART_BYTES else "PASSIVE"
                connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except (sqlite3.Error, OSError) as error:
            # The commits before it are durable and must be answered as such.
            log.warning("checkpoint failed and will be tried again", error=str(error))
