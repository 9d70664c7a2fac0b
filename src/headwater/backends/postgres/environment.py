"""Opening the Postgres side of the production environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from headwater.backends.postgres.drain import FOREIGN, Drain
from headwater.backends.postgres.line import Line
from headwater.backends.postgres.migrate import (
    VERSION,
    installed,
    migrate,
    refuse_newer,
    refuse_older,
)
from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.records import PostgresRecordLog
from headwater.backends.postgres.store import PostgresOfflineStore
from headwater.clock import Clock
from headwater.errors import AwayError, BackendError
from headwater.logs import log
from headwater.ports import Health, Outbox
from headwater.settings import Settings

_AGREE = "UPDATE _meta SET store_id = $1 WHERE store_id IS NULL"
# Positions of another store mean nothing here.
_ADOPT = """
WITH adopted AS (
    UPDATE _meta SET store_id = $1 WHERE store_id IS DISTINCT FROM $1 RETURNING true
)
UPDATE _outbox SET history = '', events = '' WHERE EXISTS (SELECT FROM adopted)
"""


class PostgresEnvironment:
    """Everything that lives in one schema of one database, and the end of it."""

    def __init__(
        self, postgres: Postgres, settings: Settings, clock: Clock, outbox: Outbox
    ) -> None:
        self._postgres = postgres
        self._schema = settings.postgres.schema
        self._outbox = outbox
        self._drain = Drain(postgres, outbox, settings.postgres.pool_size)
        self.records = PostgresRecordLog(
            Line(postgres, settings.postgres, settings.record.timeout), postgres
        )
        self.offline = PostgresOfflineStore(postgres, self._drain, clock, self._schema)

    async def version(self) -> int:
        """The version of the tables that are there, 0 if there are none."""
        return await self._postgres.reach(lambda connection: installed(connection, self._schema))

    async def store_id(self) -> str | None:
        """The id of the store whose past this is; none before one was adopted."""

        async def select(connection: Connection) -> str | None:
            found: str | None = await connection.fetchval("SELECT store_id FROM _meta")
            return found

        return await self._postgres.reach(select)

    async def agree_to(self, store_id: str) -> bool:
        """Makes this the past of a store, if it is that of no other; says whether it is."""
        await self._postgres.reach(lambda connection: connection.execute(_AGREE, store_id))
        return await self.store_id() == store_id

    async def adopt_store_id(self, store_id: str) -> None:
        """Makes this the past of a store; what is here stays, and its outbox is taken anew."""
        await self._postgres.reach(lambda connection: connection.execute(_ADOPT, store_id))

    async def health(self) -> list[Health]:
        """Whether the tables can be read now and are those of this version."""
        try:
            await self._postgres.begun()
            version = await self.version()
            refuse_newer(version, self._schema)
            refuse_older(version, self._schema)
            if self._outbox.store_id not in (None, await self.store_id()):
                raise BackendError(FOREIGN)
        except BackendError as error:
            return [Health("postgres", ok=False, detail=str(error), needed=False)]
        return [Health("postgres", ok=True)]

    async def close(self) -> None:
        await self.records.close()
        await self._drain.close()
        await self._postgres.close()


Greet = Callable[[PostgresEnvironment], Awaitable[None]]
"""What the one who opens it wants to do when it is first reached."""


async def open_postgres(
    settings: Settings, clock: Clock, outbox: Outbox, greet: Greet | None = None
) -> PostgresEnvironment:
    """Checks the tables; in development it makes and upgrades them too.

    A Postgres that is away keeps nobody from working: it is checked when it is there.
    """
    postgres = Postgres(settings.postgres)
    await postgres.open()
    environment = PostgresEnvironment(postgres, settings, clock, outbox)

    async def begin() -> None:
        version = await environment.version()
        refuse_newer(version, settings.postgres.schema)
        if version < VERSION and settings.env == "development":
            await migrate(settings)
        else:
            refuse_older(version, settings.postgres.schema)
        if greet is not None:
            await greet(environment)

    postgres.first(begin)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(environment.close)
        try:
            await postgres.begun()
        except AwayError as error:
            log.error("Postgres is away, and history waits for it", error=str(error))
        undo.pop_all()
    return environment
