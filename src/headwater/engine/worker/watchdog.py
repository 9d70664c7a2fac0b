"""The watchdog: reports a handler that blocks the event loop, and ends its worker process."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from headwater.core.deadlines import Deadline
from headwater.core.logging import log
from headwater.core.tracebacks import stack_of
from headwater.declarations.features import FeatureDef
from headwater.features import user_calls
from headwater.model.values import ServiceEvent

# Shorter stalls are normal: a garbage collection, the import of a library, a busy machine.
_MIN_SECONDS = 1.0
_MAX_SECONDS = 5.0
_LOOKS_PER_STALL = 4


class Watchdog:
    """A thread that watches the event loop of a worker.

    While a handler blocks the loop, nothing on it runs: no other handler, no heartbeat, no time
    limit. The watchdog logs the handler and its stack, and again when the handler's time limit is
    over. It then ends the process if the worker owns it: another worker takes over and quarantines
    the events. It cannot see a function of an extension module that keeps the interpreter lock,
    because then it does not run either.
    """

    def __init__(self, deadline: Deadline, *, owns_process: bool) -> None:
        self._deadline = deadline
        self._owns_process = owns_process
        self._patience = min(_MAX_SECONDS, max(_MIN_SECONDS, deadline.seconds / 4))
        self._limit = max(deadline.seconds, 2 * self._patience)
        self._interval = self._patience / _LOOKS_PER_STALL
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._has_run = threading.Event()
        self._is_stopped = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="headwater-watchdog", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._has_run.set()

    def _watch(self) -> None:
        # It is cleared before the pause: what `__exit__` sets meanwhile must not get lost, because
        # the loop may never run again, and this would end a process that is well.
        self._has_run.clear()
        while not self._is_stopped.wait(self._interval):
            try:
                self._loop.call_soon_threadsafe(self._has_run.set)
            except RuntimeError:
                return  # the loop is closed
            self._wait_for_loop()
            self._has_run.clear()

    def _wait_for_loop(self) -> None:
        """Return when the loop has run; report it if that takes long."""
        # The intervals are counted instead of the time, which also passes while the process is
        # stopped or the machine sleeps.
        stalled, is_reported = 0.0, False
        while not self._has_run.wait(self._interval):
            stalled += self._interval
            if stalled >= self._patience and not is_reported:
                is_reported = True
                log.error("event loop blocked", **self._report(stalled))
                log.flush()
            if stalled >= self._limit:
                if self._owns_process:
                    log.error("worker exits: event loop blocked", **self._report(stalled))
                    log.flush()
                    os._exit(os.EX_SOFTWARE)
                log.error("event loop still blocked", **self._report(stalled))
                log.flush()
                self._has_run.wait()

    def _report(self, stalled: float) -> dict[str, Any]:
        """Return the running call and its stack, as fields of a log record."""
        return {
            **self._call(),
            "seconds": round(stalled, 3),
            "stack": stack_of(self._loop_thread, user_calls.__file__),
            "hint": "declare the function with `def` instead of `async def`, so that it runs in a "
            "thread, or move its blocking call to `await asyncio.to_thread(...)`",
        }

    def _call(self) -> dict[str, str]:
        task = asyncio.current_task(self._loop)
        for slot in tuple(self._deadline.slots):
            if slot.task is task and slot.is_used:
                feature, entity_id, rest = slot.label
                assert isinstance(feature, FeatureDef)
                assert isinstance(rest, tuple)
                events = [
                    argument.event_id for argument in rest if isinstance(argument, ServiceEvent)
                ]
                event = {"event_id": events[0]} if events else {}
                return {"feature": feature.name, "entity_id": str(entity_id), **event}
        return {}
