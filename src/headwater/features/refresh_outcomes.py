"""How the last runs of scheduled features ended, kept in the store for every process to read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import msgspec

from headwater.core.clock import EPOCH, Clock
from headwater.core.logging import Outage
from headwater.declarations.features import FeatureDef
from headwater.errors import BackendError
from headwater.ports import Cache, Cached

REFRESH_OUTCOMES = "refresh:"
"""The beginning of the keys of all outcomes."""

_KEPT = timedelta(days=3650)
# A success after a success changes little, and a write costs as much as a small batch.
_PAUSE = timedelta(seconds=10)
_ASK_MICROS = 1_000_000
_WITHHELD = "withheld, because an entity was erased since then; the next run shows it again"


class RefreshOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """When a scheduled feature last ran without an error, and since when it fails.

    A run with several parts, one for each partition, fails if one of them does.
    """

    succeeded_at: datetime | None = None
    query: str = ""
    """A hash of the query that succeeded, if it is that of a query."""
    failing_since: datetime | None = None
    failed_due: datetime | None = None
    """The due time of the last run that failed."""
    error: str = ""


_decode = msgspec.json.Decoder(RefreshOutcome).decode


class Success(NamedTuple):
    """When the last run of a query began that succeeded, and when that was asked for."""

    began: datetime
    asked_at: int


class RefreshOutcomes:
    """Writes and reads the outcomes of a store's scheduled features."""

    def __init__(self, notes: Cache, clock: Clock) -> None:
        self._notes = notes
        self._clock = clock
        self._succeeded: dict[str, datetime] = {}
        self._successes: dict[str, Success] = {}
        # Partitions run at the same time: a success must see a failure that is being written.
        self._writing = asyncio.Lock()
        self._outage = Outage("refreshes")

    async def write(self, feature: FeatureDef, due: datetime, error: str, began: datetime) -> None:
        """Keep how a run, or a part of it, ended; an empty ``error`` is a success.

        Values that a query returned are stored before, so that a default is a fact from then on.
        """
        try:
            async with self._writing:
                await self._write(feature, due, error, began)
        except BackendError as problem:
            # Values and their history do not depend on it; a default counts as older than it is.
            name = feature.name
            self._outage.report(
                "warning", "outcome of a refresh not stored", problem, name, feature=name
            )
        else:
            self._outage.recovered(feature.name)

    async def _write(self, feature: FeatureDef, due: datetime, error: str, began: datetime) -> None:
        name, now = feature.name, self._clock.now()
        is_recent = now - self._succeeded.get(name, EPOCH) < _PAUSE
        if not error and is_recent and feature.sql is None:
            return
        self._succeeded.pop(name, None)
        before = await self._read_one(name)
        ended = RefreshOutcome(succeeded_at=now)
        if feature.sql is not None:
            ended = RefreshOutcome(succeeded_at=began, query=_hash(feature.sql))
        outcome = _after(before, due, error, now, ended)
        if outcome != before:
            await self._put(name, outcome)
        if outcome.failing_since is None:
            self._succeeded[name] = now

    async def last_success(self, feature: FeatureDef) -> datetime | None:
        """Return when the last run of a query began that succeeded; ask once a second."""
        if feature.sql is None:
            return None
        success, now = self._successes.get(feature.name), self._clock.monotonic()
        if success is None or now - success.asked_at >= _ASK_MICROS:
            self._successes.pop(feature.name, None)
            outcome = await self._read_one(feature.name)
            if outcome.succeeded_at is None or outcome.query != _hash(feature.sql):
                return None
            success = self._successes[feature.name] = Success(outcome.succeeded_at, now)
        return success.began

    async def withhold_errors(self, features: Sequence[str]) -> None:
        """Replace the errors of features, which are written again by the next run that fails."""
        async with self._writing:
            for feature, outcome in (await self.read(features)).items():
                if outcome.error:
                    await self._put(feature, msgspec.structs.replace(outcome, error=_WITHHELD))

    async def read(self, features: Sequence[str]) -> dict[str, RefreshOutcome]:
        """Return the outcomes of features; nothing is known about one that never ran."""
        outcomes = await asyncio.gather(*map(self._read_one, features))
        return dict(zip(features, outcomes, strict=True))

    async def _put(self, feature: str, outcome: RefreshOutcome) -> None:
        value = msgspec.json.encode(outcome)
        await self._notes.put(_key(feature), Cached(value, self._clock.micros()), _KEPT)

    async def _read_one(self, feature: str) -> RefreshOutcome:
        stored = await self._notes.get(_key(feature))
        return _decode(stored.value) if stored else RefreshOutcome()


def _key(feature: str) -> str:
    return f"{REFRESH_OUTCOMES}{feature}"


def _hash(sql: str) -> str:
    return sha256(sql.encode()).hexdigest()[:16]


def _after(
    before: RefreshOutcome, due: datetime, error: str, now: datetime, succeeded: RefreshOutcome
) -> RefreshOutcome:
    if error:
        return msgspec.structs.replace(
            before, failing_since=before.failing_since or now, failed_due=due, error=error
        )
    if before.failed_due is not None and before.failed_due >= due:
        return before  # another part of this run has failed
    return succeeded
