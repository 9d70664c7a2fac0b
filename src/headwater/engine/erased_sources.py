"""The sources of SQL features that still name an erased entity."""

from __future__ import annotations

from typing import NamedTuple

from headwater.core.logging import log
from headwater.core.sql_literals import text
from headwater.declarations.features import EntityDef
from headwater.engine.engine import Engine
from headwater.errors import BackendError, InvalidInputError

_NAMES = """
SELECT 1 AS found FROM (
{query}
) AS source WHERE CAST("{id_field}" AS VARCHAR) = {entity_id} LIMIT 1
"""


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
