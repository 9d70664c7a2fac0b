"""History and event log in DuckDB: point-in-time reads and queries."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import duckdb
import msgspec

from headwater.backends.duckdb.frame_plan import FrameSource, answer_frame
from headwater.backends.duckdb.segment_writer import SegmentWriter
from headwater.backends.duckdb.segments import (
    EVENTS,
    HISTORY,
    LOGS,
    NAME_COLUMNS,
    NAMES_VIEW,
    VIEWS,
    SegmentFolder,
    name_row,
    open_log,
    open_recent,
    write_parquet,
)
from headwater.backends.duckdb.series_rows import write_series
from headwater.backends.segment_files import damaged_error
from headwater.core.clock import Clock, from_micros, to_micros
from headwater.core.duckdb_session import Session, headline, scalar, session
from headwater.core.interruptible import in_thread
from headwater.core.partitioning import BUCKETS
from headwater.core.source_views import add_source
from headwater.core.sql_literals import text, texts
from headwater.core.sql_sources import (
    FEATURE_NAMES,
    HAS_PARAMETERS,
    NO_ROWS,
    SEVERAL_STATEMENTS,
    mentioned,
    without_secrets,
)
from headwater.errors import BackendError, HomeError, InvalidInputError, QueryError
from headwater.model.events import EventPage
from headwater.model.values import ServiceEvent
from headwater.ports import (
    Change,
    EventFilter,
    FrameQuery,
    HistoryRow,
    PastEvent,
    PastValue,
    Point,
    Pruned,
    RecentHistory,
    Rows,
    Runner,
    SeriesFile,
    SeriesQuery,
    named_spans,
)
from headwater.ports.history import VALUE_AS_JSON
from headwater.settings.groups import OfflineSettings

P = ParamSpec("P")
T = TypeVar("T")
# A segment disappears during a read only if the read takes longer than the grace period.
_ATTEMPTS = 3
# Filtering the tail by more entities than this costs more than reading all of it.
_MAX_ENTITIES = 500
_POINT_COLUMNS = {"number": "BIGINT", "entity_id": "VARCHAR", "moment": "BIGINT"}
_ID_COLUMN = {"entity_id": "VARCHAR"}
_PAST = """
CREATE VIEW past AS
SELECT *, {visible_from} AS visible_from
FROM headwater.history
WHERE feature IN ({features}) AND entity_id IN (SELECT entity_id FROM points)
"""
# A value that is outranked when it becomes visible is never the last one. The rank of the others
# rises with the time they become visible, so the last visible value is the answer.
_KNOWN = """
CREATE VIEW candidates AS
WITH ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY feature, entity_id ORDER BY as_of, written_at, seq
    ) AS rank
    FROM past
)
SELECT * FROM ranked
QUALIFY rank = max(rank) OVER (
    PARTITION BY feature, entity_id ORDER BY visible_from, rank ROWS UNBOUNDED PRECEDING
)
"""
_TRUE = "CREATE VIEW candidates AS SELECT * FROM past"
# An ASOF join has one inequality; the row comparison includes the tie-breaking in it.
_LAST = f"""
SELECT points.number, wanted.feature, encode({VALUE_AS_JSON}), epoch_us(as_of), epoch_us(written_at)
FROM points
CROSS JOIN (SELECT unnest([{{features}}]) AS feature) AS wanted
ASOF JOIN candidates
    ON candidates.feature = wanted.feature
   AND candidates.entity_id = points.entity_id
   AND (visible_from, as_of, written_at, seq)
       <= (make_timestamptz(moment), TIMESTAMPTZ 'infinity', TIMESTAMPTZ 'infinity', {2**63 - 1})
"""
_LATEST = f"""
WITH ids AS (
    SELECT DISTINCT entity_id FROM headwater.history
    WHERE entity = {{entity}} AND entity_id > {{after}} ORDER BY entity_id LIMIT {{limit}}
)
SELECT entity_id, feature, encode({VALUE_AS_JSON}), epoch_us(as_of), epoch_us(written_at)
FROM headwater.history JOIN ids USING (entity_id)
WHERE entity = {{entity}}
QUALIFY row_number() OVER (
    PARTITION BY entity_id, feature ORDER BY as_of DESC, written_at DESC, seq DESC
) = 1
ORDER BY entity_id
"""
_ROWS = f"""
SELECT entity_id, encode({VALUE_AS_JSON}), epoch_us(as_of), epoch_us(written_at), cause
FROM headwater.history
WHERE feature = {{series}} AND entity_id IN ({{entity_ids}})
  AND as_of >= {{start}} AND as_of < {{end}}
WINDOW newest AS (PARTITION BY entity_id ORDER BY as_of DESC, written_at DESC, seq DESC)
QUALIFY row_number() OVER newest <= {{limit}}
ORDER BY as_of DESC, written_at DESC, seq DESC
"""
Relation: TypeAlias = duckdb.DuckDBPyRelation
_AWARE = "TIMESTAMP WITH TIME ZONE"
_LAST_ROW = "SELECT max(seq) FROM headwater.history WHERE seq > {after}"
_NEW_ROWS = f"SELECT * FROM headwater.history WHERE seq > {{after}} ORDER BY {HISTORY.order}"
# The position of an event is its sequence number, which also gives the order.
_EVENTS = """
CREATE TABLE chosen AS
SELECT bucket, seq AS n, {position} AS position, event_id, event_type, entity_id,
       epoch_us("timestamp") AS "timestamp", epoch_us(received_at) AS received_at, payload
FROM headwater.events
WHERE event_type IN ({types}) AND seq <= list_extract({upto}, "partition" + 1)
  AND epoch_us("timestamp") >= {since}
"""
_EVENTS_OF = """
SELECT entity_id, {position}, event_type, payload, epoch_us("timestamp"), event_id,
       epoch_us(received_at), first
FROM headwater.events JOIN ids USING (entity_id)
LEFT JOIN (
    SELECT entity_id, cause AS event_id, min(epoch_us(written_at)) AS first
    FROM headwater.history JOIN ids USING (entity_id)
    WHERE feature IN ({series}) GROUP BY entity_id, cause
) AS caused USING (entity_id, event_id)
WHERE event_type IN ({types})
ORDER BY seq
"""
_FILE = "SELECT * FROM chosen WHERE bucket BETWEEN {first} AND {last} ORDER BY bucket, n"
_ALWAYS = -(2**63)


class EventPositions(NamedTuple):
    """The positions of the event log as numbers: the order of a partition's events."""

    number: Callable[[str], int] = int
    text: str = "CAST(seq AS VARCHAR)"
    """The position of a number; an expression over ``seq``."""


class _PointRow(msgspec.Struct, frozen=True):
    number: int
    entity_id: str
    moment: int


class DuckdbOfflineStore:
    """History in segments and tail; each call uses a new DuckDB session in a thread."""

    def __init__(
        self,
        tail: RecentHistory,
        folder: Path,
        scratch: Path,
        clock: Clock,
        settings: OfflineSettings,
        runner: Runner,
        *,
        files: SegmentFolder | None = None,
        positions: EventPositions = EventPositions(),  # noqa: B008 - it cannot change
    ) -> None:
        """Read the segments in a folder, unless ``files`` are elsewhere."""
        self._tail = tail
        self._clock = clock
        self._runner = runner
        self._positions = positions
        self._scratch = scratch
        if files is None:
            files = SegmentFolder(folder, lambda new: tail.announce(new, clock.now()))
        self._files = files
        self._folder = files.location
        self._writer = SegmentWriter(tail, self._files, scratch, clock, settings)

    async def append(self, changes: Sequence[Change]) -> int:
        return await self._run(self._writer.add, changes) if changes else 0

    async def maintain(self) -> None:
        await self._run(self._writer.maintain)

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        if not features or not points:
            return [[None] * len(features) for _ in points]

        def work(duck: Session) -> list[list[PastValue | None]]:
            return _grid(features, len(points), self._last(duck, features, points, known=known))

        return await self._run_read(work)

    def _last(
        self, duck: Session, features: Sequence[str], points: Sequence[Point], *, known: bool
    ) -> list[tuple[Any, ...]]:
        entity_ids = {point.entity_id for point in points}
        few = sorted(entity_ids) if len(entity_ids) <= _MAX_ENTITIES else ()
        open_recent(duck, HISTORY, self._tail, self._files, features=features, entity_ids=few)
        rows = [
            _PointRow(n, point.entity_id, to_micros(point.at)) for n, point in enumerate(points)
        ]
        duck.load_rows("points", rows, _POINT_COLUMNS)
        names = texts(sorted(set(features)))
        visible_from = "written_at" if known else "as_of"
        duck.run(_PAST.format(visible_from=visible_from, features=names))
        duck.run(_KNOWN if known else _TRUE)
        return duck.run(_LAST.format(features=names)).fetchall()

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        def select(duck: Session) -> list[tuple[Any, ...]]:
            open_recent(duck, HISTORY, self._tail, self._files)
            sql = _LATEST.format(entity=text(entity), after=text(after), limit=limit)
            return duck.run(sql).fetchall()

        values: dict[str, dict[str, PastValue]] = {}
        for entity_id, feature, value, as_of, written_at in await self._run_read(select):
            past = PastValue(value, from_micros(as_of), from_micros(written_at))
            values.setdefault(entity_id, {})[feature] = past
        return list(values.items())

    async def rows(
        self,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        def select(duck: Session) -> list[tuple[Any, ...]]:
            open_recent(
                duck, HISTORY, self._tail, self._files, features=[series], entity_ids=entity_ids
            )
            sql = _ROWS.format(
                series=text(series),
                entity_ids=texts(entity_ids),
                start=_moment(start, "-infinity"),
                end=_moment(end, "infinity"),
                limit=limit,
            )
            return duck.run(sql).fetchall()

        if not entity_ids:
            return []
        found: dict[str, list[HistoryRow]] = {entity_id: [] for entity_id in entity_ids}
        for entity_id, value, as_of, written_at, cause in await self._run_read(select):
            row = HistoryRow(value, from_micros(as_of), from_micros(written_at), cause)
            found[entity_id].append(row)
        return [found[entity_id] for entity_id in entity_ids]

    async def export_history(self, file: Path, *, after: int) -> int:
        def export(duck: Session) -> int:
            # Numbers that an import has reserved are used before it releases the lock.
            with self._files.lock(wait=True):
                upto = self._tail.settled()
                snapshot = self._tail.snapshot(duck.folder, ["history"], upto=upto)["history"]
            # A first export reads every row; the next ones read few, of the newest files.
            open_log(duck, HISTORY, snapshot, self._files, is_whole=not after)
            return export_history(duck, file, after)

        return await self._run_read(export)

    async def export_events(
        self,
        folder: Path,
        event_types: Collection[str],
        upto: Mapping[int, str],
        *,
        since: datetime | None = None,
        files: int,
    ) -> list[Path]:
        def export(duck: Session) -> list[Path]:
            snapshot = self._tail.snapshot(duck.folder, ["events"])["events"]
            open_log(duck, EVENTS, snapshot, self._files, is_whole=True)
            numbers = {number: self._positions.number(last or "0") for number, last in upto.items()}
            return export_events(
                *(duck, folder, event_types, numbers, self._positions.text),
                since=since,
                files=files,
            )

        return await self._run_read(export)

    async def events_after(
        self, position: str | None, only: EventFilter, *, within: timedelta, limit: int
    ) -> EventPage:
        since = self._clock.now() - within
        return await self._run(self._tail.events_after, position, only, since=since, limit=limit)

    async def events_of(
        self, entity_ids: Sequence[str], event_types: Collection[str], series: Collection[str]
    ) -> list[list[PastEvent]]:
        def select(duck: Session) -> list[tuple[Any, ...]]:
            few = entity_ids if len(entity_ids) <= _MAX_ENTITIES else ()
            open_recent(duck, EVENTS, self._tail, self._files, entity_ids=few)
            open_recent(
                duck, HISTORY, self._tail, self._files, features=sorted(series), entity_ids=few
            )
            duck.load_rows("ids", [{"entity_id": each} for each in set(entity_ids)], _ID_COLUMN)
            types, features = texts(sorted(event_types)), texts(sorted(series))
            sql = _EVENTS_OF.format(
                types=types or "NULL", series=features or "NULL", position=self._positions.text
            )
            return duck.run(sql).fetchall()

        found: dict[str, list[PastEvent]] = {entity_id: [] for entity_id in entity_ids}
        for entity_id, position, *event, received_at, written_at in await self._run_read(select):
            event_type, payload, timestamp, event_id = event
            content = ServiceEvent(
                *(event_type, entity_id, msgspec.json.decode(payload)),
                *(from_micros(timestamp), event_id),
            )
            found[entity_id].append(
                PastEvent(position, content, received_at=received_at, written_at=written_at)
            )
        return [found[entity_id] for entity_id in entity_ids]

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        return await self._run(self._writer.prune, history, events, dry_run=dry_run)

    async def drop(self, series: str) -> int:
        return await self._run(self._writer.drop, series)

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        return await self._run(self._writer.forget, entity, entity_id, keep=keep, dry_run=dry_run)

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        async with self._translated():
            source = partial(self._source, sorted({column.series for column in query.columns}))
            await answer_frame(
                query, answer, source, self._runner, self._scratch, progress, self._missing
            )

    async def write_series(self, query: SeriesQuery, folder: Path) -> list[SeriesFile]:
        async with self._translated():
            source = partial(self._source, [query.series])
            return await write_series(query, folder, source, self._scratch, self._missing)

    def _source(self, series: Sequence[str], folder: Path) -> FrameSource:
        snapshot = self._tail.snapshot(folder, ["history"], features=series)["history"]
        self._files.files(snapshot.segments)
        return FrameSource(
            self._folder,
            snapshot.segments,
            snapshot.tail,
            snapshot.longest,
            self._files.storage,
        )

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        return await self._run_read(lambda duck: self._with_relation(duck, sql, sources, fetch))

    async def prepare(self, sql: str, sources: Mapping[str, str]) -> Sequence[str]:
        return await self._run_read(
            lambda duck: self._with_relation(duck, sql, sources, attrgetter("columns"))
        )

    def _with_relation(
        self, duck: Session, sql: str, sources: Mapping[str, str], use: Callable[[Relation], T]
    ) -> T:
        """Use the result of a query, which is computed when it is fetched."""
        check_query(duck, sql)
        if views := mentioned(sql, VIEWS):
            kinds = [VIEWS[name][0] for name in views]
            snapshots = self._tail.snapshot(duck.folder, kinds)
            for name, kind in zip(views, kinds, strict=True):
                open_log(duck, LOGS[kind], snapshots[kind], self._files)
                duck.run(VIEWS[name][1])
        if mentioned(sql, [FEATURE_NAMES]):
            duck.run("CREATE SCHEMA IF NOT EXISTS headwater")
            rows = [name_row(span) for span in named_spans(self._tail.catalog())]
            duck.load_rows("headwater.names", rows, NAME_COLUMNS)
            duck.run(NAMES_VIEW)
        for name in mentioned(sql, sources):
            add_source(duck, name, sources[name])
        try:
            return use(duck.connection.sql(sql))
        except duckdb.Error as error:
            # A file of the store failed, not one that only the query names. DuckDB has no class for
            # some errors of damaged files.
            own = (self._folder, str(self._scratch))
            if type(error) is duckdb.Error or any(folder in str(error) for folder in own):
                raise
            problem = without_secrets(headline(error), sources.values())
            raise InvalidInputError(f"the query cannot be run: {problem}") from error

    def _read(self, work: Callable[[Session], T]) -> T:
        """Run the work; retry with a new snapshot if a segment was merged meanwhile."""
        for _ in range(_ATTEMPTS):
            with session(self._scratch) as duck:
                try:
                    return work(duck)
                except (duckdb.OperationalError, InvalidInputError) as error:
                    gone = self._files.gone(duck.segments, error)
                    if not gone:
                        raise
        raise self._missing(gone)

    def _missing(self, names: Sequence[str]) -> HomeError:
        return HomeError(
            self._folder, f"has no file {', '.join(names)}", "restore the file from a backup"
        )

    async def _run(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        async with self._translated():
            return await asyncio.to_thread(work, *args, **named)

    async def _run_read(self, work: Callable[[Session], T]) -> T:
        async with self._translated():
            return await in_thread(self._read, work)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Raise Headwater's errors in place of DuckDB's and the system's."""
        try:
            yield
        except duckdb.Error as error:
            if damage := await asyncio.to_thread(self._damage):
                raise damaged_error(Path(self._folder), damage) from error
            raise BackendError(
                f"the history in {self._folder} failed: {headline(error)}"
            ) from error
        except OSError as error:
            raise HomeError(
                self._folder,
                f"failed: {error.strerror}",
                "check its free space and permissions; acknowledged writes are safe",
            ) from error

    def _damage(self) -> list[str]:
        live = [segment for segment in self._tail.manifest() if segment.retired_at is None]
        return self._files.damage(live)


def _moment(moment: datetime | None, otherwise: str) -> str:
    if moment is None:
        return f"TIMESTAMPTZ '{otherwise}'"
    return f"make_timestamptz({to_micros(moment)})"


def _grid(
    features: Sequence[str], points: int, rows: Sequence[tuple[Any, ...]]
) -> list[list[PastValue | None]]:
    places = {name: [i for i, other in enumerate(features) if other == name] for name in features}
    grid: list[list[PastValue | None]] = [[None] * len(features) for _ in range(points)]
    for number, feature, value, as_of, written_at in rows:
        past = PastValue(value, from_micros(as_of), from_micros(written_at))
        for place in places[feature]:
            grid[number][place] = past
    return grid


def check_query(duck: Session, sql: str) -> None:
    """Raise QueryError unless a query is one statement that returns rows."""
    try:
        statements = duck.connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(f"the query cannot be run: {headline(error)}") from error
    # DuckDB puts a statement without a text in front of a PIVOT.
    create = duckdb.StatementType.CREATE
    written = [statement for statement in statements if statement.query or statement.type != create]
    if len(written) > 1:
        raise QueryError(SEVERAL_STATEMENTS)
    if not written or written[0].expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
        raise QueryError(NO_ROWS)
    if written[0].named_parameters:
        raise QueryError(HAS_PARAMETERS)


def fetch(answer: Relation) -> Rows:
    """Return all rows of a result, with aware times in UTC."""
    kinds = [str(kind) for kind in answer.types]
    aware = [place for place, kind in enumerate(kinds) if _AWARE in kind]
    if not aware:
        return Rows(answer.columns, answer.fetchall())
    # Converting DuckDB's aware times to Python needs another package; naive UTC times do not.
    plain = [kind.replace(_AWARE, "TIMESTAMP") for kind in kinds]
    casts = ", ".join(f"CAST(#{number} AS {kind})" for number, kind in enumerate(plain, 1))
    rows = answer.project(casts).fetchall()
    return Rows(
        answer.columns,
        [
            tuple(_in_utc(item) if n in aware else item for n, item in enumerate(row))
            for row in rows
        ],
    )


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_in_utc(item) for item in value]
    if isinstance(value, dict):
        return {name: _in_utc(item) for name, item in value.items()}
    return value


def export_history(duck: Session, file: Path, after: int) -> int:
    """Write the rows of ``headwater.history`` with numbers above one; return the last number."""
    last = scalar(duck.run(_LAST_ROW.format(after=after)))
    if last is None:
        return after
    write_parquet(duck, _NEW_ROWS.format(after=after), file)
    return int(last)


def export_events(
    duck: Session,
    folder: Path,
    event_types: Collection[str],
    upto: Mapping[int, int],
    position: str,
    *,
    since: datetime | None,
    files: int,
) -> list[Path]:
    """Write the rows of ``headwater.events`` up to a number of each partition."""
    last = [upto.get(partition, 0) for partition in range(max(upto, default=0) + 1)]
    duck.run(
        _EVENTS.format(
            types=texts(sorted(event_types)) or "NULL",
            upto=last,
            position=position,
            since=_ALWAYS if since is None else to_micros(since),
        )
    )
    bounds = [BUCKETS * number // files for number in range(files + 1)]
    written = []
    for first, end in itertools.pairwise(bounds):
        file = folder / f"events-{first:04}-{end - 1:04}.parquet"
        write_parquet(duck, _FILE.format(first=first, last=end - 1), file)
        written.append(file)
    return written
