"""Taking what the present has committed, each row once.

The rows and how far they go become durable in one transaction, which holds the partition's row in
``_outbox``. Whoever dies before its end leaves nothing behind, and whoever dies after it leaves
rows at their source that the next one knows to be here.
"""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec

from headwater.backends.postgres.keeping import KEEP_GIVEN
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.sharing import Shared
from headwater.backends.postgres.translate import headline
from headwater.errors import BackendError
from headwater.ports import LogKind, Outbox, Parcel

# Rows are taken apart by the server: json_array_elements, unlike every operator, neither refuses
# U+0000 nor rewrites a number. OFFSET 0 keeps each row from being taken apart once per column.
_ROWS = """
SELECT n, ARRAY(SELECT item::text FROM json_array_elements(given) AS item) AS f
FROM json_array_elements($1::json) WITH ORDINALITY AS parcel (given, n)
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
SELECT $2, f[1]::json #>> '{{}}', _moment(f[2]::bigint), f[3]::json #>> '{{}}',
       f[4]::json #>> '{{}}', f[5]::json #>> '{{}}', _moment(f[6]::bigint), f[7]::json
FROM ({_ROWS}) AS parcel ORDER BY n
""",
}

_FOUND = "INSERT INTO _outbox (partition) SELECT unnest($1::integer[]) ON CONFLICT DO NOTHING"
_LOCK = "SELECT history, events FROM _outbox WHERE partition = $1 FOR UPDATE"
_LOCK_IF_FREE = f"{_LOCK} SKIP LOCKED"
_ADVANCE = "UPDATE _outbox SET history = $2, events = $3 WHERE partition = $1"

LIMITS: dict[LogKind, int] = {"history": 20_000, "events": 5_000}
# Far below the gigabyte that Postgres takes at once.
LARGEST_PARCEL = 64 << 20
_PARTITIONS_AT_ONCE = 4


class _Taken(msgspec.Struct, frozen=True):
    """How far a partition was taken, and whether there was more."""

    history: str
    events: str
    more: bool


class Drain:
    """Brings the outbox's rows here, however many do so at once."""

    def __init__(self, postgres: Postgres, outbox: Outbox, pool_size: int) -> None:
        self._postgres = postgres
        self._outbox = outbox
        self._slots = asyncio.Semaphore(min(_PARTITIONS_AT_ONCE, pool_size))
        # Whoever takes what is free has events to handle beside it, and nobody waits for the rest.
        self._slot_beside = asyncio.Semaphore(1)
        self._shared = Shared(lambda: self._take_all(wait=True))

    async def catch_up(self) -> None:
        """Returns when everything that was committed before the call is here."""
        await self._shared()

    async def take_what_is_free(self) -> None:
        """Takes what waits in the partitions that nobody else is taking from."""
        await self._take_all(wait=False)

    async def close(self) -> None:
        await self._shared.close()

    async def _take_all(self, *, wait: bool) -> None:
        filled = await self._outbox.filled()
        if not filled:
            return
        await self._postgres.run(lambda connection: connection.execute(_FOUND, sorted(filled)))
        ends = await asyncio.gather(
            *(self._drain(partition, wait=wait) for partition in sorted(filled)),
            return_exceptions=True,
        )
        # One partition's trouble does not keep the others from being taken.
        for end in ends:
            if end is not None:
                raise end

    async def _drain(self, partition: int, *, wait: bool) -> None:
        async with self._slots if wait else self._slot_beside:
            more = True
            while more:
                taken = await self._postgres.run(
                    lambda connection: self._take(connection, partition, wait=wait)
                )
                if taken is None:
                    return
                await self._outbox.settle(partition, taken.history, taken.events)
                more = taken.more

    async def _take(self, connection: Connection, partition: int, *, wait: bool) -> _Taken | None:
        """Takes the next rows of one partition, unless somebody else is at it."""
        async with connection.transaction():
            marks = await connection.fetchrow(_LOCK if wait else _LOCK_IF_FREE, partition)
            if marks is None:
                return None
            history, events = await asyncio.gather(
                self._fetch("history", partition, marks["history"]),
                self._fetch("events", partition, marks["events"]),
            )
            await _keep(connection, partition, history, events)
            taken = _Taken(
                history.upto if history else marks["history"],
                events.upto if events else marks["events"],
                more=any(parcel is not None and parcel.more for parcel in (history, events)),
            )
            if history is not None or events is not None:
                await connection.execute(_ADVANCE, partition, taken.history, taken.events)
            return taken

    async def _fetch(self, kind: LogKind, partition: int, after: str) -> Parcel | None:
        """The next rows, as many as can be taken at once."""
        limit = LIMITS[kind]
        while True:
            parcel = await self._outbox.fetch(kind, partition, after, limit)
            if parcel is None or len(parcel.rows) <= LARGEST_PARCEL or limit == 1:
                return parcel
            limit = max(1, limit * LARGEST_PARCEL // len(parcel.rows) // 2)


async def _keep(
    connection: Connection, partition: int, history: Parcel | None, events: Parcel | None
) -> None:
    try:
        if history is not None:
            await connection.execute(_KEEP["history"], history.rows.decode())
        if events is not None:
            await connection.execute(_KEEP["events"], events.rows.decode(), partition)
    except asyncpg.DataError as error:
        raise BackendError(
            f"rows of partition {partition} cannot be kept in Postgres: {headline(error)}; they "
            "stay where they are until they are corrected there"
        ) from error
