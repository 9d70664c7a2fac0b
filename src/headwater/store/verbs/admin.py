"""The administration of a store: audit log, health, lag, consumer groups, repair, retention."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

from msgspec import Meta

from headwater.core.blocking import Blocking, blocking
from headwater.core.durations import Duration
from headwater.core.progress import callback
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import (
    DurationError,
    EntityChangedError,
    GroupInUseError,
    StoreMismatchError,
    UnknownGroupError,
    UnknownNameError,
)
from headwater.model.admin import (
    Age,
    AuditPage,
    AuditReport,
    ConsumerGroup,
    ConsumerLag,
    DryRun,
    ForgetReport,
    GroupList,
    GroupName,
    LagList,
    MentionPage,
    PruneReport,
    RebuildReport,
)
from headwater.model.health import Health
from headwater.model.kinds import Cursor, EntityId, EntityName, FeatureName, Limit, Moment
from headwater.model.problems import OnStep
from headwater.store.verbs.verb import LONG_AT_ONCE, Reply, Sent, Verbs, verb

if TYPE_CHECKING:
    from headwater.engine.administration import Administration


def _age_text(age: Duration) -> str:
    return age if isinstance(age, str) else f"{age // timedelta(milliseconds=1)}ms"


KeptFor = Annotated[Duration, Sent(Age, _age_text)]
Adopt = Annotated[
    bool, Meta(description="Take over the history of another store.", examples=[False])
]
ComparedRecords = Annotated[
    int, Meta(ge=0, le=10_000, description="How many contexts to compare.", examples=[100])
]
ErasureReason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1_000,
        description="The reason; it stays in the records, so it names no person.",
        examples=["request 12"],
    ),
]
AllowReturn = Annotated[
    bool,
    Meta(description="Whether events of after this begin the entity anew.", examples=[True]),
]
ActionName = Annotated[str, Meta(description="The name of an action.", examples=["records.redact"])]
Actor = Annotated[str, Meta(description="The name of the key or user.", examples=["ops"])]


class AuditLogVerbs(Verbs):
    """The part of ``FeatureStore`` that reads the audit log."""

    @verb("GET", "/v1/audit-log", scope="admin", operation="read_audit_log")
    async def audit_log(
        self,
        *,
        action: ActionName | None = None,
        actor: Actor | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> AuditPage:
        """Return administrative actions, newest first: who did what, when, and how it ended.

        ``cursor`` is the ``next_cursor`` of the previous page.

        >>> await store.indexes.drop("docs")
        1
        >>> [entry] = (await store.audit_log(action="indexes.drop")).entries
        >>> entry.target, entry.outcome
        ('docs', 'done')
        """
        return await (await self._engine()).audit_log.page(
            action=action, actor=actor, since=since, before=before, limit=limit, cursor=cursor
        )


async def _lag(verbs: AdminVerbs) -> LagList:
    partitions = await verbs.lag()
    return LagList(partitions, sum(partition.waiting for partition in partitions))


class AdminVerbs(Verbs):
    """``store.admin``: health, lag, consumer groups, repair of online values, retention."""

    async def _administration(self) -> Administration:
        from headwater.engine.administration import Administration  # noqa: PLC0415 - loaded with the engine

        return Administration(await self._engine())

    async def health(self) -> list[Health]:
        """Return the health of each part of the store.

        >>> all(part.ok for part in await store.admin.health())
        True
        """
        return await self._health()

    async def _health(self) -> list[Health]:
        return await (await self._administration()).health()

    @verb(
        "GET",
        "/v1/lag",
        scope="metrics",
        operation="read_lag",
        reply=Reply(LagList, _lag, lambda answer: [*answer.partitions]),
    )
    async def lag(self) -> list[ConsumerLag]:
        """Return for each partition its worker, its waiting events and the time of the oldest.

        >>> sum(partition.waiting for partition in await store.admin.lag())
        0
        """
        return await (await self._engine()).backends.bus.lag()

    @verb(
        "POST",
        "/v1/features/{name}/refresh",
        scope="admin",
        operation="refresh",
        changes="admin.refresh",
        target="name",
        raises=(UnknownNameError, EntityChangedError),
    )
    async def refresh(self, name: Annotated[FeatureRef, Sent(FeatureName, feature_name)]) -> None:
        """Let a worker run a scheduled feature now; when this returns, the run is queued.

        >>> await store.admin.refresh("rank")
        """
        await (await self._administration()).refresh(feature_name(name))

    @verb("GET", "/v1/groups", scope="metrics", operation="list_groups", answer=GroupList)
    async def groups(self) -> list[ConsumerGroup]:
        """Return each consumer group with its live workers, its waiting events and their age.

        >>> [group.name for group in await store.admin.groups()]
        ['headwater_workers']
        """
        return await (await self._engine()).backends.groups.groups()

    @verb(
        "DELETE",
        "/v1/groups/{name}",
        scope="admin",
        operation="drop_group",
        changes="admin.drop_group",
        target="name",
        raises=(UnknownGroupError, GroupInUseError),
    )
    async def drop_group(self, name: GroupName) -> None:
        """Forget a consumer group that has no live workers, so that it holds back no event.

        If it is used again, it starts at the oldest event that is kept.

        >>> await store.admin.drop_group("headwater_workers")
        """
        await (await self._engine()).backends.groups.drop(name)

    @verb(
        "POST",
        "/v1/rebuild",
        scope="admin",
        operation="rebuild",
        changes="admin.rebuild",
        notes=("adopt",),
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(StoreMismatchError, EntityChangedError),
    )
    async def rebuild(
        self, *, adopt: Adopt = False, progress: OnStep | bool | None = None
    ) -> RebuildReport:
        """Restore online values from history; newer ones stay, so workers may be running.

        The history of another store is refused unless ``adopt`` is true.

        >>> (await store.admin.rebuild()).values
        3
        """
        return await (await self._administration()).rebuild(
            adopt=adopt, progress=callback(progress)
        )

    @verb(
        "POST",
        "/v1/audit",
        scope="admin",
        operation="audit",
        reads="an audit",
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(StoreMismatchError, EntityChangedError),
    )
    async def audit(
        self,
        *,
        limit: Limit = 100,
        records: ComparedRecords = 100,
        progress: OnStep | bool | None = None,
    ) -> AuditReport:
        """Compare online values with history; return at most ``limit`` differences.

        The values that a sample of ``records`` contexts got are compared with the ones that
        history gives as known at that moment.

        >>> report = await store.admin.audit()
        >>> report.differences, report.served.differences
        ([], [])
        """
        administration = await self._administration()
        return await administration.audit(limit=limit, records=records, progress=callback(progress))

    @verb(
        "POST",
        "/v1/prune",
        scope="admin",
        operation="prune",
        changes="admin.prune",
        audits_itself=True,
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(DurationError,),
    )
    async def prune(
        self,
        *,
        history: KeptFor | None = None,
        events: KeptFor | None = None,
        records: KeptFor | None = None,
        dry_run: DryRun = False,
    ) -> PruneReport:
        """Remove history, events and records that are older; without ages, as the settings say.

        The current value of every entity stays, however old it is. With ``dry_run`` the rows are
        only counted.

        >>> (await store.admin.prune(events="30d", dry_run=True)).events.rows
        0
        """
        return await (await self._administration()).prune(
            history=history, events=events, records=records, dry_run=dry_run
        )

    @verb(
        "POST",
        "/v1/forget",
        scope="admin",
        operation="forget",
        changes="admin.forget",
        audits_itself=True,
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(UnknownNameError, EntityChangedError),
    )
    async def forget(
        self,
        entity: EntityName,
        entity_id: Annotated[str | int, Sent(EntityId)],
        *,
        reason: ErasureReason,
        allow_return: AllowReturn = False,
        dry_run: DryRun = False,
    ) -> ForgetReport:
        """Erase an entity: values, history, events, dead letters, and its values in records.

        What was erased stays erased: refreshes, imports, backfills, rebuilds and late events do not
        bring it back, and new events are refused. With ``allow_return``, events of after this begin
        anew; a later call changes that.

        What belongs to it now by ``belongs_to`` is erased with it, and what belongs to that; its
        ids are in the report. What has come to belong to another entity stays.

        Records of contexts that read the entity keep their hashes and lose all disclosed values;
        ``reason`` is noted in them. Events of types that trigger features of other entities only
        stay, because ids of two entities may be equal. With ``dry_run`` all this is only counted.

        >>> (await store.admin.forget("User", "ada", reason="request 12", dry_run=True)).values
        2
        """
        return await (await self._administration()).forget(
            entity, entity_id, reason=reason, allow_return=allow_return, dry_run=dry_run
        )

    @verb(
        "GET",
        "/v1/mentions",
        scope="admin",
        operation="list_mentions",
        at_once=LONG_AT_ONCE,
        raises=(UnknownNameError,),
    )
    async def mentions(
        self,
        entity: EntityName,
        entity_id: Annotated[str | int, Sent(EntityId)],
        *,
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> MentionPage:
        """List where other entities have the id of an entity, which forgetting it does not change.

        These are events, past values and dead letters with a value or a key that equals the id; it
        is not looked for inside of longer texts. Every page scans the log of events or history.

        >>> _ = await store.publish("purchase", "m-1", {"amount": 3, "buyer": "ada"})
        >>> [mention] = (await store.admin.mentions("User", "ada")).mentions
        >>> mention.name, mention.entity_id, mention.pointers
        ('purchase', 'm-1', ['/buyer'])
        """
        return await (await self._administration()).mentions(
            entity, entity_id, limit=limit, cursor=cursor
        )


A_co = TypeVar("A_co", bound=AdminVerbs, covariant=True)


class SyncAdminVerbs(Blocking[A_co]):
    """The blocking form of the administration."""

    health = blocking(AdminVerbs.health)
    lag = blocking(AdminVerbs.lag)
    refresh = blocking(AdminVerbs.refresh)
    groups = blocking(AdminVerbs.groups)
    drop_group = blocking(AdminVerbs.drop_group)
    rebuild = blocking(AdminVerbs.rebuild)
    prune = blocking(AdminVerbs.prune)
    forget = blocking(AdminVerbs.forget)
    mentions = blocking(AdminVerbs.mentions)
    audit = blocking(AdminVerbs.audit)
