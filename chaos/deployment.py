"""The rolling deploy of a new feature, and the events that the feature must handle."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chaos.fleet import NEXT_FEATURES, Fleet, pid_of
from chaos.plan import Step
from chaos.waiting import until
from headwater import FeatureStore
from headwater.backends.redis.client import command
from headwater.backends.redis.environment import open_redis
from headwater.errors import BackendError

_STARTED_WITHIN_SECONDS = 60.0


class Deployment:
    """Workers of the new features file are started, then those of the old one are stopped."""

    def __init__(self, store: FeatureStore, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet
        self._has_begun = False
        self.required: dict[str, int] = {}
        """For each account, the first event that the new feature must have handled."""
        self.fallbacks = 0
        """Whether the old workers resumed meanwhile, because all new ones had died."""

    def sending(self, steps: Iterable[Step]) -> None:
        """Remember events that are about to be published, if the deploy has begun."""
        if self._has_begun:
            for step in steps:
                if "number" in step.payload:
                    self.required.setdefault(step.entity_id, step.payload["number"])

    async def run(self) -> None:
        """Deploy the new features file."""
        generations: list[int] = []

        async def first_at_work(pids: Collection[int]) -> None:
            await until(lambda: self._hold_a_partition(pids), _STARTED_WITHIN_SECONDS)
            generations.append(await self._generation())
            self._has_begun = True

        await self._fleet.deploy(NEXT_FEATURES, first_at_work)
        if generations != [await self._generation()]:
            # Only events from now on are certain to be handled by the new workers.
            self.fallbacks += 1
            self.required.clear()

    async def _hold_a_partition(self, pids: Collection[int]) -> bool:
        """Return whether a worker has started: it claims partitions afterwards."""
        try:
            owners = [lag.owner for lag in await self._store.admin.lag()]
        except BackendError:
            return False
        return any(pid_of(owner) in pids for owner in owners if owner)

    async def _generation(self) -> int:
        """Return the number of changes between the sets of features of the workers."""
        redis = await open_redis(self._store.settings, self._store.clock)
        try:
            key = redis.keys.declared
            return int(await redis.redis.call(command(key, "HGET", key, "generation")))
        finally:
            await redis.close()
