"""Responses to long actions: lines of JSON with the progress, then the result or the problem."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.core.codec import encode_custom
from headwater.http.problems import log_problem, problem_response
from headwater.http.request_ids import HEADER

NDJSON = "application/x-ndjson"
# Proxies end a response that is silent for some ten seconds.
_SECONDS_BETWEEN_LINES = 1.0

OnStep = Callable[[int, int], None]
"""Called with the number of parts that are done and the number of all."""

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


class ProgressResponse(Response):
    """The lines of a long action, which is cancelled if the client disconnects.

    A line a second has the ``progress``, so that no proxy takes the response for hung. The last
    one has the ``result`` or, because the status is sent already, the ``problem``.
    """

    media_type = NDJSON

    def __init__(self, action: Callable[[OnStep], Awaitable[Any]], *, private: bool) -> None:
        """``private`` keeps messages of user code out of the log."""
        super().__init__(headers={"cache-control": "no-store", "x-content-type-options": "nosniff"})
        del self.headers["content-length"]
        self._action = action
        self._private = private
        self._step = {"done": 0, "total": 0}

    def _progress(self, done: int, total: int) -> None:
        self._step = {"done": done, "total": total}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        action = asyncio.ensure_future(self._action(self._progress))
        gone = asyncio.create_task(_disconnected(receive))
        both = {action, gone}
        try:
            while not action.done():
                await asyncio.wait(
                    both, timeout=_SECONDS_BETWEEN_LINES, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if not action.done():
                    await send(_line({"progress": self._step}))
            await send(_line(self._outcome(action, scope)) | {"more_body": False})
        finally:
            action.cancel()
            gone.cancel()
            await asyncio.wait(both)

    def _outcome(self, action: asyncio.Future[Any], scope: Scope) -> dict[str, Any]:
        """Return the last line."""
        error = action.exception()
        if error is None:
            return {"result": action.result()}
        if not isinstance(error, Exception):
            raise error
        request_id = self.headers.get(HEADER.decode(), "")
        log_problem(error, scope["method"], scope["path"], request_id, private=self._private)
        return {"problem": msgspec.Raw(bytes(problem_response(error, request_id).body))}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # an empty body, which a request without one has as well


def _line(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "http.response.body", "body": _encode(fields) + b"\n", "more_body": True}
