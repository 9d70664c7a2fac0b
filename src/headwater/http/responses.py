"""An answer to a request, and how it is sent."""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import Send

Header = tuple[bytes, bytes]

JSON = b"application/json"

# Values are of the moment, and no browser may guess that they are something else.
_ALWAYS: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


class Response(NamedTuple):
    """A status, a whole body and what is said about it."""

    status: int
    body: bytes
    media_type: bytes = JSON
    headers: tuple[Header, ...] = ()


async def send_answer(answer: Response, send: Send, *, head: bool) -> None:
    """Sends an answer; without its body to whoever asked for the head only."""
    status, body, media_type, headers = answer
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", media_type),
            (b"content-length", b"%d" % len(body)),
            *_ALWAYS,
            *headers,
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head else body})
