"""What Postgres keeps for a Redis that loses its data: the ledger of erasures and the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.history_sql import LOCK_IMPORTS
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.model.catalog import CatalogState
from headwater.ports import (
    SECRET_BYTES,
    Ledger,
    Tombstone,
    decode_catalog,
    encode_catalog,
    erasure_digest,
)

_SECRET = "SELECT erasure_key FROM _meta"
_MAKE_SECRET = "UPDATE _meta SET erasure_key = coalesce(erasure_key, $1) RETURNING erasure_key"
_COLUMNS = "revision, digest, erased_at, position, may_return"
_LATER = f"SELECT {_COLUMNS} FROM _erasures WHERE revision > $1 ORDER BY revision"
_ADD = f"INSERT INTO _erasures ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
_LAST = "SELECT coalesce(max(revision), 0) FROM _erasures"
# Waits for the records that are being added, and makes later ones see what is added here.
_LOCK_RECORDS = "LOCK TABLE _records IN SHARE ROW EXCLUSIVE MODE"
# Copies may arrive in any order.
_SAVE_CATALOG = """
INSERT INTO _catalog (revision, state) VALUES ($1, $2) ON CONFLICT (only_row)
DO UPDATE SET revision = excluded.revision, state = excluded.state
WHERE _catalog.revision < excluded.revision
"""


class PostgresErasures:
    """The ledger as the transactions of this process know it."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self.ledger = Ledger()

    async def load(self, after: int) -> tuple[bytes, list[Tombstone]]:
        """Return the secret and the erasures after a revision, in their order."""
        return await self._postgres.run(lambda connection: _load(connection, after))

    async def last(self) -> int:
        """Return the revision of the last erasure, 0 for none."""
        last: int = await self._postgres.run(lambda connection: connection.fetchval(_LAST))
        return last

    async def save(self, secret: bytes, tombstones: Sequence[Tombstone]) -> None:
        """Add erasures that another server knows."""

        async def save(connection: Connection) -> None:
            async with connection.transaction():
                await connection.fetchval(_MAKE_SECRET, secret)
                for tombstone in tombstones:
                    await _add(connection, tombstone)

        if tombstones:
            await self._postgres.run(save)

    async def erase(
        self, entity: str, entity_id: str, *, at: int, position: str, may_return: bool
    ) -> None:
        """Add an erasure, after the writes that run at the moment and do not know it."""

        async def erase(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(LOCK_IMPORTS)
                await connection.execute(_LOCK_RECORDS)
                secret = await connection.fetchval(_MAKE_SECRET, token_bytes(SECRET_BYTES))
                digest = erasure_digest(secret, entity, entity_id)
                last = await connection.fetchval(_LAST)
                await _add(connection, Tombstone(last + 1, digest, at, position, may_return))

        await self._postgres.run(erase)

    async def current(self, connection: Connection) -> Ledger:
        """Return the ledger as of a transaction, in which a write is compared with it."""
        self.ledger.add(*await _load(connection, self.ledger.revision))
        return self.ledger


async def _load(connection: Connection, after: int) -> tuple[bytes, list[Tombstone]]:
    rows = await connection.fetch(_LATER, after)
    if not rows:
        return b"", []
    return await connection.fetchval(_SECRET), [Tombstone(*row) for row in rows]


async def _add(connection: Connection, tombstone: Tombstone) -> None:
    await connection.execute(
        _ADD,
        *(tombstone.revision, tombstone.digest, tombstone.erased_at),
        *(tombstone.position, tombstone.may_return),
    )


class CatalogCopy:
    """The newest catalog that was copied; the store whose history this is alone may change it."""

    def __init__(self, postgres: Postgres, store: StoreCheck) -> None:
        self._postgres = postgres
        self._store = store

    async def save(self, state: CatalogState) -> None:
        """Store a copy, unless there is a newer one; raise StoreMismatchError for another store."""
        store_id = await self._store.check()
        if store_id is None:
            return  # history is being adopted: the copy is restored, not changed
        row = (state.revision, encode_catalog(state).decode())

        async def save(connection: Connection) -> None:
            async with connection.transaction():
                await self._store.hold(connection, store_id)
                await connection.execute(_SAVE_CATALOG, *row)

        await self._postgres.run(save)

    async def load(self) -> CatalogState:
        """Return the copy; an empty catalog if there is none."""
        state: str | None = await self._postgres.run(
            lambda connection: connection.fetchval("SELECT state FROM _catalog")
        )
        return CatalogState() if state is None else decode_catalog(state)

    async def load_own(self) -> CatalogState:
        """Return the same; raise StoreMismatchError if the history is that of another store."""
        await self._store.check()
        return await self.load()
