"""FeatureStore: declarations bound to backends, and the verbs applications call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from headwater.core.blocking import blocking
from headwater.core.clock import Clock, SystemClock
from headwater.declarations import (
    context_decorators,
    declared_values,
    entity_decorator,
    event_decorator,
    feature_decorators,
    graph,
)
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.declarations.graph import draw
from headwater.declarations.runtime import runtime_of
from headwater.features.call_scope import check_not_replaying, loaded_value
from headwater.model.admin import BackupReport
from headwater.model.callers import current_caller
from headwater.model.declarations import Graph
from headwater.model.events import PayloadLike, new_event
from headwater.model.features import FeatureTrial
from headwater.settings.loading import load
from headwater.settings.schema import Settings, on_servers
from headwater.store.events import EventBus, SyncEventBus
from headwater.store.runtime import Runtime
from headwater.store.verbs.admin import AdminVerbs
from headwater.store.verbs.features import FeatureVerbs, HistoryVerbs
from headwater.store.verbs.indexes import IndexVerbs
from headwater.store.verbs.records import RecordVerbs
from headwater.store.verbs.store import StoreVerbs, SyncVerbs
from headwater.store.writing import set_value, trigger_of


class FeatureStore(StoreVerbs):
    """Features declared in a file, kept fresh by events and served to applications.

    Creating a store opens nothing; its first use does. Keyword arguments take precedence over the
    environment and over headwater.toml.

    >>> store = FeatureStore()
    >>> store
    <FeatureStore in '.headwater': features=0, contexts=0>
    """

    bus: EventBus

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        chosen = settings or load()
        chosen = chosen if home is None else chosen.replace(home=home)
        runtime = Runtime(chosen, clock or SystemClock())
        super().__init__(runtime)
        self.bus = EventBus(runtime)
        self.records = RecordVerbs(runtime)
        self.indexes = IndexVerbs(runtime)
        self.history = HistoryVerbs(runtime)
        self.admin = AdminVerbs(runtime)
        self.sync = SyncStore(self)
        for name, location in chosen.sources.items():
            self.source(name, location)

    event = event_decorator.event
    entity = entity_decorator.entity
    feature = feature_decorators.store_feature
    retriever = context_decorators.retriever
    context = context_decorators.context
    template_feature = declared_values.template_feature
    sql_feature = declared_values.sql_feature
    stored_feature = declared_values.stored_feature
    index_retriever = declared_values.index_retriever

    def __repr__(self) -> str:
        registry = self._runtime.registry
        counts = f"features={len(registry.features)}, contexts={len(registry.contexts)}"
        return f"<FeatureStore {self._place}: {counts}>"

    def _repr_html_(self) -> str:
        """Return the declarations as HTML, which notebooks show."""
        from headwater.declarations.declared_html import store_html  # noqa: PLC0415 - only there

        return store_html(f"FeatureStore {self._place}", self._runtime.registry)

    @property
    def _place(self) -> str:
        is_on_servers = on_servers(self.settings)
        return "on Redis and Postgres" if is_on_servers else f"in {self.settings.home!r}"

    @property
    def settings(self) -> Settings:
        """The settings that the store uses."""
        return self._runtime.settings

    @property
    def clock(self) -> Clock:
        """The clock of the store; where a value of the past is computed, it shows that moment.

        >>> store.clock.now()
        datetime.datetime(...)
        """
        return self._runtime.scope_clock

    def source(self, name: str, location: str | Path) -> None:
        """Name a file that SQL features read as a table: Parquet, CSV, JSON, SQLite or DuckDB.

        A file of the same name in the settings is used in place of this one.

        >>> store.source("orders", "orders.csv")
        """
        location = self.settings.sources.get(name, str(location))
        self._runtime.registry.add_source(name, location)

    def graph(self) -> Graph:
        """Return all declarations and their dependencies, and those found in code of functions.

        >>> print(store.graph().to_mermaid())
        flowchart LR
            ...
        """
        registry = self._runtime.registry
        graph.check(registry.features)
        return draw(registry)

    @asynccontextmanager
    async def audited(
        self, action: str, target: str = "", **parameters: Any
    ) -> AsyncIterator[None]:
        """Log the code inside as an administrative action of the current caller.

        The store's own verbs log themselves. If the action cannot be logged, it does not start.

        >>> async with store.audited("keys.rotate", "billing"):
        ...     pass
        >>> (await store.audit_log(action="keys.rotate")).entries[0].outcome
        'done'
        """
        async with self._runtime.audited(action, target, **parameters):
            yield

    async def open(self) -> None:
        """Open the backends now; otherwise the first verb opens them.

        >>> await store.open()
        """
        await self._runtime.open()

    async def close(self) -> None:
        """Close the backends; acknowledged events and values are safe without it.

        >>> await store.close()
        """
        await self._runtime.close()

    async def drain(self) -> None:
        """Handle every waiting event and due schedule here, then return; for tests and scripts.

        What becomes due meanwhile is left for later. An error of a server that lasts is raised.

        >>> await store.publish("purchase", "ada", {"amount": 5.0, "item": "pen"})
        ServiceEvent(...)
        >>> await store.drain()
        >>> await store.get_feature("total_spend", "ada")
        30.0
        """
        check_not_replaying("drain")
        await (await self._runtime.open()).backends.lifecycle.check_store()
        from headwater.engine.worker.worker import Worker  # noqa: PLC0415 - loaded with the engine

        await Worker(self).drain()

    async def backup(self, folder: str | Path) -> BackupReport:
        """Copy an embedded store of this moment into a new folder, while it is used, and verify it.

        ``headwater restore`` makes a store of the copy. The audit log names the folder.

        >>> (await store.backup("monday")).files
        1
        """
        check_not_replaying("backup")
        engine = await self._runtime.open()
        from headwater.engine.administration import Administration  # noqa: PLC0415 - loaded with the engine

        return await Administration(engine).back_up(Path(folder))

    async def test_feature(
        self,
        name: FeatureRef,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        event_type: str | None = None,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> FeatureTrial:
        """Run a feature's function once on the present values; store and publish nothing.

        A triggered feature takes the payload of an event, which is of the type ``event_type`` if
        the feature has several triggers. The errors of the function are raised.

        >>> event = {"amount": 5.0, "item": "pen"}
        >>> trial = await store.test_feature("total_spend", "ada", event)
        >>> trial.value, await store.get_feature("total_spend", "ada")
        (30.0, 25.0)
        """
        check_not_replaying("test_feature")
        runtime = self._runtime
        feature = runtime.registry.feature(feature_name(name))
        event = None
        if trial_type := trigger_of(feature, payload, event_type):
            text_id = feature.entity.text_id(entity_id)
            event = new_event(runtime.clock, trial_type, text_id, payload, timestamp, event_id)
            runtime.publisher.check([event])
        from headwater.engine.trials import Trials  # noqa: PLC0415 - loaded with the engine

        trials = Trials(await runtime.open())
        return await trials.run(feature, feature.entity.text_id(entity_id), event)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def set_feature(
        self,
        name: FeatureRef,
        entity_id: str | int,
        value: object,
        *,
        as_of: datetime | None = None,
    ) -> None:
        """Write a value, online and to history; one older than the stored value to history only.

        Inside a handler the write is part of the handler's transaction: it becomes durable
        together with the event's own value.

        >>> await store.set_feature("total_spend", "bob", 7.5)
        >>> await store.get_feature("total_spend", "bob")
        7.5
        """
        check_not_replaying("set_feature")
        if current_caller() is not None:
            await self._runtime.check_limits([name], [entity_id])
        feature = self._runtime.registry.feature(feature_name(name))
        await set_value(self._runtime, feature, entity_id, value, as_of)


def _loaded_value(store: FeatureVerbs, name: FeatureRef, entity_id: str | int) -> Any:
    """Return a value that the running handler has loaded, or UNSET."""
    return loaded_value(runtime_of(store).registry.feature(feature_name(name)), entity_id)


class SyncStore(SyncVerbs[FeatureStore]):
    """``store.sync``: every verb of the store, run to its end before it returns.

    Inside a sync handler the verbs see the handler's own writes, as the async ones do.
    """

    bus: SyncEventBus

    def __init__(self, store: FeatureStore) -> None:
        super().__init__(store, runtime_of(store).sync_loop)
        self.bus = SyncEventBus(store.bus, self._loop)

    _get_feature = blocking(FeatureStore.get_feature, _loaded_value)
    set_feature = blocking(FeatureStore.set_feature)
    drain = blocking(FeatureStore.drain)
    backup = blocking(FeatureStore.backup)
    test_feature = blocking(FeatureStore.test_feature)
    open = blocking(FeatureStore.open)
