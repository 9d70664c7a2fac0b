"""Current values in SQLite: one packed row per entity, written together with history."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

from headwater.backends.observed import count_erased
from headwater.backends.sqlite import bulk_insert as bulk
from headwater.backends.sqlite.erasures import SqliteErasures
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.batching import batched
from headwater.core.partitioning import partition_of
from headwater.model.values import (
    Cells,
    EntityKey,
    decode_cells,
    encode_cells,
    merge_cells,
    restore_cells,
    with_cell,
)
from headwater.ports import (
    Change,
    EntityState,
    Replacement,
    Standing,
    Tombstone,
    by_entity,
    history_rows,
    newest,
)

HISTORY = "history (feature, entity, entity_id, kind, value, as_of, written_at, cause)"

_MAX_PARAMETERS = 500
_ONE = "SELECT state FROM entities WHERE entity = ? AND entity_id = ?"
_VERSIONED = "SELECT version, state FROM entities WHERE entity = ? AND entity_id = ?"
_WAITING = """
SELECT received_at FROM events WHERE partition = :partition AND seq > coalesce((
    SELECT seq FROM cursors WHERE consumer_group = :group AND partition = :partition
), 0) ORDER BY seq LIMIT 1"""
# A dead letter, or one that was redriven and waits.
_UNHANDLED = """
SELECT entity_id, feature FROM dead_letters
WHERE consumer_group = :group AND entity_id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT entity_id, substr(only_feature, length(:group) + 2) FROM events
WHERE only_feature IS NOT NULL AND entity_id IN (SELECT value FROM json_each(:ids))
  AND substr(only_feature, 1, length(:group) + 1) = :group || '/'
  AND seq > coalesce((
    SELECT seq FROM cursors WHERE consumer_group = :group AND partition = events.partition
), 0)"""
# Most reads are of one entity, and a list takes twice as long.
_UNHANDLED_OF_ONE = _UNHANDLED.replace("IN (SELECT value FROM json_each(:ids))", "= :ids")
_FORGET = "DELETE FROM entities WHERE entity = ? AND entity_id = ?"
_UNKNOWN = EntityState(0, {})
_NONE: frozenset[str] = frozenset()

_decode_packed = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode


class SqliteOnlineStore:
    """Current values, read inline because that takes microseconds, written in the writer thread."""

    def __init__(self, home: Home, writer: Writer, erasures: SqliteErasures, group: str) -> None:
        self._home = home
        self._writer = writer
        self._erasures = erasures
        self._group = group

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        if len(entity_ids) == 1:
            rows = self._home.read(_ONE, (entity, entity_ids[0]))
            return [decode_cells(rows[0][0])] if rows else [{}]
        return [decode_cells(state) for state in await self.get_packed(entity, entity_ids)]

    async def get_packed(self, entity: str, entity_ids: Sequence[str]) -> list[bytes | msgspec.Raw]:
        if len(entity_ids) == 1:
            return [state for (state,) in self._home.read(_ONE, (entity, entity_ids[0]))] or [b"{}"]
        packed: dict[str, msgspec.Raw] = {}
        for rows in self._rows(entity, entity_ids):
            packed |= dict(_decode_packed(rows))
        return [packed.get(entity_id, b"{}") for entity_id in entity_ids]

    async def get_with_waiting(self, entity: str, entity_ids: Sequence[str]) -> list[Standing]:
        partitions = [partition_of(entity_id, self._home.partitions) for entity_id in entity_ids]
        # Before the values: an event that is committed in between is in them.
        waiting = {partition: self._waiting_since(partition) for partition in set(partitions)}
        unhandled = self._unhandled(entity_ids)
        cells = await self.get(entity, entity_ids)
        return [
            Standing(stored, waiting[partition], unhandled.get(entity_id, _NONE))
            for entity_id, stored, partition in zip(entity_ids, cells, partitions, strict=True)
        ]

    def _waiting_since(self, partition: int) -> int | None:
        rows = self._home.read(_WAITING, {"partition": partition, "group": self._group})
        return rows[0][0] if rows else None

    def _unhandled(self, entity_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        if len(entity_ids) == 1:
            sql, ids = _UNHANDLED_OF_ONE, entity_ids[0]
        else:
            sql, ids = _UNHANDLED, msgspec.json.encode(entity_ids).decode()
        unhandled: dict[str, frozenset[str]] = {}
        for entity_id, series in self._home.read(sql, {"ids": ids, "group": self._group}):
            unhandled[entity_id] = unhandled.get(entity_id, _NONE) | {series}
        return unhandled

    async def get_state(self, key: EntityKey) -> EntityState:
        rows = self._home.read(_VERSIONED, key)
        return EntityState(rows[0][0], decode_cells(rows[0][1])) if rows else _UNKNOWN

    def _rows(self, entity: str, entity_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the existing entities as JSON, in chunks of ``_MAX_PARAMETERS``."""
        for part in batched(entity_ids, _MAX_PARAMETERS):
            ((rows,),) = self._home.read(_select(len(part)), (entity, *part))
            yield rows

    async def put(self, changes: Sequence[Change]) -> int:
        def job(db: sqlite3.Connection) -> Mapping[Tombstone, int]:
            admitted = self._erasures.current(db).admitted(
                changes, lambda key: bool(self._cells(db, key))
            )
            for key, entity_changes in by_entity(admitted.changes).items():
                # Running batches compare the version, so a cached computation does not raise it.
                step = any(change.authoritative for change in entity_changes)
                cells = merge_cells(self._cells(db, key), newest(entity_changes))
                self._write(db, key, cells, step=step)
            bulk.insert(db, HISTORY, history_rows(admitted.changes, bytes))
            return admitted.dropped

        return count_erased("value", await self._writer.run(job))

    async def restore(self, entity: str, values: Mapping[str, Cells]) -> None:
        def job(db: sqlite3.Connection) -> None:
            ledger = self._erasures.current(db)
            for entity_id, past in values.items():
                before = self._cells(db, (entity, entity_id))
                admitted = ledger.admitted_cells((entity, entity_id), past)
                cells = restore_cells(before, admitted)
                if cells != before:
                    self._write(db, (entity, entity_id), cells, step=True)

        await self._writer.run(job)

    async def replace(
        self, entity: str, series: str, cells: Mapping[str, Replacement]
    ) -> Sequence[str]:
        def job(db: sqlite3.Connection) -> list[str]:
            ledger, changed = self._erasures.current(db), []
            for entity_id, (expected, new) in cells.items():
                key = (entity, entity_id)
                before = self._cells(db, key)
                if before.get(series) != expected:
                    changed.append(entity_id)
                elif new != expected and ledger.admits(key, new):
                    self._write(db, key, with_cell(before, series, new), step=True)
            return changed

        return await self._writer.run(job)

    def _cells(self, db: sqlite3.Connection, key: EntityKey) -> Cells:
        row = db.execute(_ONE, key).fetchone()
        return decode_cells(row[0]) if row else {}

    def _write(self, db: sqlite3.Connection, key: EntityKey, cells: Cells, *, step: bool) -> None:
        db.execute(
            "INSERT INTO entities (entity, entity_id, partition, version, state)"
            " VALUES (?, ?, ?, 1, ?) ON CONFLICT (entity, entity_id)"
            " DO UPDATE SET state = excluded.state, version = version + ?",
            (*key, partition_of(key[1], self._home.partitions), encode_cells(cells), int(step)),
        )

    async def entity_ids(
        self,
        entity: str,
        *,
        after: str,
        limit: int,
        partition: int | None = None,
        having: str | None = None,
    ) -> list[str]:
        sql = "SELECT entity_id FROM entities WHERE entity = ? AND entity_id > ?"
        arguments: list[str | int] = [entity, after]
        if partition is not None:
            sql += " AND partition = ?"
            arguments.append(partition)
        if having is not None:
            sql += " AND json_type(CAST(state AS TEXT), ?) IS NOT NULL"
            arguments.append(_path(having))
        rows = self._home.read(f"{sql} ORDER BY entity_id LIMIT ?", (*arguments, limit))
        return [entity_id for (entity_id,) in rows]

    async def count(self, entity: str, series: Sequence[str]) -> list[int]:
        sums = ", ".join(["total(json_type(CAST(state AS TEXT), ?) IS NOT NULL)"] * len(series))
        paths = [_path(one) for one in series]
        sql = f"SELECT {sums} FROM entities WHERE entity = ?"
        (counts,) = await asyncio.to_thread(self._home.read, sql, (*paths, entity))
        return [int(count) for count in counts]

    async def drop(self, entity: str, series: str) -> int:
        def job(db: sqlite3.Connection) -> int:
            count = 0
            for entity_id in ids:
                cells = self._cells(db, (entity, entity_id))
                if cells.pop(series, None) is not None:
                    # A running batch would write the value again if the version stayed.
                    self._write(db, (entity, entity_id), cells, step=True)
                    count += 1
            return count

        count, after = 0, ""
        while ids := await self.entity_ids(
            entity, after=after, limit=_MAX_PARAMETERS, having=series
        ):
            count += await self._writer.run(job)
            after = ids[-1]
        return count

    async def forget(self, entity: str, entity_id: str) -> int:
        def job(db: sqlite3.Connection) -> int:
            count = len(self._cells(db, (entity, entity_id)))
            with erasing(db):
                db.execute(_FORGET, (entity, entity_id))
            # An absent row has no version to compare, so running batches lose their leases instead.
            db.execute("UPDATE cursors SET epoch = epoch + 1")
            return count

        return await self._writer.run(job, erases=True)


@cache
def _select(count: int) -> str:
    # One row for all entities, as in bus.py; the states are JSON already.
    marks = ", ".join("?" * count)
    return f"""
    SELECT CAST('[' || coalesce(group_concat(
        '[' || json_quote(entity_id) || ',' || CAST(state AS TEXT) || ']'
    ), '') || ']' AS BLOB)
    FROM entities WHERE entity = ? AND entity_id IN ({marks})"""


def _path(series: str) -> str:
    """Return where the packed state of an entity has the values of a series."""
    return f'$."{series}"'
