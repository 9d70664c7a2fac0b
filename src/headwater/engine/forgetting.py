"""Erase one entity: its values, past and present, its events, and its values in records."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headwater.core.logging import log
from headwater.core.partitioning import partition_of
from headwater.core.sql_literals import text
from headwater.declarations.features import EntityDef
from headwater.declarations.series import undeclared_entities
from headwater.engine import erasures
from headwater.engine.engine import Engine
from headwater.engine.erasures import Erasure
from headwater.engine.places import PLACES
from headwater.errors import BackendError, InvalidInputError
from headwater.model.admin import ForgetReport

_NAMES = """
SELECT 1 AS found FROM (
{query}
) AS source WHERE CAST("{id_field}" AS VARCHAR) = {entity_id} LIMIT 1
"""


async def forget(
    engine: Engine,
    entity: EntityDef,
    entity_id: str,
    *,
    reason: str,
    allow_return: bool,
    dry_run: bool,
) -> ForgetReport:
    """Erase an entity; an interrupted call is completed by the next one."""
    await _check_entity(engine, entity)
    await engine.recorded.check_index_key()
    if not dry_run:
        # First, so that nothing that is erased below is written again by another process.
        await engine.backends.erasures.erase(
            entity.name, entity_id, at=engine.clock.micros(), may_return=allow_return
        )
    kept = erasures.types_of_others(engine.registry, entity)
    erasure = Erasure(engine, entity, entity_id, reason, dry_run, kept)
    counts = {"waiting": await _waiting(engine, entity_id)}
    # Places may share a step.
    for erase in dict.fromkeys(place.erase for place in PLACES):
        if erase is not None:
            counts |= await erase(erasure)
    sources = await sources_of(engine, entity, entity_id)
    return msgspec.convert({**counts, **sources._asdict(), "dry_run": dry_run}, ForgetReport)


async def _check_entity(engine: Engine, entity: EntityDef) -> None:
    """Raise EntityChangedError if values of a feature are stored for the entity's former name.

    Log the values of entities that are not declared: nothing tells whether one is meant.
    """
    state = await engine.catalog.follow()
    for feature in engine.registry.features.values():
        if feature.entity.name == entity.name:
            feature.check_stored()
    if undeclared := undeclared_entities(state, engine.registry.entities):
        log.warning(
            "values of entities that are not declared stay",
            entities=undeclared,
            remedy="if one is a former name of this entity, declare it with @entity(store, "
            "name=...); otherwise remove its features with `headwater features drop`",
        )


async def _waiting(engine: Engine, entity_id: str) -> int:
    """Return the number of events in the entity's partition that some group has not handled."""
    bus = engine.backends.bus
    partition = partition_of(entity_id, bus.partitions)
    own = [lag.waiting for lag in await bus.lag() if lag.partition == partition]
    return max([*own, *(await engine.backends.groups.waiting(partition)).values()])


class Sources(NamedTuple):
    """The SQL features whose query returns an entity, and those whose query could not be run."""

    sources: list[str]
    unchecked_sources: list[str]


async def sources_of(engine: Engine, entity: EntityDef, entity_id: str) -> Sources:
    """Run the query of every SQL feature of an entity for one id."""
    sources = Sources([], [])
    for feature in engine.registry.features.values():
        if feature.sql is None or feature.entity != entity:
            continue
        sql = _NAMES.format(
            query=feature.sql.strip().rstrip(";"),
            id_field=entity.id_field,
            entity_id=text(entity_id),
        )
        try:
            rows = await engine.backends.offline.query(sql, engine.registry.sources)
        except (InvalidInputError, BackendError) as error:
            # The query may fail also when it is due: the entity is erased nevertheless.
            log.warning("source not checked", feature=feature.name, error=str(error))
            sources.unchecked_sources.append(feature.name)
        else:
            sources.sources.extend([feature.name] if rows.rows else [])
    return sources
