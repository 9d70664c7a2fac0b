"""The comparison of the store in Redis with the store whose history Postgres holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.pool import Postgres
from headwater.core.clock import from_micros
from headwater.core.logging import log
from headwater.errors import BackendError, StoreMismatchError
from headwater.model.values import ServiceEvent
from headwater.ports import Outbox, PositionedEvent, Positions, Rewound, StoreIdentity

HandOver = Callable[[str | None, str], Awaitable[Mapping[int, str]]]

_READ_OWNER = "SELECT store_id FROM _meta"
# Of two stores that are new at the same time, the first one gets the history.
_BIND = "UPDATE _meta SET store_id = coalesce(store_id, $1) RETURNING store_id"
# Keeps the owner until the transaction ends, and does not block changes of other columns.
_HOLD_OWNER = f"{_READ_OWNER} FOR KEY SHARE"
# Waits for transactions that hold the owner, and keeps later ones waiting; a row lock would not.
_LOCK_OWNER = "LOCK TABLE _meta IN EXCLUSIVE MODE"
_SET_OWNER = "UPDATE _meta SET store_id = $1"
READ_POSITIONS = """
SELECT partition, history, events, (SELECT coalesce(max(revision), 0) FROM _catalog) AS catalog
FROM _outbox WHERE store_id = $1
"""
_ADD_POSITIONS = """
INSERT INTO _outbox (store_id, partition, history, events)
SELECT $1, * FROM unnest($2::integer[], $3::text[], $4::text[])
"""
# Ticks are published again when they are due.
_ACCEPTED = """
SELECT position, event_type, entity_id, payload::text, "timestamp", event_id, traceparent
FROM _events
WHERE partition = $1 AND received_at >= $2 AND NOT starts_with(event_type, 'headwater.')
ORDER BY received_at, length(position), position
"""
# They are copied again from their new positions.
_REMOVE_MOVED = """
DELETE FROM _events
WHERE partition = $1 AND received_at >= $2 AND position = ANY ($3::text[])
"""
_PAGE = 1_000
# A read of history does not ask Postgres again for this long.
FRESH_SECONDS = 5.0

_LOST_AGAIN = (
    "Redis lost its data again while values were being restored; run `headwater rebuild --adopt` "
    "again"
)


class StoreCheck:
    """Lets history be used by the store that it belongs to, and by no other.

    History that belongs to no store is bound to the first new store that asks for it. Only
    ``rebuild --adopt`` gives it to another one.
    """

    def __init__(self, postgres: Postgres, outbox: Outbox, schema: str) -> None:
        self._postgres = postgres
        self._outbox = outbox
        self._schema = schema
        self._matched: str | None = None
        self._fresh_until = 0.0
        self._mismatch: str | None = None
        self._is_adopting = False

    def raise_known_mismatch(self) -> None:
        """Raise StoreMismatchError if the last comparison found one."""
        if self._mismatch is not None:
            raise StoreMismatchError(self._mismatch)

    async def check(self) -> str | None:
        """Return the id of the store if Redis and Postgres have the same one.

        While history is being adopted it is read and nothing is added to it: returns None.
        Raises StoreMismatchError if the two have different stores.
        """
        await self._postgres.prepare()
        return await self.compare(await self._outbox.identity())

    async def compare(self, redis: StoreIdentity) -> str | None:
        """Do the same with an identity just read from Redis; Postgres must be prepared."""
        if self._is_adopting:
            return None
        if self._is_matched(redis) and time.monotonic() < self._fresh_until:
            return redis.store_id
        self._matched = None
        owner = await self._postgres.run_unprepared(lambda connection: _owner(connection, redis))
        if redis.store_id is None or redis.store_id != owner:
            self._mismatch = self._describe(redis, owner)
            raise StoreMismatchError(self._mismatch)
        if not redis.is_confirmed and not await self._outbox.confirm(owner, owner):
            raise BackendError("Redis lost its data just now; run `headwater rebuild --adopt`")
        self._mismatch = None
        self._matched = owner
        self._fresh_until = time.monotonic() + FRESH_SECONDS
        return owner

    def _is_matched(self, redis: StoreIdentity) -> bool:
        return redis.is_confirmed and redis.store_id == self._matched

    async def hold(self, connection: Connection, store_id: str) -> None:
        """Keep history with this store until the transaction ends; raise if it has another."""
        owner = await connection.fetchval(_HOLD_OWNER)
        if owner != store_id:
            self._matched = None
            raise StoreMismatchError(
                self._describe(StoreIdentity(store_id, is_confirmed=True), owner)
            )

    @asynccontextmanager
    async def restoring(
        self, *, adopt: bool, hand_over: HandOver | None = None
    ) -> AsyncIterator[Collection[int] | None]:
        """Let values be restored from history; with ``adopt``, give it to the store in Redis.

        The store is confirmed at the end, because workers must not run on values half restored.
        ``hand_over`` is for a store whose events are kept in a log elsewhere: it is called with the
        owner of history and its successor, and returns of each partition the position after which
        that log repeats the events. Those that are in history with their effects must be known
        then, and the others wait again.
        """
        await self._postgres.prepare()
        identity = await self._outbox.identity()
        store_id = identity.store_id
        if store_id is None:
            raise BackendError(_LOST_AGAIN)
        new_id = self._outbox.new_store_id() if adopt else store_id
        lacking: Collection[int] | None = None
        logged: Mapping[int, str] | None = None
        if adopt:
            owner = await self._owner()
            if owner == store_id:
                lacking = identity.behind
            if hand_over is not None:
                logged = await hand_over(owner, new_id)
            self._is_adopting = True
        else:
            await self.check()
        try:
            if adopt and identity.behind:
                await self._rewind(store_id, identity.behind)
            elif adopt and logged is not None:
                await self._rewind_lost(store_id, logged)
            yield lacking
        finally:
            self._is_adopting = False
        if adopt:
            await self._adopt(store_id, new_id)
        if not await self._outbox.confirm(store_id, new_id):
            raise BackendError(_LOST_AGAIN)
        self._matched = None
        await self.check()

    async def _owner(self) -> str | None:
        owner: str | None = await self._postgres.run_unprepared(
            lambda connection: connection.fetchval(_READ_OWNER)
        )
        return owner

    async def _rewind_lost(self, store_id: str, logged: Mapping[int, str]) -> None:
        """Do the same for a store that lost all its partitions."""
        owner = await self._owner()
        if owner is not None and owner != store_id:
            await self._rewind(owner, frozenset(range(self._outbox.partitions)), logged)

    async def _rewind(
        self,
        store_id: str,
        behind: Collection[int],
        logged: Mapping[int, str] | None = None,
    ) -> None:
        """Let the workers of partitions that are behind continue where history ends."""
        states = await self._outbox.states()

        async def rewind(connection: Connection) -> None:
            taken = await _positions(connection, store_id)
            for partition in sorted(taken.keys() & behind):
                last = taken[partition]
                settled = states[partition].settled.events
                since = _received_at(settled if logged is None else logged.get(partition, ""))
                async with connection.transaction():
                    events = _accepted_events(connection, partition, since)
                    found = await self._outbox.rewind(
                        partition, last, events, is_lost=logged is not None
                    )
                    rewound = found or Rewound()
                    await connection.execute(_REMOVE_MOVED, partition, since, rewound.moved)
                log.warning(
                    "partition continues where Postgres ends",
                    partition=partition,
                    values_discarded=rewound.discarded,
                    events_published_again=len(rewound.moved),
                    repeated_events_removed=rewound.repeated,
                    events_known_until=_received_at(last.events),
                )

        await self._postgres.run_unprepared(rewind)

    async def _adopt(self, store_id: str, new_id: str) -> None:
        """Give history to a store under a new id, which no other copy of either side has.

        Each partition continues after the last row that Postgres took from this store or that
        Redis settled, whichever is later.
        """

        async def adopt(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_LOCK_OWNER)
                taken = await _positions(connection, store_id)
                partitions = range(self._outbox.partitions + 1)
                settled = await asyncio.gather(
                    *(
                        self._outbox.settle(partition, taken.get(partition, Positions()))
                        for partition in partitions
                    )
                )
                history, events = zip(*settled, strict=True)
                await connection.execute(_ADD_POSITIONS, new_id, [*partitions], history, events)
                await connection.execute(_SET_OWNER, new_id)

        await self._postgres.run_unprepared(adopt)

    def _describe(self, redis: StoreIdentity, owner: str | None) -> str:
        store = f"store {redis.store_id}" if redis.store_id else "no store"
        elsewhere = ", whose history is in another Postgres" if redis.is_confirmed else ""
        history = f"the history of store {owner}" if owner else "no history"
        cause = "" if redis.is_confirmed else ": Redis lost its data, or an address is wrong"
        return (
            f"Redis has {store}{elsewhere}, and the Postgres schema {self._schema!r} holds "
            f"{history}{cause}"
        )


async def _positions(connection: Connection, store_id: str) -> dict[int, Positions]:
    rows = await connection.fetch(READ_POSITIONS, store_id)
    return {row["partition"]: Positions(row["history"], row["events"]) for row in rows}


def _received_at(position: str) -> datetime:
    """Return the time of a position, or the earliest one for none."""
    return from_micros(int(position.partition("-")[0] or 0) * 1_000)


async def _accepted_events(
    connection: Connection, partition: int, since: datetime
) -> AsyncIterator[Sequence[PositionedEvent]]:
    """Yield the events that a partition accepted since a time, in pages."""
    statement = await connection.prepare(_ACCEPTED, name="")
    cursor = await statement.cursor(partition, since)
    while rows := await cursor.fetch(_PAGE):
        yield [
            PositionedEvent(
                row["position"],
                ServiceEvent(
                    row["event_type"],
                    row["entity_id"],
                    msgspec.json.decode(row["payload"]),
                    row["timestamp"].astimezone(UTC),
                    row["event_id"],
                    row["traceparent"] or msgspec.UNSET,
                ),
            )
            for row in rows
        ]


async def _owner(connection: Connection, redis: StoreIdentity) -> str | None:
    owner: str | None = await connection.fetchval(_READ_OWNER)
    if owner is None and redis.store_id is not None and not redis.is_confirmed:
        owner = await connection.fetchval(_BIND, redis.store_id)
    return owner
