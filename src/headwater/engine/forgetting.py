"""Erase one entity: its values, past and present, its events, and its values in records."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headwater.contexts.recorded.search import ContextQuery
from headwater.core.callers import current_actor
from headwater.core.partitioning import partition_of
from headwater.declarations.features import EntityDef
from headwater.declarations.registry import Registry
from headwater.engine.engine import Engine
from headwater.history.forget_report import ForgetReport
from headwater.ports import DeadLetterQuery
from headwater.records.record import Record

_PAGE = 500
_LETTERS = 1_000_000


async def forget(
    engine: Engine, entity: EntityDef, entity_id: str, *, reason: str, dry_run: bool
) -> ForgetReport:
    """Erase an entity; an interrupted call is completed by the next one."""
    backends, kept = engine.backends, _types_of_others(engine.registry, entity)
    waiting = await _waiting(engine, entity_id)
    letters = await _discard(engine, entity_id, kept, dry_run=dry_run)
    records = 0
    async for record in _records(engine, entity, entity_id):
        records += 1
        if not dry_run:
            pointers = [each.pointer for each in record.disclosures]
            await engine.recorded.redact(
                record.context_id, pointers, reason, current_actor(), everywhere=False
            )
    past = await backends.offline.forget(entity.name, entity_id, keep=kept, dry_run=dry_run)
    # The last step, because on SQLite it also erases the log of the earlier ones.
    if dry_run:
        (cells,) = await backends.online.get(entity.name, [entity_id])
        values = len(cells)
    else:
        values = await backends.online.forget(entity.name, entity_id)
    return ForgetReport(
        values=values,
        history=past.history,
        events=past.events,
        dead_letters=letters,
        records=records,
        waiting=waiting,
        dry_run=dry_run,
    )


def _types_of_others(registry: Registry, entity: EntityDef) -> frozenset[str]:
    """Return the types whose events are about other entities, which may have the same id."""
    own: set[str] = set()
    others: set[str] = set()
    for feature in registry.features.values():
        (own if feature.entity == entity else others).update(feature.triggers)
    return frozenset(others - own)


async def _waiting(engine: Engine, entity_id: str) -> int:
    bus = engine.backends.bus
    partition = partition_of(entity_id, bus.partitions)
    return sum(lag.waiting for lag in await bus.lag() if lag.partition == partition)


async def _discard(engine: Engine, entity_id: str, kept: frozenset[str], *, dry_run: bool) -> int:
    dead_letters = engine.backends.dead_letters
    letters = await dead_letters.letters(DeadLetterQuery(entity_id=entity_id, limit=_LETTERS))
    ids = [letter.id for letter in letters if letter.event.event_type not in kept]
    if ids and not dry_run:
        await dead_letters.discard(ids)
    return len(ids)


async def _records(engine: Engine, entity: EntityDef, entity_id: str) -> AsyncIterator[Record]:
    """Yield the records of contexts that read the entity and have disclosed values."""
    query, cursor = ContextQuery(entity=entity.name, entity_id=entity_id), None
    while True:
        page = await engine.recorded.find(query, _PAGE, cursor)
        for summary in page.contexts:
            record = await engine.recorded.record_of(summary.context_id)
            if record.disclosures:
                yield record
        cursor = page.next_cursor
        if cursor is None:
            return
