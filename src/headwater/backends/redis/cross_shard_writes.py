"""Writes of handlers to entities on other shards of a cluster: applied once, in order.

A script can write only to its own shard, so a commit puts changes for other shards into a stream of
its partition. They are applied from there: right after the commit, or by the next owner of the
partition. On a single server there are none, because the commit writes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from headwater.backends.redis.background_tasks import PartitionTasks
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.notifications import Notifications
from headwater.backends.redis.online import RedisOnlineStore, Sender
from headwater.backends.redis.stream_reader import next_entries
from headwater.core.partitioning import partition_of
from headwater.errors import BackendError
from headwater.model.values import Cells, EntityKey
from headwater.ports import Change, Lease, Outcome

_PAGE = 100
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Change]).decode


class SplitOutcome(NamedTuple):
    """The writes of an outcome: to its own shard, and encoded changes for other shards."""

    states: dict[EntityKey, Cells]
    changes: Sequence[Change]
    remote: bytes


class CrossShardWrites:
    """Changes on their way from the partition that made them to those of their entities."""

    def __init__(
        self, redis: Redis, keys: Keys, online: RedisOnlineStore, notifications: Notifications
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._online = online
        self._tasks = PartitionTasks(
            "cross-shard writes",
            "forwarding to other shards failed; retrying",
            notifications.wake_all,
        )
        self._epochs: dict[int, int] = {}
        """The epoch in which each partition was last known to have no pending changes."""

    def split(self, outcome: Outcome) -> SplitOutcome:
        """Split an outcome's changes by shard."""
        if not self._redis.clustered:
            return SplitOutcome({**outcome.states}, outcome.changes, b"")
        home, count = outcome.batch.lease.partition, self._keys.partitions
        local: list[Change] = []
        remote: list[Change] = []
        for change in outcome.changes:
            is_local = partition_of(change.entity_id, count) == home
            (local if is_local else remote).append(change)
        states = {
            key: cells
            for key, cells in outcome.states.items()
            if partition_of(key[1], count) == home
        }
        return SplitOutcome(states, local, _encode(remote) if remote else b"")

    async def send_pending(self, leases: Sequence[Lease]) -> None:
        """Send the pending changes of newly claimed partitions, and of failed sends."""
        if self._redis.clustered:
            pending = [
                lease for lease in leases if self._epochs.get(lease.partition) != lease.epoch
            ]
            await self._tasks.run(
                {lease.partition: partial(self._send_pending, lease) for lease in pending}
            )

    async def _send_pending(self, lease: Lease) -> None:
        await self.send(lease.partition)
        self._epochs[lease.partition] = lease.epoch

    async def send(self, partition: int) -> None:
        """Apply a partition's pending changes to other shards, each once."""
        try:
            await self._send_all(partition)
        except BackendError:
            self._epochs.pop(partition, None)
            raise

    async def _send_all(self, partition: int) -> None:
        stream, more = self._keys.parts[partition].cross_shard, True
        while more:
            entries, more = await next_entries(self._redis, stream, "", _PAGE)
            for position, (_, changes) in entries:
                sender = Sender(str(partition), position.decode())
                await self._online.apply(_decode(changes), sender)
            if entries:
                await self._redis.call(command(stream, "XDEL", stream, *(p for p, _ in entries)))

    async def close(self) -> None:
        await self._tasks.close()
