"""Metrics and log records of writes that an erasure forbids."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter

from headwater.core.logging import log
from headwater.ports import Tombstone

ERASED_WRITES = Counter(
    "headwater_erased_writes_total",
    "Values, events and records of erased entities that were not written; `kind` is `value`, "
    "`event` or `record`.",
    ["kind"],
)


def count_erased(kind: str, dropped: Mapping[Tombstone, int]) -> int:
    """Count and log what was dropped, by the hash of the entity; return the number."""
    for tombstone, count in dropped.items():
        ERASED_WRITES.labels(kind).inc(count)
        log.info("erased entity not written", kind=kind, entity=tombstone.digest.hex(), count=count)
    return sum(dropped.values())
