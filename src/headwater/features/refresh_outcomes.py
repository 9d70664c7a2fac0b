"""How the last runs of scheduled features ended, kept in the store for every process to read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from headwater.core.clock import EPOCH, Clock
from headwater.core.logging import log
from headwater.errors import BackendError
from headwater.ports import Cache, Cached

_KEPT = timedelta(days=3650)
# A success after a success changes little, and a write costs as much as a small batch.
_PAUSE = timedelta(seconds=10)


class RefreshOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """When a scheduled feature last ran without an error, and since when it fails.

    A run with several parts, one for each partition, fails if one of them does.
    """

    succeeded_at: datetime | None = None
    failing_since: datetime | None = None
    failed_due: datetime | None = None
    """The due time of the last run that failed."""
    error: str = ""


_decode = msgspec.json.Decoder(RefreshOutcome).decode


class RefreshOutcomes:
    """Writes and reads the outcomes of a store's scheduled features."""

    def __init__(self, notes: Cache, clock: Clock) -> None:
        self._notes = notes
        self._clock = clock
        self._succeeded: dict[str, datetime] = {}
        # Partitions run at the same time: a success must see a failure that is being written.
        self._writing = asyncio.Lock()

    async def write(self, feature: str, due: datetime, error: str) -> None:
        """Keep how a run, or a part of it, ended; an empty ``error`` is a success."""
        now = self._clock.now()
        try:
            async with self._writing:
                await self._write(feature, due, error, now)
        except BackendError as problem:
            # Values and their history do not depend on it.
            log.warning("outcome of a refresh not stored", feature=feature, error=str(problem))

    async def _write(self, feature: str, due: datetime, error: str, now: datetime) -> None:
        if not error and now - self._succeeded.get(feature, EPOCH) < _PAUSE:
            return
        before = await self._read_one(feature)
        outcome = _after(before, due, error, now)
        if outcome != before:
            value = msgspec.json.encode(outcome)
            await self._notes.put(_key(feature), Cached(value, self._clock.micros()), _KEPT)
        if outcome.failing_since is None:
            self._succeeded[feature] = now
        else:
            self._succeeded.pop(feature, None)

    async def read(self, features: Sequence[str]) -> dict[str, RefreshOutcome]:
        """Return the outcomes of features; nothing is known about one that never ran."""
        found = await asyncio.gather(*map(self._read_one, features))
        return dict(zip(features, found, strict=True))

    async def _read_one(self, feature: str) -> RefreshOutcome:
        stored = await self._notes.get(_key(feature))
        return _decode(stored.value) if stored else RefreshOutcome()


def _key(feature: str) -> str:
    return f"refresh:{feature}"


def _after(before: RefreshOutcome, due: datetime, error: str, now: datetime) -> RefreshOutcome:
    if error:
        return RefreshOutcome(
            succeeded_at=before.succeeded_at,
            failing_since=before.failing_since or now,
            failed_due=due,
            error=error,
        )
    if before.failed_due is not None and before.failed_due >= due:
        return before  # another part of this run has failed
    return RefreshOutcome(succeeded_at=now)
