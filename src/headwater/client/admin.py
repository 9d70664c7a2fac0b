"""The verbs of a client for operators."""

from __future__ import annotations

from datetime import timedelta

from headwater.client.server import Server
from headwater.client.stream_lines import counted
from headwater.core.durations import Duration
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.model.admin import (
    AuditBody,
    AuditReport,
    ConsumerGroup,
    ConsumerLag,
    ForgetBody,
    ForgetReport,
    GroupList,
    LagList,
    PruneBody,
    PruneReport,
    RebuildBody,
    RebuildReport,
)
from headwater.model.health import Alive, Examination, Health, Overview, Readiness, Series
from headwater.model.problems import UNAVAILABLE
from headwater.model.progress import OnStep


class AdminCalls:
    """``client.admin``: health, lag, consumer groups, repair of online values."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def is_alive(self) -> bool:
        """Return True if the server answers; raise ServerUnreachableError otherwise.

        >>> await client.admin.is_alive()
        True
        """
        return (await self._server.get(Alive, "/healthz")).status == "ok"

    async def readiness(self) -> Readiness:
        """Return whether the server can serve requests, and the health of each part of its store.

        >>> (await client.admin.readiness()).status
        'ready'
        """
        return await self._server.get_with(Readiness, "/readyz", accepted={UNAVAILABLE})

    async def health(self) -> list[Health]:
        """Return the health of each part of the store.

        >>> all(part.ok for part in await client.admin.health())
        True
        """
        return (await self.readiness()).parts

    async def doctor(self) -> Examination:
        """Examine the installation of the server.

        >>> (await client.admin.doctor()).status
        'ok'
        """
        return await self._server.get(Examination, "/v1/doctor")

    async def overview(self) -> Overview:
        """Return how the store is and what to look at first, with its workers and parts.

        >>> (await client.admin.overview()).title
        'Everything works'
        """
        return await self._server.get(Overview, "/v1/overview")

    async def series(self) -> Series:
        """Return the numbers of the last hour, in steps of ten seconds.

        >>> (await client.admin.series()).step_seconds
        10
        """
        return await self._server.get(Series, "/v1/series")

    async def lag(self) -> list[ConsumerLag]:
        """Return for each partition its worker, its waiting events and the time of the oldest.

        >>> sum(partition.waiting for partition in await client.admin.lag())
        0
        """
        return [*(await self._server.get(LagList, "/v1/lag")).partitions]

    async def refresh(self, name: FeatureRef) -> None:
        """Let a worker run a scheduled feature now; when this returns, the run is queued.

        >>> await client.admin.refresh("rank")
        """
        await self._server.tell("/v1/features/{}/refresh", feature_name(name))

    async def groups(self) -> list[ConsumerGroup]:
        """Return each consumer group with its live workers, its waiting events and their age.

        >>> [group.name for group in await client.admin.groups()]
        ['headwater_workers']
        """
        return [*(await self._server.get(GroupList, "/v1/groups")).groups]

    async def drop_group(self, name: str) -> None:
        """Forget a consumer group that has no live workers, so that it holds back no event.

        >>> await client.admin.drop_group("headwater_workers")
        """
        await self._server.delete("/v1/groups/{}", name)

    async def rebuild(
        self, *, adopt: bool = False, progress: OnStep | None = None
    ) -> RebuildReport:
        """Restore online values from history; newer ones stay, so workers may be running.

        >>> (await client.admin.rebuild()).values
        3
        """
        body = RebuildBody(adopt)
        return await self._server.follow(
            RebuildReport, "/v1/rebuild", body=body, on_line=counted(progress)
        )

    async def audit(
        self, *, limit: int = 100, records: int = 100, progress: OnStep | None = None
    ) -> AuditReport:
        """Compare online values with history; return at most ``limit`` differences.

        >>> (await client.admin.audit()).differences
        []
        """
        body = AuditBody(limit, records)
        return await self._server.follow(
            AuditReport, "/v1/audit", body=body, on_line=counted(progress)
        )

    async def prune(
        self,
        *,
        history: Duration | None = None,
        events: Duration | None = None,
        records: Duration | None = None,
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove history, events and records that are older; without ages, as the settings say.

        With ``dry_run`` the rows are only counted.

        >>> (await client.admin.prune(events="30d", dry_run=True)).events.rows
        0
        """
        ages = {"history": history, "events": events, "records": records}
        texts = {part: _text(age) for part, age in ages.items() if age}
        body = PruneBody(**texts, dry_run=dry_run)
        return await self._server.follow(PruneReport, "/v1/prune", body=body)

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

        With ``allow_return``, events of after this begin anew.

        >>> (await client.admin.forget("User", "ada", reason="request 12", dry_run=True)).values
        2
        """
        body = ForgetBody(
            entity=entity,
            entity_id=str(entity_id),
            reason=reason,
            allow_return=allow_return,
            dry_run=dry_run,
        )
        return await self._server.follow(ForgetReport, "/v1/forget", body=body)


def _text(age: Duration) -> str:
    """Return an age as a server reads it."""
    return age if isinstance(age, str) else f"{age // timedelta(milliseconds=1)}ms"
