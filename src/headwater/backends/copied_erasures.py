"""The ledger of erasures of the production environment, which both servers keep."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from headwater.errors import BackendUnavailableError
from headwater.ports import Ledger, Tombstone


class StoredLedger(Protocol):
    """The ledger in one server; writers to that server are compared with it."""

    async def last(self) -> int: ...

    async def load(self, after: int) -> tuple[bytes, list[Tombstone]]: ...

    async def save(self, secret: bytes, tombstones: Sequence[Tombstone]) -> None: ...


class NumberingLedger(StoredLedger, Protocol):
    """The ledger in the server that numbers erasures."""

    async def erase(
        self, entity: str, entity_id: str, *, at: int, position: str, may_return: bool
    ) -> None: ...


class WritersLedger(StoredLedger, Protocol):
    """The ledger in the server that accepts events, as this process knows it."""

    ledger: Ledger

    async def refresh(self) -> Ledger: ...

    async def position(self, entity_id: str) -> str: ...


class CopiedErasures:
    """Erasures that are first numbered in one server, then known in both."""

    def __init__(self, writers: WritersLedger, copy: NumberingLedger) -> None:
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
        sides: Sequence[StoredLedger] = (self._writers, self._copy)
        for source, target in (sides, sides[::-1]):
            await target.save(*await source.load(await target.last()))
