"""The stored events of a range of buckets, read from a Parquet file in pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.core.clock import from_micros
from headwater.core.duckdb_session import glob_literal, scalar, session
from headwater.core.values import ServiceEvent
from headwater.ports import Delivery

_PAGE = 5_000
_COLUMNS = 'position, event_type, entity_id, payload, "timestamp", event_id, received_at'

_decode_payload = msgspec.json.decode


class StoredEvent(Delivery, frozen=True, gc=False):
    """An event of the log, and when it was accepted, in microseconds."""

    received_at: int = 0


def count_events(file: Path, scratch: Path) -> int:
    """Return the number of events in a file."""
    with session(scratch) as duck:
        return int(scalar(duck.run(f"SELECT count(*) FROM read_parquet({glob_literal(file)})")))


@contextmanager
def reading(file: Path, scratch: Path, skip: int) -> Iterator[Iterator[list[StoredEvent]]]:
    """Read the events of a file in its order, after the first ``skip``, in pages."""
    with session(scratch) as duck:
        duck.run("SET threads = 1")  # the rows come in the order of the file
        rows = duck.run(f"SELECT {_COLUMNS} FROM read_parquet({glob_literal(file)}) OFFSET {skip}")

        def pages() -> Iterator[list[StoredEvent]]:
            while page := rows.fetchmany(_PAGE):
                yield [_event(*row) for row in page]

        yield pages()


def _event(
    position: str,
    event_type: str,
    entity_id: str,
    payload: str,
    timestamp: int,
    event_id: str,
    received_at: int,
) -> StoredEvent:
    event = ServiceEvent(
        event_type, entity_id, _decode_payload(payload), from_micros(timestamp), event_id
    )
    return StoredEvent(position, event, received_at=received_at)
