"""FeatureStore: declarations bound to backends, and the verbs applications call."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headwater.contexts.recorded import (
    ContextPage,
    ContextQuery,
    ExternalContext,
    check_not_replaying,
    current_replay,
    track_search,
)
from headwater.contexts.recorded.replay import Mode, Replay
from headwater.core.clock import Clock, SystemClock, to_micros
from headwater.core.values import ServiceEvent, is_moment
from headwater.declarations import Chunk, ContextDef, Overrides, RetrieverDef, graph
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.registry import Registry
from headwater.engine.engine import Engine, Engines
from headwater.engine.worker import Worker
from headwater.errors import InvalidInputError
from headwater.features.batch_state import current_transaction, make_cell, make_change
from headwater.features.reader import Row
from headwater.features.reconcile import AuditReport, Progress, RebuildReport, Repair
from headwater.ports import ConsumerLag, DeadLetter, Health, PublishResult
from headwater.records.diff import ContextDiff
from headwater.records.lineage import Context, ContextTrace, PastContext
from headwater.records.record import Record
from headwater.records.verify import VerificationReport
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.store.sync import Blocking
from headwater.store.validation import check_events, check_sequences, payload_of

Id = TypeVar("Id", str, int)


class PublicBus:
    """The bus as applications see it."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    async def publish(self, event: ServiceEvent) -> PublishResult:
        """Publishes an event; when this returns, the event is durable."""
        (published,) = await self._store.publish_events([event])
        return published


class FeatureStore:
    """Features declared in a file, kept fresh by events and served to whoever asks.

    Making a store opens nothing; the first use does. Keyword arguments take precedence over the
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
        self.settings = chosen if home is None else chosen.replace(home=home)
        self.clock = clock or SystemClock()
        self.registry = Registry()
        self.bus = PublicBus(self)
        self.sync = Blocking(self)
        self._engines = Engines()
        for name, location in self.settings.sources.items():
            self.source(name, location)

    def declare_entity(self, entity: EntityDef) -> None:
        """Adds an entity; the ``entity`` decorator calls this."""
        self.registry.add_entity(entity)

    def declare_feature(self, feature: FeatureDef) -> None:
        """Adds a feature; the ``feature`` decorator calls this."""
        self.registry.add_feature(feature)

    def declare_context(self, context: ContextDef) -> None:
        """Adds a context; the ``context`` decorator calls this."""
        self.registry.add_context(context)

    def declare_retriever(self, retriever: RetrieverDef) -> None:
        """Adds a retriever; the ``retriever`` decorator calls this."""
        self.registry.add_retriever(retriever)

    def source(self, name: str, location: str | Path) -> None:
        """Names a file that SQL features read as a table: Parquet, CSV, JSON, SQLite or DuckDB."""
        self.registry.add_source(name, str(location))

    def graph(self) -> graph.Graph:
        """Everything declared and what depends on what."""
        graph.check(self.registry.features)
        return graph.draw(self.registry.features, self.registry.sources)

    async def open(self) -> Engine:
        """Opens the backends, once; every verb does it by itself."""
        return await self._engines.open(self.registry, self.settings, self.clock)

    async def close(self) -> None:
        """Closes the backends; what was acknowledged is safe without it."""
        await self._engines.close(self.sync.loop)

    async def rebind(self, settings: Settings, clock: Clock) -> None:
        """Closes the store; its next use opens it with these settings and this clock."""
        await self.close()
        self.settings, self.clock, self._engines = settings, clock, Engines()

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
        await self.publish_events([event], dedup=event_id is not None)
        return event

    async def publish_events(
        self, events: Sequence[ServiceEvent], *, dedup: bool = True
    ) -> list[PublishResult]:
        """Publishes events, all or none; a repeated event id within the window counts once."""
        check_not_replaying("publish")
        ingest = self.settings.ingest
        check_events(events, self.clock.now() + ingest.future_tolerance, ingest.max_event_bytes)
        engine = await self.open()
        window = self.settings.ingest.dedup_window if dedup else None
        return await engine.backends.bus.publish(events, dedup_window=window)

    def get_feature(self, name: str, entity_id: str | int) -> Coroutine[Any, Any, Any]:
        """One feature's value for one entity, in its annotated type; None if there is none."""
        # Handlers call nothing more often: once the store is open, the reader's own coroutine does.
        engine = self._engines.current()
        if engine is None:
            return self._open_and_get(name, entity_id)
        return engine.reader.value(name, entity_id)

    async def _open_and_get(self, name: str, entity_id: str | int) -> Any:
        engine = await self.open()
        return await engine.reader.value(name, entity_id)

    async def get_features(
        self, names: Sequence[str], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        """Many features of many entities in one round trip: values by entity id, then by name."""
        check_sequences(names, entity_ids)
        engine = self._engines.current() or await self.open()
        rows = await engine.reader.values(names, entity_ids)
        return dict(zip(entity_ids, rows, strict=True))

    async def get_feature_values(
        self, names: Sequence[str], entity_ids: Sequence[str | int]
    ) -> list[Row]:
        """Like get_features, with each value's age and where it came from, in the order asked."""
        check_sequences(names, entity_ids)
        engine = await self.open()
        return await engine.reader.read(names, entity_ids)

    async def set_feature(
        self, name: str, entity_id: str | int, value: object, *, as_of: datetime | None = None
    ) -> None:
        """Writes a value, online and to history; one with an older ``as_of`` to history alone.

        Inside a handler the write belongs to the handler: it counts if, and when, the event's
        own value does.
        """
        check_not_replaying("set_feature")
        feature = self.registry.feature(name)
        if not feature.kept:
            remedy = "set those" if feature.template else "give it a ttl, a trigger or a refresh"
            made = "composed of others" if feature.template else "made anew"
            raise InvalidInputError(
                f"feature {name!r} is {made} at every read and cannot be set; {remedy}"
            )
        entity_id = feature.entity.text_id(entity_id)
        turn = current_transaction()
        if turn is not None:
            if as_of is not None:
                raise InvalidInputError("inside a handler, as_of is the event's and cannot be set")
            await turn.set(feature, entity_id, value)
            return
        engine = await self.open()
        now = self.clock.micros()
        moment = await self._moment(feature, entity_id) if as_of is None else self._given(as_of)
        change = make_change(feature, entity_id, make_cell(feature, value, moment, now), "set")
        await engine.backends.online.put([change])

    async def _moment(self, feature: FeatureDef, entity_id: str) -> int:
        """Now, or the moment of the value that is replaced if that is later."""
        engine = await self.open()
        (cells,) = await engine.backends.online.get(feature.entity.name, [entity_id])
        before = cells.get(feature.name)
        return max(self.clock.micros(), before.as_of if before else 0)

    def _given(self, as_of: datetime) -> int:
        if as_of.tzinfo is None:
            raise InvalidInputError("as_of needs a time zone, for example datetime.now(UTC)")
        if not is_moment(as_of):
            raise InvalidInputError(f"as_of {as_of.isoformat()} is no moment of any calendar")
        if as_of > self.clock.now() + self.settings.ingest.future_tolerance:
            raise InvalidInputError(f"as_of {as_of.isoformat()} lies in the future")
        return to_micros(as_of)

    async def assemble_definition(
        self,
        context: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context:
        """Assembles a context; calling the decorated function does."""
        engine = await self.open()
        run = current_replay() or engine.assembler.run
        return await run(context, arguments, named, overrides)

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        """Assembles the context of that name with these arguments."""
        definition = self.registry.context(name)
        return await self.assemble_definition(definition, (), params, overrides or Overrides())

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
        evidence = (await self.open()).evidence
        given = {} if inputs is None else inputs
        receipt = ExternalContext(name, content, given, model, version, interaction_ref)
        return await evidence.record(receipt)

    async def get_context_at(self, context_id: str) -> PastContext:
        """A context that was recorded, with its lineage; what the record withholds is None."""
        return await (await self.open()).evidence.context(context_id)

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
        evidence = (await self.open()).evidence
        return await evidence.contexts(start, end, limit, name, freshness_status, cursor)

    async def find_contexts(
        self,
        *,
        feature: str | None = None,
        entity: str | None = None,
        entity_id: str | int | None = None,
        chunk: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ContextPage:
        """Recorded contexts that this feature, this entity and this chunk went into, newest first.

        What computed features, searches and inner contexts were made of went into them as well.
        ``entity`` says which kind of entity ``entity_id`` is of.
        """
        evidence = (await self.open()).evidence
        return await evidence.find(ContextQuery(feature, entity, entity_id, chunk), limit, cursor)

    async def get_record(self, ref: str) -> Record:
        """The record with this context id, beginning of one (8 characters), or record hash."""
        return await (await self.open()).evidence.record_of(ref)

    async def verify_record(
        self, ref: str, *, expect: str | None = None, signed: bool = False
    ) -> VerificationReport:
        """What holds of a record as it lies in the log, and what is broken.

        ``expect`` is the record hash that was handed out with the answer; ``signed`` makes the
        lack of a signature a failure, as ``signature_mode`` does where it is required.
        """
        return await (await self.open()).evidence.verify(ref, expect, signed=signed)

    async def explain(self, ref: str) -> ContextTrace:
        """Why a context is as it is: each item's fate, ages, latencies, tokens and cost."""
        return await (await self.open()).evidence.explain(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """A recorded context once more.

        ``show`` gives the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the features of that moment, ``live`` with those of now. The last two
        are not recorded, and a function that would change something is refused.
        """
        return await (await self.open()).evidence.replay(ref, mode)

    async def diff(self, before: str, after: str) -> ContextDiff:
        """In what one recorded context differs from another."""
        return await (await self.open()).evidence.diff(before, after)

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        """Erases values of a record for good, all or none; hash and signature stay valid.

        ``everywhere`` erases them in every other place too that discloses one of them, by itself or
        inside a text.
        """
        check_not_replaying("redact")
        evidence = (await self.open()).evidence
        return await evidence.redact(ref, pointers, reason, by, everywhere=everywhere)

    async def retrieve(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """Runs a retriever; calling the decorated function does."""
        track_search(retriever.name)
        engine = await self.open()
        return await engine.retrieve.run(retriever, arguments, named)

    async def dead_letters(
        self,
        *,
        ids: Collection[str] | None = None,
        feature: str | None = None,
        event_type: str | None = None,
        entity_id: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """The events that could not be handled, oldest first, each with what went wrong."""
        engine = await self.open()
        return await engine.backends.dead_letters.letters(
            ids=ids,
            feature=feature,
            event_type=event_type,
            entity_id=entity_id,
            since=since,
            before=before,
            limit=limit,
        )

    async def redrive(self, *ids: str) -> None:
        """Runs dead letters again, each for the feature that failed alone; all or none."""
        check_not_replaying("redrive")
        engine = await self.open()
        await engine.backends.dead_letters.redrive(ids)

    async def discard(self, *ids: str) -> None:
        """Gives dead letters up for good; all or none."""
        check_not_replaying("discard")
        engine = await self.open()
        await engine.backends.dead_letters.discard(ids)

    async def drain(self) -> None:
        """Handles every waiting event and due tick here, then returns; for tests and scripts."""
        check_not_replaying("drain")
        await (await self.open()).backends.lifecycle.check_not_lost()
        await Worker(self).drain()

    async def lag(self) -> list[ConsumerLag]:
        """What waits in each partition: who has it, how many events, since when the oldest."""
        engine = await self.open()
        return await engine.backends.bus.lag()

    async def rebuild(
        self, *, adopt: bool = False, progress: Progress | None = None
    ) -> RebuildReport:
        """Restores online values from history; newer ones stay, so workers may be running.

        History of another store is refused unless this one is to adopt it.
        """
        check_not_replaying("rebuild")
        engine = await self.open()
        async with engine.backends.lifecycle.restoring(adopt=adopt):
            return await (await self._repair()).rebuild(progress)

    async def audit(self, *, limit: int = 1_000, progress: Progress | None = None) -> AuditReport:
        """Compares online values with history; gives the differences, at most so many."""
        return await (await self._repair()).audit(limit, progress)

    async def _repair(self) -> Repair:
        engine = await self.open()
        backends = engine.backends
        return Repair(self.registry, backends.online, backends.offline, self.clock)

    async def health(self) -> list[Health]:
        """Whether each part of the store can do its work."""
        engine = await self.open()
        return await engine.backends.lifecycle.health()
