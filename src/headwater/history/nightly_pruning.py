"""The nightly run that removes old history, events and records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from msgspec.structs import replace

from headwater.features.followed_catalog import FollowedCatalog
from headwater.history.retention import Retention, month_starts, prune
from headwater.model.admin import PruneReport
from headwater.model.catalog import CatalogState, NightlyRun
from headwater.ports import Backends
from headwater.settings.groups import RetentionSettings

# After this time another worker takes over from one that died while it pruned.
_CLAIM = timedelta(minutes=10)


class NightlyPruning:
    """Prunes once a day for the whole store, however many workers call it.

    By month, it removes rows only when their month can be removed as a whole. Each run is logged
    as an administrative action.
    """

    def __init__(
        self,
        backends: Backends,
        catalog: FollowedCatalog,
        settings: RetentionSettings,
        audited: Callable[..., AbstractAsyncContextManager[None]],
        *,
        is_by_month: bool,
    ) -> None:
        self._backends = backends
        self._catalog = catalog
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
        due = _last_due(now, self._hour)
        if self._done is not None and self._done >= due:
            return None
        if not await self._claim(due, now):
            return None
        horizons = self._retention.horizons(now)
        if self._is_by_month:
            horizons = month_starts(horizons)
        async with self._audited("admin.prune", "nightly", before=horizons):
            report = await prune(self._backends, self._catalog, horizons)
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


def _last_due(now: datetime, hour: int) -> datetime:
    due = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return due if due <= now else due - timedelta(days=1)
