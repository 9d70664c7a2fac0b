"""Comparing the declared types and entities with those of stored values, when a worker starts."""

from __future__ import annotations

from headwater.core.logging import log
from headwater.declarations.features import FeatureDef
from headwater.declarations.lineage import is_converting
from headwater.declarations.series import declared_entry, shape_of
from headwater.engine.engine import Engine
from headwater.errors import EntityChangedError, TypeChangedError
from headwater.history import versions
from headwater.model.catalog import CatalogEntry, FeatureVersion
from headwater.model.values import Cell

_SAMPLED = 300


async def check_types(engine: Engine) -> None:
    """Raise TypeChangedError if the values of a feature do not fit the type declared now.

    A type that the values fit, or that they can be converted to, is entered into the catalog.
    Raise EntityChangedError if they belong to another entity. Features for which a backfill makes
    a version of the declared type and entity are left to it.
    """
    state = await engine.catalog.follow()
    for feature in engine.registry.features.values():
        entry = declared_entry(state, feature.name, engine.registry.features)
        if entry is None or entry.active is None:
            continue
        if versions.is_made(entry, feature):
            continue
        if entry.entity_of(entry.active) != feature.entity.name:
            await _change_entity(engine, feature, entry)
        if entry.active.structure == shape_of(feature).structure:
            engine.registry.feature(feature.name).check_stored()
        else:
            await _change_type(engine, feature, entry, entry.active)


async def _change_entity(engine: Engine, feature: FeatureDef, entry: CatalogEntry) -> None:
    """Move a feature without values to the declared entity; raise if it has some."""
    for version in await engine.feature_catalog.versions(entry.feature):
        if version.online or version.history:
            before = entry.entity_of(entry.active)
            raise EntityChangedError(feature.name, before, feature.entity.name, feature.location)
    now = engine.clock.now()
    await engine.catalog.change(
        lambda state: versions.move(state, entry.feature, feature.entity.name, now)
    )


async def _change_type(
    engine: Engine, feature: FeatureDef, entry: CatalogEntry, before: FeatureVersion
) -> None:
    cells = await _sample(engine, entry.entity_of(before), before.series)
    unfit = [cell for cell in cells if not feature.codec.fits(cell.value)]
    is_converted = is_converting(feature, before)
    names, name, shape = _names(before, feature), entry.feature, shape_of(feature)
    if not (unfit or is_converted):
        await engine.catalog.change(lambda state: versions.change_type(state, name, shape))
        log.warning(
            "feature has another type",
            **names,
            remedy=f"{len(cells)} stored values were read as the new type; a value that cannot "
            "be read needs convert= or a backfill",
        )
    elif feature.codec.convert is None:
        raise TypeChangedError(
            feature.name,
            (names["before"], names["now"]),
            bytes((unfit or cells)[0].value).decode() if cells else "",
            feature.location,
            is_triggered=bool(feature.triggers),
        )
    else:
        for cell in cells:
            feature.codec.converted(cell.value)
        now = engine.clock.now()
        await engine.catalog.change(lambda state: versions.convert(state, name, feature, now))
        log.info("feature is converted", **names)


async def _sample(engine: Engine, entity: str, series: str) -> list[Cell]:
    """Return some values that a read would return."""
    online = engine.backends.online
    ids = await online.entity_ids(entity, after="", limit=_SAMPLED, having=series)
    rows, now = await online.get(entity, ids), engine.clock.micros()
    return [cells[series] for cells in rows if series in cells and not cells[series].expired(now)]


def _names(before: FeatureVersion, feature: FeatureDef) -> dict[str, str]:
    now = shape_of(feature).type
    return {
        "feature": feature.name,
        "before": before.type,
        "now": now if now != before.type else f"{now} with other fields",
    }
