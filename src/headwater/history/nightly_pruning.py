"""The nightly run that removes old history, events and records."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from headwater.features.followed_catalog import FollowedCatalog
from headwater.history.retention import PruneReport, Retention, prune
from headwater.ports import Backends, CatalogState, NightlyRun
from headwater.settings.groups import RetentionSettings

# After this time another worker takes over from one that died while it pruned.
_CLAIM = timedelta(minutes=10)


class NightlyPruning:
    """Prunes once a day for the whole store, however many workers call it."""

    def __init__(
        self, backends: Backends, catalog: FollowedCatalog, settings: RetentionSettings
    ) -> None:
        self._backends = backends
        self._catalog = catalog
        self._retention = Retention.configured(settings)
        self._hour = settings.hour
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
        state = await self._backends.catalog.load()
        self._done = state.retention.done
        if self._done is None:
            await self._mark(state, NightlyRun(due))
        elif self._done < due and await self._claim(state, now):
            report = await prune(self._backends, self._catalog, self._retention, now)
            await self._catalog.change(lambda state: replace(state, retention=NightlyRun(due)))
            return report
        return None

    async def _claim(self, state: CatalogState, now: datetime) -> bool:
        """Claim the run that is due; return False if another worker has claimed it."""
        claimed_until = state.retention.claimed_until
        is_own = claimed_until == self._claimed_until
        if claimed_until is not None and claimed_until > now and not is_own:
            return False
        self._claimed_until = now + _CLAIM
        return await self._mark(state, NightlyRun(state.retention.done, self._claimed_until))

    async def _mark(self, state: CatalogState, run: NightlyRun) -> bool:
        changed = replace(state, retention=run, revision=state.revision + 1)
        return await self._backends.catalog.replace(changed)


def _last_due(now: datetime, hour: int) -> datetime:
    due = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return due if due <= now else due - timedelta(days=1)
