"""Ending the work for a request whose client has closed its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from headwater.http.request_errors import DisconnectedError

# Most requests take less, and these cost one timer.
_WATCHED_AFTER_SECONDS = 0.1

T = TypeVar("T")


async def run_while_connected(receive: Receive, call: Awaitable[T]) -> T:
    """Return the result of a call, which is cancelled if the client disconnects.

    The body must have been read, so that ``receive`` has nothing left but the end.
    """
    watch = _Watch(receive)
    timer = asyncio.get_running_loop().call_later(_WATCHED_AFTER_SECONDS, watch.begin)
    try:
        return await call
    except asyncio.CancelledError:
        # A stop of the server may cancel the task as well.
        if watch.take_back() == 0:
            raise DisconnectedError from None
        raise
    finally:
        timer.cancel()
        watch.end()


class _Watch:
    """A task that waits for the end of a connection and cancels the task of its request."""

    __slots__ = ("_is_gone", "_receive", "_request", "_task")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._request = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False

    def begin(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass  # an empty body, which a request without one has as well
        if self._request is not None:
            self._is_gone = True
            self._request.cancel()

    def take_back(self) -> int | None:
        """Undo the cancellation; return how many others remain, or None if there was none."""
        if not self._is_gone or self._request is None:
            return None
        self._is_gone = False
        return self._request.uncancel()

    def end(self) -> None:
        """End the task, and undo a cancellation that the call has ignored."""
        self.take_back()
        if self._task is not None:
            self._task.cancel()
