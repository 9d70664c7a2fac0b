"""FeatureStore: declarations bound to backends, and the verbs applications call."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headwater.contexts.recorded import ContextPage, ExternalContext, check_not_replaying
from headwater.contexts.recorded.replay import Mode, Replay
from headwater.core.clock import Clock, SystemClock, to_micros
from headwater.core.values import OUT_OF_RANGE, ServiceEvent, has_supported_year
from headwater.declarations import (
    Overrides,
    context_decorators,
    entity_decorator,
    feature_decorators,
    graph,
)
from headwater.declarations.feature_handles import Feature, feature_name
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import Worker
from headwater.errors import InvalidInputError
from headwater.features.cells import make_cell, make_change
from headwater.features.frame import current_frame
from headwater.features.reader import Row
from headwater.ports import PublishResult
from headwater.records.lineage import Context, PastContext
from headwater.records.record import Record
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.store.groups import (
    AdminVerbs,
    DeadLetterVerbs,
    RecordVerbs,
    SyncAdminVerbs,
    SyncDeadLetterVerbs,
    SyncRecordVerbs,
)
from headwater.store.runtime import Runtime
from headwater.store.sync import Blocking, T, blocking
from headwater.store.validation import check_events, check_sequences, payload_of

Id = TypeVar("Id", str, int)
FeatureRef = str | Feature[Any]


class EventBus:
    """``store.bus``: publish events that were built beforehand."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def publish(self, event: ServiceEvent) -> PublishResult:
        """Publish an event; when this returns, the event is durable."""
        (published,) = await self.publish_many([event])
        return published

    async def publish_many(
        self, events: Sequence[ServiceEvent], *, dedup: bool = True
    ) -> list[PublishResult]:
        """Publish events, all or none; a repeated event id within the window counts once."""
        check_not_replaying("publish")
        ingest, clock = self._runtime.settings.ingest, self._runtime.clock
        check_events(events, clock.now() + ingest.future_tolerance, ingest.max_event_bytes)
        engine = await self._runtime.open()
        window = ingest.dedup_window if dedup else None
        return await engine.backends.bus.publish(events, dedup_window=window)


class FeatureStore:
    """Features declared in a file, kept fresh by events and served to applications.

    Creating a store opens nothing; its first use does. Keyword arguments take precedence over the
    environment and over headwater.toml.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        chosen = settings or load()
        chosen = chosen if home is None else chosen.replace(home=home)
        self._runtime = runtime = Runtime(chosen, clock or SystemClock())
        self.bus = EventBus(runtime)
        self.records = RecordVerbs(runtime)
        self.dead_letters = DeadLetterVerbs(runtime)
        self.admin = AdminVerbs(runtime)
        self.sync = SyncStore(self)
        for name, location in chosen.sources.items():
            self.source(name, location)

    entity = entity_decorator.entity
    feature = feature_decorators.store_feature
    retriever = context_decorators.retriever
    context = context_decorators.context

    @property
    def settings(self) -> Settings:
        """The settings that the store uses."""
        return self._runtime.settings

    @property
    def clock(self) -> Clock:
        """The clock that the store uses."""
        return self._runtime.clock

    def source(self, name: str, location: str | Path) -> None:
        """Name a file that SQL features read as a table: Parquet, CSV, JSON, SQLite or DuckDB."""
        self._runtime.registry.add_source(name, str(location))

    def graph(self) -> graph.Graph:
        """Return all declarations and their dependencies."""
        registry = self._runtime.registry
        graph.check(registry.features)
        return graph.draw(registry.features, registry.sources)

    async def open(self) -> None:
        """Open the backends now; otherwise the first verb opens them."""
        await self._runtime.open()

    async def close(self) -> None:
        """Close the backends; acknowledged events and values are safe without it."""
        await self._runtime.close()

    async def drain(self) -> None:
        """Handle every waiting event and due schedule here, then return; for tests and scripts."""
        check_not_replaying("drain")
        await (await self._runtime.open()).backends.lifecycle.check_store()
        await Worker(self).drain()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent:
        """Publishes what happened to an entity; when this returns, the event is durable."""
        given: dict[str, Any] = {"timestamp": timestamp or self.clock.now()}
        if event_id is not None:
            given["event_id"] = event_id
        text: Any = str(entity_id) if type(entity_id) is int else entity_id
        event = ServiceEvent(event_type, text, payload_of(payload), **given)
        await self.bus.publish_many([event], dedup=event_id is not None)
        return event

    def get_feature(self, name: FeatureRef, entity_id: str | int) -> Coroutine[Any, Any, Any]:
        """Return one feature's value for one entity, in its annotated type; None if there is none.

        ``name`` is the feature's name or its handle, here and in the other verbs.
        """
        # The verb that handlers call most: an open store returns the reader's coroutine itself.
        if name.__class__ is not str:
            name = feature_name(name)
        engine = self._runtime.current()
        if engine is None:
            return self._open_and_get(name, entity_id)
        return engine.reader.value(name, entity_id)

    async def _open_and_get(self, name: str, entity_id: str | int) -> Any:
        engine = await self._runtime.open()
        return await engine.reader.value(name, entity_id)

    async def get_features(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        """Return many features of many entities in one round trip, by entity id, then by name."""
        names = check_sequences(names, entity_ids)
        engine = self._runtime.current() or await self._runtime.open()
        rows = await engine.reader.values(names, entity_ids)
        return dict(zip(entity_ids, rows, strict=True))

    async def get_feature_values(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[str | int]
    ) -> list[Row]:
        """Return values with age and origin, one row per entity in the order of ``entity_ids``."""
        names = check_sequences(names, entity_ids)
        engine = await self._runtime.open()
        return await engine.reader.read(names, entity_ids)

    async def set_feature(
        self,
        name: FeatureRef,
        entity_id: str | int,
        value: object,
        *,
        as_of: datetime | None = None,
    ) -> None:
        """Write a value, online and to history; with an ``as_of`` in the past to history only.

        Inside a handler the write is part of the handler's transaction: it becomes durable
        together with the event's own value.
        """
        check_not_replaying("set_feature")
        feature = self._runtime.registry.feature(feature_name(name))
        if not feature.kept:
            remedy = "set those" if feature.template else "give it a ttl, a trigger or a refresh"
            made = "composed of others" if feature.template else "made anew"
            raise InvalidInputError(
                f"feature {feature.name!r} is {made} at every read and cannot be set; {remedy}"
            )
        entity_id = feature.entity.text_id(entity_id)
        turn = current_frame().transaction
        if turn is not None:
            if as_of is not None:
                raise InvalidInputError("inside a handler, as_of is the event's and cannot be set")
            await turn.set(feature, entity_id, value)
            return
        engine = await self._runtime.open()
        now = self.clock.micros()
        moment = await self._moment(feature, entity_id) if as_of is None else self._given(as_of)
        change = make_change(feature, entity_id, make_cell(feature, value, moment, now), "set")
        await engine.backends.online.put([change])

    async def _moment(self, feature: FeatureDef, entity_id: str) -> int:
        """Now, or the moment of the value that is replaced if that is later."""
        engine = await self._runtime.open()
        (cells,) = await engine.backends.online.get(feature.entity.name, [entity_id])
        before = cells.get(feature.name)
        return max(self.clock.micros(), before.as_of if before else 0)

    def _given(self, as_of: datetime) -> int:
        if as_of.tzinfo is None:
            raise InvalidInputError("as_of needs a time zone, for example datetime.now(UTC)")
        if not has_supported_year(as_of):
            raise InvalidInputError(f"as_of {as_of.isoformat()} is {OUT_OF_RANGE}")
        if as_of > self.clock.now() + self.settings.ingest.future_tolerance:
            raise InvalidInputError(f"as_of {as_of.isoformat()} lies in the future")
        return to_micros(as_of)

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        """Assembles the context of that name with these arguments."""
        definition = self._runtime.registry.context(name)
        return await self._runtime.assemble(definition, (), params, overrides or Overrides())

    async def record_external(
        self,
        *,
        name: str,
        content: str,
        inputs: Mapping[str, Any] | None = None,
        model: str | None = None,
        version: str | None = None,
        interaction_ref: Mapping[str, Any] | None = None,
    ) -> Context:
        """Records a text that was assembled elsewhere, as if it had been assembled here."""
        evidence = (await self._runtime.open()).evidence
        given = {} if inputs is None else inputs
        receipt = ExternalContext(name, content, given, model, version, interaction_ref)
        return await evidence.record(receipt)

    async def get_context_at(self, context_id: str) -> PastContext:
        """A context that was recorded, with its lineage; what the record withholds is None."""
        return await (await self._runtime.open()).evidence.context(context_id)

    async def list_contexts(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        *,
        name: str | None = None,
        freshness_status: str | None = None,
        cursor: str | None = None,
    ) -> ContextPage:
        """Recorded contexts from ``start`` on and before ``end``, the newest first.

        A page goes on where ``cursor`` of the one before says; new contexts move nothing.
        """
        evidence = (await self._runtime.open()).evidence
        return await evidence.contexts(start, end, limit, name, freshness_status, cursor)

    async def get_record(self, ref: str) -> Record:
        """Return the record of a context: by context id, its first 8 characters or record hash."""
        return await self.records.get(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context; ``store.records.replay`` describes the modes."""
        return await self.records.replay(ref, mode)


class SyncStore(Blocking[FeatureStore]):
    """``store.sync``: every verb of the store, run to its end before it returns.

    Inside a sync handler the verbs see the handler's own writes, as the async ones do.
    """

    def __init__(self, store: FeatureStore) -> None:
        loop = runtime_of(store).sync_loop
        super().__init__(store, loop)
        self.bus = SyncEventBus(store.bus, loop)
        self.records = SyncRecordVerbs(store.records, loop)
        self.dead_letters = SyncDeadLetterVerbs(store.dead_letters, loop)
        self.admin = SyncAdminVerbs(store.admin, loop)

    get_feature = blocking(FeatureStore.get_feature)
    get_features = blocking(FeatureStore.get_features)
    get_feature_values = blocking(FeatureStore.get_feature_values)
    set_feature = blocking(FeatureStore.set_feature)
    publish = blocking(FeatureStore.publish)
    assemble = blocking(FeatureStore.assemble)
    record_external = blocking(FeatureStore.record_external)
    get_context_at = blocking(FeatureStore.get_context_at)
    list_contexts = blocking(FeatureStore.list_contexts)
    get_record = blocking(FeatureStore.get_record)
    replay = blocking(FeatureStore.replay)
    drain = blocking(FeatureStore.drain)
    open = blocking(FeatureStore.open)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the call of a context or a retriever: ``store.sync.run(search("shoes"))``."""
        return self._loop.run(call)

    def close(self) -> None:
        """Close the store and end the thread that the verbs ran on."""
        self._loop.run(self._verbs.close())
        self._loop.stop()


class SyncEventBus(Blocking[EventBus]):
    """``store.sync.bus``."""

    publish = blocking(EventBus.publish)
    publish_many = blocking(EventBus.publish_many)
