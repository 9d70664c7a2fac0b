"""A sample of contexts that a seed determines, whichever order they come in. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple


class Drawn(NamedTuple):
    """A context of a sample; they sort by time."""

    created_at: datetime
    context_id: str


def shares(sizes: Mapping[str, int], sample: int) -> dict[str, int] | None:
    """Divide a sample among strata by their sizes, with one context of each at least.

    Return None if there are more strata than contexts in the sample: then none is divided.
    """
    total = sum(sizes.values())
    if len(sizes) > sample:
        return None
    if sample >= total:
        return dict(sizes)
    given = dict.fromkeys(sizes, 1)
    # The next context is that of the stratum which lacks the most.
    lacking = [(1 - size * sample / total, stratum) for stratum, size in sizes.items()]
    heapq.heapify(lacking)
    for _ in range(sample - len(sizes)):
        surplus, stratum = lacking[0]
        given[stratum] += 1
        heapq.heapreplace(lacking, (surplus + 1, stratum))
    return given


class Sample:
    """The contexts of each stratum whose ids, hashed with the seed, are the smallest."""

    def __init__(self, seed: int, size: int, parts: Mapping[str, int] | None = None) -> None:
        self._seed = seed
        self._size = size
        self._parts = parts
        self._drawn: defaultdict[str, list[tuple[int, Drawn]]] = defaultdict(list)

    def add(self, stratum: str, context: Drawn) -> None:
        """Add a context, which may take the place of another."""
        key = f"{self._seed}:{context.context_id}".encode()
        ranked = (-int.from_bytes(sha256(key).digest()[:8]), context)
        part = "" if self._parts is None else stratum
        size = self._size if self._parts is None else self._parts.get(stratum, 0)
        drawn = self._drawn[part]
        if len(drawn) < size:
            heapq.heappush(drawn, ranked)
        elif drawn:
            heapq.heappushpop(drawn, ranked)

    def contexts(self) -> list[Drawn]:
        """Return the contexts of the sample, the oldest first."""
        return sorted(context for drawn in self._drawn.values() for _, context in drawn)
