"""What handlers write to entities of other servers of a cluster: sent once, in order.

One server's script cannot write to another, so a commit there leaves these changes in a stream of
its own partition, and they are taken from it to where they belong: right after the commit, or by
the partition's next owner. On a single server there are none: its commit writes everything itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from headwater.backends.redis.background_tasks import Errands
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.notifications import Wakes
from headwater.backends.redis.online import RedisOnlineStore, Sender
from headwater.backends.redis.stream_reader import next_entries
from headwater.core.partitioning import partition_of
from headwater.core.values import Cells, EntityKey
from headwater.errors import BackendError
from headwater.ports import Change, Lease, Outcome

_PAGE = 100
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Change]).decode


class Written(NamedTuple):
    """What an outcome writes in its own partition's commit, and what is sent elsewhere."""

    states: dict[EntityKey, Cells]
    changes: Sequence[Change]
    parcel: bytes


class Parcels:
    """Takes changes from the partitions that made them to those of their entities."""

    def __init__(self, redis: Redis, keys: Keys, online: RedisOnlineStore, wakes: Wakes) -> None:
        self._redis = redis
        self._keys = keys
        self._online = online
        self._sending = Errands("sending on", "parcels cannot be sent on for now", wakes.wake_all)
        self._epochs: dict[int, int] = {}
        """The epoch in which each partition was last known to have none left."""

    def split(self, outcome: Outcome) -> Written:
        """Sorts an outcome's changes by where they are written."""
        if not self._redis.clustered:
            return Written({**outcome.states}, outcome.changes, b"")
        home, count = outcome.batch.lease.partition, self._keys.partitions
        own: list[Change] = []
        away: list[Change] = []
        for change in outcome.changes:
            here = partition_of(change.entity_id, count) == home
            (own if here else away).append(change)
        states = {
            key: cells
            for key, cells in outcome.states.items()
            if partition_of(key[1], count) == home
        }
        return Written(states, own, _encode(away) if away else b"")

    async def send_left(self, leases: Sequence[Lease]) -> None:
        """Sends what the last owners of newly claimed partitions, or we ourselves, left behind."""
        if self._redis.clustered:
            left = [each for each in leases if self._epochs.get(each.partition) != each.epoch]
            await self._sending.run({each.partition: partial(self._clear, each) for each in left})

    async def _clear(self, lease: Lease) -> None:
        await self.send(lease.partition)
        self._epochs[lease.partition] = lease.epoch

    async def send(self, partition: int) -> None:
        """Takes a partition's parcels to where they belong; each arrives once."""
        try:
            await self._send_all(partition)
        except BackendError:
            self._epochs.pop(partition, None)
            raise

    async def _send_all(self, partition: int) -> None:
        stream, more = self._keys.parts[partition].cross_shard, True
        while more:
            parcels, more = await next_entries(self._redis, stream, "", _PAGE)
            for position, (_, changes) in parcels:
                sender = Sender(str(partition), position.decode())
                await self._online.take(_decode(changes), sender)
            if parcels:
                await self._redis.call(command(stream, "XDEL", stream, *(p for p, _ in parcels)))

    async def close(self) -> None:
        await self._sending.close()
