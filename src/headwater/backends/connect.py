"""Choosing, loading and opening the backends that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, get_args

import msgspec

from headwater.backends.copied import CopiedCatalog, CopiedErasures
from headwater.backends.inline_runner import InlineRunner
from headwater.backends.memory import MemoryCache
from headwater.core.clock import Clock
from headwater.errors import BackendError, BackendUnavailableError, MissingExtraError
from headwater.model.events import EventPage
from headwater.model.health import Health
from headwater.ports import (
    Backends,
    Change,
    EventFilter,
    FrameQuery,
    HealthCheck,
    HistoryRow,
    LogKind,
    OfflineStore,
    PastValue,
    Point,
    Pruned,
    Rows,
)
from headwater.settings.environments import on_servers
from headwater.settings.schema import Settings

if TYPE_CHECKING:
    from headwater.backends.postgres.environment import PostgresEnvironment
    from headwater.backends.redis.environment import RedisEnvironment
    from headwater.backends.sqlite.environment import SqliteEnvironment


@asynccontextmanager
async def connect_group(settings: Settings, clock: Clock) -> AsyncIterator[Backends]:
    """Open the backends for the consumer group of a backfill, whose events count in no metric."""
    backends = await connect(settings, clock)
    try:
        yield backends
    finally:
        await backends.lifecycle.close()


async def connect(settings: Settings, clock: Clock) -> Backends:
    """Open the backends of the chosen environment."""
    is_on_servers = on_servers(settings)
    backends = await _servers(settings, clock) if is_on_servers else _embedded(settings, clock)
    if settings.record.is_private:
        # Retrieved content must not be stored, not even in a cache on disk.
        cache = MemoryCache(clock, shared=backends.cache)
        backends = msgspec.structs.replace(backends, cache=cache)
    return backends


async def migrate(settings: Settings) -> list[int]:
    """Create the tables in Postgres; return the versions that were applied.

    The embedded store creates its tables when it is opened.
    """
    if not on_servers(settings):
        return []
    backend = _load("headwater.backends.postgres.migrate", "Postgres")
    versions: list[int] = await backend.migrate(settings)
    return versions


async def _servers(settings: Settings, clock: Clock) -> Backends:
    # Both are loaded before the first one is opened.
    redis_module = _load("headwater.backends.redis.environment", "Redis")
    postgres_module = _load("headwater.backends.postgres.environment", "Postgres")
    redis: RedisEnvironment = await redis_module.open_redis(settings, clock)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(redis.close)
        postgres: PostgresEnvironment = await postgres_module.open_postgres(
            settings, clock, redis.outbox
        )
        undo.pop_all()
    catalog = CopiedCatalog(redis.catalog, postgres.catalog, redis.outbox)
    erasures = CopiedErasures(redis.erasures, postgres.erasures)
    return Backends(
        bus=redis.bus,
        leases=redis.leases,
        groups=redis.groups,
        dead_letters=redis.dead_letters,
        online=redis.online,
        offline=postgres.offline,
        catalog=catalog,
        vectors=postgres.vectors,
        records=postgres.records,
        audit_log=postgres.audit_log,
        erasures=erasures,
        cache=redis.cache,
        notes=redis.cache,
        lifecycle=_ServerLifecycle(redis, postgres, catalog, erasures),
    )


class _ServerLifecycle:
    """The lifecycle of Redis and Postgres together."""

    def __init__(
        self,
        redis: RedisEnvironment,
        postgres: PostgresEnvironment,
        catalog: CopiedCatalog,
        erasures: CopiedErasures,
    ) -> None:
        self._redis = redis
        self._postgres = postgres
        self._catalog = catalog
        self._erasures = erasures

    def checks(self) -> Sequence[HealthCheck]:
        return [
            HealthCheck("redis", self._redis_health),
            HealthCheck("postgres", self._postgres.health, needed=False),
        ]

    async def _redis_health(self) -> Health:
        # A store whose Postgres was unavailable when it was opened is confirmed first.
        with suppress(BackendError):
            await self.check_store()
        return await self._redis.health()

    async def check_values(self) -> None:
        await self._redis.check_values()

    async def check_store(self) -> None:
        if not (await self._redis.outbox.identity()).is_confirmed:
            # While Postgres is unavailable, claims of partitions are refused with the reason.
            with suppress(BackendUnavailableError):
                await self._postgres.store_check.check()

    @asynccontextmanager
    async def restoring(self, *, adopt: bool) -> AsyncIterator[None]:
        await self._redis.create_store()
        async with self._postgres.store_check.restoring(adopt=adopt):
            if adopt:
                await self._catalog.restore()
            # Before the first value: those of erased entities are left out.
            await self._erasures.restore()
            yield

    async def scrub(self) -> None:
        """Do nothing: the files belong to the servers."""

    async def close(self) -> None:
        try:
            await self._catalog.close()
            await self._postgres.close()
        finally:
            await self._redis.close()


def _embedded(settings: Settings, clock: Clock) -> Backends:
    module = _load("headwater.backends.sqlite.environment")
    sqlite: SqliteEnvironment = module.SqliteEnvironment(settings, clock)
    tail, limits = sqlite.tail, settings.offline

    def load() -> OfflineStore:
        store: OfflineStore = _load("headwater.backends.duckdb.store").DuckdbOfflineStore(
            tail, sqlite.home.segments, sqlite.home.scratch, clock, limits, InlineRunner()
        )
        return store

    def has_full_segment() -> bool:
        kinds = get_args(LogKind)
        return any(tail.bound(kind, limits.segment_rows) is not None for kind in kinds)

    return Backends(
        bus=sqlite.bus,
        leases=sqlite.leases,
        groups=sqlite.groups,
        dead_letters=sqlite.dead_letters,
        online=sqlite.online,
        offline=LazyOfflineStore(load, has_full_segment, sqlite.cache.prune),
        catalog=sqlite.catalog,
        vectors=sqlite.vectors,
        records=sqlite.records,
        audit_log=sqlite.audit_log,
        erasures=sqlite.erasures,
        cache=sqlite.cache,
        notes=sqlite.cache,
        lifecycle=sqlite,
    )


def _load(module: str, server: str = "") -> ModuleType:
    """Import a backend by name, so that unused drivers are not imported.

    The driver of a server is in the extra with its name; the embedded store needs no extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not server or (error.name or "").startswith("headwater"):
            raise
        raise MissingExtraError(server, server.lower()) from error


class LazyOfflineStore:
    """An offline store that is loaded on first use: loading takes longer than a publish."""

    def __init__(
        self,
        load: Callable[[], OfflineStore],
        has_work: Callable[[], bool],
        prune: Callable[[], Awaitable[None]],
    ) -> None:
        self._load = load
        self._has_work = has_work
        self._prune = prune
        self._store: OfflineStore | None = None

    async def _loaded(self) -> OfflineStore:
        if self._store is None:
            try:
                self._store = await asyncio.to_thread(self._load)
            except OSError as error:
                raise BackendUnavailableError(
                    f"history could not be opened: {error}; free the missing resource"
                ) from error
        return self._store

    async def append(self, changes: Sequence[Change]) -> int:
        return await (await self._loaded()).append(changes)

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        return await (await self._loaded()).as_of(features, points, known=known)

    async def latest(
        self, entity: str, *, after: str, limit: int
    ) -> list[tuple[str, dict[str, PastValue]]]:
        return await (await self._loaded()).latest(entity, after=after, limit=limit)

    async def rows(
        self,
        series: str,
        entity_id: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[HistoryRow]:
        store = await self._loaded()
        return await store.rows(series, entity_id, start=start, end=end, limit=limit)

    async def export_history(self, file: Path, *, after: int) -> int:
        return await (await self._loaded()).export_history(file, after=after)

    async def export_events(
        self,
        folder: Path,
        event_types: Collection[str],
        upto: Mapping[int, str],
        *,
        since: datetime | None = None,
        files: int,
    ) -> list[Path]:
        store = await self._loaded()
        return await store.export_events(folder, event_types, upto, since=since, files=files)

    async def events_after(
        self, position: str | None, only: EventFilter, *, within: timedelta, limit: int
    ) -> EventPage:
        store = await self._loaded()
        return await store.events_after(position, only, within=within, limit=limit)

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        store = await self._loaded()
        return await store.prune(history=history, events=events, dry_run=dry_run)

    async def drop(self, series: str) -> int:
        return await (await self._loaded()).drop(series)

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        store = await self._loaded()
        return await store.forget(entity, entity_id, keep=keep, dry_run=dry_run)

    async def read_frame(
        self, query: FrameQuery, answer: Path, progress: Callable[[int], None] | None = None
    ) -> None:
        await (await self._loaded()).read_frame(query, answer, progress)

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        return await (await self._loaded()).query(sql, sources)

    async def prepare(self, sql: str, sources: Mapping[str, str]) -> Sequence[str]:
        return await (await self._loaded()).prepare(sql, sources)

    async def maintain(self) -> None:
        await self._prune()
        if self._store is not None or await asyncio.to_thread(self._has_work):
            await (await self._loaded()).maintain()
