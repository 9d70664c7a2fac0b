"""A publisher: events in batches, with back-pressure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from headwater.client.events import LARGEST_BODY, encoded, joined, send_body
from headwater.client.server import Server
from headwater.core.logging import log
from headwater.errors import (
    CallerLimitError,
    ClosedError,
    EventConflictError,
    EventError,
    FieldError,
    HeadwaterError,
    InvalidInputError,
    RemoteError,
)
from headwater.model.values import ServiceEvent

_TOO_LARGE = 413
_SHOWN = 5


class FailedEvent(NamedTuple):
    """An event that was not accepted, and why."""

    event: ServiceEvent
    error: HeadwaterError


class PublishFailedError(RemoteError):
    """Events of a publisher that were not accepted; ``failures`` has each with its error."""

    def __init__(self, failures: Sequence[FailedEvent]) -> None:
        self.failures = list(failures)
        count = len(self.failures)
        shown = [f"{each.event.event_id}: {each.error}" for each in self.failures[:_SHOWN]]
        if count > _SHOWN:
            shown.append(f"{count - _SHOWN} more in `failures`")
        noun = "event was" if count == 1 else "events were"
        super().__init__(f"{count} {noun} not published: {'; '.join(shown)}")


class PublisherOptions(NamedTuple):
    """The options of a publisher; ``AsyncClient.publisher`` explains them."""

    max_batch: int
    max_waiting: int
    linger: float
    retries: int
    on_error: Callable[[FailedEvent], None] | None


class Waiting(NamedTuple):
    """An event that waits to be sent, and its item in a body."""

    event: ServiceEvent
    item: bytes


class Publisher:
    """Publishes events in batches, one at a time and in order; ``AsyncClient.publisher`` makes one.

    Every event is accepted by the server, or reported with its error.
    """

    def __init__(self, server: Server, options: PublisherOptions) -> None:
        if not 1 <= options.max_batch <= options.max_waiting:
            raise InvalidInputError(
                f"max_batch is {options.max_batch} and max_waiting {options.max_waiting}; give "
                "numbers above zero, and max_waiting at least as large as max_batch"
            )
        self._server = server
        self._options = options
        self._queue: deque[Waiting] = deque()
        self._room = asyncio.Semaphore(options.max_waiting)
        self._unsettled = 0
        self._has_work = asyncio.Event()
        self._is_due = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_closing = False
        self._failures: list[FailedEvent] = []
        self._sender: asyncio.Task[None] | None = None

    async def publish(self, event: ServiceEvent) -> None:
        """Queue an event, as soon as there is room for it.

        Raises PublishFailedError if earlier events were not accepted; this event is not queued
        then.

        >>> await publisher.publish(ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"}))
        """
        waiting = Waiting(event, encoded(event))
        self._raise_failures()
        await self._room.acquire()
        if self._sender is None or self._sender.done():
            self._room.release()
            raise ClosedError("the publisher is closed; use it inside `async with`")
        self._queue.append(waiting)
        self._unsettled += 1
        self._is_idle.clear()
        self._has_work.set()
        if len(self._queue) >= self._options.max_batch:
            self._is_due.set()

    async def flush(self) -> None:
        """Wait until all queued events are accepted; raise PublishFailedError if some are not.

        >>> await publisher.flush()
        """
        self._is_due.set()
        await self._is_idle.wait()
        self._raise_failures()

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing = True
        self._has_work.set()
        self._is_due.set()
        if self._sender is not None:
            await self._sender
        if not self._failures:
            return
        if error is None or isinstance(error, PublishFailedError):
            earlier = [] if error is None else error.failures
            raise PublishFailedError([*earlier, *self._failures]) from error
        failed = PublishFailedError(self._failures)
        error.add_note(str(failed))
        log.error("events not published", count=len(failed.failures), error=str(failed))

    def _raise_failures(self) -> None:
        if self._failures:
            failures, self._failures = self._failures, []
            raise PublishFailedError(failures)

    async def _send_all(self) -> None:
        try:
            while batch := await self._next_batch():
                await self._send(batch)
        finally:
            # Callers that still wait for room learn that the publisher is closed.
            for _ in range(self._options.max_waiting):
                self._room.release()
            self._is_idle.set()

    async def _next_batch(self) -> Sequence[Waiting]:
        """Return the next events, when they fill a batch or have waited; none at the end."""
        if not self._queue:
            if self._is_closing:
                return ()
            self._has_work.clear()
            await self._has_work.wait()
        if len(self._queue) < self._options.max_batch and not self._is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.linger):
                    await self._is_due.wait()
        self._is_due.clear()
        batch: list[Waiting] = []
        size = 0
        while self._queue and len(batch) < self._options.max_batch and size < LARGEST_BODY:
            batch.append(self._queue.popleft())
            size += len(batch[-1].item)
        if len(self._queue) >= self._options.max_batch:
            self._is_due.set()
        return batch

    async def _send(self, batch: Sequence[Waiting]) -> None:
        """Send a batch until each of its events is accepted or has failed."""
        try:
            body = joined([each.item for each in batch])
            await send_body(self._server, body, self._options.retries)
        except EventConflictError as error:
            # All other events of the batch are stored.
            for each in error.conflicts:
                self._fail([batch[each.index]], EventConflictError([each], 1))
        except (EventError, FieldError) as error:
            batch = await self._fail_one(
                batch, error.index or 0, EventError(error.problem, field=error.field)
            )
        except CallerLimitError as error:
            batch = await self._fail_one(batch, error.index or 0, error)
        except HeadwaterError as error:
            is_too_large = error.response is not None and error.response.status == _TOO_LARGE
            if is_too_large and len(batch) > 1:
                middle = len(batch) // 2
                await self._send(batch[:middle])
                await self._send(batch[middle:])
                return
            self._fail(batch, error)
        self._settle(len(batch))

    async def _fail_one(
        self, batch: Sequence[Waiting], index: int, error: HeadwaterError
    ) -> Sequence[Waiting]:
        """Send the others of a batch; return the one that failed."""
        refused = batch[index : index + 1]
        self._fail(refused, error)
        if others := [*batch[:index], *batch[index + 1 :]]:
            await self._send(others)
        return refused

    def _fail(self, batch: Sequence[Waiting], error: HeadwaterError) -> None:
        failures = [FailedEvent(each.event, error) for each in batch]
        if self._options.on_error is None:
            self._failures += failures
        else:
            for failure in failures:
                self._options.on_error(failure)

    def _settle(self, count: int) -> None:
        for _ in range(count):
            self._room.release()
        self._unsettled -= count
        if not self._unsettled:
            self._is_idle.set()
