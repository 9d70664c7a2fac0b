"""A copy of the catalog of features in Postgres, for a Redis that loses its data."""

from __future__ import annotations

from headwater.backends.postgres.pool import Connection, Postgres
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.model.catalog import CatalogState
from headwater.ports import decode_catalog, encode_catalog

# Copies may arrive in any order.
_SAVE = """
INSERT INTO _catalog (revision, state) VALUES ($1, $2) ON CONFLICT (only_row)
DO UPDATE SET revision = excluded.revision, state = excluded.state
WHERE _catalog.revision < excluded.revision
"""


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
                await connection.execute(_SAVE, *row)

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
