"""The columns of history and events in segments, and the conversion of recent rows to them.

A value is stored in the column of its kind. A value that does not fit its column is stored as JSON,
so nothing is lost; a JSON null leaves all columns empty. A time with an offset is stored as both,
and so is -0.0, whose sign a column of floats may lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import asdict

from headwater.core.clock import to_micros
from headwater.core.duckdb_session import Session, parquet
from headwater.ports import LogKind, NamedSpan, RecentHistory, Snapshot
from headwater.ports.history import VALUE_AS_JSON, VALUE_COLUMNS, VALUE_FLOAT


class SegmentLog(NamedTuple):
    """One kind of segment: the columns of recent rows, their typed form, and their order."""

    kind: LogKind
    columns: Mapping[str, str]
    typed: str
    order: str


HISTORY = SegmentLog(
    kind="history",
    columns={
        "seq": "BIGINT",
        "feature": "VARCHAR",
        "entity": "VARCHAR",
        "entity_id": "VARCHAR",
        "bucket": "USMALLINT",
        "kind": "VARCHAR",
        "value": "VARCHAR",
        "as_of": "BIGINT",
        "written_at": "BIGINT",
        "cause": "VARCHAR",
    },
    typed=f"""
SELECT seq, feature, entity, entity_id, bucket, kind,
       make_timestamptz(as_of) AS as_of,
       make_timestamptz(written_at) AS written_at,
       cause,
       {VALUE_COLUMNS}
FROM """,
    order="feature, bucket, entity_id, as_of, seq",
)

EVENTS = SegmentLog(
    kind="events",
    columns={
        "seq": "BIGINT",
        "event_id": "VARCHAR",
        "event_type": "VARCHAR",
        "entity_id": "VARCHAR",
        "bucket": "USMALLINT",
        "partition": "USMALLINT",
        "timestamp": "BIGINT",
        "received_at": "BIGINT",
        "payload": "VARCHAR",
        "traceparent": "VARCHAR",
    },
    typed="""
SELECT seq, event_id, event_type, entity_id, bucket, "partition",
       make_timestamptz("timestamp") AS "timestamp",
       make_timestamptz(received_at) AS received_at,
       payload, traceparent
FROM """,
    order="seq",
)

LOGS: Mapping[LogKind, SegmentLog] = {log.kind: log for log in (HISTORY, EVENTS)}


VIEWS: Mapping[str, tuple[LogKind, str]] = {
    "events": (
        "events",
        """
CREATE VIEW events AS
SELECT event_id, event_type, entity_id, "timestamp", received_at, CAST(payload AS JSON) AS payload,
       traceparent
FROM headwater.events
WHERE NOT starts_with(event_type, 'headwater.')""",
    ),
    "feature_history": (
        "history",
        f"""
CREATE VIEW feature_history AS
SELECT feature, entity, entity_id, as_of, written_at, cause, kind,
       CAST({VALUE_AS_JSON} AS JSON) AS value,
       value_int, {VALUE_FLOAT} AS value_float, value_bool, value_text, value_time,
       CASE WHEN value_time IS NULL AND value_float IS NULL THEN value_json END AS value_json
FROM headwater.history""",
    ),
}
"""The built-in views of queries, each with its log and its definition."""


NAME_COLUMNS = {
    "feature": "VARCHAR",
    "entity": "VARCHAR",
    "version": "BIGINT",
    "series": "VARCHAR",
    "default_value": "VARCHAR",
    "since": "BIGINT",
    "until": "BIGINT",
}
NAMES_VIEW = """
CREATE VIEW feature_names AS
SELECT feature, entity, version, series, default_value, make_timestamptz(since) AS since,
       make_timestamptz(until) AS until
FROM headwater.names"""


def name_row(span: NamedSpan) -> dict[str, str | int | None]:
    """Return a row of the table behind ``feature_names``."""
    until = None if span.until is None else to_micros(span.until)
    return {**asdict(span), "since": to_micros(span.since), "until": until}


def open_log(session: Session, log: SegmentLog, snapshot: Snapshot, folder: Path) -> None:
    """Create a view of segments and tail, ``headwater.history`` or ``headwater.events``."""
    files = [folder / segment.name for segment in snapshot.segments]
    open_rows(session, log, files, snapshot.tail, longest=snapshot.longest)


def open_recent(
    session: Session,
    log: SegmentLog,
    tail: RecentHistory,
    folder: Path,
    *,
    features: Sequence[str] = (),
    entity_ids: Sequence[str] = (),
) -> None:
    """Create the same view of this moment; of the tail, it may have some features and ids only."""
    snapshots = tail.snapshot(session.folder, [log.kind], features=features, entity_ids=entity_ids)
    open_log(session, log, snapshots[log.kind], folder)


def open_rows(
    session: Session, log: SegmentLog, files: Sequence[Path], tail: Path | None, *, longest: int
) -> None:
    """Create the same view of some files and, if there is one, a tail."""
    name = f"headwater.{log.kind}_tail"
    session.run("CREATE SCHEMA IF NOT EXISTS headwater")
    session.load(name, tail, log.columns, longest=longest)
    rows = log.typed + name
    if files:
        session.segments += files
        rows = f"{parquet(files)} UNION ALL BY NAME {rows}"
    session.run(f"CREATE VIEW headwater.{log.kind} AS {rows}")
