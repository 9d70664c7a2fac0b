"""Dead letters in Redis: written by a commit of their partition, then moved to one stream.

A commit can write only to keys of its own partition, so its letters are moved from there to the
stream of all letters: right after the commit, or when letters are next read.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.keys import Keys, unhandled
from headwater.backends.redis.streams import Entry, StreamPublisher, next_entries
from headwater.core.error_patterns import error_pattern
from headwater.errors import UnknownDeadLetterError
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import redriven_id
from headwater.ports import DeadLetterQuery, LetterSummary, position_order

_PAGE = 500
_REDRIVE_WINDOW = timedelta(days=1)
_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
_LARGEST = 2**64 - 1
_decode = msgspec.json.Decoder(DeadLetter).decode


class _EventOfLetter(msgspec.Struct, frozen=True):
    event_type: str


class _ShortLetter(msgspec.Struct, frozen=True):
    """The fields of a letter that a summary has; the others are skipped without decoding them."""

    event: _EventOfLetter
    feature: str
    error: str
    attempts: int
    first_failed_at: datetime
    dead_at: datetime


_decode_short = msgspec.json.Decoder(_ShortLetter).decode


class RedisDeadLetters:
    """Dead letters of all partitions in one stream."""

    def __init__(self, redis: Redis, keys: Keys, publisher: StreamPublisher) -> None:
        self._redis = redis
        self._keys = keys
        self._publisher = publisher

    async def letters(self, query: DeadLetterQuery) -> list[DeadLetter]:
        await self._move_all()
        letters: list[DeadLetter] = []
        if query.after is not None and not _is_id(query.after):
            return letters
        if query.ids is not None:
            entries = self._with_ids(_after(query, query.ids))
        else:
            entries = self._entries(query.after or "", newest_first=query.newest_first)
        async for letter in _decoded(entries):
            if _matches(query, letter):
                letters.append(letter)
            if len(letters) == query.limit:
                break
        return letters

    async def count(self) -> int:
        await self._move_all()
        count: int = await self._redis.call(command(self._keys.dead, "XLEN", self._keys.dead))
        return count

    async def summaries(self, limit: int) -> list[LetterSummary]:
        await self._move_all()
        summaries: list[LetterSummary] = []
        async for entry in self._entries("", newest_first=True):
            summaries.append(_summary(entry))
            if len(summaries) == limit:
                break
        return summaries

    async def _with_ids(self, ids: Sequence[str]) -> AsyncIterator[Entry]:
        key = self._keys.dead
        for first in range(0, len(ids), _PAGE):
            calls = [
                command(key, "XRANGE", key, letter_id, letter_id)
                for letter_id in ids[first : first + _PAGE]
            ]
            for entries in await self._redis.calls(calls):
                for entry in entries:
                    yield entry

    async def _entries(self, after: str, *, newest_first: bool) -> AsyncIterator[Entry]:
        more = True
        while more:
            entries, more = await next_entries(
                self._redis, self._keys.dead, after, _PAGE, newest_first=newest_first
            )
            for entry in entries:
                yield entry
                after = entry[0].decode()

    async def redrive(self, ids: Sequence[str]) -> None:
        letters = await self._stored(ids)
        # The event id is derived from the letter, so deduplication publishes it once even if the
        # redrive is repeated. Removing the letter afterwards therefore loses nothing.
        calls: list[Call] = []
        for letter in letters:
            event_id = redriven_id(letter.id, letter.event.event_id)
            event = msgspec.structs.replace(letter.event, event_id=event_id)
            target = letter.target
            calls.append(self._publisher.call(letter.partition, [event], _REDRIVE_WINDOW, target))
        await self._redis.calls(calls, as_one=True)
        await self._remove(letters)

    async def discard(self, ids: Sequence[str]) -> None:
        await self._remove(await self._stored(ids))

    async def _stored(self, ids: Sequence[str]) -> list[DeadLetter]:
        """Return letters; raise UnknownDeadLetterError if one is unknown."""
        entries = self._with_ids([letter_id for letter_id in ids if _is_id(letter_id)])
        letters = {letter.id: letter async for letter in _decoded(entries)}
        for letter_id in ids:
            if letter_id not in letters:
                raise UnknownDeadLetterError(letter_id)
        return list(letters.values())

    async def _remove(self, letters: Sequence[DeadLetter]) -> None:
        """Remove letters; a concurrent call may have removed some of them already."""
        calls: list[Call] = []
        for letter in letters:
            key = self._keys.parts[letter.partition].unhandled(letter.group)
            member = unhandled(letter.event.entity_id, letter.feature, letter.position)
            calls.append(command(key, "ZREM", key, member))
        # A letter that is listed can be removed again, so it goes last.
        await self._redis.calls(calls)
        if letters:
            ids = [letter.id for letter in letters]
            await self._redis.call(command(self._keys.dead, "XDEL", self._keys.dead, *ids))

    async def _move_all(self) -> None:
        lengths = await self._redis.calls(
            [command(keys.dead, "XLEN", keys.dead) for keys in self._keys.parts]
        )
        for partition, length in enumerate(lengths):
            if length:
                await self.move(partition)

    async def move(self, partition: int) -> None:
        """Move a partition's letters to the stream of all letters; each arrives once."""
        source, more = self._keys.parts[partition].dead, True
        while more:
            entries, more = await next_entries(self._redis, source, "", _PAGE)
            if not entries:
                break
            arguments = [part for position, (_, letter) in entries for part in (position, letter)]
            await self._redis.call(
                script_call("move", [self._keys.dead, self._keys.moved], partition, *arguments)
            )
            positions = [position for position, _ in entries]
            await self._redis.call(command(source, "XDEL", source, *positions))


def _after(query: DeadLetterQuery, ids: Iterable[str]) -> list[str]:
    """Return valid ids after the last letter of the page before, in the order of the query."""
    valid = {position_order(letter_id): letter_id for letter_id in ids if _is_id(letter_id)}
    if query.after is not None:
        last, is_reversed = position_order(query.after), query.newest_first
        valid = {
            at: letter_id
            for at, letter_id in valid.items()
            if (at < last if is_reversed else at > last)
        }
    return [valid[at] for at in sorted(valid, reverse=query.newest_first)]


def _is_id(text: str) -> bool:
    """Return whether a text is an id; Redis refuses one with larger numbers."""
    return _ID.fullmatch(text) is not None and max(position_order(text)) <= _LARGEST


def _matches(query: DeadLetterQuery, letter: DeadLetter) -> bool:
    return (
        query.feature in (None, letter.feature)
        and query.event_type in (None, letter.event.event_type)
        and query.entity_id in (None, letter.event.entity_id)
        and (query.since is None or letter.dead_at >= query.since)
        and (query.before is None or letter.dead_at < query.before)
        and (query.error is None or error_pattern(letter.error) == query.error)
    )


async def _decoded(entries: AsyncIterator[Entry]) -> AsyncIterator[DeadLetter]:
    """Yield the letters of entries."""
    async for position, (_, letter) in entries:
        yield msgspec.structs.replace(_decode(letter), id=position.decode())


def _summary(entry: Entry) -> LetterSummary:
    position, (_, letter) = entry
    short = _decode_short(letter)
    return LetterSummary(
        id=position.decode(),
        feature=short.feature,
        event_type=short.event.event_type,
        error=short.error,
        attempts=short.attempts,
        first_failed_at=short.first_failed_at,
        dead_at=short.dead_at,
    )
