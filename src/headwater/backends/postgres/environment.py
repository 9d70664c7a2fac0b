"""Opening the Postgres side of the production environment."""

from __future__ import annotations

from contextlib import AsyncExitStack

from msgspec.structs import replace

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.erasures import CatalogCopy, PostgresErasures
from headwater.backends.postgres.errors import REFUSED
from headwater.backends.postgres.lake_tail import PostgresLakeTail
from headwater.backends.postgres.migrate import check_version, installed_version, migrate
from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.records import PostgresAuditLog, PostgresRecordLog
from headwater.backends.postgres.replicas import SHORT_SECONDS, ReplicaReads, replica_pools
from headwater.backends.postgres.source_tables import PostgresSourceTables
from headwater.backends.postgres.store import PostgresOfflineStore
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.backends.postgres.vectors.document_writes import CommittedDocuments
from headwater.backends.postgres.vectors.index import PostgresVectorIndex
from headwater.backends.postgres.vectors.search import search_parameters
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import BackendError, BackendUnavailableError, StoreMismatchError
from headwater.model.health import Health
from headwater.ports import Outbox, StoreIdentity
from headwater.settings.schema import Settings


class PostgresEnvironment:
    """History and records in one schema of one database."""

    def __init__(
        self, postgres: Postgres, settings: Settings, clock: Clock, outbox: Outbox
    ) -> None:
        self._postgres = postgres
        self._settings = settings
        self._schema = settings.postgres.schema
        self._outbox = outbox
        self.store_check = StoreCheck(postgres, outbox, self._schema)
        self._consumer = OutboxConsumer(
            postgres,
            outbox,
            self.store_check,
            CommittedDocuments(clock),
            settings.postgres.pool_size,
        )
        # Long queries may hold every connection of the pool, so records have one of their own. The
        # caller times out first, then the server, and last the driver.
        own = replace(settings.postgres, pool_size=1, timeout=settings.record.timeout + 1.0)
        writing = Postgres(own, limit="record.timeout")
        writing.before_first_use(postgres.prepare)
        given = settings.postgres
        self._replicas = replica_pools(given, search_parameters(settings.vectors))
        long_reads = ReplicaReads(postgres, self._replicas, given.replica_timeout)
        wait_seconds = min(given.replica_timeout, SHORT_SECONDS)
        is_shared = self._replicas and given.replica_reads == "all"
        reads = ReplicaReads(postgres, self._replicas, wait_seconds) if is_shared else postgres
        self.records = PostgresRecordLog(writing, postgres, reads, self.store_check)
        self.vectors = PostgresVectorIndex(
            postgres, reads, self._consumer, self.store_check, clock, settings.vectors
        )
        self.audit_log = PostgresAuditLog(postgres)
        self.catalog = CatalogCopy(postgres, self.store_check)
        self.erasures = PostgresErasures(postgres)
        self.source_tables = PostgresSourceTables(postgres, settings.postgres, clock)
        self.offline = PostgresOfflineStore(
            *(postgres, long_reads, self._consumer, self.erasures, clock, settings.postgres),
            has_lake=bool(settings.lake.url),
        )
        # The lock of a lake is held for as long as rows are moved.
        self._locks = Postgres(replace(settings.postgres, pool_size=1))
        self.lake_tail = PostgresLakeTail(
            postgres,
            self._locks,
            self._consumer,
            self.erasures,
            self.offline,
            settings.offline.segment_grace,
            clock,
        )

    async def prepare(self) -> None:
        """Check the tables, in development create them, and compare the stores."""
        version = await self._version()
        if version is None and self._settings.env == "development":
            await migrate(self._settings)
        else:
            check_version(version, self._schema)
        try:
            await self.store_check.compare(await self._outbox.identity())
        except StoreMismatchError as error:
            log.error("store mismatch", error=str(error))

    async def _version(self) -> int | None:
        return await self._postgres.run_unprepared(
            lambda connection: installed_version(connection, self._schema)
        )

    async def health(self) -> Health:
        """Return whether the tables can be written, have this version and belong to this store."""
        try:
            await self._postgres.prepare()
            check_version(await self._version(), self._schema)
            if (identity := await self._identity()) is not None:
                await self.store_check.compare(identity)
                await self.prove()
            await self._postgres.run(_write_probe)
        except BackendError as error:
            return Health("postgres", ok=False, detail=str(error), needed=False)
        return Health("postgres", ok=True)

    async def prove(self) -> None:
        """Raise StoreMismatchError unless Redis and Postgres continue each other; mark what is old.

        The proof of the last seconds is not repeated, unless it failed.
        """
        await self._consumer.prove()

    def doubt(self) -> None:
        """Let the next proof be made, however recent the last one is."""
        self._consumer.doubt()

    async def _identity(self) -> StoreIdentity | None:
        try:
            return await self._outbox.identity()
        except BackendError:
            return None  # the health of Redis reports this error

    async def close(self) -> None:
        await self.records.close()
        await self._consumer.close()
        await self._locks.close()
        for replica in self._replicas:
            await replica.close()
        await self._postgres.close()


async def _write_probe(connection: Connection) -> None:
    # Changes no value and no key, so it waits for no transaction that holds the store's owner.
    await connection.execute("UPDATE _meta SET version = version")


async def open_postgres(settings: Settings, clock: Clock, outbox: Outbox) -> PostgresEnvironment:
    """Open the schema that the settings name.

    If Postgres is unavailable, the store works without it, and it is checked before its first use.
    Raise if it refuses the user or the database: an operator has to correct the URL or the rights.
    """
    postgres = Postgres(settings.postgres, search_parameters(settings.vectors))
    environment = PostgresEnvironment(postgres, settings, clock, outbox)
    postgres.before_first_use(environment.prepare)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(environment.close)
        try:
            await postgres.prepare()
            await environment.prove()
        except StoreMismatchError as error:
            log.error("store mismatch", error=str(error))
        except BackendUnavailableError as error:
            if isinstance(error.__cause__, REFUSED):
                raise
            log.error("Postgres unavailable at start", error=str(error))
        undo.pop_all()
    return environment
