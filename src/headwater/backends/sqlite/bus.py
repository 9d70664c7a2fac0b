"""The durable log of events in SQLite."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.leases import SqliteLeases, backlog_of, lag_of
from headwater.backends.sqlite.notifications import PositionWaits
from headwater.backends.sqlite.online import HISTORY
from headwater.backends.sqlite.vectors.document_writes import write_documents
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import MICROSECOND, Clock, from_micros, to_micros
from headwater.core.codec import encode_custom
from headwater.core.partitioning import partition_of
from headwater.errors import LeaseLostError, VersionConflictError
from headwater.model.admin import ConsumerLag
from headwater.model.dead_letters import DeadLetter
from headwater.model.events import PublishResult
from headwater.model.values import Cells, EntityKey, ServiceEvent, encode_cells
from headwater.ports import (
    Awaited,
    Batch,
    BatchOutcome,
    Delivery,
    EntityState,
    Lease,
    Subjects,
    Tick,
    event_content,
    history_rows,
    no_subjects,
    publish_result,
)

_EVENT_COLUMNS = "event_id, event_type, entity_id, timestamp, payload"
_EVENTS = f"events (partition, {_EVENT_COLUMNS}, received_at, only_feature)"
_TRACED_EVENTS = f"{_EVENTS[:-1]}, traceparent)"
_ENTITIES = "entities (entity, entity_id, partition, version, state)"
# A row carries its new version; a row that is not the next version is not written.
_IF_NEXT = (
    "ON CONFLICT (entity, entity_id) DO UPDATE SET state = excluded.state,"
    " version = excluded.version WHERE version = excluded.version - 1"
)
_IS_WRITTEN = (
    "SELECT 1 FROM entities WHERE entity = ? AND entity_id = ? AND version = ? AND state = ?"
)
_DEAD_LETTERS = (
    "dead_letters (feature, event_type, entity_id, event, error, traceback, attempts,"
    " partition, seq, first_failed_at, dead_at, consumer_group)"
)
_REMEMBER = (
    "INSERT INTO seen (event_id, entity_id, expires_at, content) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (event_id, entity_id) DO UPDATE"
    " SET expires_at = excluded.expires_at, content = excluded.content WHERE expires_at <= ?"
)
_ACCEPTED = "SELECT content FROM seen WHERE event_id = ? AND entity_id = ?"
_FAILED = (
    "SELECT entity_id, seq, feature FROM dead_letters WHERE consumer_group = ?"
    " AND entity_id IN (SELECT value FROM json_each(?))"
)
_POSITIONS = "SELECT consumer_group, partition, seq FROM cursors"
_LAST = "SELECT max(seq) FROM events WHERE partition = ?"
_ENDS = f"SELECT json_group_array(coalesce(({_LAST[:-1]}value), 0)) FROM json_each(?)"
_SEVERAL = 2
_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode
_SeenRow = tuple[str, str, int, bytes, int]
_EventRow = tuple[int | str | bytes | None, ...]
_StateRow = tuple[str, str, int, int, bytes]
_UNTRACED_COLUMNS = 8
_ERASED: bytes | None = b"erased"
"""Stands for the content of an event that is not accepted; no content is this object."""
_READ_EVENTS = """
SELECT CAST(json_group_array(json_array(
    seq, only_feature, event_id, event_type, entity_id, timestamp, json(CAST(payload AS TEXT)),
    traceparent
)) AS BLOB)
FROM (
    SELECT seq, only_feature, event_id, event_type, entity_id, timestamp, payload, traceparent
    FROM events
    WHERE partition = :partition AND seq > :cursor ORDER BY seq LIMIT :limit
)"""
# The states are JSON already.
_STATES = """
SELECT CAST('[' || coalesce(group_concat(
    '[' || json_quote(entity) || ',' || json_quote(entity_id) || ',' || version || ','
    || CAST(state AS TEXT) || ']'
), '') || ']' AS BLOB)
FROM entities
WHERE entity IN (SELECT value FROM json_each(:entities)) AND entity_id IN (
    SELECT entity_id FROM events
    WHERE partition = :partition AND seq > :cursor ORDER BY seq LIMIT :limit
)"""
_StoredEvent = tuple[int, str | None, str, str, str, int, dict[str, Any], str | None]
_StoredState = tuple[str, str, int, Cells]
_decode_events = msgspec.json.Decoder(list[_StoredEvent]).decode
_decode_ends = msgspec.json.Decoder(list[int]).decode
_decode_states = msgspec.json.Decoder(list[_StoredState]).decode
_UNKNOWN = EntityState(0, {})
_EMPTY = b"[]"


def event_row(event: ServiceEvent, partition: int, now: int, only: str | None = None) -> _EventRow:
    """Return the row of the events table for an event; shorter without a trace context."""
    row = (
        partition,
        event.event_id,
        event.event_type,
        event.entity_id,
        to_micros(event.timestamp),
        _encode(event.payload),
        now,
        only,
    )
    return row if event.traceparent is UNSET else (*row, event.traceparent)


def _insert_events(db: sqlite3.Connection, rows: Sequence[_EventRow]) -> None:
    """Append events in their order; most have no trace context, and a column takes time."""
    for columns, some in groupby(rows, len):
        table = _EVENTS if columns == _UNTRACED_COLUMNS else _TRACED_EVENTS
        bulk.insert(db, table, list(some))


def insert_event(
    db: sqlite3.Connection, event: ServiceEvent, partition: int, now: int, *, only: str | None
) -> None:
    """Append one event to the log inside the caller's transaction."""
    _insert_events(db, [event_row(event, partition, now, only)])


class SqliteBus:
    """The log of events; a batch's effects and position are committed in one transaction."""

    def __init__(
        self,
        home: Home,
        writer: Writer,
        leases: SqliteLeases,
        erasures: SqliteErasures,
        clock: Clock,
        group: str,
    ) -> None:
        self.partitions = home.partitions
        self._home = home
        self._writer = writer
        self._leases = leases
        self._erasures = erasures
        self._clock = clock
        self._group = group
        self._cursors = leases.cursors
        self._request: PageRequest | None = None
        self._prefetched: dict[int, Page] = {}
        self._waits = PositionWaits(home.waiting, self._positions)
        self.close = self._waits.close

    async def publish(
        self,
        events: Sequence[ServiceEvent],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
        positions: bool = False,
    ) -> list[PublishResult]:
        now = self._clock.micros()
        rows = [event_row(e, partition_of(e.entity_id, self.partitions), now) for e in events]
        seen: list[_SeenRow] = []
        if dedup_window is not None:
            expires = now + dedup_window // MICROSECOND
            seen = [(e.event_id, e.entity_id, expires, event_content(e), now) for e in events]

        def job(db: sqlite3.Connection) -> list[bytes | None]:
            ledger = self._erasures.current(db)
            if not ledger.revision:
                return _insert(db, rows, seen)
            kept = [n for n, event in enumerate(events) if not ledger.voiding(event, subjects)]
            accepted = [_ERASED] * len(events)
            some = _insert(db, [rows[n] for n in kept], [seen[n] for n in kept] if seen else ())
            for n, content in zip(kept, some, strict=True):
                accepted[n] = content
            return accepted

        # Alone, a new event is one statement; the write lock keeps erasures from coming in between.
        is_single = len(rows) == 1 and not seen
        if not positions:
            contents = await self._writer.run(job, wake=True, single=is_single)
            return _results(events, contents)
        contents, last = await self._writer.run(lambda db: (job(db), _last_seq(db)), wake=True)
        results = _results(events, contents)
        new = [place for place, content in enumerate(contents) if content is None]
        for seq, place in zip(range(last, 0, -1), reversed(new), strict=False):
            results[place] = msgspec.structs.replace(results[place], position=str(seq))
        return results

    async def handled(
        self, group: str, awaited: Sequence[Awaited], *, wait: bool = False
    ) -> list[frozenset[str] | None]:
        partitions = [partition_of(event.entity_id, self.partitions) for event in awaited]
        ends = {
            (group, partition): self._home.read(_LAST, (partition,))[0][0] or 0
            for partition, event in zip(partitions, awaited, strict=True)
            if not event.position
        }
        lasts = [
            int(event.position) if event.position else ends[group, partition]
            for partition, event in zip(partitions, awaited, strict=True)
        ]
        if wait:
            targets: dict[tuple[str, int], int] = {}
            for partition, last in zip(partitions, lasts, strict=True):
                targets[group, partition] = max(last, targets.get((group, partition), 0))
            await self._waits.until(targets)
        committed = self._positions()
        entity_ids = msgspec.json.encode([event.entity_id for event in awaited]).decode()
        failed: dict[str, list[tuple[int, str]]] = {}
        for entity_id, seq, series in self._home.read(_FAILED, (group, entity_ids)):
            failed.setdefault(entity_id, []).append((seq, series))
        return [
            None
            if committed.get((group, partition), 0) < last
            else frozenset(
                series
                for seq, series in failed.get(event.entity_id, ())
                if event.position in ("", str(seq))
            )
            for partition, last, event in zip(partitions, lasts, awaited, strict=True)
        ]

    def _positions(self) -> dict[tuple[str, int], int]:
        """Return the last committed position of each group in each partition."""
        rows = self._home.read(_POSITIONS)
        return {(group, partition): seq for group, partition, seq in rows}

    async def publish_ticks(self, ticks: Sequence[Tick]) -> list[datetime | None]:
        now = self._clock.micros()

        def job(db: sqlite3.Connection) -> list[datetime | None]:
            return [self._publish_tick(db, tick, now) for tick in ticks]

        return await self._writer.run(job, wake=True)

    def _publish_tick(self, db: sqlite3.Connection, tick: Tick, now: int) -> datetime | None:
        due = to_micros(tick.due)
        row = db.execute("SELECT due FROM ticks WHERE feature = ?", (tick.feature,)).fetchone()
        before = from_micros(row[0]) if row else None
        if row and row[0] >= due:
            return tick.due
        db.execute("INSERT OR REPLACE INTO ticks VALUES (?, ?)", (tick.feature, due))
        targets = range(self.partitions) if tick.everywhere else [self.partitions]
        _insert_events(db, [event_row(tick.event, target, now) for target in targets])
        return before

    async def read(
        self, leases: Sequence[Lease], limit: int, touches: Mapping[str, Collection[str]]
    ) -> list[Batch]:
        request = self._request = page_request(limit, touches)
        batches: list[Batch] = []
        for lease in self._with_events(leases):
            page = self._page(lease.partition, request)
            if not page.is_empty:
                batches.append(to_batch(lease, page, touches, limit))
                limit -= len(batches[-1].deliveries)
            if limit <= 0:
                break
        return batches

    def _with_events(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Leave out partitions whose next page is empty, found by one statement for all of them."""
        unread = [lease.partition for lease in leases if lease.partition not in self._prefetched]
        if len(unread) < _SEVERAL:
            return leases
        ((ends,),) = self._home.read(_ENDS, (msgspec.json.encode(unread).decode(),))
        known = dict(zip(unread, _decode_ends(ends), strict=True))
        cursors = self._cursors
        return [x for x in leases if known.get(x.partition, math.inf) > cursors[x.partition]]

    def _page(self, partition: int, request: PageRequest) -> Page:
        """Return the next page, from the prefetch of the last commit if that is still the next."""
        cursor = self._cursors[partition]
        prefetched = self._prefetched.pop(partition, None)
        if prefetched is not None and prefetched.cursor == cursor:
            return prefetched
        with self._home.translated():
            return read_page(self._home.reader.execute, partition, cursor, request)

    async def attempt(self, lease: Lease, position: str) -> int:
        def job(db: sqlite3.Connection) -> int:
            row = db.execute(
                "UPDATE cursors SET attempts = iif(attempt_seq = :seq, attempts + 1, 1),"
                " attempt_seq = :seq"
                " WHERE consumer_group = :group AND partition = :partition"
                " AND owner = :owner AND epoch = :epoch RETURNING attempts",
                {"seq": int(position), "group": self._group, **msgspec.structs.asdict(lease)},
            ).fetchone()
            if row is None:
                raise LeaseLostError(lease.partition, lease.owner)
            return int(row[0])

        return await self._writer.run(job)

    async def commit(self, outcome: BatchOutcome) -> None:
        lease, last = outcome.batch.lease, int(outcome.batch.deliveries[-1].position)
        handled, now = len(outcome.batch.deliveries), self._clock.micros()
        states = self._state_rows(outcome)
        history = history_rows(outcome.changes, bytes)
        dead = [(*_dead_row(letter), letter.group or self._group) for letter in outcome.dead]
        follow_ups = [event_row(event, lease.partition, now) for event in outcome.follow_ups]

        def job(db: sqlite3.Connection) -> None:
            if self._erasures.current(db).revision > outcome.checked:
                raise VersionConflictError(lease.partition)
            self._advance(db, lease, last, handled, now)
            if bulk.insert(db, _ENTITIES, states, conflict=_IF_NEXT) != len(states):
                raise VersionConflictError(lease.partition, _changed(db, states))
            bulk.insert(db, HISTORY, history)
            bulk.insert(db, _DEAD_LETTERS, dead)
            _insert_events(db, follow_ups)
            if outcome.documents:
                write_documents(db, outcome.documents, now)

        def prefetch(db: sqlite3.Connection) -> None:
            # In the writer thread, in parallel with handlers, while the pages are cached.
            if self._request is not None:
                page = read_page(db.execute, lease.partition, last, self._request)
                if not page.is_empty:
                    self._prefetched[lease.partition] = page

        await self._writer.run(job, moves=True, then=prefetch)
        self._cursors[lease.partition] = last

    def _advance(
        self, db: sqlite3.Connection, lease: Lease, last: int, handled: int, now: int
    ) -> None:
        moved = db.execute(
            "UPDATE cursors SET seq = ?, attempts = 0, committed_at = ?, committed = committed + ?"
            " WHERE consumer_group = ? AND partition = ? AND owner = ? AND epoch = ? AND seq = ?",
            (
                *(last, now, handled, self._group, lease.partition, lease.owner, lease.epoch),
                self._cursors[lease.partition],
            ),
        )
        if moved.rowcount != 1:
            raise LeaseLostError(lease.partition, lease.owner)

    def _state_rows(self, outcome: BatchOutcome) -> list[_StateRow]:
        versions, partitions = outcome.versions, self.partitions
        return [
            (*key, partition_of(key[1], partitions), versions[key] + 1, encode_cells(cells))
            for key, cells in outcome.states.items()
        ]

    async def wait(self, worker: str, seconds: float) -> bool:
        await self._leases.member(worker).sleeper.wait(seconds)
        return False  # the end of a worker shows in its lock file, without a notification

    async def lag(self) -> list[ConsumerLag]:
        return lag_of(self._home, self._group)

    async def backlog(self) -> int:
        return backlog_of(self._home, self._group)

    async def memory(self) -> int | None:
        return None


def _changed(db: sqlite3.Connection, states: Sequence[_StateRow]) -> list[EntityKey]:
    """Return the entities of rows that were not written, because they are not the next version."""
    return [
        (entity, entity_id)
        for entity, entity_id, _, version, state in states
        if not db.execute(_IS_WRITTEN, (entity, entity_id, version, state)).fetchone()
    ]


def _results(
    events: Sequence[ServiceEvent], contents: Sequence[bytes | None]
) -> list[PublishResult]:
    return [
        PublishResult(event.event_id, duplicate=False, erased=True)
        if content is _ERASED
        else publish_result(event, content)
        for event, content in zip(events, contents, strict=True)
    ]


def _last_seq(db: sqlite3.Connection) -> int:
    """Return the number of the row that this connection inserted last."""
    (seq,) = db.execute("SELECT last_insert_rowid()").fetchone()
    return int(seq)


def _insert(
    db: sqlite3.Connection, rows: Sequence[_EventRow], seen: Sequence[_SeenRow]
) -> list[bytes | None]:
    """Insert the events that are new; return the content with which the others were accepted."""
    if not seen:
        _insert_events(db, rows)
        return [None] * len(rows)
    accepted: list[bytes | None] = []
    new: list[_EventRow] = []
    for row, entry in zip(rows, seen, strict=True):
        if db.execute(_REMEMBER, entry).rowcount:
            accepted.append(None)
            new.append(row)
        else:
            accepted.append(db.execute(_ACCEPTED, entry[:2]).fetchone()[0])
    _insert_events(db, new)
    return accepted


def _dead_row(letter: DeadLetter) -> tuple[str | int | bytes, ...]:
    event = letter.event
    return (
        *(letter.feature, event.event_type, event.entity_id, _encode(event)),
        *(letter.error, letter.traceback, letter.attempts, letter.partition, int(letter.position)),
        *(to_micros(letter.first_failed_at), to_micros(letter.dead_at)),
    )


class Page(NamedTuple):
    """The encoded events after a partition's cursor, and the states of their entities."""

    cursor: int
    events: bytes
    states: bytes

    @property
    def is_empty(self) -> bool:
        return self.events == _EMPTY


class PageRequest(NamedTuple):
    """The maximum number of events, and the entities whose states are read with them."""

    limit: int
    entities: str


def page_request(limit: int, touches: Mapping[str, Collection[str]]) -> PageRequest:
    """Return the request of a reader with these touches."""
    names = sorted({name for names in touches.values() for name in names})
    return PageRequest(limit, msgspec.json.encode(names).decode())


def read_page(
    execute: Callable[[str, Mapping[str, Any]], sqlite3.Cursor],
    partition: int,
    cursor: int,
    request: PageRequest,
) -> Page:
    """Return the next page of a partition."""
    where = {"partition": partition, "cursor": cursor, **request._asdict()}
    (events,) = execute(_READ_EVENTS, where).fetchone()
    if events == _EMPTY:
        return Page(cursor, _EMPTY, _EMPTY)
    (states,) = execute(_STATES, where).fetchone()
    return Page(cursor, events, states)


def to_batch(lease: Lease, page: Page, touches: Mapping[str, Collection[str]], limit: int) -> Batch:
    """Decode a page, up to the limit, as a batch for a worker."""
    deliveries: list[Delivery] = []
    stored = islice(_decode_events(page.events), limit)
    for seq, only, event_id, event_type, entity_id, at, payload, traceparent in stored:
        event = ServiceEvent(
            event_type, entity_id, payload, from_micros(at), event_id, traceparent or UNSET
        )
        if only is None:
            deliveries.append(Delivery(str(seq), event))
        else:
            group, _, feature = only.rpartition("/")
            deliveries.append(Delivery(str(seq), event, feature, group))
    states = {
        (entity, delivery.event.entity_id): _UNKNOWN
        for delivery in deliveries
        for entity in touches.get(delivery.event.event_type, ())
    }
    for entity, entity_id, version, cells in _decode_states(page.states):
        key = (entity, entity_id)
        if key in states:
            states[key] = EntityState(version, cells)
    return Batch(lease, deliveries, states)
