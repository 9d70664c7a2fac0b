"""Customers who keep visiting the shop while its server runs: requests to its API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from headwater.cli.demo.tour import DemoError, DemoServer
from headwater.cli.demo.week import Event, Question, Shop

_PAUSE_SECONDS = 1.0
_RETRY_SECONDS = 5.0


def trickle(server: DemoServer, seed: int = 17) -> None:
    """Let customers visit the shop until interrupted, one request after the other."""
    for what in _endless(Shop(seed)):
        try:
            send(server, what)
        except DemoError:
            # A strict context was refused, or the server is busy: customers come back.
            time.sleep(_RETRY_SECONDS)
        time.sleep(_PAUSE_SECONDS)


def _endless(shop: Shop) -> Iterator[Event | Question]:
    shop.know_everybody()
    while True:
        for happening in shop.visit(datetime.now(UTC)):
            if isinstance(happening.what, Event | Question):
                yield happening.what


def send(server: DemoServer, what: Event | Question) -> str:
    """Publish an event, or assemble a context and publish its rating; return the new id."""
    if isinstance(what, Event):
        event = {"entity_id": what.entity_id, "payload": what.payload}
        accepted = server.request("POST", f"/ingest/{what.event_type}", _json(event))
        return str(accepted["event_id"])
    question: dict[str, object] = {"params": what.params, "interaction_ref": what.interaction}
    if what.max_tokens is not None:
        question |= {"max_tokens": what.max_tokens}
    asked = server.request("POST", f"/v1/contexts/{what.context}", _json(question))
    if what.is_helpful is not None:
        send(server, what.rating(asked["context_id"]))
    return str(asked["context_id"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
