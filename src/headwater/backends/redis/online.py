"""Current values in Redis: one packed value per entity, written together with history."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from headwater.backends.observed import count_erased
from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.erasures import RedisErasures
from headwater.backends.redis.keys import Keys, PartitionKeys
from headwater.backends.redis.streams import (
    changes_json,
    encode_state,
    read_cells,
    read_state,
    read_version,
    received_at,
)
from headwater.core.partitioning import partition_of
from headwater.errors import BackendUnavailableError, StoreLostError
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
    Ledger,
    Replacement,
    Standing,
    Tombstone,
    by_entity,
    newest,
)


class Sender(NamedTuple):
    """The source of changes that are applied once, in order: a partition and a position."""

    partition: str = ""
    position: str = ""


class _Write(NamedTuple):
    """New values for entities of one partition, and their rows of history."""

    keys: PartitionKeys
    sender: Sender
    values: dict[EntityKey, Cells]
    steps: set[EntityKey]
    changes: list[Change]


_DROPPED = 500
"""How many entities are written together when a series is dropped."""

_DONE, _ERASED = 1, 2
"""Answers of the script: the values were written; an entity was erased, so they were not."""
_NONE: Mapping[Tombstone, int] = {}

_Combine = Callable[[Cells, Cells], Cells]
_States = Mapping[EntityKey, bytes | None]
_Admit = Callable[[_Write, Ledger, _States], tuple[_Write, Mapping[Tombstone, int]]]
"""Returns the part of a write that no erasure forbids, and the number of changes left out."""


class RedisOnlineStore:
    """Current values, read in one round trip per server, written if unchanged meanwhile."""

    def __init__(self, redis: Redis, keys: Keys, erasures: RedisErasures) -> None:
        self._redis = redis
        self._keys = keys
        self._erasures = erasures
        self.loss: StoreLostError | None = None
        """What the workers of this process know of partitions that are behind history."""

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        return [decode_cells(state) for state in await self.get_packed(entity, entity_ids)]

    async def get_packed(self, entity: str, entity_ids: Sequence[str]) -> list[bytes | msgspec.Raw]:
        states = await self._states([(entity, entity_id) for entity_id in entity_ids])
        return [read_cells(state) for state in states]

    async def get_with_waiting(self, entity: str, entity_ids: Sequence[str]) -> list[Standing]:
        places: dict[int, list[int]] = {}
        for place, entity_id in enumerate(entity_ids):
            places.setdefault(partition_of(entity_id, self._keys.partitions), []).append(place)
        calls: list[Call] = []
        for partition, group in places.items():
            keys, ids = self._keys.parts[partition], [entity_ids[place] for place in group]
            names = [keys.group, keys.events, keys.unhandled(self._keys.group)]
            names += [keys.state((entity, entity_id)) for entity_id in ids]
            calls.append(script_call("get_with_waiting", names, *ids))
        answers = await self._redis.calls(calls)
        standings = [Standing({})] * len(entity_ids)
        for group, (oldest, *rest) in zip(places.values(), answers, strict=True):
            since = None if oldest is None else received_at(oldest.decode())
            states, unhandled = rest[: len(group)], rest[len(group) :] or [()] * len(group)
            for place, state, members in zip(group, states, unhandled, strict=True):
                series = frozenset(member.split(b"\0")[1].decode() for member in members)
                standings[place] = Standing(decode_cells(read_cells(state)), since, series)
        return standings

    async def get_state(self, key: EntityKey) -> EntityState:
        lost = self.loss and self.loss.partitions
        if lost and partition_of(key[1], self._keys.partitions) in lost:
            # The event of another partition is handled when this one is repaired.
            raise BackendUnavailableError(str(self.loss))
        (state,) = await self._states([key])
        return read_state(state)

    async def _states(self, keys: Sequence[EntityKey]) -> list[bytes | None]:
        names = [self._keys.of(key[1]).state(key) for key in keys]
        if not names:
            return []
        if not self._redis.clustered:
            states: list[bytes | None] = await self._redis.call(command(names[0], "MGET", *names))
            return states
        # Keys of different slots cannot be read by one command.
        return await self._redis.calls([command(name, "GET", name) for name in names])

    async def put(self, changes: Sequence[Change]) -> int:
        return await self.apply(changes, Sender())

    async def apply(self, changes: Sequence[Change], sender: Sender) -> int:
        """Write changes, unless those of this sender's position were already applied.

        Return the number of changes that were left out, because their entities were erased.
        """
        writes: dict[int, _Write] = {}
        for change in changes:
            self._write_for(writes, change.entity_id, sender).changes.append(change)
        for write in writes.values():
            for key, entity_changes in by_entity(write.changes).items():
                write.values[key] = newest(entity_changes)
                # Running batches compare the version, so a cached computation does not raise it.
                if any(change.authoritative for change in entity_changes):
                    write.steps.add(key)
        return await self._write_all(writes, merge_cells, _admitted_changes)

    async def restore(self, entity: str, values: Mapping[str, Cells]) -> None:
        writes: dict[int, _Write] = {}
        for entity_id, cells in values.items():
            write = self._write_for(writes, entity_id, Sender())
            write.values[entity, entity_id] = cells
            write.steps.add((entity, entity_id))
        await self._write_all(writes, restore_cells, _admitted_values)

    async def replace(
        self, entity: str, series: str, cells: Mapping[str, Replacement]
    ) -> Sequence[str]:
        changed: set[str] = set()

        def unchanged(
            write: _Write, ledger: Ledger, before: _States
        ) -> tuple[_Write, Mapping[Tombstone, int]]:
            values: dict[EntityKey, Cells] = {}
            for key in write.values:
                (expected, new), current = cells[key[1]], decode_cells(read_cells(before[key]))
                if key[1] in changed or current.get(series) != expected:
                    changed.add(key[1])
                elif ledger.admits(key, new):
                    values[key] = {} if new is None else {series: new}
            return write._replace(values=values), _NONE

        def combine(before: Cells, new: Cells) -> Cells:
            return with_cell(before, series, new.get(series))

        writes: dict[int, _Write] = {}
        for entity_id in cells:
            write = self._write_for(writes, entity_id, Sender())
            write.values[entity, entity_id] = {}
            write.steps.add((entity, entity_id))
        await self._write_all(writes, combine, unchanged)
        return [entity_id for entity_id in cells if entity_id in changed]

    def _write_for(self, writes: dict[int, _Write], entity_id: str, sender: Sender) -> _Write:
        partition = partition_of(entity_id, self._keys.partitions)
        if partition not in writes:
            writes[partition] = _Write(self._keys.parts[partition], sender, {}, set(), [])
        return writes[partition]

    async def _write_all(
        self, writes: dict[int, _Write], combine: _Combine, admit: _Admit | None = None
    ) -> int:
        """Write to each partition atomically; retry those whose values changed meanwhile.

        Return the number of changes that were left out.
        """
        dropped = 0
        while writes:
            ledger = self._erasures.ledger
            checked = ledger.revision
            keys = list(chain.from_iterable(write.values for write in writes.values()))
            if checked:
                keys += {change.key for write in writes.values() for change in write.changes} - {
                    *keys
                }
            before = dict(zip(keys, await self._states(keys), strict=True))
            admitted = [
                (write, _NONE) if admit is None else admit(write, ledger, before)
                for write in writes.values()
            ]
            answers = await self._redis.calls(
                [_put_call(write, before, combine, checked) for write, _ in admitted]
            )
            if _ERASED in answers:
                await self._erasures.refresh()
            again: dict[int, _Write] = {}
            for (partition, write), (_, left_out), answer in zip(
                writes.items(), admitted, answers, strict=True
            ):
                if answer == _DONE:
                    dropped += count_erased("value", left_out)
                else:
                    again[partition] = write
            writes = again
        return dropped

    async def entity_ids(
        self,
        entity: str,
        *,
        after: str,
        limit: int,
        partition: int | None = None,
        having: str | None = None,
    ) -> list[str]:
        entity_ids: list[str] = []
        while len(entity_ids) < limit:
            ids = await self._next_ids(entity, after, limit, partition)
            if not ids:
                break
            after = ids[-1]
            if having is not None:
                cells = zip(ids, await self.get(entity, ids), strict=True)
                ids = [entity_id for entity_id, stored in cells if having in stored]
            entity_ids += ids
        return entity_ids[:limit]

    async def count(self, entity: str, series: Sequence[str]) -> list[int]:
        counts = [0] * len(series)
        # By partition: each page of all together would be read from each of them.
        for partition in range(len(self._keys.parts) - 1):
            after = ""
            while ids := await self._next_ids(entity, after, _DROPPED, partition):
                after = ids[-1]
                for cells in await self.get(entity, ids):
                    counts = [n + (s in cells) for n, s in zip(counts, series, strict=True)]
        return counts

    async def _next_ids(
        self, entity: str, after: str, limit: int, partition: int | None
    ) -> list[str]:
        parts = self._keys.parts[:-1] if partition is None else [self._keys.parts[partition]]
        start = f"({after}" if after else "-"
        answers = await self._redis.calls(
            [
                command(name, "ZRANGEBYLEX", name, start, "+", "LIMIT", 0, limit)
                for name in (f"{keys.ids}{entity}" for keys in parts)
            ]
        )
        return [entity_id.decode() for entity_id in islice(heapq.merge(*answers), limit)]

    async def drop(self, entity: str, series: str) -> int:
        count, after = 0, ""
        while ids := await self.entity_ids(entity, after=after, limit=_DROPPED, having=series):
            writes: dict[int, _Write] = {}
            cells = await self.get(entity, ids)
            for entity_id, held in zip(ids, cells, strict=True):
                if series in held:
                    write = self._write_for(writes, entity_id, Sender())
                    write.values[entity, entity_id] = {series: held[series]}
                    write.steps.add((entity, entity_id))
                    count += 1
            await self._write_all(writes, _without)
            after = ids[-1]
        return count

    async def discard(self, rows: Collection[tuple[EntityKey, str, int]]) -> None:
        """Remove the values of rows of history: of an entity and a series, written at a time.

        The state of windows is of the latest contribution and written with the last one. A value
        that is removed although history has it is restored from there.
        """
        discarded = {row[1:] for row in rows}

        def without(before: Cells, _: Cells) -> Cells:
            return {
                series: cell
                for series, cell in before.items()
                if (series, cell.written_at) not in discarded
            }

        writes: dict[int, _Write] = {}
        for key, *_ in rows:
            write = self._write_for(writes, key[1], Sender())
            write.values[key] = {}
            write.steps.add(key)
        await self._write_all(writes, without)

    async def forget(self, entity: str, entity_id: str) -> int:
        part = self._keys.of(entity_id)
        names = [part.state((entity, entity_id)), f"{part.ids}{entity}", part.changes]
        state = await self._redis.call(script_call("forget", names, entity_id))
        return len(decode_cells(read_cells(state)))


def _without(before: Cells, dropped: Cells) -> Cells:
    return {series: cell for series, cell in before.items() if series not in dropped}


def _admitted_changes(
    write: _Write, ledger: Ledger, before: _States
) -> tuple[_Write, Mapping[Tombstone, int]]:
    admitted = ledger.admitted(write.changes, lambda key: read_cells(before[key]) != b"{}")
    if not admitted.dropped:
        return write, _NONE
    values = {key: newest(some) for key, some in by_entity(admitted.changes).items()}
    return write._replace(values=values, changes=[*admitted.changes]), admitted.dropped


def _admitted_values(
    write: _Write, ledger: Ledger, _before: _States
) -> tuple[_Write, Mapping[Tombstone, int]]:
    values = {key: ledger.admitted_cells(key, cells) for key, cells in write.values.items()}
    return write._replace(values=values), _NONE


def _put_call(write: _Write, before: _States, combine: _Combine, checked: int) -> Call:
    names: list[str] = []
    arguments: list[Any] = []
    for key, new in write.values.items():
        old = before[key]
        current = decode_cells(read_cells(old))
        cells = combine(current, new)
        if cells == current and not write.changes:
            continue
        version = read_version(old) + (key in write.steps or old is None)
        state = encode_state(version, encode_cells(cells))
        names += (write.keys.state(key), f"{write.keys.ids}{key[0]}")
        arguments += (key[1], old or b"", state)
    # Values that are restored or dropped leave an empty change that Postgres takes: without it, an
    # older copy of the partition would not be noticed.
    changes = changes_json(write.changes) or (b"[]" if arguments and not write.changes else b"")
    return script_call(
        "put",
        [write.keys.changes, write.keys.arrived, write.keys.erasures, *names],
        *(checked, changes, *write.sender, *arguments),
    )
