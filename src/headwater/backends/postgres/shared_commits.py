"""Rows of one table, written in transactions that concurrent calls share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, TypeVar

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import ROW_ERRORS
from headwater.backends.postgres.pool import Postgres
from headwater.errors import ClosedError, HeadwaterError

T = TypeVar("T")
R = TypeVar("R")

_CLOSING_SECONDS = 10.0
ROWS_AT_ONCE = 500
# Far below the gigabyte that Postgres accepts in one message.
BYTES_AT_ONCE = 16 << 20


class _Waiting(Generic[T, R]):
    """An item to write, and a future for the result."""

    def __init__(self, item: T, size: int) -> None:
        self.item = item
        self.size = size
        self.result: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def settle(self, result: R | HeadwaterError) -> None:
        """Set the result, unless the caller was cancelled."""
        if self.result.done():
            return
        if isinstance(result, HeadwaterError):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class SharedCommits(Generic[T, R]):
    """Writes items that wait at the same time in one transaction.

    ``insert`` returns the result of each item, or the error because of which it was not written.
    """

    def __init__(
        self,
        pool: Postgres,
        insert: Callable[[Connection, Sequence[T]], Awaitable[Sequence[R | HeadwaterError]]],
    ) -> None:
        self._pool = pool
        self._insert = insert
        self._waiting: list[_Waiting[T, R]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, item: T, size: int) -> R:
        """Write an item of this many bytes, and return its result."""
        waiting: _Waiting[T, R] = _Waiting(item, size)
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        # A cancelled caller does not stop the writes of the others.
        return await waiting.result

    async def close(self) -> None:
        """Wait for running writes for a limited time."""
        if self._writing is not None:
            _, late = await asyncio.wait([self._writing], timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
                await asyncio.wait([task])

    async def _write(self) -> None:
        waiting: list[_Waiting[T, R]] = []
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                for portion in _portions(waiting):
                    await self._write_portion(portion)
        finally:
            # Results are missing only if the store was closed, or after a bug.
            closed = ClosedError("the store was closed while the record was being appended")
            for each in (*waiting, *self._waiting):
                each.settle(closed)
            self._waiting, self._writing = [], None

    async def _write_portion(self, portion: Sequence[_Waiting[T, R]]) -> None:
        items = [waiting.item for waiting in portion]
        try:
            results = await self._pool.run(lambda connection: self._insert(connection, items))
        except HeadwaterError as error:
            if len(portion) > 1 and isinstance(error.__cause__, ROW_ERRORS):
                # A row that Postgres refuses does not keep the others from being stored.
                middle = len(portion) // 2
                await self._write_portion(portion[:middle])
                await self._write_portion(portion[middle:])
            else:
                for waiting in portion:
                    waiting.settle(error)
        else:
            for waiting, result in zip(portion, results, strict=True):
                waiting.settle(result)


def _portions(waiting: Sequence[_Waiting[T, R]]) -> Iterator[list[_Waiting[T, R]]]:
    portion: list[_Waiting[T, R]] = []
    size = 0
    for each in waiting:
        if each.result.done():
            continue  # its caller was cancelled
        if portion and (len(portion) == ROWS_AT_ONCE or size + each.size > BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each.size
    if portion:
        yield portion
