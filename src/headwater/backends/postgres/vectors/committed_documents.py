"""Applying writes of documents that a batch committed, which cannot be refused any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg
import msgspec

from headwater.backends.postgres.errors import ROW_ERRORS, headline
from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.document_writes import DatedWrite, write_documents
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import InvalidInputError
from headwater.ports import CommittedWrites, DocumentWrite

_NO_GENERATION = 0
# A failure of one write, which would fail each time and must not block the rows after it. A table
# of chunks without its columns is one whose extension was dropped.
_FAILURES = (
    InvalidInputError,
    *ROW_ERRORS,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedObjectError,
)


class CommittedDocuments:
    """Writes of documents from the outbox."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def apply(self, connection: Connection, committed: Iterable[CommittedWrites]) -> None:
        """Write documents in the transaction of the caller, each with the time of its commit.

        A document whose chunks cannot be stored is stored without them, so that it is outdated in
        its generation and is embedded again.
        """
        # The clock of the server that stamps commits may be ahead of this one's.
        now = self._clock.micros()
        writes = [(min(commit.at, now), write) for commit in committed for write in commit.writes]
        try:
            await self._write(connection, writes)
        except _FAILURES:
            for at, write in writes:
                await self._write_alone(connection, at, write)

    async def _write_alone(self, connection: Connection, at: int, write: DocumentWrite) -> None:
        without_chunks = msgspec.structs.replace(write, generation=_NO_GENERATION, chunks=())
        for attempt in (write, without_chunks):
            try:
                await self._write(connection, [(at, attempt)])
            except _FAILURES as error:
                log.error(
                    "document could not be indexed",
                    index=write.index,
                    document=write.document,
                    cause=write.cause,
                    error=headline(error),
                )
            else:
                return

    async def _write(self, connection: Connection, writes: Sequence[DatedWrite]) -> None:
        async with connection.transaction():
            await write_documents(connection, writes)
