"""Copies of history and of the event log as Parquet files."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from headwater.backends.duckdb.segment_files import write_parquet
from headwater.backends.duckdb.segment_schema import HISTORY
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import Session, scalar
from headwater.core.partitioning import BUCKETS
from headwater.core.sql_literals import texts

_LAST = "SELECT max(seq) FROM headwater.history WHERE seq > {after}"
_NEW_ROWS = f"SELECT * FROM headwater.history WHERE seq > {{after}} ORDER BY {HISTORY.order}"

# The position of an event is its sequence number, which also gives the order.
_EVENTS = """
CREATE TABLE chosen AS
SELECT bucket, seq AS n, CAST(seq AS VARCHAR) AS position, event_id, event_type, entity_id,
       epoch_us("timestamp") AS "timestamp", epoch_us(received_at) AS received_at, payload
FROM headwater.events
WHERE event_type IN ({types}) AND seq <= list_extract({upto}, "partition" + 1)
  AND epoch_us("timestamp") >= {since}
"""
_FILE = "SELECT * FROM chosen WHERE bucket BETWEEN {first} AND {last} ORDER BY bucket, n"
_ALWAYS = -(2**63)


def export_history(duck: Session, file: Path, after: int) -> int:
    """Write the rows of ``headwater.history`` with numbers above one; return the last number."""
    last = scalar(duck.run(_LAST.format(after=after)))
    if last is None:
        return after
    write_parquet(duck, _NEW_ROWS.format(after=after), file)
    return int(last)


def export_events(
    duck: Session,
    folder: Path,
    event_types: Collection[str],
    upto: Mapping[int, str],
    *,
    since: datetime | None,
    files: int,
) -> list[Path]:
    """Write the rows of ``headwater.events`` up to a position of each partition."""
    last = [int(upto.get(partition) or 0) for partition in range(max(upto, default=0) + 1)]
    duck.run(
        _EVENTS.format(
            types=texts(sorted(event_types)) or "NULL",
            upto=last,
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
