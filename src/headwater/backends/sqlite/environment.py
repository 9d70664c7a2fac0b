"""Open the SQLite backends of the embedded environment."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

from headwater.backends.segment_files import damage_in, damaged_error
from headwater.backends.sqlite.backup import HAS_LAKE, back_up
from headwater.backends.sqlite.bus import SqliteBus
from headwater.backends.sqlite.cache import SqliteCache
from headwater.backends.sqlite.dead_letters import SqliteDeadLetters
from headwater.backends.sqlite.erasures import SqliteCatalog, SqliteErasures
from headwater.backends.sqlite.history_tail import SqliteRecentHistory
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.leases import SqliteGroups, SqliteLeases
from headwater.backends.sqlite.notifications import CommitNotifier, Waker
from headwater.backends.sqlite.online import SqliteOnlineStore
from headwater.backends.sqlite.records import SqliteAuditLog, SqliteRecordLog
from headwater.backends.sqlite.vectors.index import SqliteVectorIndex
from headwater.backends.sqlite.writer import Writer
from headwater.core.clock import Clock
from headwater.errors import BackendError, ConfigError
from headwater.model.admin import BackupReport
from headwater.model.health import Health
from headwater.ports import HealthCheck
from headwater.settings.schema import Settings


def _write_probe(connection: sqlite3.Connection) -> None:
    # SQLite writes nothing to the disk if the value does not change.
    connection.execute("REPLACE INTO meta VALUES ('probe', ?)", (str(time.monotonic_ns()),))


class SqliteEnvironment:
    """All backends in the database of one home, which is created if needed."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.home = Home(Path(settings.home).absolute(), settings.partitions)
        self.home.open()
        group = settings.worker.consumer_group
        self._waker = Waker(self.home.workers)
        self._notifier = CommitNotifier(self.home.waiting)
        self._writer = Writer(self.home, self._waker.wake, self._notifier.wake)
        self.leases = SqliteLeases(self.home, self._writer, group, settings.worker.lease_ttl)
        self.groups = SqliteGroups(self.home, self._writer, settings.worker.lease_ttl)
        self.erasures = SqliteErasures(self.home, self._writer)
        self.online = SqliteOnlineStore(self.home, self._writer, self.erasures, group)
        self.bus = SqliteBus(self.home, self._writer, self.leases, self.erasures, clock, group)
        self.dead_letters = SqliteDeadLetters(self.home, self._writer, clock)
        self.records = SqliteRecordLog(self.home, self._writer, self.erasures)
        self.vectors = SqliteVectorIndex(self.home, self._writer, clock)
        self.cache = SqliteCache(self.home, self._writer, clock)
        self.catalog = SqliteCatalog(self.home, self._writer)
        self.audit_log = SqliteAuditLog(self.home, self._writer)
        self.tail = SqliteRecentHistory(self.home, self.erasures)
        self.before_close: Callable[[], Awaitable[None]] | None = None
        """What ends before the connections to the home do."""

    def checks(self) -> Sequence[HealthCheck]:
        return [HealthCheck("sqlite", self._health)]

    async def _health(self) -> Health:
        try:
            await self._writer.run(_write_probe)
        except BackendError as error:
            return Health("sqlite", ok=False, detail=str(error))
        return Health("sqlite", ok=True)

    async def check_values(self) -> None:
        """Raise StoreLostError if the database was deleted or replaced while it was open."""
        with self.home.translated():
            self.home.check_not_replaced()

    async def check_store(self) -> None:
        """Do nothing: values and history are in one folder and cannot be lost separately."""

    async def check_files(self) -> None:
        """Raise HomeError if a segment is not the file that was written."""

        def check() -> None:
            with self.home.translated():
                live = [s for s in self.tail.manifest() if s.retired_at is None]
                damage = damage_in(self.home.segments, live, is_whole=True)
            if damage:
                raise damaged_error(self.home.segments, damage)

        await asyncio.to_thread(check)

    @asynccontextmanager
    async def restoring(self, *, adopt: bool) -> AsyncIterator[Collection[int] | None]:
        """Do nothing, for the same reason."""
        yield None

    async def scrub(self) -> None:
        """Write the database anew: deleted and moved rows leave bytes in the pages they were in."""

        def rewrite() -> None:
            with (
                self.home.translated(),
                closing(self.home.write_lock()) as lock,
                lock,
                closing(self.home.connect()) as connection,
            ):
                connection.execute("VACUUM")

        await asyncio.to_thread(rewrite)
        await self._writer.run(lambda _: None, erases=True)

    async def back_up(self, folder: Path) -> BackupReport:
        if self._settings.lake.url:
            raise ConfigError(HAS_LAKE)
        return await asyncio.to_thread(back_up, self.home, folder, self._clock.now())

    async def close(self) -> None:
        if self.before_close is not None:
            await self.before_close()
        self.bus.close()
        self.leases.close()
        self._writer.close()
        self._waker.close()
        self._notifier.close()
        self.home.close()
