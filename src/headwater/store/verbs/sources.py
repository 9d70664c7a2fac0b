"""The sources of SQL features: where they are, and loading them into tables."""

from __future__ import annotations

from headwater.core.blocking import Blocking, blocking
from headwater.core.sql_sources import mentioned, shown
from headwater.errors import UnknownNameError
from headwater.model.problems import OnStep
from headwater.model.sources import LoadedSource, SourceList, SourceName, SourceStatus
from headwater.store.verbs.verb import LONG_AT_ONCE, Verbs, verb

Statuses = list[SourceStatus]


class SourceVerbs(Verbs):
    """``store.sources``: list the sources of SQL features, load them into tables."""

    @verb("GET", "/v1/sources", scope="admin", operation="list_sources", answer=SourceList)
    async def list(self) -> Statuses:
        """Return the declared sources, without their secrets, and the tables that stand for them.

        >>> [(source.name, source.features) for source in await store.sources.list()]
        [('orders', ['ordered'])]
        """
        engine = await self._engine()
        tables, registry = engine.backends.source_tables, engine.registry
        present = {} if tables is None else await tables.tables(list(registry.sources))
        return [
            SourceStatus(
                name,
                shown(location),
                [f.name for f in registry.features.values() if mentioned(f.sql or "", [name])],
                tables is None,
                present.get(name),
            )
            for name, location in registry.sources.items()
        ]

    @verb(
        "POST",
        "/v1/sources/{name}/load",
        scope="admin",
        operation="load_source",
        changes="sources.load",
        target="name",
        is_long=True,
        at_once=LONG_AT_ONCE,
        raises=(UnknownNameError,),
    )
    async def load(self, name: SourceName, *, progress: OnStep | None = None) -> LoadedSource:
        """Replace the Postgres table of a source by the present rows of its file or server.

        Queries see the earlier rows until all are there. A table that was not made by this is never
        replaced. The embedded store reads sources itself, so there is nothing to load.

        Args:
            progress: called with the number of rows that are stored and of all.

        >>> await store.sources.load("orders")
        <LoadedSource name='orders' table=None rows=0>
        """
        location = self._runtime.registry.source(name)
        tables = (await self._engine()).backends.source_tables
        return LoadedSource(name) if tables is None else await tables.load(name, location, progress)


class SyncSourceVerbs(Blocking[SourceVerbs]):
    """The blocking form of sources."""

    list = blocking(SourceVerbs.list)
    load = blocking(SourceVerbs.load)
