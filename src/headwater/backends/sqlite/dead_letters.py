"""The dead letters in SQLite."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Sequence

import msgspec

from headwater.backends.sqlite.bus import insert_event
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Writer, erasing
from headwater.core.clock import Clock, from_micros, to_micros
from headwater.core.error_patterns import error_pattern
from headwater.errors import UnknownDeadLetterError
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import ServiceEvent, redriven_id
from headwater.ports import DeadLetterQuery, LetterSummary

_ID = re.compile(r"\d{1,18}", re.ASCII)
_COLUMNS = (
    "id, event, feature, error, traceback, attempts, partition, seq, first_failed_at, dead_at,"
    " consumer_group"
)
_LETTERS = f"""
SELECT {_COLUMNS} FROM dead_letters
WHERE (?1 IS NULL OR CAST(id AS TEXT) IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR feature = ?2)
  AND (?3 IS NULL OR event_type = ?3)
  AND (?4 IS NULL OR entity_id = ?4)
  AND (?5 IS NULL OR dead_at >= ?5)
  AND (?6 IS NULL OR dead_at < ?6)
  AND (?7 IS NULL OR error_pattern(error) = ?7)
"""
_ORDERS = {
    False: "AND (?8 IS NULL OR id > CAST(?8 AS INTEGER)) ORDER BY id LIMIT ?9",
    True: "AND (?8 IS NULL OR id < CAST(?8 AS INTEGER)) ORDER BY id DESC LIMIT ?9",
}
_SUMMARIES = """
SELECT CAST(id AS TEXT), feature, event_type, error, attempts, first_failed_at, dead_at
FROM dead_letters ORDER BY id DESC LIMIT ?
"""
_COUNT = "SELECT count(*) FROM dead_letters"
_decode = msgspec.json.Decoder(ServiceEvent).decode


class SqliteDeadLetters:
    """Dead letters in a table of the home."""

    def __init__(self, home: Home, writer: Writer, clock: Clock) -> None:
        self._home = home
        self._writer = writer
        self._clock = clock

    async def letters(self, query: DeadLetterQuery) -> list[DeadLetter]:
        if query.after is not None and not _ID.fullmatch(query.after):
            return []
        # In a thread: to find a rare error, all letters are read.
        return await asyncio.to_thread(self._letters, query)

    def _letters(self, query: DeadLetterQuery) -> list[DeadLetter]:
        self._home.reader.create_function("error_pattern", 1, error_pattern, deterministic=True)
        rows = self._home.read(
            _LETTERS + _ORDERS[query.newest_first],
            (
                None if query.ids is None else msgspec.json.encode(list(query.ids)).decode(),
                query.feature,
                query.event_type,
                query.entity_id,
                None if query.since is None else to_micros(query.since),
                None if query.before is None else to_micros(query.before),
                query.error,
                query.after,
                query.limit,
            ),
        )
        return [_letter(row) for row in rows]

    async def summaries(self, limit: int) -> list[LetterSummary]:
        return await asyncio.to_thread(self._summaries, limit)

    def _summaries(self, limit: int) -> list[LetterSummary]:
        rows = self._home.read(_SUMMARIES, (limit,))
        return [
            LetterSummary(
                *(letter_id, feature, event_type, error, attempts),
                *(from_micros(first), from_micros(dead)),
            )
            for letter_id, feature, event_type, error, attempts, first, dead in rows
        ]

    async def count(self) -> int:
        ((count,),) = await asyncio.to_thread(self._home.read, _COUNT)
        return int(count)

    async def redrive(self, ids: Sequence[str]) -> None:
        now = self._clock.micros()

        def job(db: sqlite3.Connection) -> None:
            for letter in _take(db, ids):
                event_id = redriven_id(letter.id, letter.event.event_id)
                event = msgspec.structs.replace(letter.event, event_id=event_id)
                insert_event(db, event, letter.partition, now, only=letter.target)

        await self._writer.run(job, wake=True)

    async def discard(self, ids: Sequence[str]) -> None:
        def job(db: sqlite3.Connection) -> None:
            with erasing(db):
                _take(db, ids)

        await self._writer.run(job)


def _take(db: sqlite3.Connection, ids: Sequence[str]) -> list[DeadLetter]:
    """Remove and return letters; raise UnknownDeadLetterError if one is unknown."""
    letters = []
    for letter_id in ids:
        row = db.execute(
            f"DELETE FROM dead_letters WHERE id = ? RETURNING {_COLUMNS}", (letter_id,)
        ).fetchone()
        if row is None:
            raise UnknownDeadLetterError(letter_id)
        letters.append(_letter(row))
    return letters


def _letter(row: tuple[int, bytes, str, str, str, int, int, int, int, int, str]) -> DeadLetter:
    letter_id, event, feature, error, traceback, attempts, partition, seq, first, dead, group = row
    return DeadLetter(
        id=str(letter_id),
        event=_decode(event),
        feature=feature,
        error=error,
        traceback=traceback,
        attempts=attempts,
        partition=partition,
        position=str(seq),
        first_failed_at=from_micros(first),
        dead_at=from_micros(dead),
        group=group,
    )
