"""Appending the records of a log to the streams, each once and in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.commit_waits import CommitWaits
from headwater.backends.redis.erasures import RedisErasures
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.streams import event_fields, event_key
from headwater.core.clock import MICROSECOND, Clock
from headwater.model.values import MALFORMED, ServiceEvent
from headwater.ports import (
    FedRange,
    FedRecord,
    FeedRecord,
    FeedState,
    Ledger,
    LogRange,
    Subjects,
    no_subjects,
)

_encode = msgspec.json.Encoder().encode
_STATE = ("offset", "left_out", "safe", "log", "found")
_ERASED = FedRecord(erased=True)


class RedisFeed:
    """The streams of the partitions as the end of a log.

    The offset of a partition is changed by the script that appends the records before it, and only
    from the one that it expects.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        clock: Clock,
        erasures: RedisErasures,
        waits: CommitWaits,
        *,
        dedup_limit: int,
        max_waiting: int,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock
        self._erasures = erasures
        self._waits = waits
        self._dedup_limit = max(1, dedup_limit // keys.partitions)
        self._max_waiting = max_waiting

    async def append(
        self,
        ranges: Sequence[LogRange],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
    ) -> list[FedRange]:
        fed: list[FedRange | None] = [None] * len(ranges)
        while None in fed:
            ledger = self._erasures.ledger
            places = [place for place, answer in enumerate(fed) if answer is None]
            kept = [_without_erased(ranges[place].records, ledger, subjects) for place in places]
            calls = [
                self._call(ranges[place], records, dedup_window, ledger.revision)
                for place, records in zip(places, kept, strict=True)
            ]
            answers = await self._redis.calls(calls)
            for place, records, answer in zip(places, kept, answers, strict=True):
                if answer is not None:
                    fed[place] = _parse(ranges[place], records, *answer)
            if None in fed:
                await self._erasures.refresh()
        return [answer for answer in fed if answer is not None]

    def _call(
        self,
        appended: LogRange,
        records: Sequence[FeedRecord],
        dedup_window: timedelta | None,
        checked: int,
    ) -> Call:
        keys, now = self._keys.parts[appended.partition], self._clock.micros()
        window_end = 0 if dedup_window is None else now + dedup_window // MICROSECOND
        arguments: list[Any] = []
        for record in records:
            arguments += (record.offset, *_fields(record), int(record.awaited))
        return script_call(
            "feed",
            [
                *(keys.events, keys.seen, keys.accepted, keys.idle, keys.erasures),
                *(keys.feed, keys.outbox, keys.fed),
            ],
            *(self._keys.wake, appended.partition, now, window_end, self._dedup_limit, checked),
            *(self._max_waiting, self._keys.commits, self._keys.group),
            *(appended.first, appended.after, *arguments),
        )

    async def begin(self, offsets: Mapping[int, int], log: str) -> None:
        feeds = {self._keys.parts[partition].feed: offset for partition, offset in offsets.items()}
        await self._redis.calls(
            [
                command(feed, "HSETNX", feed, name, value)
                for feed, offset in feeds.items()
                for name, value in (("log", log), ("offset", offset))
            ]
        )

    async def found(self, log: str) -> None:
        feeds = [part.feed for part in self._keys.entity_parts]
        await self._redis.calls([command(feed, "HSET", feed, "found", log) for feed in feeds])

    async def states(self) -> list[FeedState]:
        answers = await self._redis.calls(
            [command(part.feed, "HMGET", part.feed, *_STATE) for part in self._keys.entity_parts]
        )
        return [
            FeedState(
                None if offset is None else int(offset),
                int(left_out or 0),
                _mark(safe),
                (log or b"").decode(),
                (found or log or b"").decode(),
            )
            for offset, left_out, safe, log, found in answers
        ]

    async def positions(
        self, awaited: Collection[tuple[int, int]], *, wait: bool
    ) -> dict[tuple[int, int], str]:
        found: dict[tuple[int, int], str] = {}

        async def look() -> bool:
            """Ask for the records that were not appended before; return whether all are now."""
            rest = [each for each in awaited if each not in found]
            calls: list[Call] = []
            for partition, offset in rest:
                part = self._keys.parts[partition]
                # In this order: where the offset is found, the position was written before.
                calls.append(command(part.feed, "HGET", part.feed, "offset"))
                calls.append(command(part.fed, "ZRANGEBYSCORE", part.fed, offset, offset))
            answers = iter(await self._redis.calls(calls))
            for each, after, members in zip(rest, answers, answers, strict=True):
                if after is not None and int(after) > each[1]:
                    found[each] = members[0].decode().partition(" ")[2] if members else ""
            return len(found) == len(awaited)

        if not wait:
            await look()
            return found
        feeds = {self._keys.parts[partition].feed for partition, _ in awaited}
        with self._waits.listening(feeds) as woken:
            while not await look():
                await woken.wait()
                woken.clear()
        return found

    def is_erased(self, event: ServiceEvent, subjects: Subjects) -> bool:
        ledger = self._erasures.ledger
        return bool(ledger.revision) and ledger.voiding(event, subjects) is not None


def _fields(record: FeedRecord) -> tuple[bytes, bytes, str, str, bytes]:
    """Return the key, content, type, entity id and JSON of a record.

    A record without an event becomes an entry that workers find malformed.
    """
    if record.event is not None:
        event_type, entity_id, text, _ = event_fields(record.event)
        return event_key(record.event), record.content, event_type, entity_id, text
    raw = {"problem": record.problem, "record": record.raw.decode(errors="backslashreplace")}
    return b"", b"", MALFORMED, str(record.offset), _encode(raw)


def _without_erased(
    records: Sequence[FeedRecord], ledger: Ledger, subjects: Subjects
) -> Sequence[FeedRecord]:
    if not ledger.revision:
        return records
    return [
        record
        for record in records
        if record.event is None or not ledger.voiding(record.event, subjects)
    ]


def _parse(
    appended: LogRange,
    records: Sequence[FeedRecord],
    offset: int,
    is_full: int,
    answers: Sequence[bytes | int],
) -> FedRange:
    by_offset = {
        record.offset: _fed(answer) for record, answer in zip(records, answers, strict=True)
    }
    return FedRange(
        None if offset < 0 else offset,
        bool(is_full),
        [by_offset.get(record.offset, _ERASED) for record in appended.records],
    )


def _fed(answer: bytes | int) -> FedRecord:
    # The content is a JSON array, and a position begins with a digit.
    if isinstance(answer, int):
        return FedRecord()
    return FedRecord(answer) if answer[:1] == b"[" else FedRecord(position=answer.decode())


def _mark(text: bytes | None) -> tuple[int, str] | None:
    offset, _, position = (text or b"").decode().partition(" ")
    return (int(offset), position) if offset else None
