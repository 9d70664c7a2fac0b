"""The operations that are counted, each through the public API."""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dev.work.declarations import NAMES, find_docs, store, support
from headwater import ServiceEvent
from headwater.http.app import create_app

EVENTS = 400
PUBLISHED = 10  # a publish now and then looks for new workers
ROWS = 200
QUESTION = "Where is my parcel?"

Step = Callable[[], Awaitable[object]]

_numbers = itertools.count()


@dataclass(frozen=True)
class Operation:
    """What is counted: a step that performs it so many times, after one that is not counted."""

    run: Step
    times: int = 1
    before: Step | None = None
    repetitions: int = 40
    """Of which the least counts: what else the process does meanwhile only adds to them."""


def operations(headers: Mapping[str, str]) -> dict[str, Operation]:
    """Return every operation by its name; requests carry the headers."""
    return {
        "publish": Operation(publish, PUBLISHED),
        "event": Operation(store.drain, EVENTS, publish_many, repetitions=8),
        "read": Operation(read),
        "HTTP read": Operation(http_read(headers)),
        "context": Operation(assemble),
        "search": Operation(search),
        "cached retrieval": Operation(retrieve),
        "frame": Operation(read_past, repetitions=8),
    }


async def prepare() -> None:
    """Give a hundred entities their features, and the index a hundred documents."""
    for number in range(100):
        await store.publish("profile", f"u{number}", {"base": 1.5})
        await store.index("docs", f"d{number}", f"{number}. Parcels arrive on the third day.")
    await store.drain()


async def publish() -> None:
    for _ in range(PUBLISHED):
        await store.bus.publish(purchase())


async def publish_many() -> None:
    await store.bus.publish_many([purchase() for _ in range(EVENTS)])


def purchase() -> ServiceEvent:
    return ServiceEvent(
        event_type="purchase", entity_id=f"u{next(_numbers) % 100}", payload={"amount": 1.5}
    )


async def read() -> None:
    assert (await store.get_features(NAMES, ["u1"]))["u1"]["f9"] == 10.5


async def assemble() -> None:
    assert (await support("u1", f"{QUESTION} {next(_numbers)}")).meta["recorded"]


async def search() -> None:
    assert len(await store.search("docs", f"{QUESTION} {next(_numbers)}", top_k=10)) == 10


async def retrieve() -> None:
    assert len(await find_docs(QUESTION)) == 3


async def read_past() -> None:
    now = datetime.now(UTC)
    rows = [{"user_id": f"u{number % 100}", "timestamp": now} for number in range(ROWS)]
    assert len(await store.get_historical_features(rows, NAMES)) == ROWS


def http_read(headers: Mapping[str, str]) -> Step:
    """A request, from the moment when a web server has parsed it."""
    app = create_app(store)
    sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def request() -> None:
        answered: list[Any] = []

        async def send(message: Any) -> None:
            answered.append(message)

        await app(_scope("/v1/features/f1", b"entity_id=u1", sent), receive, send)
        assert answered[0]["status"] == 200

    return request


def _scope(path: str, query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
