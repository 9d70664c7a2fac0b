"""The administration of an open store: health, repair, retention and erasure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from headwater.contexts.recorded.served_audit import ServedAudit
from headwater.core.durations import Duration
from headwater.core.logging import log
from headwater.core.partitioning import partition_of
from headwater.core.sql_literals import texts
from headwater.declarations.features import EntityDef
from headwater.declarations.series import undeclared_entities
from headwater.engine.auditing import audited
from headwater.engine.engine import Engine
from headwater.engine.mentions import Mentions
from headwater.engine.places import PLACES, Erased, Erasure
from headwater.errors import BackendError, InvalidInputError
from headwater.features.call_scope import track_source
from headwater.features.caller_limits import limited_caller
from headwater.features.schedule import tick_now
from headwater.history.retention import Retention, prune
from headwater.model.admin import (
    AuditReport,
    BackupReport,
    ForgetReport,
    MentionCounts,
    MentionPage,
    PruneReport,
    RebuildReport,
)
from headwater.model.health import Health
from headwater.model.problems import OnStep
from headwater.model.values import EVERYTHING


class Administration:
    """Examines, repairs and prunes an open store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def health(self) -> list[Health]:
        """Return the health of each part of the store."""
        checks = self._engine.backends.lifecycle.checks()
        return await asyncio.gather(*(check.run() for check in checks))

    async def refresh(self, name: str) -> None:
        """Queue a run of a scheduled feature."""
        engine = self._engine
        tick = tick_now(engine.registry.feature(name), engine.clock.now())
        await engine.backends.bus.publish_ticks([tick])

    async def rebuild(self, *, adopt: bool, progress: OnStep | None) -> RebuildReport:
        """Restore online values from history."""
        engine = self._engine
        await engine.backends.lifecycle.check_files()  # damage would become a current value
        async with engine.backends.lifecycle.restoring(adopt=adopt) as lacking:
            # Adopted history may have brought its catalog.
            others = sorted(
                name
                for name, entry in (await engine.catalog.follow()).features.items()
                if entry.active and name not in engine.registry.features
            )
            if others:
                log.warning("features of other files are not restored", features=others)
            return await engine.reconciler.rebuild(progress, lacking)

    async def audit(self, *, limit: int, records: int, progress: OnStep | None) -> AuditReport:
        """Compare online values and those of recorded contexts with history."""
        track_source(*EVERYTHING)
        engine = self._engine
        await engine.backends.lifecycle.check_files()
        report = await engine.reconciler.audit(limit, progress)
        catalog = await engine.catalog.follow()
        served = await ServedAudit(engine, engine.reader).compare(records, limit, catalog)
        return replace(report, served=served)

    async def back_up(self, folder: Path) -> BackupReport:
        """Copy the store of one moment into a new folder."""
        track_source(*EVERYTHING)
        async with audited(self._engine, "admin.backup", str(folder)):
            return await self._engine.backends.lifecycle.back_up(folder)

    async def prune(self, *, dry_run: bool, **ages: Duration | None) -> PruneReport:
        """Remove what is older than these ages, or than those of the settings if all are None."""
        engine = self._engine
        retention = Retention.of(ages)
        if retention == Retention():
            retention = Retention.configured(engine.settings.retention)
        retention.check_windows(engine.registry.features, await engine.catalog.follow())
        now = engine.clock.now()
        horizons = retention.horizons(now)
        if dry_run:
            return await prune(engine.backends, engine.catalog, horizons, now, dry_run=True)
        async with audited(engine, "admin.prune", before=horizons):
            return await prune(engine.backends, engine.catalog, horizons, now)

    async def forget(
        self, entity: str, entity_id: str | int, *, reason: str, allow_return: bool, dry_run: bool
    ) -> ForgetReport:
        """Erase an entity, or count its data."""
        engine = self._engine
        definition = engine.registry.entity(entity)
        # Events are accepted with ids that the entity's type refuses, and can be erased too.
        text_id = definition.event_id_text(entity_id)
        limited = limited_caller()
        if limited is not None:
            await limited.check_entity(engine.ownership, entity, text_id)
            for owned in await engine.ownership.belonging(definition, text_id):
                limited.check_class(owned.name)
        if not reason.strip():
            raise InvalidInputError("say for what reason the entity is forgotten")
        if dry_run:
            return await self._forget(definition, text_id, reason, dry_run=True)
        # The log cannot be redacted, so it has a hash by which the request can be proved.
        digest = sha256(text_id.encode()).hexdigest()
        async with audited(
            engine, "admin.forget", entity, id_sha256=digest, allow_return=allow_return
        ):
            return await self._forget(definition, text_id, reason, may_return=allow_return)

    async def _forget(
        self,
        entity: EntityDef,
        entity_id: str,
        reason: str,
        *,
        may_return: bool = False,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Erase an entity and what belongs to it; the next call completes an interrupted one."""
        engine = self._engine
        await self._check_entity(entity)
        await engine.recorded.check_index_key()

        async def enter(entity: EntityDef, entity_id: str) -> None:
            # First, so that nothing that is erased below is written again by another process.
            if not dry_run:
                await engine.backends.erasures.erase(
                    entity.name, entity_id, at=engine.clock.micros(), may_return=may_return
                )

        await enter(entity, entity_id)
        # From now on no event makes anything else belong to it.
        belonging = await engine.ownership.belonging(entity, entity_id)
        erased = [Erased(entity, entity_id, self._kept(entity))]
        for owned, ids in belonging.items():
            await self._check_entity(owned)
            kept = self._kept(owned)
            for owned_id in ids:
                await enter(owned, owned_id)
                erased.append(Erased(owned, owned_id, kept))
        erasure = Erasure(engine, erased, reason, dry_run)
        counts: dict[str, Any] = {
            "waiting": await self._waiting({each.entity_id for each in erased})
        }
        # Places may share a step.
        for erase in dict.fromkeys(place.erase for place in PLACES):
            if erase is not None:
                counts |= await erase(erasure)
        report: dict[str, Any] = {"dry_run": dry_run, "sources": [], "unchecked_sources": []}
        for kind, ids in {entity: (entity_id,), **belonging}.items():
            sources, unchecked = await self._sources(kind, ids)
            report["sources"] += sources
            report["unchecked_sources"] += unchecked
        report["topic"] = "" if engine.backends.feeder is None else engine.settings.bus.url
        report["belonging"] = {owned.name: ids for owned, ids in belonging.items()}
        report["mentions"] = await self._mentioned(entity, entity_id, belonging)
        return msgspec.convert(counts | report, ForgetReport)

    def _kept(self, entity: EntityDef) -> frozenset[str]:
        """Return the types of events that trigger features of other entities only."""
        own: set[str] = set()
        others: set[str] = set()
        for feature in self._engine.registry.features.values():
            (own if feature.entity == entity else others).update(feature.triggers)
        return frozenset(others - own)

    async def _mentioned(
        self, entity: EntityDef, entity_id: str, without: Mapping[EntityDef, Sequence[str]]
    ) -> MentionCounts | None:
        """Return how often others mention an entity; None if that cannot be counted."""
        try:
            return await Mentions(self._engine, entity, entity_id).count(without)
        except BackendError as error:
            # The entity is erased; a scan of everything may take longer than a statement may.
            log.warning("mentions not counted", error=str(error))
            return None

    async def mentions(
        self, entity: str, entity_id: str | int, *, limit: int, cursor: str | None
    ) -> MentionPage:
        """List where else the id of an entity occurs."""
        limited = limited_caller()
        if limited is not None:
            raise limited.refuse("mentions")
        definition = self._engine.registry.entity(entity)
        text_id = definition.event_id_text(entity_id)
        return await Mentions(self._engine, definition, text_id).page(limit, cursor)

    async def _check_entity(self, entity: EntityDef) -> None:
        """Raise EntityChangedError if values of a feature are stored for the entity's former name.

        Log the values of entities that are not declared: nothing tells whether one is meant.
        """
        registry, state = self._engine.registry, await self._engine.catalog.follow()
        for feature in registry.features.values():
            if feature.entity.name == entity.name:
                feature.check_stored()
        if undeclared := undeclared_entities(state, registry.entities):
            log.warning(
                "values of entities that are not declared stay",
                entities=undeclared,
                remedy="if one is a former name of this entity, declare it with @entity(store, "
                "name=...); otherwise remove its features with `headwater features drop`",
            )

    async def _waiting(self, entity_ids: Iterable[str]) -> int:
        """Return how many events of the entities' partitions some group has not handled."""
        backends, count = self._engine.backends, 0
        lags = {lag.partition: lag.waiting for lag in await backends.bus.lag()}
        for partition in {partition_of(each, backends.bus.partitions) for each in entity_ids}:
            of_groups = (await backends.groups.waiting(partition)).values()
            count += max([lags.get(partition, 0), *of_groups])
        return count

    async def _sources(
        self, entity: EntityDef, entity_ids: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Return the SQL features whose query returns some, and the ones whose query fails."""
        sources: list[str] = []
        unchecked: list[str] = []
        registry = self._engine.registry
        for feature in registry.features.values():
            if feature.sql is None or feature.entity != entity:
                continue
            sql = (
                f"SELECT 1 AS returned FROM (\n{feature.sql.strip().rstrip(';')}\n) AS source"
                f' WHERE CAST("{entity.id_field}" AS VARCHAR) IN ({texts(entity_ids)}) LIMIT 1'
            )
            try:
                answer = await self._engine.backends.offline.query(sql, registry.sources)
            except (InvalidInputError, BackendError) as error:
                # The query may fail also when it is due: the entity is erased nevertheless.
                log.warning("source not checked", feature=feature.name, error=str(error))
                unchecked.append(feature.name)
            else:
                sources += [feature.name] if answer.rows else []
        return sources, unchecked
