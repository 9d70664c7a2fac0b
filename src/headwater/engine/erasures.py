"""The steps of an erasure: what each place does with the data of one entity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec

from headwater.contexts.recorded.search import ContextQuery
from headwater.core.logging import log
from headwater.declarations.features import EntityDef
from headwater.declarations.registry import Registry
from headwater.engine.backfill.backfills import backfills_folder
from headwater.engine.engine import Engine
from headwater.features.derivation_cache import CACHED_DERIVATIONS
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.history.backfill.erasing import erase
from headwater.model.callers import current_actor
from headwater.ports import DeadLetterQuery
from headwater.records.record import Record
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS
from headwater.retrieval.retrievers import CACHED_SEARCHES

_CACHES = (CACHED_SEARCHES, CACHED_EMBEDDINGS, CACHED_DERIVATIONS)
_PAGE = 500
_LETTERS = 1_000_000


class Erasure(msgspec.Struct, frozen=True):
    """The entity to erase, or in a dry run to count, and why."""

    engine: Engine
    entity: EntityDef
    entity_id: str
    reason: str
    dry_run: bool
    kept: frozenset[str]
    """The types whose events are about other entities, which may have the same id."""


Erase = Callable[[Erasure], Awaitable[Mapping[str, int]]]
"""Erases an entity from a place, and returns the numbers for the report; it can be repeated."""


def types_of_others(registry: Registry, entity: EntityDef) -> frozenset[str]:
    """Return the types whose events are about other entities, which may have the same id."""
    own: set[str] = set()
    others: set[str] = set()
    for feature in registry.features.values():
        (own if feature.entity == entity else others).update(feature.triggers)
    return frozenset(others - own)


async def dead_letters(erasure: Erasure) -> Mapping[str, int]:
    """Discard the dead letters of the events of an entity."""
    stored = erasure.engine.backends.dead_letters
    query = DeadLetterQuery(entity_id=erasure.entity_id, limit=_LETTERS)
    letters = await stored.letters(query)
    ids = [letter.id for letter in letters if letter.event.event_type not in erasure.kept]
    if ids and not erasure.dry_run:
        await stored.discard(ids)
    return {"dead_letters": len(ids)}


async def records(erasure: Erasure) -> Mapping[str, int]:
    """Redact all values of the contexts that read an entity."""
    count = 0
    async for record in _records(erasure):
        count += 1
        if not erasure.dry_run:
            pointers = [disclosure.pointer for disclosure in record.disclosures]
            await erasure.engine.recorded.redact_values(
                record.context_id, pointers, erasure.reason, current_actor(), everywhere=False
            )
    return {"records": count}


async def _records(erasure: Erasure) -> AsyncIterator[Record]:
    """Yield the records of contexts that read the entity and have disclosed values."""
    recorded, cursor = erasure.engine.recorded, None
    query = ContextQuery(entity=erasure.entity.name, entity_id=erasure.entity_id)
    while True:
        page = await recorded.find(query, _PAGE, cursor)
        for summary in page.contexts:
            record = await recorded.record_of(summary.context_id)
            if record.disclosures:
                yield record
        cursor = page.next_cursor
        if cursor is None:
            return


async def history_and_events(erasure: Erasure) -> Mapping[str, int]:
    """Remove the past values of an entity, and its events."""
    removed = await erasure.engine.backends.offline.forget(
        erasure.entity.name, erasure.entity_id, keep=erasure.kept, dry_run=erasure.dry_run
    )
    return {"history": removed.history, "events": removed.events}


async def backfill_folders(erasure: Erasure) -> Mapping[str, int]:
    """Remove the events and failures of an entity from the folders of backfills on this machine."""
    folder = backfills_folder(erasure.engine)
    if not erasure.dry_run and folder.exists():
        for job_folder in sorted(folder.iterdir()):
            if not await asyncio.to_thread(erase, job_folder, erasure.entity_id):
                log.info(
                    "running backfill keeps erased events until it ends", folder=str(job_folder)
                )
    return {}


async def values(erasure: Erasure) -> Mapping[str, int]:
    """Remove the current values of an entity."""
    online, name = erasure.engine.backends.online, erasure.entity.name
    if erasure.dry_run:
        (cells,) = await online.get(name, [erasure.entity_id])
        return {"values": len(cells)}
    return {"values": await online.forget(name, erasure.entity_id)}


async def files(erasure: Erasure) -> Mapping[str, int]:
    """Remove what the rows of the earlier steps left in files."""
    if not erasure.dry_run:
        await erasure.engine.backends.lifecycle.scrub()
    return {}


async def outcomes(erasure: Erasure) -> Mapping[str, int]:
    """Withhold the errors of refreshes, which may quote a value."""
    if not erasure.dry_run:
        engine = erasure.engine
        scheduled = [
            feature.name for feature in engine.registry.features.values() if feature.refresh
        ]
        await RefreshOutcomes(engine.backends.notes, engine.clock).withhold_errors(scheduled)
    return {}


async def caches(erasure: Erasure) -> Mapping[str, int]:
    """Drop everything that may have been computed from an entity.

    A search may have found it, a text can be guessed from its embedding, and values of other
    entities are cached with the inputs that they were computed from.
    """
    if not erasure.dry_run:
        await erasure.engine.backends.cache.drop(*_CACHES)
        await erasure.engine.reader.follow_drops()
    return {}
