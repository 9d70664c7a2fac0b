"""Where else the id of an entity occurs: in events, past values and dead letters of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from headwater.core.sql_literals import text
from headwater.declarations.features import EntityDef
from headwater.engine.engine import Engine
from headwater.errors import InvalidInputError
from headwater.model.admin import Mention, MentionCounts, MentionKind, MentionPage
from headwater.model.values import EntityKey
from headwater.ports import DeadLetterQuery

_PAGE = 1_000
_MOST_COUNTED = 1_000_000
_KINDS: tuple[MentionKind, ...] = ("event", "value", "dead_letter")


class _Place(NamedTuple):
    """A mention that may follow another: its kind, its moment, and what tells it from others."""

    kind: MentionKind
    at: datetime
    name: str
    entity_id: str
    id: str


class _Candidate(NamedTuple):
    """A row whose text contains the id, maybe as a part of something else."""

    place: _Place
    entity: str | None
    content: Any


_TABLES: dict[MentionKind, str] = {
    "event": (
        'SELECT received_at AS "at", event_type AS name, entity_id, event_id AS id,'
        " CAST(NULL AS VARCHAR) AS entity, CAST(payload AS VARCHAR) AS content FROM events"
    ),
    "value": (
        'SELECT as_of AS "at", feature AS name, entity_id, cause AS id,'
        " entity, CAST(value AS VARCHAR) AS content FROM feature_history"
    ),
}


class Mentions:
    """Finds the values and keys of JSON that equal the id of an entity.

    Other text that contains the id, such as a sentence, is not found. Every page is a scan of the
    log of events or of history, in the order of time, and has a bounded number of rows.
    """

    def __init__(self, engine: Engine, entity: EntityDef, entity_id: str) -> None:
        self._engine = engine
        self._entity = entity
        self._id = entity_id

    async def count(self, without: Mapping[EntityDef, Sequence[str]]) -> MentionCounts:
        """Count all, except those of entities that are erased as well."""
        erased = {(entity.name, each) for entity, ids in without.items() for each in ids}
        erased_ids = {entity_id for _, entity_id in erased}
        counts, seen = dict.fromkeys(_KINDS, 0), 0
        async for candidate in self._candidates(None):
            seen += 1
            entity_id = candidate.place.entity_id
            key: EntityKey = (candidate.entity or "", entity_id)
            is_erased = key in erased if candidate.entity else entity_id in erased_ids
            if not is_erased and [*pointers(candidate.content, self._id)]:
                counts[candidate.place.kind] += 1
            if seen >= _MOST_COUNTED:
                break
        events, values, letters = counts.values()
        is_complete = seen < _MOST_COUNTED
        return MentionCounts(
            events=events, values=values, dead_letters=letters, complete=is_complete
        )

    async def page(self, limit: int, cursor: str | None) -> MentionPage:
        """List mentions, oldest first: of events, then of values and of dead letters."""
        mentions: list[Mention] = []
        examined = 0
        async for place, _, content in self._candidates(_decoded(cursor)):
            examined += 1
            if found := list(pointers(content, self._id)):
                mentions.append(Mention(**place._asdict(), pointers=found))
            if len(mentions) == limit or examined == _PAGE:
                return MentionPage(mentions=mentions, next_cursor=_encoded(place))
        return MentionPage(mentions=mentions, next_cursor=None)

    async def _candidates(self, after: _Place | None) -> AsyncIterator[_Candidate]:
        """Yield what may mention the entity, from after a place on."""
        for kind in _KINDS[0 if after is None else _KINDS.index(after.kind) :]:
            last = after if after is not None and after.kind == kind else None
            rows = self._letters(last) if kind == "dead_letter" else self._rows(kind, last)
            async for candidate in rows:
                yield candidate

    async def _rows(self, kind: MentionKind, last: _Place | None) -> AsyncIterator[_Candidate]:
        is_own = f"entity_id = {text(self._id)}"
        if kind == "value":
            is_own += f" AND entity = {text(self._entity.name)}"
        # The id as JSON text has it, without its quotes.
        needle = msgspec.json.encode(self._id).decode()[1:-1]
        while True:
            rows = await self._engine.backends.offline.query(
                f'SELECT "at", name, entity_id, id, entity, content FROM ({_TABLES[kind]}'
                f" WHERE NOT ({is_own})) AS rows WHERE strpos(content, {text(needle)}) > 0"
                f"{'' if last is None else _following(last)}"
                f' ORDER BY "at", name, entity_id, id LIMIT {_PAGE}',
                {},
            )
            for at, name, entity_id, own_id, entity, content in rows.rows:
                last = _Place(kind, at, name, entity_id, own_id)
                yield _Candidate(last, entity, msgspec.json.decode(content))
            if len(rows.rows) < _PAGE:
                return

    async def _letters(self, last: _Place | None) -> AsyncIterator[_Candidate]:
        after = None if last is None else last.id
        while True:
            query = DeadLetterQuery(after=after, limit=_PAGE)
            letters = await self._engine.backends.dead_letters.letters(query)
            for letter in letters:
                event = letter.event
                place = _Place(
                    "dead_letter", letter.dead_at, event.event_type, event.entity_id, letter.id
                )
                if event.entity_id != self._id:
                    yield _Candidate(place, None, event.payload)
            if len(letters) < _PAGE:
                return
            after = letters[-1].id


def _following(place: _Place) -> str:
    moment = f"TIMESTAMPTZ {text(place.at.isoformat(sep=' ', timespec='microseconds'))}"
    after = f"{moment}, {text(place.name)}, {text(place.entity_id)}, {text(place.id)}"
    return f' AND ("at", name, entity_id, id) > ({after})'


def pointers(content: Any, entity_id: str, at: str = "") -> Iterator[str]:
    """Yield where JSON has an id, as a text, a number or a key: JSON pointers."""
    if isinstance(content, dict):
        for key, value in content.items():
            pointer = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
            if key == entity_id:
                yield pointer
            yield from pointers(value, entity_id, pointer)
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from pointers(value, entity_id, f"{at}/{place}")
    elif type(content) in (str, int) and str(content) == entity_id:
        yield at


def _encoded(place: _Place) -> str:
    return msgspec.json.encode(place).hex()


def _decoded(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    try:
        return msgspec.json.decode(bytes.fromhex(cursor), type=_Place)
    except ValueError as error:
        raise InvalidInputError(
            f"cursor {cursor[:40]!r} is none of this list; use the next_cursor of a page"
        ) from error
