"""Whose past this is: nothing is taken or read unless store and past name each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headwater.backends.postgres.pool import Connection, Postgres
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import IdentityChange, Outbox, StoreIdentity

# A past that has nothing yet is also that of the next store in the same place: nothing was lost.
_DEED = """
SELECT id, store_id, store_name, coalesce(
    store_id IS NULL
    OR store_id = $1 AND store_name IS NULL
    OR store_id <> $1 AND store_name = $2 AND NOT (
        EXISTS (SELECT FROM _history) OR EXISTS (SELECT FROM _events)
        OR EXISTS (SELECT FROM _records)
    ), false)
FROM _meta
"""
_SIGN = "UPDATE _meta SET store_id = $1, store_name = $2"
_RENAME = "UPDATE _meta SET store_name = $2 WHERE store_id = $1"
# Waits for those who take, and lets no later one pass by meanwhile; a lock on the row would.
_ALONE = "LOCK TABLE _meta IN EXCLUSIVE MODE"
# Held to the end of a transaction, so that nobody makes this another store's past meanwhile. Who
# changes what is no key of the row does not have to wait for it.
_HOLD = "SELECT id, store_id, store_name FROM _meta FOR KEY SHARE"
_FRESH_SECONDS = 5.0

_LOST_AGAIN = (
    "Redis lost its data again, or another process began anew, while values were being restored; "
    "run `headwater rebuild` once more"
)


class Owned(NamedTuple):
    """A past and the store that it is of."""

    past_id: str
    store_id: str


class _Deed(NamedTuple):
    """What the tables say of whose they are; free are those that a store may still make its own."""

    past_id: str
    store_id: str | None
    store_name: str | None
    free: bool


class Ownership:
    """Knows whether this is the past of the store that is there, and makes it so where it may."""

    def __init__(self, postgres: Postgres, outbox: Outbox) -> None:
        self._postgres = postgres
        self._outbox = outbox
        self._owned: Owned | None = None
        self._standing: StoreIdentity | None = None
        self._fresh_until = 0.0
        self._refusal: Callable[[], StoreMismatchError] | None = None

    def check_same_store(self) -> None:
        """Raises if this was another store's past when it was last looked at."""
        if self._refusal is not None:
            raise self._refusal()

    async def check(self, standing: StoreIdentity) -> Owned | None:
        """Raises if this is another store's past; nothing is to be taken from one that is lost.

        A store and a past that know nobody yet are each other's from then on. One that lost its
        data may read what was its own, until it is rebuilt.
        """
        if standing == self._standing and time.monotonic() < self._fresh_until:
            return self._owned
        self._standing = self._refusal = None
        deed = await self._deed(standing)
        bound = standing.past_id in (None, deed.past_id)
        if bound and standing.store_id is not None and standing.store_id == deed.store_id:
            if deed.store_name != self._outbox.name:  # it has moved
                await self._postgres.run(
                    lambda own: own.execute(_RENAME, standing.store_id, self._outbox.name)
                )
            return await self._agreed(standing, Owned(deed.past_id, standing.store_id))
        if standing.state == "new":
            await self._note(standing.store_id, deed.past_id, "lost")
        if bound and standing.state != "known" and deed.store_name == self._outbox.name:
            return None
        another = deed.store_id not in (None, standing.store_id)
        owner = (deed.store_name or deed.store_id) if another else None
        self._refusal = partial(StoreMismatchError, owner)
        raise self._refusal()

    async def held(self, connection: Connection) -> Owned:
        """What was found out last, if it still holds; it does until the transaction ends."""
        ((past_id, store_id, store_name),) = await connection.fetch(_HOLD)
        owned = Owned(past_id, store_id)
        if owned != self._owned:
            self._standing = None
            raise StoreMismatchError(store_name or store_id)
        return owned

    async def take_over(self, *, adopt: bool) -> Owned:
        """Makes this the past of the store that is there.

        What was that of another is refused, unless it is to be adopted.
        """
        self._standing = None
        standing = await self._outbox.standing()
        try:
            owned = await self.check(standing)
        except StoreMismatchError:
            if not adopt:
                raise
            owned = None
        return owned or await self._adopted(standing.store_id)

    async def restored(self, owned: Owned) -> None:
        """Takes note that the store has again what was lost; raises if it is no longer the same."""
        self._standing = None
        same = await self.check(await self._outbox.standing()) == owned
        if not (same and await self._note(owned.store_id, owned.past_id, "restored")):
            raise BackendError(_LOST_AGAIN)

    async def _deed(self, standing: StoreIdentity) -> _Deed:
        async def read(connection: Connection) -> _Deed:
            (deed,) = await connection.fetch(_DEED, standing.store_id, self._outbox.name)
            return _Deed(*deed)

        async def sign(connection: Connection) -> _Deed:
            async with connection.transaction():
                await connection.execute(_ALONE)
                deed = await read(connection)
                if deed.free:
                    await connection.execute(_SIGN, standing.store_id, self._outbox.name)
                return await read(connection)

        deed = await self._postgres.run(read)
        signs = standing.store_id is not None and standing.past_id in (None, deed.past_id)
        return await self._postgres.run(sign) if deed.free and signs else deed

    async def _agreed(self, standing: StoreIdentity, owned: Owned) -> Owned | None:
        settled = standing.state != "new" and standing.past_id is not None
        if not settled and not await self._note(owned.store_id, owned.past_id, "agreed"):
            return None  # another store is there by now
        self._owned, self._standing = owned, standing
        self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return owned

    async def _adopted(self, store_id: str | None) -> Owned:
        if store_id is None:
            raise BackendError(_LOST_AGAIN)

        async def sign(connection: Connection) -> str:
            async with connection.transaction():
                await connection.execute(_ALONE)
                past_id: str = await connection.fetchval(
                    f"{_SIGN} RETURNING id", store_id, self._outbox.name
                )
                return past_id

        owned = Owned(await self._postgres.run(sign), store_id)
        self._refusal = None
        if not await self._note(owned.store_id, owned.past_id, "adopted"):
            raise BackendError(_LOST_AGAIN)
        return owned

    async def _note(self, store_id: str | None, past_id: str, news: IdentityChange) -> bool:
        return store_id is not None and await self._outbox.note(store_id, past_id, news)
