"""The administration of an open store: health, repair, retention and the audit log."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from msgspec.structs import replace

from headwater.contexts.recorded.served_audit import ServedAudit
from headwater.core.durations import Duration
from headwater.engine.auditing import audited
from headwater.engine.engine import Engine
from headwater.engine.forgetting import forget
from headwater.errors import InvalidInputError
from headwater.features.call_scope import track_source
from headwater.features.caller_limits import limited_caller
from headwater.features.schedule import tick_now
from headwater.history.retention import Retention, prune
from headwater.model.admin import AuditReport, ForgetReport, PruneReport, RebuildReport
from headwater.model.health import Health
from headwater.model.progress import OnStep
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
        async with engine.backends.lifecycle.restoring(adopt=adopt):
            await engine.catalog.follow()  # adopted history may have brought its catalog
            return await engine.reconciler.rebuild(progress)

    async def audit(self, *, limit: int, records: int, progress: OnStep | None) -> AuditReport:
        """Compare online values and those of recorded contexts with history."""
        track_source(*EVERYTHING)
        engine = self._engine
        report = await engine.reconciler.audit(limit, progress)
        catalog = await engine.catalog.follow()
        served = await ServedAudit(engine, engine.reader).compare(records, limit, catalog)
        return replace(report, served=served)

    async def prune(self, *, dry_run: bool, **ages: Duration | None) -> PruneReport:
        """Remove what is older than these ages, or than those of the settings if all are None."""
        engine = self._engine
        retention = Retention.of(ages)
        if retention == Retention():
            retention = Retention.configured(engine.settings.retention)
        horizons = retention.horizons(engine.clock.now())
        if dry_run:
            return await prune(engine.backends, engine.catalog, horizons, dry_run=True)
        async with audited(engine, "admin.prune", before=horizons):
            return await prune(engine.backends, engine.catalog, horizons)

    async def forget(
        self, entity: str, entity_id: str | int, *, reason: str, allow_return: bool, dry_run: bool
    ) -> ForgetReport:
        """Erase an entity, or count what it has."""
        engine = self._engine
        definition = engine.registry.entity(entity)
        # Events are accepted with ids that the entity's type refuses, and can be erased too.
        text_id = definition.event_id_text(entity_id)
        limited = limited_caller()
        if limited is not None:
            limited.check_entity(entity, text_id)
        if not reason.strip():
            raise InvalidInputError("say for what reason the entity is forgotten")
        if dry_run:
            return await forget(
                engine, definition, text_id, reason=reason, allow_return=False, dry_run=True
            )
        # The log cannot be redacted, so it has a hash by which the request can be proved.
        digest = sha256(text_id.encode()).hexdigest()
        async with audited(
            engine, "admin.forget", entity, id_sha256=digest, allow_return=allow_return
        ):
            return await forget(
                engine, definition, text_id, reason=reason, allow_return=allow_return, dry_run=False
            )
