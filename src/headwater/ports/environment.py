"""One environment: a backend behind every port, its health and its end."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from headwater.ports.events import Bus, DeadLetters, Leases
from headwater.ports.history import OfflineStore
from headwater.ports.records import Cache, RecordLog
from headwater.ports.values import OnlineStore


class Health(msgspec.Struct, frozen=True):
    """Whether a part can do its work, and what is wrong if it cannot.

    Without a part that is not needed, events are still accepted and values served.
    """

    name: str
    ok: bool
    detail: str = ""
    needed: bool = True


class Backends(msgspec.Struct, frozen=True):
    """One environment: a backend behind every port, and how to close them."""

    bus: Bus
    leases: Leases
    dead_letters: DeadLetters
    online: OnlineStore
    offline: OfflineStore
    lifecycle: Lifecycle
    records: RecordLog = None  # type: ignore[assignment]
    cache: Cache = None  # type: ignore[assignment]


class Lifecycle(Protocol):
    """The opening, the health and the end of an environment."""

    async def health(self) -> list[Health]: ...

    async def check_not_lost(self) -> None:
        """Raises if history is of another store than the one that is there, or of a lost one."""
        ...

    def restoring(self, *, adopt: bool) -> AbstractAsyncContextManager[None]:
        """Makes history that of this store, lets present values be restored, and takes note of it.

        Another store's is refused unless it is to be adopted, and so is a store that is no longer
        the same one at the end.
        """
        ...

    async def close(self) -> None: ...
