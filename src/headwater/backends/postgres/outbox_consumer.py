"""Taking what the present has committed, each row once.

The rows and how far they go become durable in one transaction, which holds the partitions' rows in
``_outbox``. Whoever dies before its end leaves nothing behind, and whoever dies after it leaves
rows at their source that the next one knows to be here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from headwater.backends.postgres.coalesced_task import CoalescedTask
from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.history_sql import KEEP_GIVEN
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.store_identity import Ownership
from headwater.errors import BackendError
from headwater.ports import LogKind, Outbox, OutboxBatch

# Rows are taken apart by the server: json_array_elements, unlike every operator, neither refuses
# U+0000 nor rewrites a number. OFFSET 0 keeps each row from being taken apart once per column.
_ROWS = """
SELECT partition, (p << 32) + n AS n,
       ARRAY(SELECT item::text FROM json_array_elements(given) AS item) AS f
FROM unnest($1::json[], $2::integer[]) WITH ORDINALITY AS parcels (parcel, partition, p),
     json_array_elements(parcel) WITH ORDINALITY AS parted (given, n)
OFFSET 0
"""

_KEEP: dict[LogKind, str] = {
    "history": f"""
WITH given AS MATERIALIZED (
    SELECT n, f[1]::json #>> '{{}}' AS feature, f[2]::json #>> '{{}}' AS entity,
           _readable(f[3]::json) #>> '{{}}' AS entity_id, f[4]::json #>> '{{}}' AS kind,
           f[5]::json AS value, _moment(f[6]::bigint) AS as_of, _moment(f[7]::bigint) AS written_at,
           f[8]::json #>> '{{}}' AS cause
    FROM ({_ROWS}) AS parcel
),
{KEEP_GIVEN}""",
    "events": f"""
INSERT INTO _events
    (partition, position, received_at, event_type, entity_id, event_id, "timestamp", payload)
SELECT partition, f[1]::json #>> '{{}}', _moment(f[2]::bigint), f[3]::json #>> '{{}}',
       f[4]::json #>> '{{}}', f[5]::json #>> '{{}}', _moment(f[6]::bigint), f[7]::json
FROM ({_ROWS}) AS parcel ORDER BY n
""",
}

_FOUND = """
INSERT INTO _outbox (store_id, partition) SELECT $1, unnest($2::integer[]) ON CONFLICT DO NOTHING
"""
# In one order, so that two who take the same partitions do not wait for each other.
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

LIMITS: dict[LogKind, int] = {"history": 20_000, "events": 5_000}
# A transaction costs as much as some hundred rows, and most partitions have fewer.
_PARTITIONS_TOGETHER = 8
_TRANSACTIONS_AT_ONCE = 4


class _Taken(msgspec.Struct, frozen=True):
    """What there was of a partition, and how far it is taken with it."""

    partition: int
    parcels: dict[LogKind, OutboxBatch]
    upto: dict[LogKind, str]

    @property
    def more(self) -> bool:
        return any(parcel.more for parcel in self.parcels.values())


class Drain:
    """Brings the outbox's rows here, however many do so at once."""

    def __init__(
        self, postgres: Postgres, outbox: Outbox, ownership: Ownership, pool_size: int
    ) -> None:
        self._postgres = postgres
        self._outbox = outbox
        self._ownership = ownership
        self._slots = asyncio.Semaphore(min(_TRANSACTIONS_AT_ONCE, pool_size))
        # Whoever takes what is free has events to handle beside it, and nobody waits for the rest.
        self._slot_beside = asyncio.Semaphore(1)
        self._shared = CoalescedTask(lambda: self._take_all(wait=True))

    async def catch_up(self) -> None:
        """Returns when everything that was committed before the call is here."""
        await self._shared()

    async def take_what_is_free(self) -> None:
        """Takes what waits in the partitions that nobody else is taking from."""
        await self._take_all(wait=False)

    async def close(self) -> None:
        await self._shared.close()

    async def _take_all(self, *, wait: bool) -> None:
        # At once, so that both are asked in one round trip.
        standing, some = await asyncio.gather(self._outbox.standing(), self._outbox.filled())
        owned = await self._ownership.check(standing)
        if owned is None or not some:
            return
        filled = sorted(some)
        await self._postgres.run(
            lambda connection: connection.execute(_FOUND, owned.store_id, filled)
        )
        groups = [
            filled[start : start + _PARTITIONS_TOGETHER]
            for start in range(0, len(filled), _PARTITIONS_TOGETHER)
        ]
        await _all(self._drain(group, wait=wait) for group in groups)

    async def _drain(self, partitions: Sequence[int], *, wait: bool) -> None:
        try:
            async with self._slots if wait else self._slot_beside:
                held = await self._drain_free(partitions)
                if wait:
                    await self._drain_held(held)
        except BackendError:
            if len(partitions) == 1:
                raise
            # One partition's trouble does not keep the others from being taken.
            await _all(self._drain([partition], wait=wait) for partition in partitions)

    async def _drain_held(self, partitions: Iterable[int]) -> None:
        """Waits for those who take from partitions, one by one, with nothing else in hand."""
        for partition in partitions:
            more = True
            while more:
                taken = await self._take_and_settle([partition], wait=True)
                more = any(own.more for own in taken)

    async def _drain_free(self, partitions: Sequence[int]) -> set[int]:
        """Takes all that waits in partitions; gives those that somebody else is taking from."""
        held: set[int] = set()
        while partitions:
            taken = await self._take_and_settle(partitions, wait=False)
            held |= {*partitions} - {own.partition for own in taken}
            partitions = [own.partition for own in taken if own.more]
        return held

    async def _take_and_settle(self, partitions: Sequence[int], *, wait: bool) -> list[_Taken]:
        taken = await self._postgres.run(partial(self._take, partitions=partitions, wait=wait))
        await asyncio.gather(
            *(
                self._outbox.settle(own.partition, own.upto["history"], own.upto["events"])
                for own in taken
            )
        )
        return taken

    async def _take(
        self, connection: Connection, *, partitions: Sequence[int], wait: bool
    ) -> list[_Taken]:
        """Takes the next rows of partitions, but of those that somebody else is at."""
        async with connection.transaction():
            store_id = (await self._ownership.held(connection)).store_id
            marks = await connection.fetch(_LOCK if wait else _LOCK_IF_FREE, store_id, partitions)
            taken = await asyncio.gather(*(self._fetch_next(mark, len(marks)) for mark in marks))
            for kind in _KEEP:
                await _keep(connection, kind, taken)
            if advanced := [own for own in taken if own.parcels]:
                await connection.execute(
                    _ADVANCE,
                    store_id,
                    [own.partition for own in advanced],
                    [own.upto["history"] for own in advanced],
                    [own.upto["events"] for own in advanced],
                )
            return taken

    async def _fetch_next(self, mark: asyncpg.Record, beside: int) -> _Taken:
        """The next rows of one partition of so many."""
        upto: dict[LogKind, str] = {"history": mark["history"], "events": mark["events"]}
        found = await asyncio.gather(
            *(
                self._outbox.fetch(kind, mark["partition"], upto[kind], max(1, most // beside))
                for kind, most in LIMITS.items()
            )
        )
        parcels = {kind: own for kind, own in zip(LIMITS, found, strict=True) if own is not None}
        upto |= {kind: parcel.upto for kind, parcel in parcels.items()}
        return _Taken(mark["partition"], parcels, upto)


async def _keep(connection: Connection, kind: LogKind, taken: Sequence[_Taken]) -> None:
    filled = [own for own in taken if kind in own.parcels]
    if not filled:
        return
    rows = [own.parcels[kind].rows.decode() for own in filled]
    try:
        await connection.execute(_KEEP[kind], rows, [own.partition for own in filled])
    except asyncpg.DataError as error:
        partitions = " and ".join(str(own.partition) for own in filled)
        raise BackendError(
            f"rows of partition {partitions} cannot be kept in Postgres: {headline(error)}; they "
            "stay where they are until they are corrected there"
        ) from error


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Does all of them, whatever becomes of some; then raises what the first one did."""
    for end in await asyncio.gather(*works, return_exceptions=True):
        if end is not None:
            raise end
