"""Trials: one run of a feature's function that stores and publishes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.core.concurrency import run_concurrently
from headwater.declarations.features import FeatureDef
from headwater.engine.engine import Engine
from headwater.errors import InvalidInputError
from headwater.features.batch_state import BatchState, HandlerTransaction
from headwater.features.call_scope import CallScope, enter, leave
from headwater.features.query_rows import query_values
from headwater.features.read_tracking import Reads
from headwater.model.features import FeatureTrial, TrialDocument, TrialWrite
from headwater.model.values import INTERNAL, ServiceEvent
from headwater.ports import Change, Delivery

# What a handler may call here: its writes are staged, and events are collected.
_ALLOWED = frozenset({"publish", "set_feature", "index", "unindex", "search", "retrieve"})
_NO_EVENT = ServiceEvent(f"{INTERNAL}trial", "none")


class TrialTransaction(HandlerTransaction):
    """The transaction of a trial, which is never committed."""

    __slots__ = ("published",)

    def __init__(self, state: BatchState, moment: int, now: int, delivery: Delivery) -> None:
        super().__init__(state, moment, now, delivery)
        self.published: list[ServiceEvent] | None = []

    def check_allowed(self, verb: str) -> None:
        """Raise InvalidInputError for a verb that would store something at once."""
        if verb not in _ALLOWED:
            raise InvalidInputError(
                f"{verb} is not allowed in the test of a feature, which stores nothing; test what "
                "comes before it in a function of its own"
            )


class Trials:
    """Runs the functions of an open store on its present values."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(
        self, feature: FeatureDef, entity_id: str, event: ServiceEvent | None
    ) -> FeatureTrial:
        """Run a feature's function once, and return what it would write and publish."""
        engine, now = self._engine, self._engine.clock.micros()
        backends = engine.backends
        state = BatchState(get_state=backends.online.get_state, ledger=backends.erasures.ledger)
        await state.load((feature.entity.name, entity_id))
        moment = now if event is None else to_micros(event.timestamp)
        delivery = Delivery("0", event or _NO_EVENT)
        transaction = TrialTransaction(state, moment, now, delivery)
        began = time.perf_counter()
        if feature.sql is not None:
            value, changes = await self._queried(feature, entity_id)
        else:
            value = await self._computed(transaction, feature, entity_id, event)
            changes = []
        took = time.perf_counter() - began
        staged = transaction.close()
        transaction.apply(staged or {}, feature)
        windows: dict[str, Any] = {}
        if feature.windows is not None:
            reading = TrialTransaction(state, moment, now, delivery)
            members = feature.windows.members
            row = await self._read(reading, members, entity_id)
            windows = {name: row[name].value for name in members}
        return FeatureTrial(
            feature=feature.name,
            entity_id=entity_id,
            value=value,
            event=event,
            writes=[self._written(change) for change in (*changes, *state.changes)],
            windows=windows,
            documents=[
                TrialDocument(write.index, write.document, write.text) for write in state.documents
            ],
            published=transaction.published or [],
            took_ms=took * 1000,
        )

    async def _computed(
        self,
        transaction: HandlerTransaction,
        feature: FeatureDef,
        entity_id: str,
        event: ServiceEvent | None,
    ) -> object:
        if event is None and not feature.refresh:
            row = await self._read(transaction, [feature.name], entity_id)
            return row[feature.name].value
        results: list[object] = []

        async def take(items: Iterator[None]) -> None:
            with self._engine.feature_calls.deadline.slot() as slot:
                for _ in items:
                    if event is not None:
                        handlers = self._engine.handlers
                        results.append(await handlers.run(transaction, feature, event, slot))
                        continue
                    scope = CallScope(transaction, Reads())
                    call = self._engine.feature_calls.call
                    results.append(await call(slot, scope, feature, entity_id))
                    await transaction.set(feature, entity_id, results[0])

        await run_concurrently([None], take, 1)
        return results[0]

    async def _read(self, transaction: HandlerTransaction, names: Any, entity_id: str) -> Any:
        """Read features as a handler does: values that are computed are not kept."""
        token = enter(CallScope(transaction))
        try:
            (row,) = await self._engine.reader.read(names, [entity_id])
        finally:
            leave(token)
        return row

    async def _queried(self, feature: FeatureDef, entity_id: str) -> tuple[object, list[Change]]:
        """Run the query of a feature; return the value of one entity, and the write of it."""
        engine = self._engine
        rows = await engine.backends.offline.query(feature.sql or "", engine.registry.sources)
        now = engine.clock.now()
        queried = await asyncio.to_thread(query_values, feature, rows, now, "test")
        for refused_id, error in queried.refused:
            if refused_id == entity_id:
                raise error
        changes = [change for change in queried.changes if change.entity_id == entity_id]
        value = feature.codec.decode(changes[-1].cell.value) if changes else None
        return value, changes

    def _written(self, change: Change) -> TrialWrite:
        (name,) = self._engine.registry.names_of([change.feature])
        return TrialWrite(
            feature=name,
            entity_id=change.entity_id,
            value=msgspec.json.decode(change.cell.value),
            as_of=from_micros(change.cell.as_of),
            online=change.online,
        )
