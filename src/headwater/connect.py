"""From settings to backends: the only place that chooses, and the only one that loads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import get_args

from headwater.clock import Clock
from headwater.errors import ConfigError, MissingExtraError
from headwater.logs import log
from headwater.observe import observed
from headwater.ports import Backends, Change, LogKind, OfflineStore, PastValue, Point, Rows
from headwater.settings import Settings


async def connect(settings: Settings, clock: Clock) -> Backends:
    """Opens the backends of the chosen environment, watched by metrics and logs."""
    log.configure(settings.log.level, settings.log.format)
    if settings.env != "development" or settings.redis.url or settings.postgres.url:
        raise ConfigError(
            "this version has the embedded environment only; unset HEADWATER_ENV, "
            "HEADWATER_REDIS_URL and HEADWATER_POSTGRES_URL"
        )
    return observed(_embedded(settings, clock))


def _embedded(settings: Settings, clock: Clock) -> Backends:
    present = _load("headwater.backends.sqlite.environment").open_sqlite(settings, clock)
    home, tail, offline = present.home, present.tail, settings.offline

    def past() -> OfflineStore:
        store: OfflineStore = _load("headwater.backends.duckdb.store").DuckdbOfflineStore(
            tail, home.segments, home.scratch, clock, offline.segment_rows, offline.segment_grace
        )
        return store

    def due() -> bool:
        kinds = get_args(LogKind)
        return any(tail.bound(kind, offline.segment_rows) is not None for kind in kinds)

    return Backends(
        bus=present.bus,
        roster=present.roster,
        dead_letters=present.dead_letters,
        online=present.online,
        offline=OfflineOnFirstUse(past, due),
        lifecycle=present,
    )


def _load(module: str, extra: str = "") -> ModuleType:
    """Loads a backend by name, so that what is not used is not imported."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headwater"):
            raise
        raise MissingExtraError(module, extra) from error


class OfflineOnFirstUse:
    """An offline store whose engine is loaded when first needed: it takes longer than a publish."""

    def __init__(self, load: Callable[[], OfflineStore], due: Callable[[], bool]) -> None:
        self._load = load
        self._due = due
        self._store: OfflineStore | None = None

    async def _loaded(self) -> OfflineStore:
        if self._store is None:
            self._store = await asyncio.to_thread(self._load)
        return self._store

    async def append(self, changes: Sequence[Change]) -> None:
        await (await self._loaded()).append(changes)

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        return await (await self._loaded()).as_of(features, points, known=known)

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        return await (await self._loaded()).latest(entity, after=after, limit=limit)

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        return await (await self._loaded()).query(sql, sources)

    async def maintain(self) -> None:
        if self._store is not None or await asyncio.to_thread(self._due):
            await (await self._loaded()).maintain()
