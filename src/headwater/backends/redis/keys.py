"""The names of all keys. Those of one partition share a hash tag, and so a slot of a cluster."""

from __future__ import annotations

from functools import cached_property

from headwater.core.partitioning import partition_of
from headwater.core.values import EntityKey


class PartitionKeys:
    """The keys of one partition, and those of its state for one consumer group."""

    def __init__(self, prefix: str, partition: int, group: str) -> None:
        own = f"{prefix}:{{p{partition:02d}}}"
        self.events = f"{own}:events"
        self.changes = f"{own}:changes"
        self.dead = f"{own}:dlq"
        self.seen = f"{own}:seen"
        self.idle = f"{own}:idle"
        self.ticks = f"{own}:ticks"
        self.outbox = f"{own}:outbox"
        self.parcels = f"{own}:parcels"
        self.arrived = f"{own}:arrived"
        self.group = f"{own}:group:{group}"
        self.lease = f"{own}:lease:{group}"
        self.entity = f"{own}:entity:"
        self.ids = f"{own}:ids:"

    def state(self, key: EntityKey) -> tuple[str, str]:
        """The key of an entity's state, and that of all ids of its kind."""
        return f"{self.entity}{key[0]}:{key[1]}", f"{self.ids}{key[0]}"


class Keys:
    """The keys of one store as one consumer group sees them."""

    def __init__(self, prefix: str, partitions: int, group: str) -> None:
        self.partitions = partitions
        self.group = group
        self.meta = f"{prefix}:meta"
        self.workers = f"{prefix}:workers:{group}"
        self.dead = f"{prefix}:dlq"
        self.moved = f"{{{prefix}:dlq}}:moved"
        self.wake = f"{prefix}:wake"
        self.cache = f"{prefix}:cache:"
        self._prefix = prefix

    @cached_property
    def parts(self) -> list[PartitionKeys]:
        """The keys of each partition; the last one carries the ticks of SQL features."""
        return [
            PartitionKeys(self._prefix, partition, self.group)
            for partition in range(self.partitions + 1)
        ]

    def of(self, entity_id: str) -> PartitionKeys:
        """The keys of the partition that an entity is in."""
        return self.parts[partition_of(entity_id, self.partitions)]
