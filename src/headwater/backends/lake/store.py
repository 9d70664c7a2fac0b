"""The offline store whose segments are in a lake."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import RESTError
from requests import RequestException
from sqlalchemy.engine import make_url
from sqlalchemy.event import listen
from sqlalchemy.exc import SQLAlchemyError

from headwater.backends.duckdb.segments import LOGS, VIEWS
from headwater.backends.duckdb.store import DuckdbOfflineStore, EventPositions
from headwater.backends.lake.files import LakeFolder
from headwater.backends.lake.history import LakeHistory, SnapshotHistory
from headwater.backends.lake.tables import LakeConflictError, LakeTable
from headwater.core.clock import Clock, from_micros
from headwater.core.duckdb_session import parquet, scalar, session
from headwater.core.masking import present
from headwater.core.object_storage import ObjectStorage
from headwater.core.sql_sources import mentioned
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.model.lake import LakeTableStatus
from headwater.ports import (
    Change,
    LakeSnapshot,
    LakeTail,
    LogKind,
    OfflineStore,
    Pruned,
    RecentHistory,
    Rows,
    Runner,
)
from headwater.settings.groups import LakeSettings, OfflineSettings
from headwater.settings.servers import PostgresSettings, PostgresTlsSettings

CATALOG_FILE = "iceberg.sqlite"
_KINDS: Sequence[LogKind] = ("history", "events")
_ATTEMPTS = 5
# Snapshots are expired by the hour, so that maintenance rarely writes metadata for nothing else.
_EXPIRY_SECONDS = 3_600.0


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Raise BackendUnavailableError in place of the errors of a catalog."""
    try:
        yield
    except (SQLAlchemyError, RequestException, RESTError) as error:
        problem = str(error).partition("\n")[0]
        raise BackendUnavailableError(
            f"the catalog of the lake failed: {problem}; check lake.catalog, or the database "
            "of the store"
        ) from error


class LakeOfflineStore(DuckdbOfflineStore):
    """History and events in Iceberg tables, and the newest rows in a tail."""

    def __init__(
        self,
        tail: LakeTail,
        lake: LakeSettings,
        catalog: Catalog,
        scratch: Path,
        clock: Clock,
        settings: OfflineSettings,
        runner: Runner,
        *,
        positions: EventPositions = EventPositions(),  # noqa: B008 - it cannot change
        database: OfflineStore | None = None,
    ) -> None:
        """``database`` runs the queries that read neither history nor events."""
        self.tables = tables_of(lake, catalog)
        self.history = LakeHistory(tail, self.tables)
        self._lake_files = LakeFolder(_url_of(lake), self.history, storage_of(lake))
        super().__init__(
            self.history,
            scratch,
            scratch,
            clock,
            settings,
            runner,
            files=self._lake_files,
            positions=positions,
        )
        self._catalog = catalog
        self._tail_of_lake = tail
        self._settings = settings
        self._database = database
        self._snapshots = lake.snapshots
        self._is_remote = lake.is_remote
        self._grace = settings.segment_grace
        self._segment_rows = settings.segment_rows
        self._expire_at = 0.0

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._catalog.close()

    @catalog_errors()
    def create(self) -> list[LogKind]:
        """Create the tables that are missing; return their names."""
        if all(table.exists() for table in self.tables.values()):
            return []
        with self.history.alone():
            return [kind for kind, table in self.tables.items() if table.create()]

    @catalog_errors()
    def adopt(self, former: RecentHistory, folder: Path) -> None:
        """Move the segments of a home into the lake.

        The lock has noted that there is a lake, so no reader looks for them in the home alone. What
        an earlier attempt has committed is found by its first row.
        """
        if not former.manifest():
            return
        with self._lake_files.lock(wait=True), session(self._scratch) as duck:
            self._lake_files.prepare(duck)
            for segment in former.manifest():
                if segment.retired_at is not None:
                    continue
                log, present = (
                    LOGS[segment.kind],
                    self._lake_files.files(
                        other for other in self.history.manifest() if other.kind == segment.kind
                    ),
                )
                # Segments of earlier versions lack columns, which no row of this table has.
                duck.run("DROP TABLE IF EXISTS none")
                duck.load("none", None, log.columns)
                file = parquet([folder / segment.name], by_name=True)
                rows = f"SELECT * FROM ({log.typed}none UNION ALL BY NAME {file})"
                first = f"SELECT min(seq) FROM ({rows})"
                is_there = present and scalar(
                    duck.run(f"SELECT count(*) FROM ({parquet(present)}) WHERE seq = ({first})")
                )
                if not is_there:
                    written = self._lake_files.write(duck, log, rows, segment.buckets)
                    self.history.add(written)
                former.replace([segment.name], [], self._clock.now())

    async def query(self, sql: str, sources: Mapping[str, str]) -> Rows:
        if self._database is None or mentioned(sql, VIEWS):
            return await super().query(sql, sources)
        return await self._database.query(sql, sources)

    async def prepare(self, sql: str, sources: Mapping[str, str]) -> Sequence[str]:
        if self._database is None or mentioned(sql, VIEWS):
            return await super().prepare(sql, sources)
        return await self._database.prepare(sql, sources)

    async def append(self, changes: Sequence[Change]) -> int:
        for _ in range(_ATTEMPTS - 1):
            with suppress(LakeConflictError):
                return await super().append(changes)
        return await super().append(changes)

    async def maintain(self) -> None:
        with suppress(LakeConflictError):  # the other writer does the work
            await super().maintain()
            if time.monotonic() >= self._expire_at:
                self._expire_at = time.monotonic() + _EXPIRY_SECONDS
                await self._run(self._expire, self._clock.now() - self._snapshots, wait=False)

    async def at(self, snapshot_id: int) -> LakeSnapshot:
        state = await self._run(self.tables["history"].state, snapshot_id)
        reader = DuckdbOfflineStore(
            SnapshotHistory(self._tail_of_lake, self.tables, snapshot_id),
            *(self._scratch, self._scratch, self._clock, self._settings, self._runner),
            files=self._lake_files,
        )
        return LakeSnapshot(reader, state.pruned)

    async def compact(self) -> None:
        await self._run(self._writer.maintain, everything=True)

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        if dry_run:
            counted = await super().forget(entity, entity_id, keep=keep, dry_run=True)
            return replace(counted, refs=frozenset(await self._run(self.history.refs)))
        removed = Pruned()
        for attempt in range(_ATTEMPTS):
            try:
                done = await super().forget(entity, entity_id, keep=keep)
                refs = removed.refs | await self._run(self.history.refs)
                removed = Pruned(removed.history + done.history, removed.events + done.events, refs)
                await self._run(self.history.forget, entity, entity_id, keep)
                # Also the files of writers that died before their commit.
                await self._run(self._expire, None, refs, wait=True)
                break
            except LakeConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
        return removed

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        # The errors of the catalog first: those of its requests are also OSErrors.
        async with super()._translated():
            with catalog_errors(), self._storage_errors():
                yield

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Raise BackendUnavailableError for errors of the bucket, which have no number."""
        try:
            yield
        except OSError as error:
            if not self._is_remote or error.errno is not None:
                raise
            raise BackendUnavailableError(
                f"the storage of the lake in {self._folder} does not do what it is asked: {error}; "
                "check lake.endpoint, the keys and the rights on the bucket"
            ) from error

    async def expire(self, before: datetime) -> int:
        return await self._run(self._expire, before, wait=True)

    def _expire(self, before: datetime | None, refs: Collection[str] = (), *, wait: bool) -> int:
        """Remove snapshots from before a moment, or all but the current ones, and their files.

        In the latter case, also tags and branches. Return the number of files. With ``wait``, also
        while another process has the lock.
        """
        with self._lake_files.lock(wait=wait) as held:
            if not held:
                return 0
            orphans = (
                None if before is None else self._clock.now() - max(self._grace, timedelta(days=1))
            )
            files = {*self._lake_files.unreferenced(self.history.referenced(), orphans)}
            if files or before is None:
                # A writer that lost the lock may commit such a file yet. Found before the fence,
                # the file is of a change that is refused, or was committed and the fence fails.
                self.history.fence()
            files |= {file for own in self.history.expired(before, refs) for file in own}
            self._lake_files.delete(files)
            return len(files)

    async def status(self) -> list[LakeTableStatus]:
        return await self._run(self._status)

    def _status(self) -> list[LakeTableStatus]:
        answers = []
        for kind, table in self.tables.items():
            state = table.state()
            snapshots = state.table.metadata.snapshots
            oldest = min((snapshot.timestamp_ms for snapshot in snapshots), default=None)
            answers.append(
                LakeTableStatus(
                    table=kind,
                    files=len(state.files),
                    rows=sum(segment.rows for segment in state.segments),
                    bytes=sum(file.file_size_in_bytes for file in state.files.values()),
                    small_files=sum(s.rows < self._segment_rows for s in state.segments),
                    snapshots=len(snapshots),
                    snapshot_id=state.snapshot_id,
                    oldest_snapshot=None if oldest is None else from_micros(oldest * 1_000),
                    waiting=self.history.has(kind, self._segment_rows, state.mark),
                    upto=state.mark,
                    location=table.location,
                )
            )
        return answers


def _url_of(lake: LakeSettings) -> str:
    return lake.url.rstrip("/") if lake.is_remote else str(Path(lake.url).absolute())


def tables_of(lake: LakeSettings, catalog: Catalog) -> dict[LogKind, LakeTable]:
    """Return the tables of a lake, which may not exist yet."""
    return {kind: LakeTable(catalog, lake.namespace, kind, _url_of(lake)) for kind in _KINDS}


def storage_of(lake: LakeSettings) -> ObjectStorage | None:
    """Return how the bucket of a lake is reached; None for a folder."""
    if not lake.is_remote:
        return None
    return ObjectStorage(lake.endpoint, lake.region, lake.access_key, lake.secret_key)


@catalog_errors()
def open_catalog(
    lake: LakeSettings,
    database: str,
    postgres: PostgresSettings | None = None,
    *,
    create: bool = True,
) -> Catalog:
    """Open the REST catalog that the settings name, or else the one in a database.

    Create the tables of the latter unless they exist, or ``create`` is false.
    """
    options = {
        "warehouse": lake.warehouse if lake.catalog else lake.url,
        "s3.endpoint": lake.endpoint,
        "s3.region": lake.region or "us-east-1",
        "s3.access-key-id": lake.access_key,
        "s3.secret-access-key": lake.secret_key,
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    options = {name: value for name, value in options.items() if value}
    if lake.catalog:
        if lake.catalog_token:
            options["token"] = lake.catalog_token
        return RestCatalog("headwater", uri=lake.catalog, **options)
    # Not by the constructor, which keeps its connection open if it fails.
    catalog = SqlCatalog("headwater", uri=database, init_catalog_tables="false", **options)
    if postgres is not None:
        listen(catalog.engine, "do_connect", partial(_log_in, postgres))
    if create:
        with ExitStack() as undo:
            undo.callback(catalog.close)
            try:
                catalog.create_tables()
            except SQLAlchemyError:
                # Another process has created them at the same time.
                catalog.create_tables()
            undo.pop_all()
    return catalog


def _log_in(postgres: PostgresSettings, *connecting: Any) -> None:
    """Let a connection have the present user and password of files, if they can be read."""
    with suppress(OSError, ValueError):
        url = make_url(present(postgres.url))
        password = present(postgres.password) or url.password
        connecting[-1].update(user=url.username, password=password)


def catalog_in_home(home: Path) -> str:
    """Return the address of the catalog in a home."""
    return f"sqlite:///{home / CATALOG_FILE}"


def catalog_in_postgres(settings: PostgresSettings) -> str:
    """Return the address of the catalog in the schema of Headwater in Postgres."""
    if settings.credentials or settings.tls != PostgresTlsSettings():
        raise ConfigError(
            "the catalog of the lake in Postgres does not read postgres.credentials and "
            "postgres.tls; name a REST catalog in lake.catalog, or write user, password and "
            "sslmode into postgres.url"
        )
    if settings.pooler != "none":
        raise ConfigError(
            "the catalog of the lake in Postgres needs sessions, which postgres.pooler says there "
            "are none of; name a REST catalog in lake.catalog"
        )
    servers, schema = settings.servers, settings.schema
    has_several = len(servers) > 1
    address = make_url(settings.url_of(*([] if has_several else servers)))
    address = address.set(drivername="postgresql+psycopg")
    if settings.password:
        address = address.set(password=settings.password)
    options = {
        "options": f'-csearch_path="{schema}"',
        "application_name": f"headwater/{schema}",
        "connect_timeout": f"{ceil(settings.connect_timeout)}",
    }
    if settings.target:
        options["target_session_attrs"] = settings.target
    if has_several:
        places = [urlsplit(f"//{server}") for server in servers]
        options["host"] = ",".join(place.hostname or "" for place in places)
        options["port"] = ",".join(str(place.port or 5432) for place in places)
    return address.update_query_dict(options).render_as_string(hide_password=False)
