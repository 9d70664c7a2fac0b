"""Choosing, loading, opening and examining the backends that the settings name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args

import msgspec

from headwater.backends.copied import CopiedCatalog, CopiedErasures
from headwater.backends.memory import MemoryCache
from headwater.backends.runners.choice import runner_of
from headwater.core.clock import Clock
from headwater.core.logging import Outage
from headwater.errors import BackendError, BackendUnavailableError, ConfigError, MissingExtraError
from headwater.model.admin import BackupReport
from headwater.model.health import Finding, Findings, Health
from headwater.ports import Backends, HealthCheck, LogKind, OfflineStore
from headwater.settings.schema import Settings, on_servers

if TYPE_CHECKING:
    from headwater.backends.kafka.environment import KafkaEnvironment
    from headwater.backends.lake.store import LakeOfflineStore
    from headwater.backends.postgres.environment import PostgresEnvironment
    from headwater.backends.redis.environment import RedisEnvironment
    from headwater.backends.sqlite.environment import SqliteEnvironment


# A probe of Redis waits for so long for the comparison with Postgres, which may be slow.
_PROOF_SECONDS = 0.5
_PROOF_PAUSE_SECONDS = 5.0

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=OfflineStore)


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
    if settings.bus.url:
        await _load("headwater.backends.kafka.environment", "Kafka").create_topic(settings)
    backend = _load("headwater.backends.postgres.migrate", "Postgres")
    versions: list[int] = await backend.migrate(settings)
    return versions


def restore(settings: Settings, folder: Path, home: Path | None = None) -> BackupReport:
    """Make a home, by default that of the settings, from a backup of an embedded store."""
    if home is None and on_servers(settings):
        raise ConfigError(
            "a backup of `headwater backup` is of an embedded home, and HEADWATER_ENV is "
            "production; name the home to make with --to"
        )
    report: BackupReport = _load("headwater.backends.sqlite.backup").restore(
        folder.absolute(), (home or Path(settings.home)).absolute()
    )
    return report


async def _servers(settings: Settings, clock: Clock) -> Backends:
    # All are loaded before the first one is opened.
    kafka_module = (
        _load("headwater.backends.kafka.environment", "Kafka") if settings.bus.url else None
    )
    redis_module = _load("headwater.backends.redis.environment", "Redis")
    postgres_module = _load("headwater.backends.postgres.environment", "Postgres")
    redis: RedisEnvironment = await redis_module.open_redis(settings, clock)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(redis.close)
        postgres: PostgresEnvironment = await postgres_module.open_postgres(
            settings, clock, redis.outbox
        )
        undo.push_async_callback(postgres.close)
        kafka: KafkaEnvironment | None = None
        if kafka_module is not None:
            kafka = await kafka_module.open_kafka(
                settings, clock, redis.bus, redis.groups, redis.feed, redis.outbox.identity
            )
        undo.pop_all()
    lake = _lake_on_servers(settings, clock, postgres)
    catalog = CopiedCatalog(redis.catalog, postgres.catalog, redis.outbox)
    erasures = CopiedErasures(redis.erasures, postgres.erasures)
    return Backends(
        bus=redis.bus if kafka is None else kafka.bus,
        leases=redis.leases,
        groups=redis.groups if kafka is None else kafka.groups,
        dead_letters=redis.dead_letters,
        online=redis.online,
        offline=lake if settings.lake.url else postgres.offline,
        catalog=catalog,
        vectors=postgres.vectors,
        records=postgres.records,
        audit_log=postgres.audit_log,
        erasures=erasures,
        cache=redis.cache,
        notes=redis.cache,
        lifecycle=_ServerLifecycle(redis, postgres, catalog, erasures, kafka, lake),
        source_tables=postgres.source_tables,
        lake=lake.loaded if settings.lake.url else None,
        feeder=None if kafka is None else kafka.feeder,
    )


class _ServerLifecycle:
    """The lifecycle of Redis and Postgres together, and of Kafka if it has the events."""

    def __init__(
        self,
        redis: RedisEnvironment,
        postgres: PostgresEnvironment,
        catalog: CopiedCatalog,
        erasures: CopiedErasures,
        kafka: KafkaEnvironment | None,
        lake: LazyOfflineStore[LakeOfflineStore],
    ) -> None:
        self._lake = lake
        self._redis, self._postgres, self._kafka = redis, postgres, kafka
        self._catalog, self._erasures = catalog, erasures
        self._proving: asyncio.Task[None] | None = None
        self._prove_at = 0.0
        self._connections: set[object] = set()
        self._outage = Outage("store")

    def checks(self) -> Sequence[HealthCheck]:
        return [
            HealthCheck("redis", self._redis_health),
            HealthCheck("postgres", self._postgres.health, needed=False),
            *([] if self._kafka is None else [HealthCheck("kafka", self._kafka.health)]),
        ]

    async def _redis_health(self) -> Health:
        # A store whose Postgres was unavailable when it was opened is confirmed first.
        with suppress(BackendError):
            await self._confirm()
        await asyncio.wait({self._prove()}, timeout=_PROOF_SECONDS)
        return await self._redis.health()

    async def check_values(self) -> None:
        await self._redis.check_values()
        connections: set[object] = {*self._redis.redis.connections.values()}
        before, self._connections = self._connections, connections
        if before and not connections <= before:
            # A server that was started again may have an older copy.
            self._postgres.doubt()
            await asyncio.wait({self._prove()}, timeout=_PROOF_SECONDS)
            await self._redis.check_values()
        elif time.monotonic() >= self._prove_at:
            self._prove()  # not awaited: reads must not depend on Postgres

    def _prove(self) -> asyncio.Task[None]:
        """Start to compare Redis and Postgres, unless that is being done."""
        if self._proving is None or self._proving.done():
            self._prove_at = time.monotonic() + _PROOF_PAUSE_SECONDS
            self._proving = asyncio.create_task(self._try_to_prove())
        return self._proving

    async def _try_to_prove(self) -> None:
        with (
            self._outage.reporting("error", "store mismatch", "proof"),
            suppress(BackendUnavailableError),
        ):
            await self._postgres.prove()

    async def check_store(self) -> None:
        await self._confirm()
        await self._redis.check_values()

    async def _confirm(self) -> None:
        if not (await self._redis.outbox.identity()).is_confirmed:
            # While Postgres is unavailable, claims of partitions are refused with the reason.
            with suppress(BackendUnavailableError):
                await self._postgres.store_check.check()

    @asynccontextmanager
    async def restoring(self, *, adopt: bool) -> AsyncIterator[Collection[int] | None]:
        await self._redis.create_store()
        hand_over = None if self._kafka is None else self._kafka.hand_over
        check = self._postgres.store_check
        async with check.restoring(adopt=adopt, hand_over=hand_over) as lacking:
            if adopt:
                await self._catalog.restore()
            # Before the first value: those of erased entities are left out.
            await self._erasures.restore()
            yield lacking

    async def check_files(self) -> None:
        """Do nothing: servers check what they store."""

    async def scrub(self) -> None:
        """Do nothing: the files belong to the servers."""

    async def back_up(self, folder: Path) -> BackupReport:
        raise ConfigError(
            "`headwater backup` copies an embedded home, and this store is on Redis and Postgres: "
            "back up Postgres with pg_dump or your provider's snapshots (see Backups in the docs)"
        )

    async def close(self) -> None:
        try:
            if self._proving is not None:
                self._proving.cancel()
                await asyncio.wait({self._proving})
            await self._catalog.close()
            if self._kafka is not None:
                await self._kafka.close()
            await _close(self._lake)
            await self._postgres.close()
        finally:
            await self._redis.close()


async def _close(lake: LazyOfflineStore[LakeOfflineStore]) -> None:
    """Close the lake if it was opened, or is just being opened."""
    await lake.settled()
    if lake.opened is not None:
        await asyncio.to_thread(lake.opened.close)


def _embedded(settings: Settings, clock: Clock) -> Backends:
    module = _load("headwater.backends.sqlite.environment")
    sqlite: SqliteEnvironment = module.SqliteEnvironment(settings, clock)
    tail, limits = sqlite.tail, settings.offline
    runner = runner_of(settings.runner, of_frames=True)

    def load() -> OfflineStore:
        store: OfflineStore = _load("headwater.backends.duckdb.store").DuckdbOfflineStore(
            tail, sqlite.home.segments, sqlite.home.scratch, clock, limits, runner
        )
        return store

    def has_full_segment() -> bool:
        kinds = get_args(LogKind)
        return any(tail.bound(kind, limits.segment_rows) is not None for kind in kinds)

    work = (has_full_segment, sqlite.cache.prune)
    lake = LazyOfflineStore(lambda: _lake(settings, clock, sqlite), *work)
    sqlite.before_close = partial(_close, lake)
    return Backends(
        bus=sqlite.bus,
        leases=sqlite.leases,
        groups=sqlite.groups,
        dead_letters=sqlite.dead_letters,
        online=sqlite.online,
        offline=lake if settings.lake.url else LazyOfflineStore(load, *work),
        catalog=sqlite.catalog,
        vectors=sqlite.vectors,
        records=sqlite.records,
        audit_log=sqlite.audit_log,
        erasures=sqlite.erasures,
        cache=sqlite.cache,
        notes=sqlite.cache,
        lifecycle=sqlite,
        lake=lake.loaded if settings.lake.url else None,
    )


def _lake(settings: Settings, clock: Clock, sqlite: SqliteEnvironment) -> LakeOfflineStore:
    """Open the lake of a home, and move what the home still has of it."""
    module, home = _load("headwater.backends.lake.store", "lake"), sqlite.home
    store: LakeOfflineStore = module.LakeOfflineStore(
        sqlite.tail,
        settings.lake,
        module.open_catalog(settings.lake, module.catalog_in_home(home.path)),
        home.scratch,
        clock,
        settings.offline,
        runner_of(settings.runner, of_frames=True),
    )
    with ExitStack() as undo:
        undo.callback(store.close)
        store.create()
        store.adopt(sqlite.tail, home.segments)
        undo.pop_all()
    return store


def _lake_on_servers(
    settings: Settings, clock: Clock, postgres: PostgresEnvironment
) -> LazyOfflineStore[LakeOfflineStore]:
    """Return the lake whose tail is in Postgres; it takes over the rows that Postgres has."""
    tail, limits, lake = postgres.lake_tail, settings.offline, settings.lake

    def load() -> LakeOfflineStore:
        module = _load("headwater.backends.lake.store", "lake")
        positions = _load("headwater.backends.duckdb.store").EventPositions(*tail.POSITIONS)
        scratch = Path(settings.home) / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        # Not needed by a REST catalog.
        address = "" if lake.catalog else module.catalog_in_postgres(settings.postgres)
        store: LakeOfflineStore = module.LakeOfflineStore(
            *(tail, lake, module.open_catalog(lake, address, settings.postgres), scratch, clock),
            *(limits, runner_of(settings.runner, of_frames=True)),
            positions=positions,
            database=postgres.offline,
        )
        with ExitStack() as undo:
            undo.callback(store.close)
            tail.begin()
            store.create()
            undo.pop_all()
        return store

    def has_full_segment() -> bool:
        return any(tail.bound(kind, limits.segment_rows) for kind in get_args(LogKind))

    return LazyOfflineStore(load, has_full_segment, postgres.offline.maintain)


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


class LazyOfflineStore(Generic[S]):
    """An offline store that is loaded on first use: loading takes longer than a publish."""

    def __init__(
        self,
        load: Callable[[], S],
        has_work: Callable[[], bool],
        prune: Callable[[], Awaitable[None]],
    ) -> None:
        self._load = load
        self._has_work = has_work
        self._prune = prune
        self.opened: S | None = None
        """The store, once it is loaded."""
        self._opening: asyncio.Future[S] | None = None
        port = OfflineStore
        self.append, self.as_of = self._loading(port.append), self._loading(port.as_of)
        self.latest, self.rows = self._loading(port.latest), self._loading(port.rows)
        self.write_series = self._loading(port.write_series)
        self.export_history = self._loading(port.export_history)
        self.export_events = self._loading(port.export_events)
        self.events_after = self._loading(port.events_after)
        self.events_of = self._loading(port.events_of)
        self.prune, self.drop = self._loading(port.prune), self._loading(port.drop)
        self.forget, self.read_frame = self._loading(port.forget), self._loading(port.read_frame)
        self.query, self.prepare = self._loading(port.query), self._loading(port.prepare)

    def _loading(
        self, method: Callable[Concatenate[OfflineStore, P], Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a function that loads the store and calls its method of this name."""

        async def call(*arguments: P.args, **named: P.kwargs) -> T:
            own = methodcaller(method.__name__, *arguments, **named)
            result: T = await own(await self.loaded())
            return result

        return call

    async def loaded(self) -> S:
        """Return the store; first callers share one attempt to load it, also cancelled ones."""
        if self.opened is not None:
            return self.opened
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        return await asyncio.shield(self._opening)

    async def settled(self) -> None:
        """Wait until a load that has begun is over; its caller may have been cancelled."""
        if self._opening is not None:
            await asyncio.wait({self._opening})

    def _open(self) -> S:
        try:
            self.opened = store = self._load()
        except OSError as error:
            raise BackendUnavailableError(
                f"history could not be opened: {error}; free the missing resource"
            ) from error
        return store

    async def maintain(self) -> None:
        await self._prune()
        if self.opened is not None or await asyncio.to_thread(self._has_work):
            await (await self.loaded()).maintain()


_LAKE = ("lake", "headwater.backends.lake.inspection", "lake")
_KAFKA = ("event log", "headwater.backends.kafka.inspection", "kafka")
_SERVERS = (
    ("message bus", "headwater.backends.redis.inspection", "redis"),
    ("relational store", "headwater.backends.postgres.inspection", "postgres"),
)


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Return the findings of each backend that the settings name."""
    try:
        is_on_servers = on_servers(settings)
    except ConfigError as error:
        findings = Findings("message bus", "redis.url and postgres.url")
        findings.error("connection", str(error), "set both URLs, or neither")
        return findings.all
    found: list[Finding] = []
    if not is_on_servers:
        embedded = import_module("headwater.backends.sqlite.inspection")
        found += await asyncio.to_thread(embedded.inspect, settings)
    servers = [
        *(_SERVERS if is_on_servers else ()),
        *([_KAFKA] if is_on_servers and settings.bus.url else ()),
        *([_LAKE] if settings.lake.url else ()),
    ]
    parts = await asyncio.gather(*(_inspect_server(settings, clock, *server) for server in servers))
    return [*found, *(finding for part in parts for finding in part)]


def grants(settings: Settings) -> str:
    """Return the least rights of the store on its servers, as commands for their operators."""
    if not on_servers(settings):
        raise ConfigError(
            "an embedded store needs no rights on servers; set redis.url and postgres.url"
        )
    texts: list[str] = [
        _load(f"headwater.backends.{name.lower()}.grants", name).grants(settings)
        for name in ("Redis", "Postgres")
    ]
    return "\n\n".join(texts)


async def _inspect_server(
    settings: Settings, clock: Clock, area: str, module: str, extra: str
) -> list[Finding]:
    try:
        backend = import_module(module)
    except ImportError as error:
        findings = Findings(area, f"the driver of {extra}")
        findings.error("driver", f"{error}", f"pip install 'headwater[{extra}]'")
        return findings.all
    inspected: list[Finding] = await backend.inspect(settings, clock)
    return inspected
