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
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from headwater.backends.connect import connect_group
from headwater.backends.intercepted import intercepted
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Interceptors
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.engine.worker.batch import run_batch
from headwater.engine.worker.lanes import Lane, run_quarantined
from headwater.errors import (
    BackendError,
    GroupInUseError,
    LeaseLostError,
    UnknownGroupError,
    VersionConflictError,
)
from headwater.features.conversions import conversions
from headwater.history.backfill.steps import joined
from headwater.history.versions import change_version
from headwater.model.catalog import BackfillState, CatalogState
from headwater.model.values import INTERNAL, new_id
from headwater.ports import Batch, BatchOutcome, Delivery, Lease, position_order

GROUP_PREFIX = "backfill-"
_MAX_HEARTBEAT_SECONDS = 0.5
_MAX_CONTENTION = 20


class CatchUp:
    """A member of a backfill's group, which runs the group's events up to given positions."""

    def __init__(self, engine: Engine, variant: FeatureDef, backfill: BackfillState) -> None:
        self._engine = engine
        self._variant = variant
        self._run_set = RunSet([variant])
        self._group = backfill.group
        self._main_group = backfill.main_group
        self._worker = f"backfill-{new_id()[-12:]}"
        self._held: dict[int, Lease] = {}
        self._batch_size = self._size = engine.settings.worker.batch_size
        self._contention = 0
        self.events = 0
        """How many events were run so far."""

    @property
    def is_contended(self) -> bool:
        """Whether most batches conflict with those of the other group."""
        return self._contention >= _MAX_CONTENTION

    @asynccontextmanager
    async def registered(self) -> AsyncIterator[None]:
        """Be a member of the group for the code inside."""
        leases = self._engine.backends.leases
        await leases.register(self._worker, self._run_set.declared)
        await leases.heartbeat(self._worker, [])
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            yield
        finally:
            heartbeats.cancel()
            with suppress(BackendError):  # the leases expire
                await leases.deregister(self._worker)

    async def _send_heartbeats(self) -> None:
        pause = min(_MAX_HEARTBEAT_SECONDS, self._engine.settings.worker.lease_ttl / 4)
        while True:
            await asyncio.sleep(pause)
            with suppress(BackendError):  # a commit notices that a lease was lost
                leases = [*self._held.values()]
                await self._engine.backends.leases.heartbeat(self._worker, leases)

    async def advance(self, partition: int, upto: str, *, insists: bool = True) -> bool:
        """Run the events of a partition up to a position that the other group has committed.

        Return False if another member holds the partition or has taken it over, and unless it
        ``insists``, if most batches conflict.
        """
        if await self._is_at(partition, upto):
            return True
        leases = self._engine.backends.leases
        for lease in await leases.claim(self._worker, [partition]):
            self._held[partition] = lease
            lane = Lane(lease, self._batch_size)
            try:
                while insists or not self.is_contended:
                    batch = await self._next(lane, upto)
                    if batch is None:
                        break
                    await self._run(lane, batch)
            except LeaseLostError:
                return False
            finally:
                del self._held[partition]
                await leases.release([lease])
        return await self._is_at(partition, upto)

    async def _is_at(self, partition: int, upto: str) -> bool:
        positions = await self._engine.backends.groups.positions(self._group)
        return position_order(positions[partition]) >= position_order(upto)

    async def _next(self, lane: Lane, upto: str) -> Batch | None:
        """Return the next events up to a position; quarantined ones alone."""
        limit, last = 1 if lane.quarantined else self._size, position_order(upto)
        touches = self._run_set.touches
        for batch in await self._engine.backends.bus.read([lane.lease], limit, touches):
            due = [
                delivery
                for delivery in batch.deliveries
                if position_order(delivery.position) <= last
            ]
            return replace(batch, deliveries=due) if due else None
        return None

    async def _run(self, lane: Lane, batch: Batch) -> None:
        """Run a batch and commit it; after a conflict it is read again."""
        try:
            await self._engine.backends.bus.commit(await self._outcome(lane, batch))
        except VersionConflictError:
            # The workers of the other group write to the same entities. A shorter batch is less
            # likely to meet them.
            self._size = max(1, self._size // 2)
            self._contention += 2
        else:
            self._size = min(self._batch_size, 2 * self._size)
            self._contention = max(0, self._contention - 1)
            self.events += len(batch.deliveries)
            lane.quarantined = max(0, lane.quarantined - 1)

    async def _outcome(self, lane: Lane, batch: Batch) -> BatchOutcome:
        mine = [
            replace(delivery, group="") for delivery in batch.deliveries if self._concerns(delivery)
        ]
        own = replace(batch, deliveries=mine)
        if lane.quarantined and mine:
            outcome = await run_quarantined(self._engine, self._run_set, lane, own)
        else:
            outcome = await run_batch(self._engine, self._run_set, own)
        # This group ends with the backfill; the other one runs redriven dead letters.
        dead = [replace(letter, group=self._main_group) for letter in outcome.dead]
        return replace(outcome, batch=batch, dead=dead)

    def _concerns(self, delivery: Delivery) -> bool:
        event_type, only = delivery.event.event_type, delivery.only
        if event_type.startswith(INTERNAL) or event_type not in self._variant.triggers:
            return False
        if not delivery.group:
            return True
        return delivery.group == self._main_group and only in (None, self._variant.series)


@asynccontextmanager
async def catching_up(
    engine: Engine, variant: FeatureDef, backfill: BackfillState
) -> AsyncIterator[CatchUp]:
    """Join the consumer group of a backfill for the code inside."""
    settings = engine.settings.replace(worker={"consumer_group": backfill.group})
    async with connect_group(settings, engine.clock) as backends:
        converted = intercepted(backends, Interceptors(*conversions(engine.registry)))
        own = replace(engine, settings=settings, backends=converted)
        member = CatchUp(own, variant, backfill)
        async with member.registered():
            yield member


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
            now_joining = self._joining(await backends.catalog.load())
            if not any(
                other.variant.series == series and partition not in other.backfill.joined
                for other in now_joining
            ):
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

    async def leave(self) -> None:
        """Leave the groups of backfills, and drop groups that are not needed any more."""
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
