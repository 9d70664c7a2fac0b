"""Opening the Postgres side of the production environment."""

from __future__ import annotations

from contextlib import AsyncExitStack

from headwater.backends.postgres.dedicated_connection import DedicatedConnection
from headwater.backends.postgres.migrate import (
    VERSION,
    check_not_newer,
    check_not_older,
    installed,
    migrate,
)
from headwater.backends.postgres.outbox_consumer import Drain
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.records import PostgresRecordLog
from headwater.backends.postgres.store import PostgresOfflineStore
from headwater.backends.postgres.store_identity import Ownership
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import BackendError, BackendUnavailableError, StoreMismatchError
from headwater.ports import Health, Outbox, StoreIdentity
from headwater.settings.schema import Settings

_LOST = "see that redis.url and redis.prefix are right, or run `headwater rebuild`"


class PostgresEnvironment:
    """Everything that lives in one schema of one database, and the end of it."""

    def __init__(
        self, postgres: Postgres, settings: Settings, clock: Clock, outbox: Outbox
    ) -> None:
        self._postgres = postgres
        self._schema = settings.postgres.schema
        self._outbox = outbox
        self.ownership = Ownership(postgres, outbox)
        self._drain = Drain(postgres, outbox, self.ownership, settings.postgres.pool_size)
        self.records = PostgresRecordLog(
            DedicatedConnection(postgres, settings.postgres, settings.record.timeout),
            postgres,
            self.ownership,
        )
        self.offline = PostgresOfflineStore(postgres, self._drain, clock, self._schema)

    async def version(self) -> int:
        """The version of the tables that are there, 0 if there are none."""
        return await self._postgres.reach(lambda connection: installed(connection, self._schema))

    async def greet(self) -> None:
        """Sees whose past this is; a new store and a new past are each other's from now on."""
        try:
            if await self.ownership.check(await self._outbox.standing()) is None:
                log.error("Redis has lost its data", remedy=_LOST)
        except StoreMismatchError as error:
            log.error("Postgres has the past of another store", remedy=str(error))

    async def health(self) -> list[Health]:
        """Whether the tables can be read now, are those of this version, and this store's."""
        try:
            await self._postgres.begun()
            version = await self.version()
            check_not_newer(version, self._schema)
            check_not_older(version, self._schema)
            if (standing := await self._standing()) is not None:
                await self.ownership.check(standing)
        except BackendError as error:
            return [Health("postgres", ok=False, detail=str(error), needed=False)]
        return [Health("postgres", ok=True)]

    async def _standing(self) -> StoreIdentity | None:
        try:
            return await self._outbox.standing()
        except BackendError:
            return None  # that it cannot be asked is told by its own health

    async def close(self) -> None:
        await self.records.close()
        await self._drain.close()
        await self._postgres.close()


async def open_postgres(settings: Settings, clock: Clock, outbox: Outbox) -> PostgresEnvironment:
    """Checks the tables; in development it makes and upgrades them too.

    A Postgres that is away keeps nobody from working: it is checked when it is there.
    """
    postgres = Postgres(settings.postgres)
    await postgres.open()
    environment = PostgresEnvironment(postgres, settings, clock, outbox)

    async def begin() -> None:
        version = await environment.version()
        check_not_newer(version, settings.postgres.schema)
        if version < VERSION and settings.env == "development":
            await migrate(settings)
        else:
            check_not_older(version, settings.postgres.schema)

    postgres.first(begin)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(environment.close)
        try:
            await postgres.begun()
            await environment.greet()
        except BackendUnavailableError as error:
            log.error("Postgres is away, and history waits for it", error=str(error))
        undo.pop_all()
    return environment
