"""The names of all keys. Keys of one partition share a hash tag, and so a slot in a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from headwater.core.partitioning import partition_of
from headwater.model.values import EntityKey

SET_ID = 16
"""The length of the id of a declared set, which begins the name of a worker in ``Keys.workers``."""


class PartitionKeys:
    """The keys of one partition as one consumer group uses them."""

    def __init__(self, prefix: str, partition: int, group: str) -> None:
        base = f"{prefix}:{{p{partition:02d}}}"
        self.events = f"{base}:events"
        self.changes = f"{base}:changes"
        self.dead = f"{base}:dlq"
        self.seen = f"{base}:seen"
        self.accepted = f"{base}:accepted"
        self.idle = f"{base}:idle"
        self.ticks = f"{base}:ticks"
        self.outbox = f"{base}:outbox"
        self.cross_shard = f"{base}:cross-shard"
        self.arrived = f"{base}:arrived"
        self.probe = f"{base}:probe"
        self.erasures = f"{base}:erasures"
        self.feed = f"{base}:feed"
        self.fed = f"{base}:fed"
        self.groups = f"{base}:group:"
        self.group = f"{self.groups}{group}"
        self.leases = f"{base}:lease:"
        self.lease = f"{self.leases}{group}"
        self._group = group
        self._unhandled = f"{base}:unhandled:"
        self.entity = f"{base}:entity:"
        self.ids = f"{base}:ids:"

    def large(self, entities: Iterable[str]) -> list[str]:
        """Return the keys that may hold much by themselves, in a store with these entities."""
        return [
            *(self.events, self.changes, self.dead, self.seen, self.accepted),
            *(self.cross_shard, self.feed, self.fed, self.unhandled(self._group)),
            *(f"{self.ids}{entity}" for entity in entities),
        ]

    def state(self, key: EntityKey) -> str:
        """Return the key of an entity's state."""
        return f"{self.entity}{key[0]}:{key[1]}"

    def unhandled(self, group: str) -> str:
        """Return the key of the events that features of a consumer group could not handle."""
        return f"{self._unhandled}{group}"


def unhandled(entity_id: str, series: str, position: str) -> str:
    """Return the member for an event that a feature could not handle, sorted by entity."""
    return f"{entity_id}\0{series}\0{position}"


class Keys:
    """The keys of one store as one consumer group uses them."""

    def __init__(self, prefix: str, partitions: int, group: str) -> None:
        self.partitions = partitions
        self.group = group
        self.meta = f"{prefix}:meta"
        self.catalog = f"{prefix}:catalog"
        self.workers = f"{prefix}:workers:{group}"
        self.declared = f"{{{self.workers}}}:declared"
        self.dead = f"{prefix}:dlq"
        self.moved = f"{{{prefix}:dlq}}:moved"
        self.wake = f"{prefix}:wake"
        self.commits = f"{prefix}:commits"
        self.cache = f"{prefix}:cache:"
        self.cache_drops = f"{prefix}:cache-drops"
        self.erasures = f"{prefix}:erasures"
        self._prefix = prefix

    @cached_property
    def parts(self) -> list[PartitionKeys]:
        """The keys of each partition; the last partition is for the ticks of SQL features."""
        return [
            PartitionKeys(self._prefix, partition, self.group)
            for partition in range(self.partitions + 1)
        ]

    @property
    def entity_parts(self) -> list[PartitionKeys]:
        """The keys of the partitions of entities."""
        return self.parts[: self.partitions]

    def owns(self, name: bytes) -> bool:
        """Return whether a key is one of the store."""
        return name.removeprefix(b"{").startswith(f"{self._prefix}:".encode())

    def named(self, group: str) -> Keys:
        """Return the keys as another consumer group uses them."""
        return Keys(self._prefix, self.partitions, group)

    def of(self, entity_id: str) -> PartitionKeys:
        """Return the keys of the partition that an entity is in."""
        return self.parts[partition_of(entity_id, self.partitions)]
