"""The requests of the soak: their kinds, how often each is sent, and with which key."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from headwater.model.callers import AccessScope

USERS = 1_000
ARTICLES = 200
BATCH_EVENTS = 20
READ_AT_ONCE = 20
CALLERS: Mapping[str, tuple[AccessScope, ...]] = {
    "shop": ("ingest", "read", "assemble"),
    "auditor": ("records",),
    "scraper": ("metrics",),
}
"""The keys of the server and their scopes."""

_SEED = 7
_DRAWN = 2_000  # requests of each kind, which are sent in turns


class Sent(NamedTuple):
    """What a request sends."""

    method: str
    path: str
    body: Any = None


class Kind(NamedTuple):
    """Requests of one route."""

    name: str
    share: int
    """Of a hundred requests."""
    caller: str
    draw: Callable[[random.Random], Sent]


class Request(NamedTuple):
    """A request as it is written to a connection."""

    kind: str
    data: bytes


def user(rng: random.Random) -> str:
    return f"u{rng.randrange(USERS)}"


def purchase(user_id: str, amount: float = 1.5) -> dict[str, Any]:
    return {"event_type": "purchase", "entity_id": user_id, "payload": {"amount": amount}}


def article(number: int) -> str:
    return f"Article {number}: parcels ordered before noon leave on the same day {number * 7919}."


def kinds_of(context_ids: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds of requests; records are read of these contexts."""
    names = ["total_spend", "last_amount", "tier"]
    return (
        Kind("read one value", 36, "shop", lambda rng: _read_one(user(rng))),
        Kind(
            "read many values",
            12,
            "shop",
            lambda rng: Sent("POST", "/v1/features", _many(names, rng)),
        ),
        Kind(
            "ingest one event",
            20,
            "shop",
            lambda rng: Sent(
                "POST",
                "/ingest/purchase",
                {"entity_id": user(rng), "payload": {"amount": 1.5}},
            ),
        ),
        Kind(
            "ingest many events",
            2,
            "shop",
            lambda rng: Sent("POST", "/ingest", [purchase(user(rng)) for _ in range(BATCH_EVENTS)]),
        ),
        Kind(
            "assemble a context",
            12,
            "shop",
            lambda rng: Sent("POST", "/v1/contexts/support", _question(rng)),
        ),
        Kind(
            "search",
            8,
            "shop",
            lambda rng: Sent(
                "POST",
                "/v1/search/articles",
                {"query": article(rng.randrange(ARTICLES)), "top_k": 5},
            ),
        ),
        Kind(
            "read a record",
            6,
            "auditor",
            lambda rng: Sent("GET", f"/v1/context/{rng.choice(context_ids)}"),
        ),
        Kind(
            "list records",
            2,
            "auditor",
            lambda _: Sent("GET", "/v1/contexts?limit=20"),
        ),
        Kind("scrape metrics", 2, "scraper", lambda _: Sent("GET", "/metrics")),
    )


def _read_one(user_id: str) -> Sent:
    return Sent("GET", f"/v1/features/total_spend?entity_id={user_id}")


def _many(names: Sequence[str], rng: random.Random) -> dict[str, Any]:
    return {"features": names, "entity_ids": [user(rng) for _ in range(READ_AT_ONCE)]}


def _question(rng: random.Random) -> dict[str, Any]:
    return {"params": {"user_id": user(rng), "question": article(rng.randrange(ARTICLES))}}


def endless(kinds: Sequence[Kind], headers: Mapping[str, Mapping[str, str]]) -> cycle[Request]:
    """Return requests without end, in their shares and in an order that a seed gives."""
    rng = random.Random(_SEED)
    drawn = {
        kind.name: [
            Request(kind.name, as_bytes(kind.draw(rng), headers[kind.caller]))
            for _ in range(_DRAWN * kind.share // 100)
        ]
        for kind in kinds
    }
    requests = [request for each in drawn.values() for request in each]
    rng.shuffle(requests)
    return cycle(requests)


def as_bytes(sent: Sent, headers: Mapping[str, str]) -> bytes:
    """Return a request as HTTP/1.1."""
    body = b"" if sent.body is None else json.dumps(sent.body).encode()
    lines = [f"{sent.method} {sent.path} HTTP/1.1", "Host: soak"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
