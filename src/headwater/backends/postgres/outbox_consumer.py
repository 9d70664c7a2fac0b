"""Copying committed rows from the outbox in Redis into history, each row once.

The rows and the new positions are written in one transaction, which locks the rows of the
partitions in ``_outbox``. A process that dies before the commit leaves nothing behind; if it dies
after it, the rows that are still in the outbox are known to be taken.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import Any, TypeVar

import asyncpg
import msgspec
from prometheus_client import Gauge

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.history_sql import INSERT_INCOMING
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.store_identity import FRESH_SECONDS, READ_POSITIONS, StoreCheck
from headwater.backends.postgres.vectors.document_writes import CommittedDocuments
from headwater.core.batching import batched
from headwater.core.concurrency import both
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import (
    CommittedWrites,
    LogKind,
    Mismatch,
    Outbox,
    OutboxBatch,
    OutboxState,
    Positions,
    StoreIdentity,
)

T = TypeVar("T")

# The server parses the rows: json_array_elements, unlike the JSON operators, accepts U+0000 and
# does not rewrite numbers. OFFSET 0 keeps a row from being parsed once per column.
_ROWS = """
SELECT partition, (p << 32) + n AS n,
       ARRAY(SELECT item::text FROM json_array_elements(given) AS item) AS f
FROM unnest($1::json[], $2::integer[]) WITH ORDINALITY AS batches (batch, partition, p),
     json_array_elements(batch) WITH ORDINALITY AS rows (given, n)
OFFSET 0
"""
_KEEP: dict[LogKind, str] = {
    "history": f"""
WITH incoming AS MATERIALIZED (
    SELECT n, f[1]::json #>> '{{}}' AS feature, f[2]::json #>> '{{}}' AS entity,
           _readable(f[3]::json) #>> '{{}}' AS entity_id, f[4]::json #>> '{{}}' AS kind,
           f[5]::json AS value, _moment(f[6]::bigint) AS as_of, _moment(f[7]::bigint) AS written_at,
           f[8]::json #>> '{{}}' AS cause
    FROM ({_ROWS}) AS batch
),
{INSERT_INCOMING}""",
    "events": f"""
INSERT INTO _events
    (partition, position, received_at, event_type, entity_id, event_id, "timestamp", payload,
     traceparent)
SELECT partition, f[1]::json #>> '{{}}', _moment(f[2]::bigint), f[3]::json #>> '{{}}',
       f[4]::json #>> '{{}}', f[5]::json #>> '{{}}', _moment(f[6]::bigint), f[7]::json,
       f[8]::json #>> '{{}}'
FROM ({_ROWS}) AS batch ORDER BY n
""",
}
_ADD_PARTITIONS = f"""
WITH added AS (
    INSERT INTO _outbox (store_id, partition) SELECT $1, unnest($2::integer[])
    ON CONFLICT DO NOTHING
)
{READ_POSITIONS}
"""
# Always in the same order, so that two consumers of the same partitions cannot deadlock.
_LOCK = """
SELECT partition, history, events FROM _outbox
WHERE store_id = $1 AND partition = ANY ($2::integer[])
ORDER BY partition FOR UPDATE
"""
_LOCK_IF_FREE = f"{_LOCK} SKIP LOCKED"
_ADVANCE = """
UPDATE _outbox SET history = taken.history, events = taken.events
FROM unnest($2::integer[], $3::text[], $4::text[]) AS taken (partition, history, events)
WHERE _outbox.store_id = $1 AND _outbox.partition = taken.partition
"""
OUTBOX_SECONDS = Gauge(
    "headwater_outbox_seconds",
    "Time since all rows that waited in Redis had been copied to Postgres; `NaN` in a "
    "process that copies none.",
)
_CLOSING_SECONDS = 10.0


OUTBOX_SECONDS.set(math.nan)


LIMITS: dict[LogKind, int] = {"history": 20_000, "events": 5_000}

# A transaction costs as much as some hundred rows, and most partitions have fewer.
_PARTITIONS_PER_TRANSACTION = 8

_CONCURRENT_TRANSACTIONS = 4


class _Taken(msgspec.Struct, frozen=True):
    """The rows taken from a partition, and the positions of the last ones."""

    partition: int
    batches: dict[LogKind, OutboxBatch]
    upto: Positions
    is_cut: bool = False
    """Whether rows were left out because those of another partition come first."""

    @property
    def has_more(self) -> bool:
        return self.is_cut or any(batch.more for batch in self.batches.values())

    @property
    def documents(self) -> Sequence[CommittedWrites]:
        return self.batches["history"].documents if "history" in self.batches else ()


class OutboxConsumer:
    """Takes rows from the outbox; any number of processes may do so at the same time."""

    def __init__(
        self,
        postgres: Postgres,
        outbox: Outbox,
        store: StoreCheck,
        documents: CommittedDocuments,
        pool_size: int,
    ) -> None:
        self._postgres = postgres
        self._outbox = outbox
        self._store = store
        self._documents = documents
        self._slots = asyncio.Semaphore(min(_CONCURRENT_TRANSACTIONS, pool_size))
        # In a worker, which also has events to handle, and where no caller waits for the rows.
        self._background_slot = asyncio.Semaphore(1)
        # Writes of documents are large, and those of one index wait for each other.
        self._document_slot = asyncio.Semaphore(1)
        self._shared = CoalescedTask(lambda: self._take_all(wait=True))
        self._shared_documents = CoalescedTask(
            lambda: self._take_all(wait=True, only_documents=True)
        )
        self._documents_mark: bytes | None = None
        self._is_quiet = False
        """Whether the outbox had the same mark twice."""
        self._proven_until = 0.0
        self.complete_until = 0
        """All events that the server of the outbox accepted before this are in history."""

    async def catch_up(self) -> None:
        """Return when every row committed before the call is in history."""
        await self._shared()

    async def catch_up_documents(self) -> None:
        """Return when every document committed before the call is stored."""
        mark, before = await self._outbox.documents_mark(), self._documents_mark
        if mark is None:
            await self._shared_documents()
        self._documents_mark, self._is_quiet = mark, mark is not None and mark == before

    async def read_documents(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a read returns that sees every document committed before the call.

        If none was committed lately, it runs while the outbox is asked. A change since the outbox
        was asked before may have been copied after the read began, which is then repeated.
        """
        if self._is_quiet:
            before = self._documents_mark
            found, mark = await both(read(), self._outbox.documents_mark())
            if mark is not None and mark == before:
                return found
        await self.catch_up_documents()
        return await read()

    async def take_free(self) -> None:
        """Take the rows of all partitions that no other consumer is taking from."""
        await self._take_all(wait=False)

    async def done_events(self) -> Sequence[str]:
        """Return the last event of each partition that no consumer group needs any more."""
        return await self._outbox.done_events()

    async def prove(self) -> None:
        """Raise StoreMismatchError unless Redis and Postgres continue each other; mark what is old.

        The proof of the last seconds is not repeated, unless it failed.
        """
        if time.monotonic() < self._proven_until:
            return
        await self._postgres.prepare()
        identity, states = await asyncio.gather(self._outbox.identity(), self._outbox.states())
        if await self._store.compare(identity) is not None:
            await self._prove(identity, states, ())

    def doubt(self) -> None:
        """Let the next proof be made, however recent the last one is."""
        self._proven_until = 0.0

    async def close(self) -> None:
        await self._shared.close()
        await self._shared_documents.close()

    async def _take_all(self, *, wait: bool, only_documents: bool = False) -> None:
        await self._postgres.prepare()
        # Concurrently, so that both calls share a round trip.
        identity, states = await asyncio.gather(self._outbox.identity(), self._outbox.states())
        store_id = await self._store.compare(identity)
        pending = {number: state for number, state in enumerate(states) if state.has_pending}
        with_documents = [number for number, state in pending.items() if state.has_documents]
        others = [] if only_documents else [n for n in pending if n not in with_documents]
        partitions = [*with_documents, *others]
        if store_id is None or (not partitions and time.monotonic() < self._proven_until):
            self._copied(states if wait and store_id else (), only_documents=only_documents)
            return
        await self._prove(identity, states, partitions)
        try:
            await _all(
                [
                    self._drain_documents(store_id, with_documents, wait=wait),
                    *(
                        self._drain(store_id, group, wait=wait)
                        for group in batched(others, _PARTITIONS_PER_TRANSACTION)
                    ),
                ]
            )
        except StoreMismatchError:
            self._proven_until = 0.0
            raise
        self._copied(states if wait else (), only_documents=only_documents)

    def _copied(self, complete: Sequence[OutboxState], *, only_documents: bool) -> None:
        """Note that no row waits that was committed before this run.

        Of partitions that another consumer has locked, this is known only after waiting for it.
        """
        if not only_documents:
            copied_at = time.monotonic()
            OUTBOX_SECONDS.set_function(lambda: time.monotonic() - copied_at)
            self.complete_until = min(
                (state.read_at for state in complete), default=self.complete_until
            )

    async def _prove(
        self, identity: StoreIdentity, states: Sequence[OutboxState], pending: Sequence[int]
    ) -> None:
        """Raise StoreMismatchError unless every partition continues where history ends.

        All of them are checked before rows of one are taken: otherwise, a copy of the outbox would
        add to the partitions in which nothing has happened since it was copied. Those that lack
        rows of history are marked, so that their values are not read.
        """
        self._proven_until = 0.0
        store_id = identity.store_id or ""
        taken, catalog = await self._positions(store_id, pending)
        mismatches = await self._mismatches(store_id, states, taken)
        if catalog > identity.catalog:
            # The catalog is changed in Redis first, so it was changed since, or it is older.
            revision = (await self._outbox.identity()).catalog
            problem = (
                f"the catalog of features in Redis has the revision {revision}, and Postgres has a "
                f"copy of {catalog}; Redis was restored from an older copy"
            )
            if catalog > revision:
                mismatches = dict.fromkeys(range(len(states)), Mismatch(problem, is_behind=True))
        behind = {partition for partition, found in mismatches.items() if found.is_behind}
        if behind or identity.behind:
            await self._outbox.mark_behind(store_id, behind)
        for mismatch in mismatches.values():
            raise StoreMismatchError(mismatch.problem)
        self._proven_until = time.monotonic() + FRESH_SECONDS

    async def _mismatches(
        self, store_id: str, states: Sequence[OutboxState], taken: Mapping[int, Positions]
    ) -> dict[int, Mismatch]:
        """Return the partitions that do not continue where history ends."""
        suspects = [n for n, state in enumerate(states) if taken[n] != state.settled]
        confirmed: dict[int, Mismatch] = {}
        while suspects:
            answers = await asyncio.gather(*(self._outbox.mismatch(n, taken[n]) for n in suspects))
            mismatches = {n: found for n, found in zip(suspects, answers, strict=True) if found}
            before = taken
            # Another consumer may have taken and settled more rows since the positions were read.
            taken = (await self._positions(store_id, ()))[0] if mismatches else taken
            confirmed |= {n: found for n, found in mismatches.items() if taken[n] == before[n]}
            suspects = [n for n in mismatches if n not in confirmed]
        return confirmed

    async def _positions(
        self, store_id: str, added: Sequence[int]
    ) -> tuple[Mapping[int, Positions], int]:
        """Return how far each partition was taken, and the revision of the copy of the catalog.

        Partitions that are new are added.
        """
        rows = await self._postgres.run(
            lambda connection: connection.fetch(_ADD_PARTITIONS, store_id, added)
        )
        positions = {row["partition"]: Positions(row["history"], row["events"]) for row in rows}
        return defaultdict(Positions, positions), max((row["catalog"] for row in rows), default=0)

    async def _drain_documents(
        self, store_id: str, partitions: Sequence[int], *, wait: bool
    ) -> None:
        """Take the rows of partitions that have documents, in the order of the commits."""
        async with self._document_slot:
            await self._drain(store_id, partitions, wait=wait, together=True)

    async def _drain(
        self, store_id: str, partitions: Sequence[int], *, wait: bool, together: bool = False
    ) -> None:
        try:
            async with self._slots if wait else self._background_slot:
                if together:
                    await self._take_rows(store_id, partitions, wait=wait, together=True)
                    return
                busy = await self._take_rows(store_id, partitions, wait=False)
                # Wait for other consumers of partitions, one by one, holding no other lock.
                for partition in busy if wait else ():
                    await self._take_rows(store_id, [partition], wait=True)
        except StoreMismatchError:
            raise
        except BackendError:
            if len(partitions) == 1:
                raise
            # A failure of one partition does not keep the others from being taken.
            await _all(self._drain(store_id, [partition], wait=wait) for partition in partitions)

    async def _take_rows(
        self, store_id: str, partitions: Sequence[int], *, wait: bool, together: bool = False
    ) -> set[int]:
        """Take all rows of partitions; return the ones that another consumer has locked.

        Without ``wait``, these are skipped or, ``together``, none is taken.
        """
        busy: set[int] = set()
        while partitions:
            taken = await self._postgres.run(
                partial(self._take, store_id, partitions, wait=wait, together=together)
            )
            await asyncio.gather(
                *(self._outbox.settle(part.partition, part.upto) for part in taken)
            )
            busy |= {*partitions} - {part.partition for part in taken}
            partitions = [part.partition for part in taken if part.has_more]
        return busy

    async def _take(
        self,
        store_id: str,
        partitions: Sequence[int],
        connection: Connection,
        *,
        wait: bool,
        together: bool,
    ) -> list[_Taken]:
        """Take the next rows of partitions; without ``wait``, skip locked ones, or all together."""
        async with connection.transaction():
            await self._store.hold(connection, store_id)
            marks = await connection.fetch(_LOCK if wait else _LOCK_IF_FREE, store_id, partitions)
            if together and len(marks) < len(partitions):
                return []
            taken = await self._fetch_in_order(marks)
            for kind in _KEEP:
                await _keep(connection, kind, taken)
            # Merged by time; the order within a partition stays, also after its clock was set back.
            if writes := [*merge(*(part.documents for part in taken), key=attrgetter("at"))]:
                await self._documents.apply(connection, writes)
            if advanced := [part for part in taken if part.batches]:
                await connection.execute(
                    _ADVANCE,
                    store_id,
                    [part.partition for part in advanced],
                    [part.upto.history for part in advanced],
                    [part.upto.events for part in advanced],
                )
            return taken

    async def _fetch_in_order(self, marks: Sequence[asyncpg.Record]) -> list[_Taken]:
        """Fetch the next rows of partitions; if there are documents, up to a time common to all."""
        taken = await asyncio.gather(*(self._fetch_next(mark, len(marks)) for mark in marks))
        read_until = [
            batch.last_at for part in taken if (batch := part.batches.get("history")) and batch.more
        ]
        if not read_until or not any(part.documents for part in taken):
            return taken
        return await asyncio.gather(
            *(self._cut(*pair, min(read_until)) for pair in zip(marks, taken, strict=True))
        )

    async def _cut(self, mark: asyncpg.Record, taken: _Taken, until: int) -> _Taken:
        """Return what was taken, without the rows of history that are later than a time."""
        whole = taken.batches.get("history")
        if whole is None or whole.last_at <= until:
            return taken
        after, limit = mark["history"], LIMITS["history"]
        part = await self._outbox.fetch("history", taken.partition, after, limit, until=until)
        batches = {**taken.batches}
        if part is None:
            del batches["history"]
        else:
            batches["history"] = part
        upto = taken.upto._replace(history=after if part is None else part.upto)
        return _Taken(taken.partition, batches, upto, is_cut=True)

    async def _fetch_next(self, mark: asyncpg.Record, partitions: int) -> _Taken:
        """Fetch the next rows of one of so many partitions, which share the limits."""
        partition, history, events = mark
        upto: dict[LogKind, str] = {"history": history, "events": events}
        fetched = await asyncio.gather(
            *(
                self._outbox.fetch(kind, partition, upto[kind], max(1, most // partitions))
                for kind, most in LIMITS.items()
            )
        )
        batches = {kind: batch for kind, batch in zip(LIMITS, fetched, strict=True) if batch}
        upto |= {kind: batch.upto for kind, batch in batches.items()}
        return _Taken(partition, batches, Positions(**upto))


async def _keep(connection: Connection, kind: LogKind, taken: Sequence[_Taken]) -> None:
    batches = {
        part.partition: part.batches[kind]
        for part in taken
        if kind in part.batches and part.batches[kind].count
    }
    if not batches:
        return
    rows = [batch.rows.decode() for batch in batches.values()]
    try:
        await connection.execute(_KEEP[kind], rows, [*batches])
    except asyncpg.DataError as error:
        raise BackendError(
            f"rows of partition {' and '.join(map(str, batches))} cannot be written to Postgres: "
            f"{headline(error)}; they stay in Redis until they are corrected there"
        ) from error


async def _all(tasks: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all tasks to their end, then raise the first error."""
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if error is not None:
            raise error


class CoalescedTask:
    """A task of which each caller needs a run that started after the call.

    Callers that come during a run share the next one: the current run may already have passed
    the rows that they need.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            # The error counts as retrieved if all callers are gone; the next run meets it again.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A cancelled caller does not cancel the run for the others.
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._work()

    async def close(self) -> None:
        """Wait for the runs for a limited time, then cancel them."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
