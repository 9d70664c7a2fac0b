"""From settings to backends: the only place that chooses, and the only one that loads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, get_args

import msgspec

from headwater.backends.memory import MemoryCache
from headwater.backends.observed import observed
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import ConfigError, MissingExtraError
from headwater.ports import Backends, Change, Health, LogKind, OfflineStore, PastValue, Point, Rows
from headwater.settings.schema import Settings


async def connect(settings: Settings, clock: Clock) -> Backends:
    """Opens the backends of the chosen environment, watched by metrics and logs."""
    log.configure(settings.log.level, settings.log.format)
    chosen = await _servers(settings, clock) if on_servers(settings) else _embedded(settings, clock)
    if not settings.record.include_content:
        # What searches found is kept in clear nowhere, not even for a while.
        chosen = msgspec.structs.replace(chosen, cache=MemoryCache(clock))
    return observed(chosen)


def on_servers(settings: Settings) -> bool:
    """Says whether the store lives on Redis and Postgres, which always come together."""
    given = {"redis.url": settings.redis.url, "postgres.url": settings.postgres.url}
    missing = [name for name, url in given.items() if not url]
    if missing and (settings.env == "production" or len(missing) < len(given)):
        raise ConfigError(
            f"{' and '.join(missing)} must be set: the store lives either on Redis and Postgres or "
            "in the embedded home; see `headwater config show`"
        )
    return not missing


async def _servers(settings: Settings, clock: Clock) -> Backends:
    redis = _load("headwater.backends.redis.environment", "Redis")
    postgres = _load("headwater.backends.postgres.environment", "Postgres")
    present = await redis.open_redis(settings, clock)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(present.close)
        past = await postgres.open_postgres(settings, clock, present.outbox)
        undo.pop_all()
    return Backends(
        bus=present.bus,
        leases=present.leases,
        dead_letters=present.dead_letters,
        online=present.online,
        offline=past.offline,
        records=past.records,
        cache=present.cache,
        lifecycle=_Both(present, past),
    )


class _Both:
    """The lifecycles of two servers as one."""

    def __init__(self, present: Any, past: Any) -> None:
        self._present = present
        self._past = past

    async def health(self) -> list[Health]:
        # The past first: what is new in the present is not so any more when it has agreed.
        past = await self._past.health()
        return [*await self._present.health(), *past]

    async def check_not_lost(self) -> None:
        await self._present.check_not_lost()

    @asynccontextmanager
    async def restoring(self, *, adopt: bool) -> AsyncIterator[None]:
        await self._present.found_again()
        owned = await self._past.ownership.take_over(adopt=adopt)
        yield
        await self._past.ownership.restored(owned)

    async def close(self) -> None:
        try:
            await self._past.close()
        finally:
            await self._present.close()


async def migrate(settings: Settings) -> list[int]:
    """Brings the tables of the past up to date; gives the versions that were missing.

    The embedded store does so by itself when it is opened.
    """
    if not on_servers(settings):
        return []
    backend = _load("headwater.backends.postgres.migrate", "Postgres")
    versions: list[int] = await backend.migrate(settings)
    return versions


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
        leases=present.leases,
        dead_letters=present.dead_letters,
        online=present.online,
        offline=OfflineOnFirstUse(past, due, present.cache.prune),
        records=present.records,
        cache=present.cache,
        lifecycle=present,
    )


def _load(module: str, server: str = "") -> ModuleType:
    """Loads a backend by name, so that what is not used is not imported.

    What a server needs is in an extra of its name; the embedded store needs none.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not server or (error.name or "").startswith("headwater"):
            raise
        raise MissingExtraError(server, server.lower()) from error


class OfflineOnFirstUse:
    """An offline store whose engine is loaded when first needed: it takes longer than a publish.

    Housekeeping begins with what needs no engine.
    """

    def __init__(
        self,
        load: Callable[[], OfflineStore],
        due: Callable[[], bool],
        tidy: Callable[[], Awaitable[None]],
    ) -> None:
        self._load = load
        self._due = due
        self._tidy = tidy
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
        await self._tidy()
        if self._store is not None or await asyncio.to_thread(self._due):
            await (await self._loaded()).maintain()
