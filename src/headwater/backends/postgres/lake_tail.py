"""The newest rows of history and events in Postgres, where a lake has the rest.

Rows are copied to the lake first. Until some time after the lake was made, none is deleted here, so
that processes that do not know of it read all of them. From the first mark in ``_lake`` on, these
processes are refused, and rows are deleted when their reads are over.

The mark of history is a number that no later row can have or be below. That of events is the last
position of each partition that every consumer group is done with, as one number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.erasures import PostgresErasures
from headwater.backends.postgres.history_sql import LOCK_PARTITIONS, settled_number
from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.retention import forget_entity, forget_events
from headwater.core.clock import MICROSECOND, Clock, to_micros
from headwater.core.partitioning import bucket_of
from headwater.errors import BackendError, LakeAheadError
from headwater.model.catalog import CatalogState
from headwater.model.events import EventPage
from headwater.ports import (
    EventFilter,
    Ledger,
    LogKind,
    Mark,
    OfflineStore,
    TailFile,
    decode_catalog,
)

T = TypeVar("T")

# A position "ms-n" as one number; more events than this in a millisecond do not occur.
_MINOR_BITS = 20
_MILLISECOND = 1_000
_NUMBER = (
    f"((split_part(position, '-', 1)::bigint << {_MINOR_BITS})"
    " + split_part(position, '-', 2)::bigint)"
)
_POSITION = f"(seq >> {_MINOR_BITS}) || '-' || (seq & {(1 << _MINOR_BITS) - 1})"

_LOCK_EVENTS = "LOCK TABLE _events IN ACCESS SHARE MODE"
_HISTORY = """
SELECT seq, feature, entity, entity_id, kind, value::text AS value, as_of, written_at, cause
FROM _history
WHERE seq > $1 AND seq <= $2 AND (cardinality($3::text[]) = 0 OR feature = ANY ($3))
  AND (cardinality($4::text[]) = 0 OR entity_id = ANY ($4))
"""
# The time of arrival is that of the position, and has an index.
_EVENTS = f"""
FROM _events LEFT JOIN unnest($1::integer[], $2::bigint[]) AS after (partition, seq)
  USING (partition)
LEFT JOIN unnest($3::integer[], $4::bigint[]) AS upto (partition, seq) USING (partition)
WHERE received_at >= _moment($5) AND received_at < _moment($6)
  AND {_NUMBER} > coalesce(after.seq, 0)
  AND ($3::integer[] IS NULL OR {_NUMBER} <= upto.seq)
"""
_EVENT_ROWS = f"""
SELECT {_NUMBER} AS seq, event_id, event_type, entity_id, partition, "timestamp", received_at,
       payload::text AS payload, traceparent
{_EVENTS} AND (cardinality($7::text[]) = 0 OR entity_id = ANY ($7))
"""
_DELETE_EVENTS = f"""
DELETE FROM _events USING unnest($1::integer[], $2::bigint[]) AS upto (part, seq)
WHERE partition = part AND {_NUMBER} <= upto.seq
  AND received_at >= _moment($3) AND received_at < _moment($4)
"""
# Events that every consumer group is done with, and how many of them are not in the lake.
_OLD_EVENTS = f"""
FROM _events JOIN unnest($1::integer[], $2::bigint[]) AS done (partition, seq) USING (partition)
LEFT JOIN unnest($3::integer[], $4::bigint[]) AS after (partition, seq) USING (partition)
WHERE received_at < _moment($5) AND {_NUMBER} <= done.seq AND {_NUMBER} > coalesce(after.seq, 0)
"""
_EVENTS_OF = f"""
FROM _events LEFT JOIN unnest($3::integer[], $4::bigint[]) AS after (partition, seq)
  USING (partition)
WHERE entity_id = $1 AND event_type <> ALL ($2) AND {_NUMBER} > coalesce(after.seq, 0)
"""
_TAKEN = "SELECT array_agg(DISTINCT partition) FROM _outbox WHERE events <> ''"
_FIRST_EVENT = "SELECT min(received_at) FROM _events"
_COUNT_HISTORY = "SELECT count(*) FROM _history WHERE seq > $1 AND seq <= $2"
_NTH = "SELECT seq FROM _history WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT 1 OFFSET $3"
_STATE = "SELECT kind, trimmed, deleted, since, trimmed_at, moved, now() AS now FROM _lake"
_BEGIN = "INSERT INTO _lake (kind) VALUES ('history'), ('events') ON CONFLICT DO NOTHING"
_LOCK_STATE = "SELECT FROM _lake WHERE kind = $1 FOR UPDATE"
_DELETE_HISTORY = "DELETE FROM _history WHERE seq > $1 AND seq <= $2"
_REMOVE = "DELETE FROM _history WHERE seq BETWEEN $1 AND $2 AND seq = ANY ($3::bigint[])"
_TRIM = "UPDATE _lake SET trimmed = $2, trimmed_at = coalesce(trimmed_at, now()) WHERE kind = $1"
_MOVED = "UPDATE _lake SET moved = greatest(moved, $2) WHERE kind = $1"
_DELETED = "UPDATE _lake SET deleted = $2 WHERE kind = $1"
# In a transaction, which a connection pooler gives a connection of its own. It has no snapshot, so
# it keeps no row from being vacuumed.
_TRY_LOCK = (
    "SELECT pg_try_advisory_xact_lock(hashtext('headwater lake'), hashtext(current_schema()))"
)
_NO_TIMEOUT = "SET LOCAL idle_in_transaction_session_timeout = 0"
# Writers take the number of a row after they have locked the table.
_LOCK_NUMBERS = "LOCK TABLE _history IN SHARE MODE"
_RESERVE = "SELECT setval('_history_seq', nextval('_history_seq') + $1 - 1)"
_POLL_SECONDS = 0.05
_ROWS_AT_ONCE = 5_000
_NUMBERS_AT_ONCE = 200_000
_HOUR = timedelta(hours=1) // MICROSECOND
_ALWAYS = (-(10**15), 253_402_300_799_999_999)
_NO_LIMIT = 2**63 - 1


def event_number(position: str) -> int:
    """Return the position of an event as a number, which is in the order of its partition."""
    major, _, minor = position.partition("-")
    return (int(major) << _MINOR_BITS) + int(minor or 0)


class _Marks(NamedTuple):
    """The numbers of the last moved events, by partition."""

    numbers: Mapping[int, int]

    @classmethod
    def parse(cls, mark: Mark) -> _Marks:
        numbers = msgspec.json.decode(mark, type=dict[str, int]) if mark else {}
        return cls({int(partition): number for partition, number in numbers.items()})

    def __str__(self) -> str:
        numbers = {str(partition): number for partition, number in sorted(self.numbers.items())}
        return msgspec.json.encode(numbers).decode()

    @property
    def columns(self) -> tuple[list[int], list[int]]:
        return [*self.numbers], [*self.numbers.values()]

    def is_behind(self, other: _Marks) -> bool:
        return any(number > self.numbers.get(part, 0) for part, number in other.numbers.items())

    def united(self, other: _Marks) -> _Marks:
        """Return the later one of each partition."""
        parts = {*self.numbers, *other.numbers}
        pairs = ((self.numbers.get(part, 0), other.numbers.get(part, 0)) for part in parts)
        return _Marks(dict(zip(parts, map(max, pairs), strict=True)))

    def limited(self, ms: int) -> _Marks:
        """Return the marks without what is later than a millisecond."""
        most = ((ms + 1) << _MINOR_BITS) - 1
        return _Marks({part: min(number, most) for part, number in self.numbers.items()})

    def first(self, partitions: Collection[int]) -> int:
        """Return the time in microseconds from which on partitions may have later events."""
        if not partitions or not {*partitions} <= self.numbers.keys():
            return _ALWAYS[0]
        return min(self.numbers[part] >> _MINOR_BITS for part in partitions) * _MILLISECOND

    @property
    def end(self) -> int:
        """The time in microseconds after all of them."""
        return ((max(self.numbers.values(), default=0) >> _MINOR_BITS) + 1) * _MILLISECOND


class _State(NamedTuple):
    """What Postgres has of a log that is in a lake too."""

    trimmed: Mark
    """Up to this, rows may be missing."""
    deleted: Mark
    """Up to this, they are missing."""
    since: datetime
    trimmed_at: datetime | None
    moved: int
    """Up to this number, rows of history may be in the lake."""
    now: datetime


async def _states(connection: Connection) -> dict[LogKind, _State]:
    return {row["kind"]: _State(*[*row][1:]) for row in await connection.fetch(_STATE)}


def _is_behind(kind: LogKind, mark: Mark, other: Mark) -> bool:
    """Return whether a mark is before another one."""
    if kind == "history":
        return int(mark or 0) < int(other or 0)
    return _Marks.parse(mark).is_behind(_Marks.parse(other))


def _check(kind: LogKind, mark: Mark, state: _State) -> None:
    """Raise LakeAheadError if the lake has rows that were never moved from this Postgres.

    Positions of events are those of Redis, which a copy of Postgres does not change.
    """
    if kind == "history" and max(state.moved, int(state.trimmed or 0)) < int(mark or 0):
        raise LakeAheadError("Postgres", kind, mark, str(state.moved))


class PostgresLakeTail:
    """The tail of a lake; its methods are called in threads, and run on the loop of the pool."""

    POSITIONS = (event_number, _POSITION)
    """The number of an event's position, and DuckDB's expression for the reverse."""

    def __init__(
        self,
        postgres: Postgres,
        locks: Postgres,
        consumer: OutboxConsumer,
        erasures: PostgresErasures,
        log: OfflineStore,
        grace: timedelta,
        clock: Clock,
    ) -> None:
        """``locks`` has one connection, which holds the lock; ``log`` follows the events."""
        self._postgres = postgres
        self._locks = locks
        self._consumer = consumer
        self._erasures = erasures
        self._log = log
        self._grace = grace
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._is_locked = Lock()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _value(self, sql: str, *arguments: object) -> Any:
        return await self._postgres.run(lambda connection: connection.fetchval(sql, *arguments))

    async def _execute(self, sql: str, *arguments: object) -> None:
        await self._postgres.run(lambda connection: connection.execute(sql, *arguments))

    def begin(self) -> None:
        """Note that there is a lake."""
        self._wait(self._execute(_BEGIN))

    def export(
        self,
        folder: Path,
        after: Mapping[LogKind, Mark],
        *,
        features: Sequence[str] = (),
        entity_ids: Sequence[str] = (),
        upto: Mark | None = None,
    ) -> dict[LogKind, TailFile] | None:
        async def export(connection: Connection) -> dict[LogKind, TailFile] | None:
            files = {}
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute(LOCK_PARTITIONS)
                await connection.execute(_LOCK_EVENTS)
                states = await _states(connection)
                for kind, mark in after.items():
                    _check(kind, mark, states[kind])
                    if _is_behind(kind, mark, states[kind].trimmed):
                        return None
                    if kind == "history":
                        sql, given = _HISTORY, self._history_bounds(mark, upto, features)
                    else:
                        taken = await connection.fetchval(_TAKEN) or []
                        sql, given = _EVENT_ROWS, self._event_bounds(taken, mark, upto)
                    statement = await connection.prepare(sql, name="")
                    rows = statement.cursor(*given, list(entity_ids), prefetch=_ROWS_AT_ONCE)
                    files[kind] = await _written(rows, folder / f"{kind}.ndjson")
            return files

        async def caught_up() -> dict[LogKind, TailFile] | None:
            if upto is None:  # else the rows are known to be there
                await self._consumer.catch_up()
            return await self._postgres.run(export)

        return self._wait(caught_up())

    def _history_bounds(
        self, after: Mark, upto: Mark | None, features: Sequence[str]
    ) -> tuple[int, int, list[str]]:
        return int(after or 0), _NO_LIMIT if upto is None else int(upto), list(features)

    def _event_bounds(
        self,
        taken: Collection[int],
        after: Mark,
        upto: Mark | None,
        times: tuple[int, int] = _ALWAYS,
    ) -> tuple[Any, ...]:
        """Return the first parameters of `_EVENTS`; ``taken`` are the partitions with events."""
        moved, last = _Marks.parse(after), None if upto is None else _Marks.parse(upto)
        first = max(times[0], moved.first(taken))
        if last is None:
            return (*moved.columns, None, None, first, times[1])
        return (*moved.columns, *last.columns, first, min(times[1], last.end))

    def bound(self, kind: LogKind, rows: int, *, after: Mark = "") -> Mark | None:
        bound = self._history_bound if kind == "history" else self._events_bound
        return self._wait(bound(rows, after))

    async def _history_bound(self, rows: int, after: Mark) -> Mark | None:
        await self._consumer.catch_up()
        last = await settled_number(self._postgres)
        # Not by one search for the n-th row, which would read all the others too.
        width = max(4 * rows, _NUMBERS_AT_ONCE)
        for first in range(int(after or 0), last, width):
            span = (first, min(first + width, last))
            count = await self._value(_COUNT_HISTORY, *span)
            if count >= rows:
                return str(await self._value(_NTH, *span, rows - 1))
            rows -= count
        return None

    async def _events_bound(self, rows: int, after: Mark) -> Mark | None:
        # Asked for first: what is done then is in Postgres after this.
        done = await self._done()
        await self._consumer.catch_up()
        moved, taken = _Marks.parse(after), await self._value(_TAKEN) or []
        upto = moved.united(done)
        first, width = await self._first_event(moved, taken, otherwise=upto.end), _HOUR
        while first < upto.end:
            bounds = self._event_bounds(taken, after, str(upto), (first, first + width))
            count = await self._value(f"SELECT count(*) {_EVENTS}", *bounds)
            if count >= rows:
                nth = f"SELECT received_at {_EVENTS} ORDER BY 1 LIMIT 1 OFFSET {rows - 1}"
                ms = to_micros(await self._value(nth, *bounds)) // _MILLISECOND
                return str(moved.united(upto.limited(ms)))
            rows, first, width = rows - count, first + width, 2 * width
        return None

    async def _done(self) -> _Marks:
        """Return the last event of each partition that every consumer group is done with."""
        done = await self._consumer.done_events()
        return _Marks({part: event_number(last) for part, last in enumerate(done) if last})

    async def _first_event(
        self, after: _Marks, partitions: Collection[int], *, otherwise: int
    ) -> int:
        """Return the time from which on partitions have events after a mark."""
        first = after.first(partitions)
        if first > _ALWAYS[0]:
            return first
        earliest: datetime | None = await self._value(_FIRST_EVENT)
        return otherwise if earliest is None else to_micros(earliest)

    def settled(self) -> Mark:
        async def settled() -> int:
            await self._consumer.catch_up()
            return await settled_number(self._postgres)

        return str(self._wait(settled()))

    def announce_move(self, kind: LogKind, upto: Mark) -> None:
        if kind == "history":
            self._wait(self._execute(_MOVED, kind, int(upto)))

    def trim(self, kind: LogKind, upto: Mark) -> None:
        self._wait(self._trim(kind, upto))

    async def _trim(self, kind: LogKind, upto: Mark) -> None:
        state = (await self._postgres.run(_states))[kind]
        _check(kind, upto, state)
        if state.now < state.since + self._grace:
            return
        if _is_behind(kind, state.trimmed, upto):

            async def note(connection: Connection) -> None:
                async with connection.transaction():
                    await connection.execute(_LOCK_STATE, kind)
                    # Another writer may have moved more since.
                    if _is_behind(kind, (await _states(connection))[kind].trimmed, upto):
                        await connection.execute(_TRIM, kind, upto)

            await self._postgres.run(note)
            state = (await self._postgres.run(_states))[kind]
        if state.deleted == state.trimmed or state.trimmed_at is None:
            return
        if state.now >= state.trimmed_at + self._grace:
            delete = self._delete_history if kind == "history" else self._delete_events
            await self._execute(_DELETED, kind, await delete(state))

    async def _delete_history(self, state: _State) -> Mark:
        last = int(state.trimmed)
        for first in range(int(state.deleted or 0), last, _NUMBERS_AT_ONCE):
            await self._execute(_DELETE_HISTORY, first, min(first + _NUMBERS_AT_ONCE, last))
        return state.trimmed

    async def _delete_events(self, state: _State) -> Mark:
        """Delete the events that are too old to be followed; return up to which."""
        followed = to_micros(state.now - self._grace) // _MILLISECOND
        upto = _Marks.parse(state.trimmed).limited(followed - 1)
        deleted = _Marks.parse(state.deleted)
        # Only those with new events: one without may have had its last a year of hours ago.
        new = _Marks({p: n for p, n in upto.numbers.items() if n > deleted.numbers.get(p, 0)})
        if new.numbers:
            first = await self._first_event(deleted, new.numbers, otherwise=new.end)
            for start in range(first, new.end, _HOUR):
                end = min(start + _HOUR, new.end)
                await self._execute(_DELETE_EVENTS, *new.columns, start, end)
        return str(upto)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        # One thread of a process at a time uses the connection.
        if not self._is_locked.acquire(blocking=wait):
            yield False
            return
        try:
            released = asyncio.Event()
            holding = self._wait(self._acquire(released, wait=wait))
            try:
                yield holding is not None
            finally:
                self._wait(_release(released, holding))
        finally:
            self._is_locked.release()

    async def _acquire(self, released: asyncio.Event, *, wait: bool) -> asyncio.Task[None] | None:
        """Return a task that holds the lock until it is released; None if another process does."""
        acquired = asyncio.Event()

        async def hold(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_NO_TIMEOUT)
                while not released.is_set() and not await connection.fetchval(_TRY_LOCK):
                    if not wait:
                        return
                    await asyncio.sleep(_POLL_SECONDS)
                acquired.set()
                await released.wait()

        await self._postgres.prepare()
        holding = asyncio.create_task(self._locks.run(hold))
        waiting = asyncio.create_task(acquired.wait())
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if holding.done():
            holding.result()
            return None
        return holding

    def events_after(
        self, position: str | None, only: EventFilter, *, since: datetime, limit: int
    ) -> EventPage:
        within = self._clock.now() - since
        return self._wait(self._log.events_after(position, only, within=within, limit=limit))

    def catalog(self) -> CatalogState:
        state = self._wait(self._value("SELECT state FROM _catalog"))
        return CatalogState() if state is None else decode_catalog(state)

    def reserve(self, rows: int) -> int:
        async def reserve(connection: Connection) -> int:
            async with connection.transaction():
                await connection.execute(_LOCK_NUMBERS)
                last: int = await connection.fetchval(_RESERVE, rows)
                return last - rows + 1

        return self._wait(self._postgres.run(reserve))

    def remove(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._wait(self._execute(_REMOVE, min(numbers), max(numbers), numbers))

    def remove_events(self, before: datetime, *, after: Mark, dry_run: bool) -> int:
        async def remove() -> int:
            done = await self._done()
            await self._consumer.catch_up()
            bounds = (*done.columns, *_Marks.parse(after).columns, to_micros(before))
            count: int = await self._value(f"SELECT count(*) {_OLD_EVENTS}", *bounds)
            if not dry_run:
                first = await self._first_event(_Marks({}), (), otherwise=to_micros(before))
                for start in range(first, to_micros(before), _HOUR):
                    end = min(start + _HOUR, to_micros(before))
                    await self._execute(_DELETE_EVENTS, *done.columns, start, end)
            return count

        return self._wait(remove())

    def forget_events(
        self, entity_id: str, keep: Collection[str], *, after: Mark, dry_run: bool
    ) -> int:
        async def forget(connection: Connection) -> int:
            marks = _Marks.parse(after).columns
            sql = f"SELECT count(*) {_EVENTS_OF}"
            count: int = await connection.fetchval(sql, entity_id, list(keep), *marks)
            if not dry_run:
                await forget_events(connection, entity_id, keep=keep, dry_run=False)
            return count

        return self._wait(self._postgres.run(forget))

    def forget(self, entity: str, entity_id: str, keep: Collection[str]) -> None:
        async def forget(connection: Connection) -> None:
            await forget_entity(connection, entity, entity_id, keep=keep, dry_run=False)

        self._wait(self._postgres.run(forget))

    def ledger(self) -> Ledger:
        return self._wait(self._postgres.run(self._erasures.current))

    def prune(self, now: datetime) -> None:
        """Do nothing: the ids of events are in Redis."""


async def _release(released: asyncio.Event, holding: asyncio.Task[None] | None) -> None:
    released.set()
    if holding is not None:
        # A lock that was lost is noticed by the commits of the lake.
        with suppress(BackendError):
            await holding


async def _written(rows: Any, file: Path) -> TailFile:
    """Write rows as lines of JSON, with times in microseconds."""
    longest = 0
    with file.open("wb") as lines:
        async for row in rows:
            line = msgspec.json.encode(
                {name: to_micros(v) if isinstance(v, datetime) else v for name, v in row.items()}
                | {"bucket": bucket_of(row["entity_id"])}
            )
            longest = max(longest, len(line))
            lines.write(line + b"\n")
    return TailFile(file, longest)
