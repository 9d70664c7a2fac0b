"""Catalog and erasures of the production environment: kept by one server, copied by the other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.core.logging import Outage
from headwater.errors import BackendError, BackendUnavailableError, StoreMismatchError
from headwater.model.catalog import CatalogState
from headwater.ports import Ledger, Outbox

if TYPE_CHECKING:
    from headwater.backends.postgres.erasures import CatalogCopy, PostgresErasures
    from headwater.backends.redis.catalog import RedisCatalog
    from headwater.backends.redis.erasures import RedisErasures

_PAUSE_SECONDS = 5.0


class CopiedCatalog:
    """A catalog that is copied after each change, and restored if it is lost.

    While the copy cannot be written, changes are made without it, and every process that learns
    of a change tries to copy it until it succeeds.
    """

    def __init__(self, catalog: RedisCatalog, copy: CatalogCopy, outbox: Outbox) -> None:
        self._catalog = catalog
        self._copy = copy
        self._outbox = outbox
        self._last_revision = 0
        self._uncopied: CatalogState | None = None
        self._copying: asyncio.Task[None] | None = None
        self._outage = Outage("catalog")

    async def load(self) -> CatalogState:
        state = await self._catalog.load()
        if state.revision == 0:
            state = await self._restored(state)
        elif state.revision < self._last_revision:
            # A change would be of another catalog than the copy, and could take its revision.
            raise BackendUnavailableError(
                f"the catalog of features in Redis went back from revision {self._last_revision} "
                f"to {state.revision}: Redis was restored from an older copy; run `headwater "
                "rebuild --adopt`, or, if Postgres was restored as well, restart this process"
            )
        elif 0 < self._last_revision < state.revision:
            # The process that changed it may have died before it made the copy.
            self._uncopied = state
            self._copy_in_background(0.0)
        self._last_revision = state.revision
        return state

    async def _restored(self, empty: CatalogState) -> CatalogState:
        """Return the catalog from the copy if history has one and belongs to this store."""
        try:
            state = await self._copy.load_own()
        except (BackendUnavailableError, StoreMismatchError):
            return empty  # workers are given no partition before this is cleared up
        state = _without_open_backfills(state)
        if state.revision and not await self._catalog.restore(state, 0):
            return await self._catalog.load()
        return state

    async def revision(self) -> int:
        return await self._catalog.revision()

    async def replace(self, state: CatalogState) -> bool:
        if state.revision == 1 and not (await self._outbox.identity()).is_confirmed:
            raise BackendUnavailableError(
                "the catalog of features cannot be changed before Postgres has confirmed that it "
                "holds the history of the store in Redis; if Redis lost its data, run "
                "`headwater rebuild --adopt`"
            )
        if not await self._catalog.replace(state):
            return False
        self._last_revision, self._uncopied = state.revision, state
        if not await self._try_to_copy(state):
            self._copy_in_background(_PAUSE_SECONDS)
        return True

    def _copy_in_background(self, pause: float) -> None:
        if self._copying is None or self._copying.done():
            self._copying = asyncio.create_task(self._copy_until_done(pause))

    async def _copy_until_done(self, pause: float) -> None:
        await asyncio.sleep(pause)
        while (state := self._uncopied) is not None:
            if not await self._try_to_copy(state):
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _try_to_copy(self, state: CatalogState) -> bool:
        try:
            await self._copy.save(state)
        except BackendError as error:
            self._outage.report("warning", "catalog not copied; retrying", error, "copy")
            return False
        self._outage.recovered("copy")
        if self._uncopied is state:
            self._uncopied = None
        return True

    async def restore(self) -> None:
        """Take the copy if it is newer, as after a loss of the catalog."""
        state, before = await self._copy.load(), await self._catalog.revision()
        if state.revision > before:
            await self._catalog.restore(_without_open_backfills(state), before)

    async def close(self) -> None:
        """Stop copying."""
        if self._copying is not None:
            self._copying.cancel()
            with suppress(asyncio.CancelledError):
                await self._copying


def _without_open_backfills(state: CatalogState) -> CatalogState:
    """Return the catalog with the versions retired that were being filled.

    The events that they still had to run were lost with the catalog.
    """
    features = {
        name: replace(
            entry,
            versions=[
                replace(version, state="retired")
                if version.state in ("building", "joining")
                else version
                for version in entry.versions
            ],
        )
        for name, entry in state.features.items()
    }
    return replace(state, features=features)


class CopiedErasures:
    """Erasures that are first numbered in one server, then known in both."""

    def __init__(self, writers: RedisErasures, copy: PostgresErasures) -> None:
        self._writers = writers
        self._copy = copy
        self.ledger = writers.ledger

    async def erase(self, entity: str, entity_id: str, *, at: int, may_return: bool) -> None:
        await self.restore()
        position = await self._writers.position(entity_id)
        await self._copy.erase(entity, entity_id, at=at, position=position, may_return=may_return)
        await self.restore()
        await self.refresh()

    async def refresh(self) -> Ledger:
        await self._writers.refresh()
        # An erasure that was interrupted is known to one server only.
        with suppress(BackendUnavailableError):
            self.ledger.add(*await self._copy.load(self.ledger.revision))
        return self.ledger

    async def restore(self) -> None:
        """Let both servers know all erasures, as after a loss or an interrupted erasure."""
        servers = (self._writers, self._copy)
        for source, target in (servers, servers[::-1]):
            await target.save(*await source.load(await target.last()))
