"""The administration of a store: health, lag, consumer groups, repair and retention."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.core.blocking import Blocking, blocking
from headwater.core.durations import Duration
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.errors import InvalidInputError
from headwater.features.call_scope import check_not_replaying, track_source
from headwater.features.caller_limits import limited_caller
from headwater.features.schedule import tick_now
from headwater.history.retention import Retention, prune
from headwater.model.admin import ConsumerGroup, ConsumerLag, ForgetReport, PruneReport
from headwater.model.health import Health
from headwater.model.progress import OnStep
from headwater.model.values import EVERYTHING
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.model.admin import AuditReport, RebuildReport


class AdminVerbs:
    """``store.admin``: health, lag, consumer groups, repair of online values, retention."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def health(self) -> list[Health]:
        """Return the health of each part of the store.

        >>> all(part.ok for part in await store.admin.health())
        True
        """
        engine = await self._runtime.open()
        checks = engine.backends.lifecycle.checks()
        return await asyncio.gather(*(check.run() for check in checks))

    async def lag(self) -> list[ConsumerLag]:
        """Return for each partition its worker, its waiting events and the time of the oldest.

        >>> sum(partition.waiting for partition in await store.admin.lag())
        0
        """
        return await (await self._runtime.open()).backends.bus.lag()

    async def refresh(self, name: FeatureRef) -> None:
        """Let a worker run a scheduled feature now; when this returns, the run is queued.

        >>> await store.admin.refresh("rank")
        """
        check_not_replaying("refresh")
        feature = self._runtime.registry.feature(feature_name(name))
        engine = await self._runtime.open()
        tick = tick_now(feature, self._runtime.clock.now())
        async with audited(engine, "admin.refresh", feature.name):
            await engine.backends.bus.publish_ticks([tick])

    async def groups(self) -> list[ConsumerGroup]:
        """Return each consumer group with its live workers, its waiting events and their age.

        >>> [group.name for group in await store.admin.groups()]
        ['headwater_workers']
        """
        return await (await self._runtime.open()).backends.groups.groups()

    async def drop_group(self, name: str) -> None:
        """Forget a consumer group that has no live workers, so that it holds back no event.

        If it is used again, it starts at the oldest event that is kept.

        >>> await store.admin.drop_group("headwater_workers")
        """
        check_not_replaying("drop_group")
        engine = await self._runtime.open()
        async with audited(engine, "admin.drop_group", name):
            await engine.backends.groups.drop(name)

    async def rebuild(
        self, *, adopt: bool = False, progress: OnStep | None = None
    ) -> RebuildReport:
        """Restore online values from history; newer ones stay, so workers may be running.

        The history of another store is refused unless ``adopt`` is true.

        >>> (await store.admin.rebuild()).values
        3
        """
        check_not_replaying("rebuild")
        engine = await self._runtime.open()
        async with (
            audited(engine, "admin.rebuild", adopt=adopt),
            engine.backends.lifecycle.restoring(adopt=adopt),
        ):
            await engine.catalog.follow()  # adopted history may have brought its catalog
            return await engine.reconciler.rebuild(progress)

    async def prune(
        self,
        *,
        history: Duration | None = None,
        events: Duration | None = None,
        records: Duration | None = None,
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove history, events and records that are older; without ages, as the settings say.

        The current value of every entity stays, however old it is. With ``dry_run`` the rows are
        only counted.

        >>> (await store.admin.prune(events="30d", dry_run=True)).events.rows
        0
        """
        check_not_replaying("prune")
        engine = await self._runtime.open()
        retention = Retention.of({"history": history, "events": events, "records": records})
        if retention == Retention():
            retention = Retention.configured(engine.settings.retention)
        wanted = retention.horizons(engine.clock.now())
        if dry_run:
            return await prune(engine.backends, engine.catalog, wanted, dry_run=True)
        async with audited(engine, "admin.prune", before=wanted):
            return await prune(engine.backends, engine.catalog, wanted)

    async def forget(
        self,
        entity: str,
        entity_id: str | int,
        *,
        reason: str,
        allow_return: bool = False,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Erase an entity: values, history, events, dead letters, and its values in records.

        What was erased stays erased: refreshes, imports, backfills, rebuilds and late events do not
        bring it back, and new events are refused. With ``allow_return``, events of after this begin
        anew; a later call changes that.

        Records of contexts that read the entity keep their hashes and lose all disclosed values;
        ``reason`` is noted in them. Events of types that trigger features of other entities only
        stay, because ids of two entities may be equal. With ``dry_run`` all this is only counted.

        >>> (await store.admin.forget("User", "ada", reason="request 12", dry_run=True)).values
        2
        """
        from headwater.engine.forgetting import forget  # noqa: PLC0415 - loaded with the engine

        check_not_replaying("forget")
        definition = self._runtime.registry.entity(entity)
        # Events are accepted with ids that the entity's type refuses, and can be erased too.
        text_id = definition.event_id_text(entity_id)
        limited = limited_caller()
        if limited is not None:
            limited.check_entity(entity, text_id)
        if not reason.strip():
            raise InvalidInputError("say for what reason the entity is forgotten")
        engine = await self._runtime.open()
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

    async def audit(
        self, *, limit: int = 100, records: int = 100, progress: OnStep | None = None
    ) -> AuditReport:
        """Compare online values with history; return at most ``limit`` differences.

        The values that a sample of ``records`` contexts got are compared with the ones that
        history gives as known at that moment.

        >>> report = await store.admin.audit()
        >>> report.differences, report.served.differences
        ([], [])
        """
        from headwater.contexts.recorded.served_audit import ServedAudit  # noqa: PLC0415 - loaded with the engine

        track_source("other", "an audit")
        track_source(*EVERYTHING)
        engine = await self._runtime.open()
        report = await engine.reconciler.audit(limit, progress)
        catalog = await engine.catalog.follow()
        served = await ServedAudit(engine, engine.reader).compare(records, limit, catalog)
        return replace(report, served=served)


class SyncAdminVerbs(Blocking[AdminVerbs]):
    """``store.sync.admin``."""

    health = blocking(AdminVerbs.health)
    lag = blocking(AdminVerbs.lag)
    refresh = blocking(AdminVerbs.refresh)
    groups = blocking(AdminVerbs.groups)
    drop_group = blocking(AdminVerbs.drop_group)
    rebuild = blocking(AdminVerbs.rebuild)
    prune = blocking(AdminVerbs.prune)
    forget = blocking(AdminVerbs.forget)
    audit = blocking(AdminVerbs.audit)
