"""The store's verbs for code that cannot await: sync handlers, scripts and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from headwater.contexts.recorded import ContextPage
from headwater.contexts.recorded.replay import Mode, Replay
from headwater.core.thread_offload import caller
from headwater.core.values import ServiceEvent
from headwater.declarations import Overrides
from headwater.errors import InvalidInputError
from headwater.records.diff import ContextDiff
from headwater.records.lineage import Context, ContextTrace, PastContext
from headwater.records.record import Record
from headwater.records.verify import VerificationReport

T = TypeVar("T")
Id = TypeVar("Id", str, int)


class Verbs(Protocol):
    """The verbs that have a blocking form."""

    async def get_feature(self, name: str, entity_id: str | int) -> Any: ...

    async def get_features(
        self, names: Sequence[str], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]: ...

    async def set_feature(
        self, name: str, entity_id: str | int, value: object, *, as_of: datetime | None = None
    ) -> None: ...

    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent: ...

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context: ...

    async def record_external(
        self,
        *,
        name: str,
        content: str,
        inputs: Mapping[str, Any] | None = None,
        model: str | None = None,
        version: str | None = None,
        interaction_ref: Mapping[str, Any] | None = None,
    ) -> Context: ...

    async def get_context_at(self, context_id: str) -> PastContext: ...

    async def list_contexts(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        *,
        name: str | None = None,
        freshness_status: str | None = None,
        cursor: str | None = None,
    ) -> ContextPage: ...

    async def find_contexts(
        self,
        *,
        feature: str | None = None,
        entity: str | None = None,
        entity_id: str | int | None = None,
        chunk: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ContextPage: ...

    async def get_record(self, ref: str) -> Record: ...

    async def verify_record(
        self, ref: str, *, expect: str | None = None, signed: bool = False
    ) -> VerificationReport: ...

    async def explain(self, ref: str) -> ContextTrace: ...

    async def replay(self, ref: str, mode: Mode = "show") -> Replay: ...

    async def diff(self, before: str, after: str) -> ContextDiff: ...

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


class Blocking:
    """Runs each verb to its end before it returns.

    Inside a sync handler the verbs see the handler's own writes, as the async ones do.
    """

    def __init__(self, store: Verbs) -> None:
        self._store = store
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that the verbs run on, once one has been used outside of a handler."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def get_feature(self, name: str, entity_id: str | int) -> Any:
        return self._run(self._store.get_feature(name, entity_id))

    def get_features(
        self, names: Sequence[str], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]:
        return self._run(self._store.get_features(names, entity_ids))

    def set_feature(
        self, name: str, entity_id: str | int, value: object, *, as_of: datetime | None = None
    ) -> None:
        self._run(self._store.set_feature(name, entity_id, value, as_of=as_of))

    def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent:
        return self._run(
            self._store.publish(
                event_type, entity_id, payload, timestamp=timestamp, event_id=event_id
            )
        )

    def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        return self._run(self._store.assemble(name, params, overrides))

    def record_external(
        self,
        *,
        name: str,
        content: str,
        inputs: Mapping[str, Any] | None = None,
        model: str | None = None,
        version: str | None = None,
        interaction_ref: Mapping[str, Any] | None = None,
    ) -> Context:
        return self._run(
            self._store.record_external(
                name=name,
                content=content,
                inputs=inputs,
                model=model,
                version=version,
                interaction_ref=interaction_ref,
            )
        )

    def get_context_at(self, context_id: str) -> PastContext:
        return self._run(self._store.get_context_at(context_id))

    def list_contexts(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        *,
        name: str | None = None,
        freshness_status: str | None = None,
        cursor: str | None = None,
    ) -> ContextPage:
        return self._run(
            self._store.list_contexts(
                start, end, limit, name=name, freshness_status=freshness_status, cursor=cursor
            )
        )

    def find_contexts(
        self,
        *,
        feature: str | None = None,
        entity: str | None = None,
        entity_id: str | int | None = None,
        chunk: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ContextPage:
        return self._run(
            self._store.find_contexts(
                feature=feature,
                entity=entity,
                entity_id=entity_id,
                chunk=chunk,
                limit=limit,
                cursor=cursor,
            )
        )

    def get_record(self, ref: str) -> Record:
        return self._run(self._store.get_record(ref))

    def verify_record(
        self, ref: str, *, expect: str | None = None, signed: bool = False
    ) -> VerificationReport:
        return self._run(self._store.verify_record(ref, expect=expect, signed=signed))

    def explain(self, ref: str) -> ContextTrace:
        return self._run(self._store.explain(ref))

    def replay(self, ref: str, mode: Mode = "show") -> Replay:
        return self._run(self._store.replay(ref, mode))

    def diff(self, before: str, after: str) -> ContextDiff:
        return self._run(self._store.diff(before, after))

    def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        redacting = self._store.redact(ref, *pointers, reason=reason, by=by, everywhere=everywhere)
        return self._run(redacting)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Runs the call of a context or a retriever: ``store.sync.run(search("shoes"))``."""
        return self._run(call)

    def drain(self) -> None:
        self._run(self._store.drain())

    def close(self) -> None:
        """Closes the store and ends the thread that the verbs ran on."""
        self._run(self._store.close())
        with self._lock:
            if self.loop is not None and self._thread is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join()
                self.loop.close()
                self.loop = self._thread = None

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        if _in_a_loop():
            verb.close()
            raise InvalidInputError(
                "store.sync blocks, and this thread runs an event loop; await the verb of the "
                "store itself instead"
            )
        # A handler's context goes along to the loop that runs its batch, and with it its turn.
        inside = caller.get()
        if inside is None:
            return asyncio.run_coroutine_threadsafe(verb, self._own_loop()).result()
        with inside.offload.waiting(inside.loop):
            return asyncio.run_coroutine_threadsafe(verb, inside.loop).result()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self.loop.run_forever, name="headwater-verbs", daemon=True
                )
                self._thread.start()
            return self.loop


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
