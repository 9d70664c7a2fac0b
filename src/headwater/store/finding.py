"""Finding things by a few characters: declarations, entities, recorded contexts and documents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from headwater.declarations.registry import Registry
from headwater.errors import BackendError, CallerLimitError, InvalidInputError
from headwater.errors.hints import closest
from headwater.features.caller_limits import limited_caller
from headwater.model.callers import AccessScope, Caller
from headwater.records.ids import spelled
from headwater.retrieval.document_checks import checked_id
from headwater.store.listings import DeclarationKind, VisibleNames, visible_names
from headwater.store.runtime import Runtime

LONGEST_TEXT = 256
_MOST_RECORDS = 5
_MOST_IDS = 10
# An exact id is looked up in each entity and index: few of them, as long as people declare them.
_MOST_LOOKUPS = 50
_SHORTEST_SCATTERED = 3

StoredKind = Literal["entity_id", "record", "document"]
FoundKind = DeclarationKind | StoredKind
Match = Literal["exact", "prefix", "word", "substring", "scattered", "similar"]
_MATCHES: tuple[Match, ...] = ("exact", "prefix", "word", "substring", "scattered", "similar")
_KINDS: tuple[DeclarationKind, ...] = (
    *("feature", "context", "retriever", "index", "entity", "event", "source"),
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found: a declaration by its name, or stored data by its id.

    ``entity`` is that of a feature or an entity id, ``index`` that of a document. ``name`` of a
    record is its context id, and ``context`` the name of the context.
    """

    kind: FoundKind
    name: str
    match: Match
    description: str = ""
    entity: str | None = None
    index: str | None = None
    context: str | None = None
    record_hash: str | None = None
    created_at: datetime | None = None


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the best first, and what could not be searched because a store is down."""

    found: Sequence[Found]
    unavailable: Sequence[StoredKind] = ()


async def find(
    runtime: Runtime, text: str, limit: int, caller: Caller | None, kind: FoundKind | None = None
) -> FoundPage:
    """Find what a caller may see by a part of a name, or the beginning of an id.

    Stored data is looked up by keys only, so that the time does not depend on its amount.
    """
    text = text.strip()
    if not text or len(text) > LONGEST_TEXT:
        raise InvalidInputError(
            f"the text to find has {len(text)} characters; give 1 to {LONGEST_TEXT}"
        )
    names = visible_names(runtime.registry, caller)
    matches, unavailable = declarations_like(runtime.registry, text, names), []
    for stored, (scope, lookup) in _LOOKUPS.items():
        if kind in (None, stored) and (caller is None or caller.may(scope)):
            try:
                matches += await lookup(runtime, text, names)
            except BackendError:
                unavailable.append(stored)
    if kind is not None:
        matches = [found for found in matches if found.kind == kind]
    matches.sort(key=lambda found: (_MATCHES.index(found.match), len(found.name)))
    return FoundPage(found=matches[:limit], unavailable=unavailable)


def declarations_like(registry: Registry, text: str, names: VisibleNames) -> list[Found]:
    """Return the declarations whose names match; if there are none, the most similar one."""
    matches = [
        _declaration(registry, kind, name, match)
        for kind in _KINDS
        for name in names[kind]
        if (match := match_of(name, text)) is not None
    ]
    return matches or [
        _declaration(registry, kind, name, "similar")
        for kind in _KINDS
        if (name := closest(text, names[kind])) is not None
    ]


def match_of(name: str, text: str) -> Match | None:
    """Return how a name matches a text, or None; letter case does not count."""
    name, text = name.lower(), text.lower()
    if name.startswith(text):
        return "exact" if len(name) == len(text) else "prefix"
    if text in name:
        places = re.finditer(re.escape(text), name)
        is_word = any(not name[place.start() - 1].isalnum() for place in places)
        return "word" if is_word else "substring"
    if len(text) >= _SHORTEST_SCATTERED and _is_scattered(name, text):
        return "scattered"
    return None


def _is_scattered(name: str, text: str) -> bool:
    """Return whether a name has all characters of a text in their order."""
    rest = iter(name)
    return all(character in rest for character in text if not character.isspace())


def _declaration(registry: Registry, kind: DeclarationKind, name: str, match: Match) -> Found:
    description, entity = "", None
    match kind:
        case "feature":
            feature = registry.features[name]
            description, entity = feature.description, feature.entity.name
        case "retriever":
            description = registry.retrievers[name].description
        case "context":
            description = registry.contexts[name].description
    first_line = description.partition("\n")[0]
    return Found(kind=kind, name=name, match=match, description=first_line, entity=entity)


async def _entity_ids(runtime: Runtime, text: str, names: VisibleNames) -> list[Found]:
    """Return entities that have values, with this id or with one that begins like it."""
    engine = await runtime.open()
    online = engine.backends.online
    limited = limited_caller()

    async def of(name: str) -> list[Found]:
        try:
            text_id = runtime.registry.entity(name).text_id(text)
            if limited is not None:
                await limited.check_entity(engine.ownership, name, text_id)
        except (InvalidInputError, CallerLimitError):
            return []
        # They are in order: those that begin like it come next.
        following = await online.entity_ids(name, after=text_id, limit=_MOST_IDS)
        ids = [text_id, *(after for after in following if after.startswith(text_id))]
        if limited is not None:
            keys = {(name, each) for each in ids if not limited.limits.allow_id(each)}
            hidden = keys - await engine.ownership.owned_by(keys, limited.limits)
            ids = [each for each in ids if (name, each) not in hidden]
        return [
            Found(
                kind="entity_id",
                name=entity_id,
                match="exact" if entity_id == text_id else "prefix",
                entity=name,
            )
            for entity_id, cells in zip(ids, await online.get(name, ids), strict=True)
            if cells
        ]

    ids = await asyncio.gather(*map(of, names["entity"][:_MOST_LOOKUPS]))
    return [found for of_entity in ids for found in of_entity]


async def _records(runtime: Runtime, text: str, _: VisibleNames) -> list[Found]:
    """Return recorded contexts whose id or hash begins with this text."""
    recorded = (await runtime.open()).recorded
    return [
        Found(
            kind="record",
            name=record.context_id,
            match="exact" if spelled(text) in (record.context_id, record.record_hash) else "prefix",
            context=record.name,
            record_hash=record.record_hash,
            created_at=record.created_at,
        )
        for record in await recorded.beginning(text, _MOST_RECORDS)
    ]


async def _documents(runtime: Runtime, text: str, names: VisibleNames) -> list[Found]:
    """Return the documents with exactly this id."""
    try:
        document = checked_id(text)
    except InvalidInputError:
        return []
    vectors = (await runtime.open()).backends.vectors
    indexes = names["index"][:_MOST_LOOKUPS]
    stored = await asyncio.gather(*(vectors.documents(name, [document]) for name in indexes))
    return [
        Found(kind="document", name=document, match="exact", index=name)
        for name, documents in zip(indexes, stored, strict=True)
        if document in documents
    ]


_Lookup = Callable[[Runtime, str, VisibleNames], Awaitable[list[Found]]]
_LOOKUPS: dict[StoredKind, tuple[AccessScope, _Lookup]] = {
    "entity_id": ("read", _entity_ids),
    "record": ("records", _records),
    "document": ("read", _documents),
}
"""How stored data is found, and the scope that this needs."""
