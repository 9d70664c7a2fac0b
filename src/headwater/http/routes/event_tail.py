"""The live tail of the event log, as server-sent events.

Every response reads the log from its own position, so it holds one page in memory however slowly
its client reads, and it may continue in another process. A client that does not read at all is
disconnected by the deadlines of its connection.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

import msgspec
from starlette.types import Receive, Scope, Send

from headwater.core.codec import encode_custom
from headwater.errors import HeadwaterError
from headwater.http.routing.disconnects import disconnected
from headwater.http.routing.request_errors import TooManyTailsError
from headwater.http.routing.route import Route
from headwater.http.routing.streaming import LiveResponse
from headwater.model.events import EVENT_STREAM, EventPage, LoggedEvent, TailGap
from headwater.model.kinds import EntityIdFilter, EventTypeFilter
from headwater.store.feature_store import FeatureStore

_POLL_SECONDS = 0.5
# Proxies end a response that is silent for some ten seconds.
_HEARTBEAT_SECONDS = 5.0
# A key that was revoked is refused at the next request at the latest.
_LONGEST_SECONDS = 900.0
_RETRY_MS = 2_000
_MOST_TAILS = 100

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode

Follow = Callable[[str | None], Awaitable[EventPage]]


class OpenTails(set[asyncio.Event]):
    """The tails that this process serves; each ends when its event is set."""

    def stop(self) -> None:
        """End all tails; clients continue at another process, or when the server is back."""
        for stop in self:
            stop.set()


class EventTail:
    """Shows accepted events as they arrive."""

    def __init__(self, store: FeatureStore, tails: OpenTails) -> None:
        self._store = store
        self._tails = tails

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/v1/events/tail",
                "admin",
                self.tail_events,
                returns=EVENT_STREAM,
                documents=(LoggedEvent, TailGap),
                raises=(TooManyTailsError,),
            )
        ]

    async def tail_events(
        self,
        event_type: EventTypeFilter | None = None,
        entity_id: EntityIdFilter | None = None,
        last_event_id: str | None = None,
    ) -> EventStream:
        """Follow accepted events as they arrive, as server-sent events.

        A message without a type has an event; one of the type `gap` tells how many events were
        left out because the client was more than a minute behind; one of the type `problem` ends
        the response. Comments keep the connection open. The header `Last-Event-ID` continues after
        a message; without it the tail begins with the next event. The response ends after 15
        minutes at the latest, and when the server stops: reconnect with the last id.
        """
        if len(self._tails) >= _MOST_TAILS:
            raise TooManyTailsError(_MOST_TAILS)
        follow = partial(self._store.bus.follow, event_type=event_type, entity_id=entity_id)
        # Before the response begins, so that an error has its own status.
        first = await follow(last_event_id)
        private = self._store.settings.record.is_private
        return EventStream(first, follow, self._tails, private=private)


class EventStream(LiveResponse):
    """The messages of a tail, until the client disconnects or the server stops."""

    media_type = EVENT_STREAM

    def __init__(
        self, first: EventPage, follow: Follow, tails: OpenTails, *, private: bool
    ) -> None:
        super().__init__(private=private, **{"x-accel-buffering": "no"})
        self._first = first
        self._follow = follow
        self._tails = tails

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(send)
        stop = asyncio.Event()
        self._tails.add(stop)

        async def stop_when_gone() -> None:
            await disconnected(receive)
            stop.set()

        gone = asyncio.create_task(stop_when_gone())
        try:
            await self._send_pages(scope, send, stop)
            await send(_body(b"", more=False))
        finally:
            self._tails.discard(stop)
            gone.cancel()
            await asyncio.wait([gone])

    async def _send_pages(self, scope: Scope, send: Send, stop: asyncio.Event) -> None:
        page = self._first
        began, sent_at = time.monotonic(), -math.inf
        await send(_body(b"retry: %d\n\n" % _RETRY_MS))
        while True:
            if page.events or page.skipped:
                await send(_body(b"".join(_messages(page))))
                sent_at = time.monotonic()
            elif time.monotonic() - sent_at >= _HEARTBEAT_SECONDS:
                # Its id lets a client continue after events that it does not want.
                await send(_body(b": heartbeat\nid: %s\n\n" % page.position.encode()))
                sent_at = time.monotonic()
            if stop.is_set() or time.monotonic() - began >= _LONGEST_SECONDS:
                return
            if not page.has_more:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await stop.wait()
            try:
                page = await self._follow(page.position)
            except HeadwaterError as error:
                problem = self.problem(error, scope)
                await send(_body(b"event: problem\ndata: %s\n\n" % problem))
                return


def _messages(page: EventPage) -> Iterator[bytes]:
    if page.skipped:
        yield b"event: gap\ndata: %s\n\n" % _encode(TailGap(page.skipped))
    for event in page.events:
        yield b"id: %s\ndata: %s\n\n" % (event.position.encode(), _encode(event.logged))


def _body(data: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}
