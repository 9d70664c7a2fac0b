"""Loading files of past events: each row is published once, also after a crash.

The digest of a row covers the file up to it, so the rows that two files begin with in common have
the same digests. After each batch, an event says up to which row and digest the file is in the log.
A later load of the file, or of one that begins like it, goes on after that row.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.structs import replace

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.table_rows import (
    BROKEN_ARCHIVE,
    COMPRESSED,
    TableRow,
    TableRows,
    csv_rows,
    json_rows,
    parquet_rows,
)
from headwater.errors import (
    EventConflictError,
    EventError,
    FieldError,
    HeadwaterError,
    InvalidInputError,
    OverloadedError,
)
from headwater.errors.hints import nearest
from headwater.model.events import EventLoadReport, OnEventsLoaded, PublishResult, new_event
from headwater.model.payload_schemas import PayloadSchemas
from headwater.model.values import ServiceEvent

if TYPE_CHECKING:
    from headwater.store.verbs.events import EventVerbs

LOADED = "events.loaded"
"""The type of the events that say up to which row a file is loaded."""

_BATCH_ROWS = 1_000
_BATCH_BYTES = 4 << 20
_MOST_READ = 1_000
_RETRY_SECONDS = 2.0
_PATIENCE = {"backlog": 600.0, "store-full": 60.0}
"""For how many seconds a load waits for room; workers empty a backlog, but seldom the memory."""
_MICROSECOND = timedelta(microseconds=1)
_PAYLOAD = "payload"
_EVENT_ID = "event_id"
_WANTS_TEXT = re.compile(r"Expected `str\b|valid string")
"""What msgspec and pydantic say of a number in place of a text."""


class EventColumns(msgspec.Struct, frozen=True):
    """Which columns of a file are the fields of an event; all others are its payload."""

    type: str | None = None
    """The type of all events, in place of a column."""
    event_type: str = "event_type"
    entity_id: str = "entity_id"
    timestamp: str | None = "timestamp"
    """None if the events happen when they are published."""
    event_id: str | None = None
    """None for the column ``event_id``, and for the digest of a row without it."""
    time_zone: str | None = None


class _Row(NamedTuple):
    """A row, its number in the file, and the digest of the file up to it."""

    number: int
    digest: str
    row: TableRow


class LoadedFile:
    """The rows of a file, as events."""

    def __init__(self, file: Path, columns: EventColumns) -> None:
        self.file, self.columns = file, columns
        self._id_column = columns.event_id or _EVENT_ID
        picked = (columns.entity_id, columns.timestamp, self._id_column)
        self._fields = {name for name in picked if name is not None}
        if columns.type is None:
            self._fields.add(columns.event_type)
        self._schemas = PayloadSchemas({})
        self._texts: set[tuple[str, str]] = set()
        self._zone = None if columns.time_zone is None else _zone(columns.time_zone)
        self.is_nested, self._read = _reader(file, self._fields)
        self.size = _size(file)

    def follow(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Read values as the schemas of the payloads of declared types want them."""
        self._schemas = PayloadSchemas(schemas)

    def rows(self) -> Iterator[_Row]:
        """Yield the rows; raise InvalidInputError if the file cannot be read."""
        # A time zone is no part of what a row is: a file with another one is loaded already.
        columns = replace(self.columns, time_zone=None)
        chain = blake2b(msgspec.json.encode(columns), digest_size=16)
        try:
            for number, row in enumerate(self._read(), 1):
                chain.update(row.raw)
                chain.update(b"\n")
                yield _Row(number, chain.hexdigest(), row)
        except (OSError, UnicodeDecodeError, *BROKEN_ARCHIVE) as error:
            raise InvalidInputError(f"{self.file} cannot be read: {error}") from error

    def event(self, row: _Row, clock: Clock) -> ServiceEvent:
        """Return the event of a row; raise EventError if it is none."""
        columns, values = self.columns, row.row.values
        if row.row.problem:
            raise EventError(row.row.problem)
        if columns.type is None:
            event_type = self._pick(values, columns.event_type, "event_type=")
        else:
            event_type = columns.type
        entity_id = self._pick(values, columns.entity_id, "entity_id=")
        event_id = row.digest
        if columns.event_id is not None or values.get(_EVENT_ID):
            event_id = str(self._pick(values, self._id_column, "event_id="))
        at = None
        if columns.timestamp is not None:
            at = self._time(self._pick(values, columns.timestamp, "timestamp="))
        payload = self._payload(self._exact(row.row, event_type))
        return new_event(clock, event_type, entity_id, payload, at, event_id)

    def keep_text(self, row: _Row, event_type: str, error: EventError | FieldError) -> bool:
        """Keep the text of a column from now on; return False if the error has another reason.

        CSV does not say that a zip code is a text, unlike the schema of the event.
        """
        column = (error.field or "").removeprefix(f"{_PAYLOAD}.")
        is_kept = (event_type, column) in self._texts
        if is_kept or column not in row.row.texts or not _WANTS_TEXT.search(error.problem):
            return False
        self._texts.add((event_type, column))
        return True

    def _exact(self, row: TableRow, event_type: Any) -> dict[str, Any]:
        """Return the values of a row, with their texts where the schema wants these."""
        if not row.texts or not isinstance(event_type, str):
            return row.values
        exact: dict[str, Any] = {}
        for name in row.texts.keys() & row.values.keys():
            value, text = row.values[name], row.texts[name]
            path = () if name == _PAYLOAD and isinstance(value, dict) else name.split(".")
            if (event_type, name) in self._texts:
                exact[name] = text
            elif part := self._schemas.part(event_type, *path):
                exact[name] = part.choose(value, text)
        return {**row.values, **exact} if exact else row.values

    def _pick(self, values: dict[str, Any], column: str, option: str) -> Any:
        """Return the value of a column, or of a field inside of others, such as ``user.id``."""
        value = values.get(column)
        if value is None or value == "":
            value = values
            for part in column.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if value is None or value == "":
            hint = nearest(column, [str(name) for name in islice(values, 20)])
            hint += "" if hint.endswith("?") else "."
            raise EventError(f"no {column!r}; {hint} Name the column with {option}")
        return value

    def _time(self, given: object) -> datetime:
        try:
            at = datetime.fromisoformat(given) if isinstance(given, str) else None
        except ValueError:
            at = None
        if at is None:
            raise EventError(
                f"{given!r} is not a time; write times such as 2026-01-31T12:00:00Z, or name "
                "their column with timestamp="
            )
        if at.tzinfo is None:
            if self._zone is None:
                raise EventError(f"{given} has no time zone; add one, or pass time_zone=")
            at = at.replace(tzinfo=self._zone)
        return at

    def _payload(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the field ``payload`` if it is an object, or else all columns without a use."""
        payload = values.get(_PAYLOAD)
        if isinstance(payload, str) and payload.startswith("{"):
            with suppress(msgspec.DecodeError, RecursionError):
                payload = msgspec.json.decode(payload)
        if isinstance(payload, dict):
            return payload
        others = {name: value for name, value in values.items() if name not in self._fields}
        return others if self.is_nested else _nested(others)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return values in objects, as the dots in the names of their columns say."""
    payload: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = name.split(".")
        place = payload
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise EventError(f"the columns {part!r} and {name!r} contradict each other")
        place[last] = value
    return payload


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInputError(
            f"unknown time zone {name!r}; write a name such as Europe/Berlin or UTC"
        ) from error


def _reader(file: Path, texts: Collection[str]) -> tuple[bool, Callable[[], TableRows]]:
    """Return whether the rows of a file are nested objects, and the function that reads them."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    is_compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    match suffixes[-2:-1] if is_compressed else suffixes[-1:]:
        case [".jsonl" | ".ndjson" | ".json"]:
            return True, partial(json_rows, file)
        case [".csv" | ".tsv"]:
            return False, partial(csv_rows, file, texts)
        case [".parquet"] if not is_compressed:
            return False, partial(parquet_rows, file)
    raise InvalidInputError(
        f"{file} cannot be loaded: its name ends with none of .jsonl, .ndjson, .csv, .tsv and "
        f".parquet, nor with one of the first four and {', '.join(COMPRESSED)}; convert or rename "
        "it, or send JSON lines to `headwater events load -`"
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read: {error.strerror}") from error


class Mark(msgspec.Struct, frozen=True):
    """Up to which row a file is in the log.

    Later rows may be there as well, unless the load that the mark is of has ended there, and none
    has begun there since.
    """

    rows: int
    digest: str
    load: Literal["begins", "continues", "ends"]

    def event(self, load_id: str, clock: Clock) -> ServiceEvent:
        """Return the event that stores the mark."""
        return new_event(clock, LOADED, load_id, msgspec.to_builtins(self), None, None)


class LoadOptions(NamedTuple):
    """How a file is loaded; ``EventVerbs.load`` explains the options."""

    rate: float | None = None
    rejects: Path | None = None
    progress: OnEventsLoaded | None = None


class EventLoad:
    """One load of a file."""

    def __init__(
        self, bus: EventVerbs, clock: Clock, file: LoadedFile, options: LoadOptions
    ) -> None:
        self._bus, self._clock, self._file, self._options = bus, clock, file, options
        self.report = EventLoadReport(total_bytes=file.size)
        self._batch_rows = _BATCH_ROWS
        if options.rate is not None:
            self._batch_rows = max(1, min(_BATCH_ROWS, int(options.rate / 4)))
        self._load_id = ""
        self._mark: Mark | None = None
        """What the next batch says about those before it."""
        self._is_settled, self._is_waiting = True, False

    async def run(self) -> EventLoadReport:
        """Publish the rows that are not in the log yet."""
        first = await asyncio.to_thread(next, self._file.rows(), None)
        if first is None:
            return self.report
        self._load_id = f"load-{first.digest}"
        marks = await self._marks()
        done, rows = await asyncio.to_thread(self._find_end, marks)
        unsure = done.rows + 2 * _BATCH_ROWS if _may_have_more(marks, done) else 0
        self.report = replace(self.report, rows=done.rows, loaded_before=done.rows)
        if self._options.rejects is not None and not done.rows:
            self._options.rejects.unlink(missing_ok=True)
        started, rate = time.monotonic(), self._options.rate
        self._mark = done
        async with self._settled():
            while batch := await asyncio.to_thread(self._next_batch, rows):
                await self._publish(batch, is_unsure=batch[0].number <= unsure)
                if rate is not None:
                    due = started + (self.report.rows - done.rows) / rate
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
        return self.report

    async def _marks(self) -> Counter[Mark]:
        """Return the newest marks of files that begin with the same row."""
        logged = await self._bus.list(event_type=LOADED, entity_id=self._load_id, limit=_MOST_READ)
        return Counter(msgspec.convert(each.event.payload, Mark) for each in logged)

    def _find_end(self, marks: Collection[Mark]) -> tuple[Mark, Iterator[_Row]]:
        """Return the mark with which this load begins, and the rows after it."""
        rows, number, end = self._file.rows(), 0, Mark(0, "", "begins")
        digests = {(mark.rows, mark.digest) for mark in marks}
        for number, digest, _ in islice(rows, max((mark.rows for mark in marks), default=0)):
            if (number, digest) in digests:
                end = Mark(number, digest, "begins")
        if number != end.rows:
            # The file differs from the loaded one, or is shorter.
            rows = islice(self._file.rows(), end.rows, None)
        return end, rows

    def _next_batch(self, rows: Iterator[_Row]) -> list[_Row]:
        batch: list[_Row] = []
        size = 0
        for row in rows:
            batch.append(row)
            size += len(row.row.raw)
            if len(batch) == self._batch_rows or size >= _BATCH_BYTES:
                break
        return batch

    async def _publish(self, rows: Sequence[_Row], *, is_unsure: bool) -> None:
        """Publish a batch; what cancels it has to wait until it is known to be in the log."""
        publishing = asyncio.ensure_future(self._publish_all(rows, is_unsure=is_unsure))
        try:
            await asyncio.shield(publishing)
        except asyncio.CancelledError:
            if self._is_waiting:
                publishing.cancel()
            await publishing
            raise

    async def _publish_all(self, rows: Sequence[_Row], *, is_unsure: bool) -> None:
        events, places = await asyncio.to_thread(self._events, rows)
        before = len(events)
        if is_unsure:
            stored = await self._in_log(events)
            kept = [n for n, event in enumerate(events) if _key(event) not in stored]
            events, places = [events[n] for n in kept], [places[n] for n in kept]
        duplicates, erased = before - len(events), 0
        marks = [] if self._mark is None else [self._mark.event(self._load_id, self._clock)]
        if events and self._mark is not None and self._mark.load == "begins":
            # The log must not have a row of this load before it says that the load begins.
            await self._send(marks)
            marks = []
        self._is_settled = False
        while events:
            try:
                results = await self._send([*events, *marks])
                duplicates += sum(result.duplicate for result in results[: len(events)])
                break
            except EventConflictError as error:
                # All other events are in the log.
                for conflict in error.conflicts:
                    if conflict.is_erased:
                        erased += 1
                    elif conflict.index < len(places):
                        self._reject(places[conflict.index], str(conflict))
                break
            except (EventError, FieldError) as error:
                index = error.index or 0
                if self._file.keep_text(places[index], events[index].event_type, error):
                    events = [self._file.event(place, self._clock) for place in places]
                    continue
                self._reject(places.pop(index), error.problem)
                del events[index]
        self._advance(rows[-1], len(rows), duplicates, erased)

    async def _send(self, events: Sequence[ServiceEvent]) -> list[PublishResult]:
        """Publish events; wait, for a bounded time, while the server has no room for them."""
        began, waited = time.monotonic(), 0.0
        while True:
            try:
                return await self._bus.publish_many(events)
            except OverloadedError as error:
                kind = error.response.type.rpartition(":")[2] if error.response else ""
                if waited >= _PATIENCE.get(kind, 0.0):
                    raise
                if not waited:
                    log.warning("load waits for room", file=str(self._file.file), reason=str(error))
            self._is_waiting = True
            await asyncio.sleep(_RETRY_SECONDS)
            self._is_waiting, waited = False, time.monotonic() - began

    def _advance(self, last: _Row, rows: int, duplicates: int, erased: int) -> None:
        report = self.report
        self.report = replace(
            report,
            rows=report.rows + rows,
            duplicates=report.duplicates + duplicates,
            erased=report.erased + erased,
            read_bytes=last.row.position,
        )
        self._mark, self._is_settled = Mark(last.number, last.digest, "continues"), True
        if self._options.progress is not None:
            self._options.progress(self.report)

    def _events(self, rows: Sequence[_Row]) -> tuple[list[ServiceEvent], list[_Row]]:
        events: list[ServiceEvent] = []
        places: list[_Row] = []
        for row in rows:
            try:
                events.append(self._file.event(row, self._clock))
                places.append(row)
            except EventError as error:
                self._reject(row, error.problem)
        return events, places

    def _reject(self, row: _Row, problem: str) -> None:
        """Write a row to the file of rejected ones; raise EventError if there is no such file."""
        if self._options.rejects is None:
            raise EventError(
                f"{row.row.where}: {problem}; the first {self.report.rows} rows are loaded; "
                "correct this one and load the file again, or let bad rows be left out (rejects=, "
                "--skip-bad)"
            )
        line = msgspec.json.encode(
            {
                "row": row.number,
                "where": row.row.where,
                "problem": problem,
                "content": row.row.values or row.row.raw.decode(errors="replace"),
            }
        )
        with self._options.rejects.open("ab") as file:
            file.write(line + b"\n")
        self.report = replace(self.report, rejected=self.report.rejected + 1)

    async def _in_log(self, events: Sequence[ServiceEvent]) -> set[tuple[str, str]]:
        """Return those of some events that are in the log; ids are remembered less long."""
        times = [event.timestamp for event in events]
        if times and self._file.columns.timestamp is not None:
            end = max(times) + _MICROSECOND
            logged = await self._bus.list(since=min(times), before=end, limit=_MOST_READ)
            if len(logged) < _MOST_READ:
                return {_key(each.event) for each in logged}
        found: set[tuple[str, str]] = set()
        for event in events:
            logged = await self._bus.list(event_id=event.event_id, entity_id=event.entity_id)
            found.update(_key(each.event) for each in logged)
        return found

    @asynccontextmanager
    async def _settled(self) -> AsyncIterator[None]:
        """Store at the end up to which row the file is loaded, also if it ends with an error."""
        try:
            yield
        except BaseException:
            with suppress(HeadwaterError):
                await self._store_end()
            raise
        await self._store_end()

    async def _store_end(self) -> None:
        if self._mark is not None and self._mark.load != "begins" and self._is_settled:
            end = replace(self._mark, load="ends")
            await self._bus.publish_many([end.event(self._load_id, self._clock)])


def _key(event: ServiceEvent) -> tuple[str, str]:
    return event.entity_id, event.event_id


def _may_have_more(marks: Counter[Mark], done: Mark) -> bool:
    """Return whether the log may have rows after those of a mark."""
    return bool(marks) and marks[replace(done, load="ends")] <= marks[done]
