"""Assignment of entities to partitions, and of partitions to workers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

BUCKETS = 1024
"""How many buckets all entities are divided into; fixed, because stored files are, too."""


def bucket_of(entity_id: str) -> int:
    """Return the bucket of an entity: the same in every process and version."""
    return zlib.crc32(entity_id.encode()) % BUCKETS


def partition_of(entity_id: str, partitions: int) -> int:
    """Return the partition of an entity; all entities of a bucket are in one."""
    return zlib.crc32(entity_id.encode()) % BUCKETS % partitions


def assigned_partitions(worker: str, workers: Sequence[str], partitions: int) -> frozenset[int]:
    """Return the partitions that a worker should hold: an equal share, or one more.

    Every worker computes the same assignment from the same list of live workers. By rendezvous
    hashing with a capacity, each partition goes to the worker with the highest weight for it that
    is not full, so most partitions stay where they are when a worker joins or leaves.
    """
    owners = _owners(tuple(workers), partitions) if workers else []
    return frozenset(partition for partition, owner in enumerate(owners) if owner == worker)


@lru_cache(16)
def _owners(workers: tuple[str, ...], partitions: int) -> list[str]:
    share, extra = divmod(partitions, len(workers))
    capacity = dict.fromkeys(workers, share)
    owners: list[str] = []
    for partition in range(partitions):
        available = [worker for worker in workers if capacity[worker] > (-1 if extra else 0)]
        # A checksum such as CRC would not do: the checksums of two similar names differ in the same
        # way for every partition, so one worker would get nearly all partitions.
        weights = {
            blake2b(f"{partition}/{worker}".encode(), digest_size=8).digest(): worker
            for worker in sorted(available)
        }
        owner = weights[max(weights)]
        extra -= not capacity[owner]
        capacity[owner] -= 1
        owners.append(owner)
    return owners
