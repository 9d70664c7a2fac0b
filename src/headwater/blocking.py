"""The store's verbs for code that cannot await: sync handlers, scripts and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from headwater.errors import InvalidInputError
from headwater.offload import caller
from headwater.values import ServiceEvent

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
        entity_id: str,
        payload: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent: ...

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
        entity_id: str,
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
                    target=self.loop.run_forever, name="headwater-sync-verbs", daemon=True
                )
                self._thread.start()
            return self.loop


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
