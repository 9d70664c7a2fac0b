"""Responses to long actions: lines of JSON with the progress, then the result or the problem."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.core.codec import encode_custom
from headwater.http.routing.disconnects import disconnected
from headwater.http.routing.problems import log_problem, problem_response
from headwater.http.routing.request_metrics import HEADER
from headwater.model.problems import NDJSON, ProgressStep

# Proxies end a response that is silent for some ten seconds.
_SECONDS_BETWEEN_LINES = 1.0

# Before that an action that checks its input may refuse it.
_SECONDS_UNTIL_LINES = 5.0

# A multiple of 3, so that the base64 of a line needs no padding.
_BYTES_OF_LINE = 192 * 1024

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


class Reporter:
    """What a long action tells its client before it ends.

    Call it with the number of parts that are done and the number of all.
    """

    def __init__(self) -> None:
        self.step: msgspec.Struct | None = None
        self.has_begun = asyncio.Event()
        self._send: asyncio.Future[Send] = asyncio.get_running_loop().create_future()

    def __call__(self, done: int, total: int) -> None:
        self.show(ProgressStep(done, total))

    def show(self, step: msgspec.Struct) -> None:
        """Report the progress in a type of the action."""
        self.step = step
        self.has_begun.set()

    def begin(self, send: Send) -> None:
        """Send the lines of the action with this."""
        self._send.set_result(send)

    async def send_file(self, file: Path) -> int:
        """Send a file, as base64 in lines with ``data``; return the number of bytes."""
        self.has_begun.set()
        sent, send = 0, await self._send
        with file.open("rb") as opened:
            while data := await asyncio.to_thread(opened.read, _BYTES_OF_LINE):
                await send(_line({"data": data}))
                sent += len(data)
        return sent


class LiveResponse(Response):
    """A response that is sent while it is made, so that its length is not known."""

    def __init__(self, *, private: bool, **headers: str) -> None:
        """``private`` keeps messages of user code out of the log."""
        super().__init__(
            headers={"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
        )
        del self.headers["content-length"]
        self._private = private

    async def begin(self, send: Send) -> None:
        """Send the status and the headers."""
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})

    def problem(self, error: Exception, scope: Scope) -> bytes:
        """Log an error, for which the status is sent already, and return its problem."""
        request_id = self.headers.get(HEADER.decode(), "")
        log_problem(error, scope["method"], scope["path"], request_id, private=self._private)
        return bytes(problem_response(error, request_id).body)


class ProgressResponse(LiveResponse):
    """The lines of a long action, which is cancelled if the client disconnects.

    A line a second has the ``progress``, so that no proxy takes the response for hung. The last
    one has the ``result`` or, because the status is sent already, the ``problem``.
    """

    media_type = NDJSON

    def __init__(
        self,
        action: Callable[[Reporter], Awaitable[Any]],
        *,
        private: bool,
        closing: Callable[[], None] | None = None,
    ) -> None:
        """``closing`` runs at the end."""
        super().__init__(private=private)
        self._action = action
        self._closing = closing
        self._reporter = Reporter()
        self._running: asyncio.Future[Any] | None = None

    async def begun(self, *, checks: bool = False) -> ProgressResponse:
        """Begin the action; raise the error if it refuses the request before it waits.

        One that checks its input may refuse it until it reports progress or sends a file. So a
        refusal has its own status, which cannot be changed once the lines have begun.
        """
        self._running = asyncio.ensure_future(self._action(self._reporter))
        begun = asyncio.ensure_future(self._reporter.has_begun.wait())
        patience = _SECONDS_UNTIL_LINES if checks else 0
        try:
            await asyncio.wait(
                {self._running, begun}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait({self._running})
            raise
        finally:
            begun.cancel()
        if self._running.done() and self._running.exception() is not None:
            self._running.result()
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(send)
        self._reporter.begin(send)
        action = self._running or asyncio.ensure_future(self._action(self._reporter))
        gone = asyncio.create_task(disconnected(receive))
        both = {action, gone}
        try:
            while not action.done():
                await asyncio.wait(
                    both, timeout=_SECONDS_BETWEEN_LINES, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if not action.done():
                    await send(_line({"progress": self._reporter.step}))
            await send(_line(self._outcome(action, scope)) | {"more_body": False})
        finally:
            action.cancel()
            gone.cancel()
            await asyncio.wait(both)
            if self._closing:
                self._closing()

    def _outcome(self, action: asyncio.Future[Any], scope: Scope) -> dict[str, Any]:
        """Return the last line."""
        error = action.exception()
        if error is None:
            return {"result": action.result()}
        if not isinstance(error, Exception):
            raise error
        return {"problem": msgspec.Raw(self.problem(error, scope))}


def _line(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "http.response.body", "body": _encode(fields) + b"\n", "more_body": True}
