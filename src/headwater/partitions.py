"""Which partition an entity is in, and which worker should have which partition."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b


def partition_of(entity_id: str, partitions: int) -> int:
    """The partition of an entity: the same in every process and for ever."""
    return zlib.crc32(entity_id.encode()) % partitions


def wanted_by(worker: str, living: Sequence[str], partitions: Iterable[int]) -> frozenset[int]:
    """The partitions a worker should have among the living ones, by rendezvous hashing.

    All workers come to the same answer from the same roster, and a worker that comes or goes
    moves only its own share.
    """
    return frozenset(
        p for p in partitions if max(living, key=lambda w: (_weight(w, p), w)) == worker
    )


def _weight(worker: str, partition: int) -> bytes:
    # Not a checksum: those of similar names differ alike for every partition, and one worker
    # would be given nearly all of them.
    return blake2b(f"{partition}/{worker}".encode(), digest_size=8).digest()
