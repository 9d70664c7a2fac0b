"""The one thread of a process that writes, so that concurrent writes share a durable commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from headwater.backends.sqlite.home import CHECKPOINT_BYTES, Home
from headwater.errors import ClosedError
from headwater.logs import log

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

_MOST_JOBS = 256
_RESTART_BYTES = 64 << 20


class _Queued(NamedTuple):
    job: Job[Any]
    wake: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class Writer:
    """Runs jobs in order, each atomic, many to a transaction; an answer means it is durable."""

    def __init__(self, home: Home, wake: Callable[[], None]) -> None:
        self._home = home
        self._wake = wake
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headwater-writer", daemon=True)
        self._wal = home.database.with_name(home.database.name + "-wal")
        self._closed = False
        self._thread.start()

    async def run(self, job: Job[T], *, wake: bool = False) -> T:
        """Runs the job inside a write transaction and returns its result once it is durable.

        With ``wake``, the job gives workers something to do and they are woken.
        """
        if self._closed:
            raise ClosedError("this store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Queued(job, wake, loop, future))
        return await future

    def close(self) -> None:
        """Finishes what is queued and ends the thread."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection = self._home.connect()
        try:
            while batch := self._next_batch():
                self._answer(batch, self._transact(connection, batch))
        finally:
            connection.close()

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

    def _transact(self, connection: sqlite3.Connection, batch: list[_Queued]) -> list[_Answer]:
        try:
            with self._home.write_lock():
                connection.execute("BEGIN IMMEDIATE")
                answers = [self._attempt(connection, queued) for queued in batch]
                connection.execute("COMMIT")
                self._checkpoint(connection)
        except (sqlite3.Error, OSError) as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            failure = self._home.translate(error) if isinstance(error, sqlite3.Error) else error
            failure.__cause__ = error if failure is not error else None
            return [_Answer(queued.future, None, failure) for queued in batch]
        if any(queued.wake for queued in batch):
            self._wake()
        return answers

    def _attempt(self, connection: sqlite3.Connection, queued: _Queued) -> _Answer:
        connection.execute("SAVEPOINT job")
        try:
            result = queued.job(connection)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not connection.in_transaction:
                raise  # SQLite gave up the whole transaction (full disk, I/O error)
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            if isinstance(error, sqlite3.Error):
                failure = self._home.translate(error)
                failure.__cause__ = error
                return _Answer(queued.future, None, failure)
            return _Answer(queued.future, None, error)
        connection.execute("RELEASE job")
        return _Answer(queued.future, result, None)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        size = self._wal.stat().st_size
        if size <= CHECKPOINT_BYTES:
            return
        # A passive checkpoint waits for nobody; past the second bound a pinned reader is waited
        # for, because the WAL would grow without end.
        mode = "RESTART" if size > _RESTART_BYTES else "PASSIVE"
        try:
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            # The commit before it is durable and must be answered as such.
            log.warning("checkpoint failed", error=str(error))

    def _answer(self, batch: list[_Queued], answers: list[_Answer]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
        for queued, answer in zip(batch, answers, strict=True):
            by_loop.setdefault(queued.loop, []).append(answer)
        for loop, group in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, group)
            except RuntimeError:
                continue  # the loop was closed while its write ran; nobody waits for the answer


def _settle(answers: list[_Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
