"""Joining: workers begin to run a new version of a feature, one partition after the other.

A backfill's group has run the new version up to position B of a partition, and never further than
M, up to which the main group has run the other features. The worker that holds the partition in
the main group runs the group's events from B to M, marks the partition as joined in the catalog,
and from then on runs the new version with all the others. So each event counts once:

- Only the holder of the partition moves M, and it has no batch at work while it joins.
- A worker reads the catalog after each claim and before its first batch, so a partition that has
  joined is never run by a worker that has not noticed it; this needs no common set of features.
- A worker that lost its lease without noticing may go on joining. It reads M first and the catalog
  after that: if the partition had not joined by then, no worker had run the new version, and up
  to M nothing of it. Leases of the backfill's group keep two from running its events at once.
- A worker that dies before it marks the partition leaves B further on; the next one starts there.
  If it dies after that, the mark tells the next one to run the new version at once.
- Redriven events of the new version are run by the group that runs it at their position.
- The partition of ticks has no events of features and does not join. Nor do workers of other
  consumer groups: until the switch only the group that the backfill was started for runs it.
- The group exists until all partitions have joined or the backfill is cancelled, which shows in
  the catalog first. A worker reads that after it has become a member, and a group with members is
  not dropped, so it cannot be created again by a late claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NamedTuple

from headwater.declarations.features import FeatureDef
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.engine.worker.catch_up import CatchUp, catching_up
from headwater.errors import GroupInUseError, UnknownGroupError
from headwater.history.backfill.steps import joined
from headwater.history.versions import change_version
from headwater.model.catalog import BackfillState, CatalogState

GROUP_PREFIX = "backfill-"


class Joining(NamedTuple):
    """A version that workers begin to run: its definition, and its backfill."""

    variant: FeatureDef
    backfill: BackfillState


class Joiner:
    """Joins the partitions of one worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._members: dict[str, CatchUp] = {}
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._unjoined: frozenset[int] = frozenset()
        self._running: dict[str, FeatureDef] = {}

    def follow(self, run_set: RunSet) -> None:
        """Take over which versions the worker runs, and which partitions have not joined."""
        self._running = {feature.series: feature for feature in run_set.triggered}
        partitions = frozenset(range(self._engine.backends.bus.partitions))
        self._unjoined = frozenset[int]().union(
            *(
                partitions - joining.backfill.joined.keys()
                for joining in self._joining(self._engine.catalog.state)
            )
        )

    @property
    def is_done(self) -> bool:
        """Whether this worker is a member of groups in which no partition is left to join."""
        return bool(self._members) and not any(self._joining(self._engine.catalog.state))

    def is_due(self, partition: int) -> bool:
        """Return whether a partition has to be joined before its next batch."""
        return partition in self._unjoined

    def _joining(self, state: CatalogState) -> Iterator[Joining]:
        """Yield the versions that the worker runs and that join."""
        group = self._engine.settings.worker.consumer_group
        for version in state.versions():
            backfill, variant = version.backfill, self._running.get(version.series)
            if version.state != "joining" or backfill is None or variant is None:
                continue
            if backfill.main_group == group:
                yield Joining(variant, backfill)

    async def join(self, partition: int) -> bool:
        """Join a partition that this worker holds and runs no batch of.

        Return False if another member of a backfill's group holds it there at the moment.
        """
        backends, group = self._engine.backends, self._engine.settings.worker.consumer_group
        for joining in self._joining(await backends.catalog.load()):
            series = joining.variant.series
            member = await self._member(joining)
            position = (await backends.groups.positions(group))[partition]
            # Read after the position, and as a member of the group.
            if not self._is_unjoined(await backends.catalog.load(), series, partition):
                continue
            if not await member.advance(partition, position):
                return False
            mark = joined(partition, position, backends.bus.partitions)
            await self._engine.catalog.change(partial(change_version, series=series, change=mark))
        self._unjoined -= {partition}
        return True

    async def _member(self, joining: Joining) -> CatchUp:
        async with self._opening:
            group = joining.backfill.group
            if group not in self._members:
                member = catching_up(self._engine, *joining)
                self._members[group] = await self._open.enter_async_context(member)
            return self._members[group]

    def _is_unjoined(self, state: CatalogState, series: str, partition: int) -> bool:
        return any(
            joining.variant.series == series and partition not in joining.backfill.joined
            for joining in self._joining(state)
        )

    async def leave(self) -> None:
        """Leave the groups of backfills, and drop those that are not needed any more."""
        async with self._opening:
            if not self._members:
                return
            self._members.clear()
            await self._open.aclose()
        await drop_unneeded_groups(self._engine)


async def drop_unneeded_groups(engine: Engine) -> None:
    """Drop the groups of backfills in which all partitions have joined, or that were cancelled.

    A group that another worker is still a member of is dropped by that one.
    """
    groups = await engine.backends.groups.groups()
    existing = {group.name for group in groups if group.name.startswith(GROUP_PREFIX)}
    # Read after the groups: a backfill is in the catalog before its group exists.
    state = await engine.backends.catalog.load()
    needed = {
        version.backfill.group
        for version in state.versions()
        if version.backfill is not None and version.state in ("building", "joining")
    }
    for name in existing - needed:
        with suppress(GroupInUseError, UnknownGroupError):
            await engine.backends.groups.drop(name)
