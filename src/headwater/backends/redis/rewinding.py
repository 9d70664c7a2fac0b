"""Continuing a partition of an older copy of Redis where the history in Postgres ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import Keys, PartitionKeys
from headwater.backends.redis.online import RedisOnlineStore
from headwater.backends.redis.streams import Entry, StreamPublisher, next_entries, read_event
from headwater.model.values import ServiceEvent
from headwater.ports import PositionedEvent, Positions, Rewound, position_order

POSITION_PARTS = "/"
"""Separates the parts of a position: id, digest and, of history, the cursors of the groups."""

_PAGE = 1_000
_CURSOR, _GROUP = b"p", b"g"
_decode_cursors = msgspec.json.Decoder(dict[str, str]).decode
_decode_rows = msgspec.json.Decoder(list[tuple[str, str, str, Any, Any, int, int, Any]]).decode


def read_cursors(position: str, entries: Iterable[Entry] = ()) -> dict[str, str]:
    """Return the last event of each group whose effects are among the rows up to an entry."""
    _, _, cursors = (*position.split(POSITION_PARTS, 2), "", "")[:3]
    last = _decode_cursors(cursors) if cursors else {}
    for _, fields in entries:
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        if _CURSOR in named:
            last[named[_GROUP].decode()] = named[_CURSOR].decode()
    return last


class Rewinder:
    """Discards what workers computed from old values, and lets its events wait again."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        online: RedisOnlineStore,
        publisher: StreamPublisher,
        dedup_window: timedelta | None,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._online = online
        self._publisher = publisher
        self._dedup_window = dedup_window

    async def rewind(
        self,
        partition: int,
        taken: Positions,
        events: AsyncIterator[Sequence[PositionedEvent]],
        *,
        is_lost: bool = False,
    ) -> Rewound | None:
        keys, cursors = self._keys.parts[partition], read_cursors(taken.history)
        if is_lost:
            cursors.setdefault(self._keys.group, "0-0")
        if taken.history and not cursors:
            return None
        last_change, last_event = (_entry_id(position) for position in taken)
        discarded, groups = await self._discard(keys, last_change)
        flat = iter(await self._redis.call(script_call("group_cursors", [keys.events])))
        for name, cursor in zip(flat, flat, strict=True):
            # Nothing of it is in history: it begins again, or has had nothing to commit.
            cursors.setdefault(name.decode(), "0-0" if name in groups else cursor.decode())
        handled = {group: position_order(cursor) for group, cursor in cursors.items()}
        latest = max(handled.values(), default=(0, 0))
        stored = await self._redis.call(command(keys.outbox, "HGET", keys.outbox, "events"))
        settled = _entry_id((stored or b"").decode())
        waiting = await self._waiting(keys, settled)
        # Another copy has gone on meanwhile, or a clock is behind: no group would come to these.
        passed = {name: at for name, at in waiting.items() if position_order(at) <= latest}
        moved: list[str] = []
        repeated = 0
        await self._continue(keys.changes, last_change)
        async for accepted in events:
            page = [item for item in accepted if _is_after(item.position, settled)]
            # Two servers may give the same position to different events.
            for at, event in page:
                if passed.get(_name(event)) == at:
                    del passed[_name(event)]
            done = [event for at, event in page if position_order(at) <= latest]
            repeats = [
                waiting[_name(event)]
                for at, event in page[: len(done)]
                if waiting.get(_name(event), at) != at
            ]
            if repeats:
                await self._redis.call(command(keys.events, "XDEL", keys.events, *repeats))
            lost = {at: event for at, event in page[len(done) :] if waiting.get(_name(event)) != at}
            new = [event for event in lost.values() if _name(event) not in waiting]
            behind = {
                f"{group}/": [
                    event
                    for at, event in page[: len(done)]
                    if position_order(at) > reached and waiting.get(_name(event)) != at
                ]
                for group, reached in handled.items()
            }
            await self._redis.calls(
                [
                    self._publisher.remembering(partition, done, self._dedup_window),
                    *(
                        self._publisher.call(partition, own, None, only)
                        for only, own in behind.items()
                        if own
                    ),
                    self._publisher.call(partition, new, self._dedup_window),
                ]
            )
            moved += lost
            repeated += len(repeats)
        await self._continue(keys.events, last_event, *sorted(passed.values(), key=position_order))
        for group, cursor in cursors.items():
            names = [keys.groups + group, keys.events]
            await self._redis.call(script_call("rewind_group", names, group, cursor))
        return Rewound(discarded, moved, repeated)

    async def _continue(self, stream: str, last: str, *moved: str) -> None:
        """Let the entries of a stream follow an earlier one; move some of them to the end."""
        if last:
            await self._redis.call(script_call("continue_stream", [stream], last, *moved))

    async def _discard(self, keys: PartitionKeys, after: str) -> tuple[int, set[bytes]]:
        """Remove the changes that workers committed after an entry, and the values of these.

        Return how many values these were, and the groups of the workers.
        """
        count, more = 0, True
        groups: set[bytes] = set()
        while more:
            entries, more = await next_entries(self._redis, keys.changes, after, _PAGE)
            committed = [(at, fields) for at, fields in entries if _CURSOR in fields[::2]]
            rows = [
                ((entity, entity_id), series, written_at)
                for _, (kind, text, *_) in committed
                if kind == b"c"
                for series, entity, entity_id, _, _, _, written_at, _ in _decode_rows(text)
            ]
            await self._online.discard(rows)
            if committed:
                ids = [at for at, _ in committed]
                await self._redis.call(command(keys.changes, "XDEL", keys.changes, *ids))
            count += len(rows)
            groups |= {fields[-1] for _, fields in committed if fields[-2] == _GROUP}
            after = entries[-1][0].decode() if entries else after
        return count, groups

    async def _waiting(self, keys: PartitionKeys, after: str) -> dict[tuple[str, str], str]:
        """Return the events after a position: their entity and id, and where they are."""
        waiting: dict[tuple[str, str], str] = {}
        more = True
        while more:
            entries, more = await next_entries(self._redis, keys.events, after, _PAGE)
            for at, fields in entries:
                after = at.decode()
                event = read_event(fields)
                if isinstance(event, ServiceEvent):
                    waiting[_name(event)] = after
        return waiting


def _entry_id(position: str) -> str:
    return position.partition(POSITION_PARTS)[0]


def _is_after(position: str, settled: str) -> bool:
    return not settled or position_order(position) > position_order(settled)


def _name(event: ServiceEvent) -> tuple[str, str]:
    return event.entity_id, event.event_id
