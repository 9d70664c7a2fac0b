"""The stored events of a range of buckets, read from a Parquet file in pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.core.duckdb_session import glob_literal, scalar, session
from headwater.declarations.features import Order
from headwater.model.values import ServiceEvent
from headwater.ports import Delivery

_PAGE = 5_000
_COLUMNS = 'position, event_type, entity_id, payload, "timestamp", event_id, received_at'
_LATEST_SO_FAR = 'max("timestamp") OVER (PARTITION BY entity_id ORDER BY n)'

_decode_payload = msgspec.json.decode


class StoredEvent(Delivery, frozen=True, gc=False):
    """An event of the log, and when it was accepted, in microseconds."""

    received_at: int = 0


class EventFile(msgspec.Struct, frozen=True):
    """A file of stored events, of which those whose values are of a span of time count.

    In stream order, the value of a late event is of the time of the latest event before it.
    """

    path: Path
    since: datetime | None = None
    until: datetime | None = None
    order: Order = "stream"

    def count(self, scratch: Path) -> int:
        """Return how many events there are."""
        with session(scratch) as duck:
            return int(scalar(duck.run(f"SELECT count(*) {self._rows()}")))

    @contextmanager
    def reading(self, scratch: Path, skip: int) -> Iterator[Iterator[list[StoredEvent]]]:
        """Read the events in the order of the file, after the first ``skip``, in pages."""
        with session(scratch) as duck:
            duck.run("SET threads = 1")  # the rows come in the order of the file
            order = "ORDER BY bucket, n" if self._is_limited else ""
            rows = duck.run(f"SELECT {_COLUMNS} {self._rows()} {order} OFFSET {skip}")

            def pages() -> Iterator[list[StoredEvent]]:
                while page := rows.fetchmany(_PAGE):
                    yield [_event(*row) for row in page]

            yield pages()

    @property
    def _is_limited(self) -> bool:
        return self.since is not None or self.until is not None

    def _rows(self) -> str:
        stored = f"FROM read_parquet({glob_literal(self.path)})"
        if not self._is_limited:
            return stored
        moment = '"timestamp"' if self.order == "event_time" else _LATEST_SO_FAR
        conditions = ["true"]
        if self.since is not None:
            conditions.append(f"moment >= {to_micros(self.since)}")
        if self.until is not None:
            conditions.append(f"moment < {to_micros(self.until)}")
        return f"FROM (SELECT *, {moment} AS moment {stored}) WHERE {' AND '.join(conditions)}"


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
