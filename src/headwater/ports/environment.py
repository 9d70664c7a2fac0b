"""One environment: a backend behind every port, and their common lifecycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from headwater.model.admin import BackupReport
from headwater.model.health import Health
from headwater.ports.audit import AuditLog
from headwater.ports.catalog import Catalog
from headwater.ports.erasures import Erasures
from headwater.ports.events import Bus, ConsumerGroups, DeadLetters, Leases
from headwater.ports.feed import Feeder
from headwater.ports.history import OfflineStore
from headwater.ports.lake import Lake
from headwater.ports.records import Cache, RecordLog
from headwater.ports.sources import SourceTables
from headwater.ports.values import OnlineStore
from headwater.ports.vectors import VectorIndex


class HealthCheck(NamedTuple):
    """A check of one part, which reads and writes: a part that can only be read has failed.

    It may take as long as the part's timeouts allow, and may run concurrently with other checks.
    """

    name: str
    run: Callable[[], Awaitable[Health]]
    needed: bool = True


class Lifecycle(Protocol):
    """The health, the repair and the closing of an environment."""

    def checks(self) -> Sequence[HealthCheck]:
        """Return a check of each part."""

    async def check_values(self) -> None:
        """Raise StoreLostError if the store lost its values, as far as can be found out quickly."""

    async def check_store(self) -> None:
        """Raise if workers must not run: the store lost its data, or history is another store's."""

    async def check_files(self) -> None:
        """Raise HomeError if a file of this process's own making has other bytes than were written.

        It reads every byte. Servers check what they store by themselves.
        """

    def restoring(self, *, adopt: bool) -> AbstractAsyncContextManager[Collection[int] | None]:
        """Let online values be restored from history, and let workers run when that is done.

        With ``adopt``, history becomes that of this store; otherwise history of another store is
        refused. Gives the partitions that lack rows of history: of others, the online values are
        complete and history may lack some; None for all. Raises at the end if the store lost its
        data in the meantime.
        """

    async def scrub(self) -> None:
        """Remove what erased rows left in the files of this process's own making.

        Servers do that by themselves, Postgres with its next vacuum.
        """

    async def back_up(self, folder: Path) -> BackupReport:
        """Copy the store of one moment into a new folder, and verify the copy.

        Servers have tools of their own: raises ConfigError.
        """

    async def close(self) -> None:
        """Close all connections and files."""


class Backends(msgspec.Struct, frozen=True):
    """One environment: a backend behind every port."""

    bus: Bus
    leases: Leases
    groups: ConsumerGroups
    dead_letters: DeadLetters
    online: OnlineStore
    offline: OfflineStore
    catalog: Catalog
    vectors: VectorIndex
    records: RecordLog
    audit_log: AuditLog
    erasures: Erasures
    cache: Cache
    notes: Cache
    """Facts about declarations, refreshes and the last hour, without content; never in memory."""
    lifecycle: Lifecycle
    source_tables: SourceTables | None = None
    """None if queries read the sources themselves."""
    lake: Callable[[], Awaitable[Lake]] | None = None
    """Opens the lake that has the history; None if there is none."""
    feeder: Feeder | None = None
    """None if the bus is the log of all events, and takes them from no other."""
