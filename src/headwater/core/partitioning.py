"""Which partition an entity is in, and which worker should have which partition."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b


def partition_of(entity_id: str, partitions: int) -> int:
    """The partition of an entity: the same in every process and for ever."""
    return zlib.crc32(entity_id.encode()) % partitions


def wanted_by(worker: str, living: Sequence[str], partitions: int) -> frozenset[int]:
    """The partitions a worker should have among the living ones: as many as any other, or one more.

    All workers come to the same answer from the same list. Each partition goes to the worker
    that weighs most for it and has room left, so most stay where they are when one comes or goes.
    """
    owners = _owners(tuple(living), partitions) if living else []
    return frozenset(partition for partition, owner in enumerate(owners) if owner == worker)


@lru_cache(16)
def _owners(living: tuple[str, ...], partitions: int) -> list[str]:
    fewest, with_one_more = divmod(partitions, len(living))
    room = dict.fromkeys(living, fewest)
    owners: list[str] = []
    for partition in range(partitions):
        able = [worker for worker in living if room[worker] > (-1 if with_one_more else 0)]
        owner = max(able, key=lambda worker: (_weight(worker, partition), worker))
        with_one_more -= not room[owner]
        room[owner] -= 1
        owners.append(owner)
    return owners


def _weight(worker: str, partition: int) -> bytes:
    # Not a checksum: those of similar names differ alike for every partition, and one worker
    # would be given nearly all of them.
    return blake2b(f"{partition}/{worker}".encode(), digest_size=8).digest()
