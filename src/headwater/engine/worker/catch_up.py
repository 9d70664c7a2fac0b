"""The consumer group of a backfill: its events, run for the new version of the feature alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from headwater.backends.connect import connect_group
from headwater.backends.intercepted import intercepted
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Interceptors
from headwater.declarations.run_set import RunSet
from headwater.engine.engine import Engine
from headwater.engine.worker.batch import run_batch
from headwater.engine.worker.lanes import Lane
from headwater.engine.worker.quarantine import run_quarantined
from headwater.errors import BackendError, LeaseLostError, VersionConflictError
from headwater.features.conversions import conversions
from headwater.model.catalog import BackfillState
from headwater.model.values import INTERNAL, new_id
from headwater.ports import Batch, Delivery, Lease, Outcome, position_order

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

    async def _outcome(self, lane: Lane, batch: Batch) -> Outcome:
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
        return only is None or (only == self._variant.series and delivery.group == self._main_group)


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
