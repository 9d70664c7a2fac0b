"""Retention: remove old history, events and records, when it is asked for or once a night."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from math import ceil

import msgspec
from msgspec.structs import asdict, replace

from headwater.core.clock import MICROSECOND
from headwater.core.durations import Duration, format_duration, to_age
from headwater.core.logging import log
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import declared_as
from headwater.declarations.registry import Registry
from headwater.declarations.series import has_contributions
from headwater.errors import InvalidInputError
from headwater.features.followed_catalog import FollowedCatalog
from headwater.history import versions
from headwater.model.admin import PrunedPart, PruneReport
from headwater.model.catalog import CatalogState, Horizons, NightlyRun
from headwater.model.events import MIRRORED
from headwater.model.values import ServiceEvent
from headwater.ports import Backends
from headwater.settings.groups import RetentionSettings

_MILLISECOND = timedelta(milliseconds=1)
_OLD_MARKS = f"""
SELECT entity_id, CAST(payload AS varchar) FROM (
    SELECT *, row_number() OVER (PARTITION BY entity_id ORDER BY received_at DESC) AS place
    FROM events WHERE event_type = '{MIRRORED}'
) AS marks
WHERE place = 1 AND received_at < TIMESTAMPTZ '{{before}}'
"""
# After this time another worker takes over from one that died while it pruned.
_CLAIM = timedelta(minutes=10)


class Retention(msgspec.Struct, frozen=True):
    """How long history, events and records are kept; None if they are never removed."""

    history: timedelta | None = None
    events: timedelta | None = None
    records: timedelta | None = None

    @classmethod
    def of(cls, ages: Mapping[str, Duration | None]) -> Retention:
        """Return the retention with these ages, each a timedelta or a text such as ``400d``."""
        return cls(**{part: to_age(age) for part, age in ages.items() if age is not None})

    @classmethod
    def configured(cls, settings: RetentionSettings) -> Retention:
        """Return the retention that the settings state."""
        return cls.of(
            {
                "history": settings.history or None,
                "events": settings.events or None,
                "records": settings.records or None,
            }
        )

    def horizons(self, now: datetime) -> Horizons:
        """Return the moments before which nothing has to be kept."""
        ages = asdict(self)
        return Horizons(**{part: now - age for part, age in ages.items() if age is not None})

    def check_windows(self, features: Mapping[str, FeatureDef], state: CatalogState) -> None:
        """Raise InvalidInputError if contributions that windows need would be removed.

        A state that is made again from less of them would lack what was removed. How much a family
        needs is known only where it is declared.
        """
        if self.history is None:
            return
        for entry in state.features.values():
            is_family = entry.active is not None and has_contributions(entry.active)
            if is_family and declared_as(state, entry, features) is None:
                raise InvalidInputError(
                    f"history has the contributions of {entry.feature!r}, a family of windows that "
                    "this process does not declare, so it cannot know which of them are needed; "
                    "name the features file with --file or the server with --url, or drop the "
                    f"family with `headwater features drop {entry.feature}`"
                )
        for feature in features.values():
            if feature.windows is None:
                continue
            needed = feature.windows.plan.reach * MICROSECOND
            if self.history < needed:
                kept, least = (
                    format_duration(ceil(age / _MILLISECOND)) for age in (self.history, needed)
                )
                raise InvalidInputError(
                    f"history cannot be kept for {kept} only: the windows of {feature.name!r} are "
                    f"made of the contributions of the last {least}; keep it for {least} or "
                    "longer, or declare shorter windows"
                )


def warn_of_pruned(features: Mapping[str, FeatureDef], state: CatalogState, now: datetime) -> None:
    """Log a warning of families whose longest window reaches back before history was pruned."""
    horizon = state.pruned.history
    for feature in features.values():
        if horizon is not None and feature.windows is not None:
            complete_at = horizon + feature.windows.plan.reach * MICROSECOND
            if complete_at > now:
                log.warning(
                    "windows reach back before history was pruned",
                    feature=feature.name,
                    pruned_until=horizon,
                    complete_at=complete_at,
                )


def month_starts(moments: Horizons) -> Horizons:
    """Return the starts of the months of some moments."""
    return Horizons(
        **{
            part: moment and moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            for part, moment in asdict(moments).items()
        }
    )


async def prune(
    backends: Backends,
    catalog: FollowedCatalog,
    horizons: Horizons,
    now: datetime,
    *,
    dry_run: bool = False,
) -> PruneReport:
    """Remove what is older than the moments, except what backfills in progress need.

    The moments are stored in the catalog before the first row is removed, so that no read misses
    rows without noticing. An interrupted run is completed by the next one. If all values of history
    are newer, its moment is not stored, so that imported values can be read at their own times; if
    all events are, so that they are all there for a backfill.
    """
    if horizons == Horizons():
        raise InvalidInputError(
            "nothing to prune, because everything is kept; pass how long to keep history, events "
            "or records (history='400d'), or set retention.history, "
            "retention.events or retention.records"
        )
    has_old = horizons.history is not None and await _has_older(
        backends, "feature_history", ("as_of", "written_at"), horizons.history
    )
    removable = horizons if has_old else replace(horizons, history=None)
    if horizons.events is not None and not await _has_older(
        backends, "events", ("received_at",), horizons.events
    ):
        removable = replace(removable, events=None)
    if dry_run:
        state = await catalog.follow()
    else:
        state = await catalog.change(
            lambda state: versions.prune(state, limits(state, removable)[0])
        )
    allowed, held = limits(state, horizons)
    if allowed.events is not None and not dry_run:
        await _keep_marks(backends, now, allowed.events)
    rows = await backends.offline.prune(
        history=allowed.history if has_old else None, events=allowed.events, dry_run=dry_run
    )
    removed = 0
    if allowed.records is not None:
        removed = await backends.records.prune(allowed.records, dry_run=dry_run)
    counts = {"history": rows.history, "events": rows.events, "records": removed}
    parts = {
        part: None if before is None else PrunedPart(before, counts[part])
        for part, before in asdict(allowed).items()
    }
    return PruneReport(**parts, dry_run=dry_run, held=tuple(held))


async def _keep_marks(backends: Backends, now: datetime, before: datetime) -> None:
    """Repeat the last mark of each mirror of a topic that would be removed.

    Without it, the next copy would begin with records whose events are no longer recognized.
    """
    answer = await backends.offline.query(_OLD_MARKS.format(before=before.isoformat()), {})
    marks = [
        ServiceEvent(MIRRORED, mirror_id, msgspec.json.decode(payload), now)
        for mirror_id, payload in answer.rows
    ]
    if marks:
        await backends.bus.publish(marks, dedup_window=None)


async def _has_older(
    backends: Backends, table: str, times: Sequence[str], moment: datetime
) -> bool:
    """Return whether a table has a row that is from before a moment by all of its times."""
    is_older = " AND ".join(f"{time} < TIMESTAMPTZ '{moment.isoformat()}'" for time in times)
    answer = await backends.offline.query(
        f"SELECT 1 AS found FROM {table} WHERE {is_older} LIMIT 1", {}
    )
    return bool(answer.rows)


def limits(state: CatalogState, horizons: Horizons) -> tuple[Horizons, list[str]]:
    """Return the moments up to which can be pruned, and why some are earlier than asked for."""
    held: list[str] = []
    building = [
        (entry.feature, version.backfill)
        for entry in state.features.values()
        for version in entry.versions
        if version.state == "building"
    ]
    for feature, backfill in building:
        since, history = None if backfill is None else backfill.since, horizons.history
        kept = "all of history" if since is None else f"history since {since.isoformat()}"
        earlier = None if history is None or since is None else min(history, since)
        horizons = replace(horizons, events=None, history=earlier)
        held.append(f"the backfill of {feature!r} is in progress and needs all events and {kept}")
    return horizons, held


class NightlyPruning:
    """Prunes once a day for the whole store, however many workers call it.

    By month, it removes rows only when their month can be removed as a whole. Each run is logged
    as an administrative action.
    """

    def __init__(
        self,
        backends: Backends,
        catalog: FollowedCatalog,
        registry: Registry,
        settings: RetentionSettings,
        audited: Callable[..., AbstractAsyncContextManager[None]],
        *,
        is_by_month: bool,
    ) -> None:
        self._backends = backends
        self._catalog = catalog
        self._registry = registry
        self._audited = audited
        self._retention = Retention.configured(settings)
        self._hour = settings.hour
        self._is_by_month = is_by_month
        self._done: datetime | None = None
        self._claimed_until: datetime | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the settings limit how long anything is kept."""
        return self._retention != Retention()

    async def run(self, now: datetime) -> PruneReport | None:
        """Prune if a run is due and no other worker is at it; return the removed rows.

        The first run is due at the first due time after a worker was started with a retention.
        """
        self._retention.check_windows(self._registry.features, self._catalog.state)
        due = now.replace(hour=self._hour, minute=0, second=0, microsecond=0)
        if due > now:
            due -= timedelta(days=1)
        if self._done is not None and self._done >= due:
            return None
        if not await self._claim(due, now):
            return None
        horizons = self._retention.horizons(now)
        if self._is_by_month:
            horizons = month_starts(horizons)
        async with self._audited("admin.prune", "nightly", before=horizons):
            report = await prune(self._backends, self._catalog, horizons, now)
        await self._catalog.change(lambda state: replace(state, retention=NightlyRun(due)))
        return report

    async def _claim(self, due: datetime, now: datetime) -> bool:
        """Claim the run that is due; return False if it is done, or another worker has it."""
        own, claimed_until = self._claimed_until, now + _CLAIM
        is_claimed = False

        def claim(state: CatalogState) -> CatalogState:
            nonlocal is_claimed
            run, is_claimed = state.retention, False
            if run.done is None:
                return replace(state, retention=NightlyRun(due))
            if run.done >= due or (
                run.claimed_until not in (None, own) and run.claimed_until > now
            ):
                return state
            is_claimed = True
            return replace(state, retention=NightlyRun(run.done, claimed_until))

        self._done = (await self._catalog.change(claim)).retention.done
        if is_claimed:
            self._claimed_until = claimed_until
        return is_claimed
