"""Recording the answers of models to contexts, without holding up those who wait for them."""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import NamedTuple

from msgspec.structs import replace

from headwater.core.logging import Outage, log
from headwater.errors import ClosedError, HeadwaterError, InvalidInputError
from headwater.features.call_scope import current_replay
from headwater.model.bound_contexts import Binding, BoundContext, binding_of, current_context
from headwater.model.new_outcomes import NewOutcome
from headwater.model.outcomes import Response

_PATIENCE_SECONDS = 1.0

_recordings: weakref.WeakKeyDictionary[object, _Recordings] = weakref.WeakKeyDictionary()
"""By the verbs of each store and client."""


def current_instructions() -> str:
    """Return the text of the current context; raise InvalidInputError if there is none."""
    context = current_context()
    if context is None or context.content is None:
        problem = "there is none" if context is None else "its text was not recorded"
        raise InvalidInputError(
            f"the instructions are the text of the current context, and {problem}; run the agent "
            "inside of `async with ctx:`, with a context that was assembled"
        )
    return context.content


class AgentModelCall:
    """A call of a model by an agent, which is recorded for the current context, if there is one.

    Predicted tokens are not compared with the billed ones, because agents send more than a context.
    """

    def __init__(self) -> None:
        self._recorder: AnswerRecorder | None = None
        context = current_context()
        if context is not None and current_replay() is None:
            try:
                self._recorder = AnswerRecorder(context, is_async=True)
            except InvalidInputError as error:  # a copy has no store
                log.warning("answer of a model not recorded", error=str(error))
        self._started = time.perf_counter()

    async def answered(self, response: Callable[[], Response]) -> None:
        """Record an answer."""
        latency = self._milliseconds()
        await self._record(
            lambda: {"answer": replace(response(), latency_ms=latency), "as_sent": False}
        )

    async def failed(self, error: Exception) -> None:
        """Record that there is no answer."""
        response = Response(latency_ms=self._milliseconds(), error_type=type(error).__name__)
        await self._record(lambda: {"error": response})

    async def _record(self, facts: Callable[[], NewOutcome]) -> None:
        if self._recorder is not None:
            await self._recorder.record(facts).waited()

    def _milliseconds(self) -> float:
        return round((time.perf_counter() - self._started) * 1000, 3)


class _Recordings(Outage):
    """The recordings of one store or client that have not ended, and their failures."""

    def __init__(self) -> None:
        super().__init__("recording answers")
        self.running: set[Future[None]] = set()
        self.is_slow = False
        """Whether a caller waited in vain, and no recording has succeeded since."""

    def add(self, recording: Future[None]) -> None:
        self.running.add(recording)  # an event loop holds no strong reference to its tasks
        recording.add_done_callback(self.running.discard)


class PendingAnswer(NamedTuple):
    """An outcome that is being recorded, for which its caller may wait."""

    future: Future[None] | None
    log: _Recordings

    def wait(self) -> None:
        """Wait until it is recorded, but not for long."""
        if self.future is not None:
            self.log.is_slow |= bool(wait([self.future], _PATIENCE_SECONDS).not_done)

    async def waited(self) -> None:
        """Wait until it is recorded, but not for long."""
        if self.future is not None:
            waiting = [asyncio.wrap_future(self.future)]
            _, running = await asyncio.wait(waiting, timeout=_PATIENCE_SECONDS)
            self.log.is_slow |= bool(running)


class AnswerRecorder:
    """Records the outcome of one call, in the event loop and the context variables of its start.

    A stream may end in another thread, or while Python collects garbage. A caller waits for the
    recording, unless those before it fail or are slow, or the waiting would stop the loop that
    records.
    """

    def __init__(self, context: BoundContext, *, is_async: bool) -> None:
        self._context_id = context.context_id
        self._binding = binding_of(context)
        self._log = _recordings.setdefault(self._binding.verbs, _Recordings())
        self._variables = contextvars.copy_context()
        running = _running_loop()
        self._loop = (
            self._binding.home or (running if is_async else None) or _sync_loop(self._binding)
        )
        self._may_wait = is_async or self._loop is not running

    def record(self, facts: Callable[[], NewOutcome]) -> PendingAnswer:
        """Begin to record an outcome."""
        recording = self._add(facts)
        try:
            future = self._variables.run(asyncio.run_coroutine_threadsafe, recording, self._loop)
        except RuntimeError as error:  # the event loop is closed
            recording.close()
            self._report(error)
            return PendingAnswer(None, self._log)
        self._log.add(future)
        is_waited_for = self._may_wait and not (self._log.is_slow or self._log.is_ongoing)
        return PendingAnswer(future if is_waited_for else None, self._log)

    async def _add(self, facts: Callable[[], NewOutcome]) -> None:
        try:
            await self._binding.verbs.add_outcome(self._context_id, **facts())
        except asyncio.CancelledError:
            self._report(ClosedError("the event loop was closed before that"))
            raise
        except Exception as error:  # noqa: BLE001 - the call of the model has succeeded without it
            self._report(error)
        else:
            self._log.is_slow = False
            self._log.recovered("wrap")

    def _report(self, error: Exception) -> None:
        # The message of an unforeseen error may have parts of the answer.
        known = error if isinstance(error, HeadwaterError) else RuntimeError(type(error).__name__)
        self._log.report("warning", "answer of a model not recorded", known, "wrap")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _sync_loop(binding: Binding) -> asyncio.AbstractEventLoop:
    if binding.loop is None:
        raise InvalidInputError("the context comes from a client without an event loop")
    return binding.loop.started()
