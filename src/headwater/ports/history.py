"""History: past values and events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from headwater.core.codec import Kind
from headwater.core.partitioning import BUCKETS
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.model.events import EventPage
from headwater.ports.events import Delivery
from headwater.ports.values import Change

LogKind = Literal["history", "events"]

MOST_SKIPPED = 10_000
"""The largest number of skipped events that a page counts."""

# The dictionary of a file takes 0.0 and -0.0 for one value; only the latter has a text as well.
VALUE_FLOAT = "CASE WHEN value_json IS NULL THEN value_float + 0.0 ELSE -abs(value_float) END"
VALUE_AS_JSON = f"""coalesce(
    value_json,
    CAST(value_int AS VARCHAR),
    CAST({VALUE_FLOAT} AS VARCHAR),
    CAST(value_bool AS VARCHAR),
    CAST(to_json(value_text) AS VARCHAR),
    strftime(CAST(value_time AS TIMESTAMP), '"%Y-%m-%dT%H:%M:%S.%fZ"'),
    'null')"""
"""The value of a row of exported history, as JSON; an expression over its columns."""


VALUE_COLUMNS = """CASE kind WHEN 'int' THEN TRY_CAST(value AS BIGINT) END AS value_int,
       CASE kind WHEN 'float' THEN TRY_CAST(value AS DOUBLE) + 0.0 END AS value_float,
       CASE kind WHEN 'bool' THEN TRY_CAST(value AS BOOLEAN) END AS value_bool,
       CASE WHEN kind = 'text' AND value[1] = '"' THEN value ->> '$' END AS value_text,
       CASE WHEN kind = 'time' AND value[1] = '"'
            THEN TRY_CAST(value ->> '$' AS TIMESTAMPTZ) END AS value_time,
       CASE WHEN value <> 'null' AND value_int IS NULL
                 AND (value_float IS NULL OR value_float = 0 AND starts_with(value, '-'))
                 AND value_bool IS NULL AND value_text IS NULL
                 AND (value_time IS NULL OR NOT ends_with(value, 'Z"'))
            THEN value END AS value_json"""
"""The columns of values in a row of exported history, from its kind and its value as JSON."""


SERIES_NEEDS = """
SELECT entity_id, min("at") - {reach} AS since, max("at") AS upto FROM ({points}) GROUP BY entity_id
"""
"""For each entity of some points, the times of the rows of a series that they may need."""
SERIES_FILE = """
SELECT entity_id, visible_from, as_of, written_at, value FROM ({rows})
ORDER BY entity_id, visible_from, written_at, seq
"""
"""The rows of a file of a series, in their order."""


class Point(msgspec.Struct, frozen=True):
    """One entity at one moment, which has a time zone."""

    entity_id: str
    at: datetime

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise InvalidInputError(
                f"{self.at.isoformat()} has no time zone; pass an aware datetime, for example "
                "datetime.now(UTC)"
            )


class PastValue(msgspec.Struct, frozen=True):
    """A value in history: its JSON text, the moment it is of, and the moment it was written."""

    value: bytes
    as_of: datetime
    written_at: datetime


class Rows(msgspec.Struct, frozen=True):
    """The result of a query: column names and rows in order."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class HistoryRow(msgspec.Struct, frozen=True):
    """A value of one entity in history, and its cause: an event id, ``set``, ``computed``…"""

    value: bytes
    as_of: datetime
    written_at: datetime
    cause: str


class PastEvent(Delivery, frozen=True, gc=False):
    """An event of the log, with moments in microseconds: when it was accepted, and when the first
    value that it caused was written, if there is one."""

    received_at: int = 0
    written_at: int | None = None


class FrameColumn(msgspec.Struct, frozen=True):
    """A column of a point-in-time read: the series it is read from, and the kind of its values.

    A value counts for less than ``ttl`` after it was true or, of the values known at a moment,
    after it was written. ``earlier_ttls`` has moments (microseconds), oldest first: of the values
    known at a moment, those written before the first of them have its ttl, those before the next
    one that of the next.
    """

    series: str
    kind: Kind
    ttl: timedelta | None = None
    earlier_ttls: Sequence[tuple[int, timedelta | None]] = ()


class FrameQuery(msgspec.Struct, frozen=True):
    """A point-in-time read of many rows.

    ``points`` is a Parquet file with the columns ``row`` (0, 1, 2… in any order), ``entity_id``
    (VARCHAR) and ``at`` (microseconds, BIGINT). ``extra`` holds, by series, a Parquet file with
    values that are not in history, such as the rows of a query: ``entity_id``, ``value`` (JSON
    text) and ``as_of`` (microseconds). They count as written after every value of history, and in
    the order of the file; with ``known`` they are not read.
    """

    points: Path
    columns: Sequence[FrameColumn]
    known: bool = False
    extra: Mapping[str, Path] = {}


class SeriesQuery(msgspec.Struct, frozen=True):
    """The rows of one series that points of a frame, a file as that of a `FrameQuery`, may need.

    These are rows about the entities of the points, from ``reach`` microseconds before the first
    point of their entity on. A row is visible from its ``as_of`` on or, with ``known``, from the
    moment on at which it was written; rows that no point of their entity sees are left out.
    """

    points: Path
    series: str
    reach: int
    known: bool
    most_rows: int
    """About how many rows, and points of their entities, belong to one file."""

    def file(self, folder: Path, buckets: tuple[int, int]) -> Path:
        """Return the file of a range of buckets."""
        return folder / "{}-{:04}-{:04}.parquet".format(self.series, *buckets)


class SeriesFile(msgspec.Struct, frozen=True):
    """A file of rows of a series, and the first and the last bucket of their entities."""

    rows: Path
    buckets: tuple[int, int]


def bucket_ranges(count: int) -> list[tuple[int, int]]:
    """Return the first and the last bucket of each of ``count`` equal ranges, a power of two."""
    width = BUCKETS // count
    return [(first, first + width - 1) for first in range(0, BUCKETS, width)]


def series_ranges(query: SeriesQuery, points: int, rows: int) -> list[tuple[int, int]]:
    """Return the ranges of buckets into which rows of a series are divided."""
    count = 1
    while count < BUCKETS and points + rows > count * query.most_rows:
        count *= 2
    return bucket_ranges(count)


def misfit_error(
    column: FrameColumn, *, count: int, example: str, entity_id: str, expected: str | None = None
) -> FeatureValueError:
    """Return the error about stored values that a frame found and that do not fit its column."""
    values = "a value" if count == 1 else f"{count} values"
    return FeatureValueError(
        column.series,
        f"has {values} in history that cannot be read as {expected or column.kind}, for example "
        f"{example[:60]} of {entity_id!r}; state a conversion with convert=, change the annotation "
        "back, or backfill the feature",
    )


class FrameReader(Protocol):
    """A history that answers frames: the offline store, or files exported from it."""

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        """Write, for each row of the points, the last value of each column, never a later one.

        The answer is a Parquet file in the order of ``row``, with the columns ``row`` and, for the
        n-th column, ``v<n>``, the value in the type of its kind (int BIGINT, float DOUBLE, bool
        BOOLEAN, text VARCHAR, time TIMESTAMPTZ, json VARCHAR with JSON text), and ``a<n>``, its
        ``as_of`` in microseconds; both are NULL if nothing was known, and a stored JSON null has
        only the second. ``known`` means the same as for ``as_of``. All rows see one state of
        history. ``progress`` is called with the number of rows answered so far.

        Raises FeatureValueError if a value that was found does not fit its column's kind: an int
        is a JSON number without a fraction, a float any number, text any string, a time a string
        with a date, a time and an offset.
        """

    async def write_series(self, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
        """Write the rows of a series that points may need to Parquet files, by ranges of buckets.

        A file has the columns ``entity_id``, ``visible_from``, ``as_of``, ``written_at``
        (microseconds) and ``value`` (JSON text), in the order of ``entity_id``, ``visible_from``
        and of writing. All files show one state of history.
        """


class Pruned(msgspec.Struct, frozen=True):
    """How many rows were removed or, in a dry run, would be."""

    history: int = 0
    events: int = 0
    refs: frozenset[str] = frozenset()
    """Tags and branches of a lake that kept such rows."""


class EventFilter(msgspec.Struct, frozen=True):
    """The events to follow: they must match all fields that are not None."""

    event_type: str | None = None
    entity_id: str | None = None


class OfflineStore(FrameReader, Protocol):
    """The history of every value and the log of every event.

    Here a feature is named by its series, the name that its values are stored under.

    A value is in history as soon as the commit or put that wrote it has returned. Appending the
    same changes again changes nothing.
    """

    async def append(self, changes: Sequence[Change]) -> int:
        """Add past values in bulk, without changing online values; return how many were new."""

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        """Return, for each point, the last value of each feature at that moment, never a later one.

        With ``known``, only values that had been written by that moment count: exactly the values
        that a reader would have been served. A value with an ``as_of`` ahead of the clock is known
        as soon as it is written, and true only from its ``as_of`` on. Among values of one moment,
        the one written last wins.
        """

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        """Return the next ids of an entity in sorted order, with the last value of each feature.

        The last value is the one that ``as_of`` would return for the latest possible moment.
        """

    async def rows(
        self,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        """Return the values of each entity with ``start <= as_of < end``, the newest first.

        They are in the order of the ids, and of each entity at most ``limit``.
        """

    async def export_history(self, file: Path, *, after: int) -> int:
        """Write all rows with a sequence number above ``after`` to a Parquet file; return the last.

        The columns are those of a segment. No row that is committed later has a number up to the
        one returned. If there are no rows, no file is written and ``after`` is returned.
        """

    async def export_events(
        self,
        folder: Path,
        event_types: Collection[str],
        upto: Mapping[int, str],
        *,
        since: datetime | None = None,
        files: int,
    ) -> list[Path]:
        """Write the accepted events up to a position of each partition to Parquet files.

        Each of the files holds a range of buckets (``events-0000-0127.parquet``), sorted by
        bucket and ``n``, with the columns ``bucket``, ``n`` (the order of a partition's events),
        ``position``, ``event_id``, ``event_type``, ``entity_id``, ``timestamp``, ``received_at``
        (microseconds) and ``payload`` (JSON text). Only events with ``timestamp >= since`` are
        written. Events that were redriven for a single feature are left out.
        """

    async def events_after(
        self, position: str | None, only: EventFilter, *, within: timedelta, limit: int
    ) -> EventPage:
        """Return the next accepted events after a position, in the order of the log.

        Without a position, return that of the end of the log and no events. Events that were
        accepted longer ago than ``within`` are skipped and counted. Internal events, and events
        that were redriven for a single feature, are left out. A page has about a megabyte at most,
        but at least one event if there is one.

        Raises InvalidInputError if the position is not one of this log.
        """

    async def events_of(
        self, entity_ids: Sequence[str], event_types: Collection[str], series: Collection[str]
    ) -> list[list[PastEvent]]:
        """Return the accepted events of each entity id, in the order of the log.

        Each has the earliest time at which a value of its entity id in one of the series was
        written because of it. Events that were redriven for a single feature are left out.
        """

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        """Remove old rows of history, and events that were received before a moment.

        Reads of history at or after the moment, true or known, give the same answers as before:
        of the rows that are older by both times, the ones that count at that moment stay, so also
        the last value of every entity. Events stay until every consumer group has committed them.
        """

    async def drop(self, series: str) -> int:
        """Remove all values of a series; return their number."""

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        """Remove the past values of one entity, and the events with its id, for good.

        Events carry an id and no entity, so ``keep`` names the types whose events stay. Events
        that a consumer group has not committed may stay, too.
        """

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        """Run a query over sources, the event log (``events``) and ``feature_history``.

        ``feature_names`` has what features were over time, as `named_spans` of the catalog.

        Raises QueryError unless it is one statement that returns rows, InvalidInputError if it
        cannot be run for another reason, such as an unknown column.
        """

    async def prepare(self, sql: str, sources: Mapping[str, str]) -> Sequence[str]:
        """Check a query as ``query`` does, without running it; return the names of its columns."""

    async def maintain(self) -> None:
        """Do the maintenance that is due; safe to call from many processes."""
