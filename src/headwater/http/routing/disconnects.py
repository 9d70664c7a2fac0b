"""Ending the work for a request whose client has closed its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from headwater.http.routing.request_errors import DisconnectedError

# A call that two scans find is watched. Most end before that, and cost no timer and no task.
_SCAN_SECONDS = 0.1

T = TypeVar("T")


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass  # an empty body, which a request without one has as well


class Disconnects:
    """Cancels the calls of requests whose client disconnects."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: set[_Call] = set()

    async def run(self, receive: Receive, call: Awaitable[T]) -> T:
        """Return the result of a call, which is cancelled if the client disconnects.

        The body must have been read, so that ``receive`` has nothing left but the end.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._calls = loop, set()
            loop.call_later(_SCAN_SECONDS, self._scan, loop, self._calls)
        calls, watched = self._calls, _Call(receive, asyncio.current_task(loop))
        calls.add(watched)
        try:
            return await call
        except asyncio.CancelledError:
            # A stop of the server may cancel the task as well.
            if watched.take_back() == 0:
                raise DisconnectedError from None
            raise
        finally:
            calls.discard(watched)
            if watched.watch is not None:
                watched.end(watched.watch)

    def _scan(self, loop: asyncio.AbstractEventLoop, calls: set[_Call]) -> None:
        if not calls:
            self._loop = None if self._loop is loop else self._loop  # the next call begins again
            return
        for call in calls:
            call.age()
        loop.call_later(_SCAN_SECONDS, self._scan, loop, calls)


class _Call:
    """The task of a request, and the one that waits for the end of its connection.

    One is made for every request, so what only slow requests need is set by the scan.
    """

    watch: asyncio.Task[None] | None = None
    _is_slow = False
    _is_gone = False

    def __init__(self, receive: Receive, request: asyncio.Task[object] | None) -> None:
        self._receive = receive
        self._request = request

    def age(self) -> None:
        """Begin to watch the connection the second time this is called."""
        if self._is_slow and self.watch is None:
            self.watch = asyncio.create_task(self._wait())
        self._is_slow = True

    async def _wait(self) -> None:
        await disconnected(self._receive)
        if self._request is not None:
            self._is_gone = True
            self._request.cancel()

    def take_back(self) -> int | None:
        """Undo the cancellation; return how many others remain, or None if there was none."""
        if not self._is_gone or self._request is None:
            return None
        self._is_gone = False
        return self._request.uncancel()

    def end(self, watch: asyncio.Task[None]) -> None:
        """End the watch, and undo a cancellation that the call has ignored."""
        self.take_back()
        watch.cancel()
