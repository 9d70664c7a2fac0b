"""The upkeep of a lake: its tables, their files and their snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.blocking import Blocking, blocking
from headwater.core.durations import to_age
from headwater.errors import ConfigError, DurationError
from headwater.model.lake import ExpiredSnapshots, LakeStatus
from headwater.store.verbs.admin import KeptFor
from headwater.store.verbs.verb import LONG_AT_ONCE, Verbs, verb

if TYPE_CHECKING:
    from headwater.ports import Lake


class LakeVerbs(Verbs):
    """``store.lake``: create the tables of a lake, show, compact and expire them."""

    @verb("GET", "/v1/lake", scope="admin", operation="read_lake")
    async def status(self) -> LakeStatus:
        """Return the files, rows and snapshots of each table; no tables if there is no lake.

        >>> [table.table for table in (await store.lake.status()).tables]
        ['history', 'events']
        """
        opened = (await self._engine()).backends.lake
        return LakeStatus([] if opened is None else await (await opened()).status())

    @verb(
        "POST",
        "/v1/lake/init",
        scope="admin",
        operation="init_lake",
        changes="lake.init",
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(ConfigError,),
    )
    async def init(self) -> LakeStatus:
        """Create the tables of ``lake.url`` that are missing, and begin to move history there.

        >>> (await store.lake.init()).tables[0].rows
        0
        """
        return LakeStatus(await (await self._lake()).status())

    @verb(
        "POST",
        "/v1/lake/compact",
        scope="admin",
        operation="compact_lake",
        changes="lake.compact",
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(ConfigError,),
    )
    async def compact(self) -> LakeStatus:
        """Move all rows that may leave the tail, so that other engines see them; merge small files.

        Workers move rows as soon as there are ``offline.segment_rows`` of them.

        >>> (await store.lake.compact()).tables[0].rows
        5
        """
        lake = await self._lake()
        await lake.compact()
        return LakeStatus(await lake.status())

    @verb(
        "POST",
        "/v1/lake/expire",
        scope="admin",
        operation="expire_lake",
        changes="lake.expire",
        notes=("older_than",),
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(ConfigError, DurationError),
    )
    async def expire(self, *, older_than: KeptFor | None = None) -> ExpiredSnapshots:
        """Remove snapshots that are older, and files that only they have; by default as configured.

        Training sets that name such a snapshot cannot be read again.

        >>> (await store.lake.expire(older_than="30d")).files
        0
        """
        engine = await self._engine()
        age = engine.settings.lake.snapshots if older_than is None else to_age(older_than)
        before = engine.clock.now() - age
        return ExpiredSnapshots(before, await (await self._lake()).expire(before))

    async def _lake(self) -> Lake:
        opened = (await self._engine()).backends.lake
        if opened is None:
            raise ConfigError(
                "this store has no lake; set lake.url to a folder or to s3://bucket/prefix"
            )
        return await opened()


class SyncLakeVerbs(Blocking[LakeVerbs]):
    """The blocking form of the upkeep of a lake."""

    status = blocking(LakeVerbs.status)
    init = blocking(LakeVerbs.init)
    compact = blocking(LakeVerbs.compact)
    expire = blocking(LakeVerbs.expire)
