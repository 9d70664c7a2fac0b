"""Without content, no input of a function that fails is written anywhere but to the event log.

The log of events keeps payloads, because handlers and replays need them, and dead letters keep
their events. Everything else is searched: log records, errors and tracebacks of dead letters,
problems, spans, and all files of the home.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records
from tests.telemetry.conftest import Spans, provider, spans

__all__ = ["provider", "spans"]

PAYLOAD, PARAM, QUERY, DOCUMENT, RAISED, SCHEDULED = MARKERS = [
    f"marker-{name}-{number}"
    for number, name in enumerate(["payload", "param", "query", "document", "raised", "scheduled"])
]


def embed(texts: list[str]) -> list[list[float]]:
    """Return vectors, unless a text has a marker: then it is in the message."""
    for text in texts:
        if "marker" in text:
            raise ValueError(f"cannot embed {text!r} ({RAISED})")
    return [[1.0, 0.0] for _ in texts]


FAILING = ["raises", "looks_up", "searches", "reads", "reranks"]


def desk(store: FeatureStore) -> type:
    """Declare functions that fail with their inputs and a marker; return the entity."""
    Index(store, "notes", embedder=embed, dimensions=2)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User)
    def broken(user_id: str) -> int:
        raise ValueError(RAISED)

    @context(store)
    async def raises(text: str) -> str:
        raise ValueError(f"{text} {RAISED}")

    @context(store)
    async def reads(text: str) -> ContextItem:
        return ContextItem(f"{text} {await store.get_feature('broken', 'u1')}")

    @context(store)
    async def reranks(text: str) -> str:
        def rerank(query: str, chunks: list[Chunk]) -> list[Chunk]:
            raise KeyError(f"{query} {text} {RAISED}")

        return str(await store.search("notes", "words", rerank=rerank))

    declare_retrievers(store)
    return User


def declare_retrievers(store: FeatureStore) -> None:
    """Declare retrievers that fail, and contexts that call them."""

    @retriever(store, cache_ttl="5m")
    def lookup(query: str) -> list[str]:
        raise LookupError(f"{query} {RAISED}")

    @retriever(store, index="notes", top_k=2)
    def search_notes(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @retriever(store, on_error="empty")
    def hidden(query: str) -> list[str]:
        raise LookupError(f"{query} {RAISED}")

    @context(store)
    async def looks_up(text: str) -> str:
        return str(await lookup(text))

    @context(store)
    async def searches(text: str) -> str:
        return str(await search_notes(text))

    @context(store)
    async def works(text: str) -> list[ContextItem]:
        return [ContextItem(text), *(ContextItem(chunk.text) for chunk in await hidden(text))]


def declare_callers(store: FeatureStore, user: type) -> None:
    """Declare handlers and schedules that call everything with a text of the event."""

    async def assemble(name: str, text: str) -> str:
        return (await store.assemble(name, {"text": text})).content

    for name in [*FAILING, "works"]:

        async def handled(user_id: str, event: ServiceEvent, name: str = name) -> str:
            await assemble(name, event.payload["text"])
            return "done"

        async def scheduled(user_id: str, name: str = name) -> str:
            await assemble(name, SCHEDULED)
            return "done"

        feature(entity=user, name=f"on_{name}", trigger="asked", max_retries=0)(handled)
        feature(entity=user, name=f"of_{name}", refresh="1h", materialize=True)(scheduled)

    @feature(entity=user, trigger="asked", max_retries=0)
    async def indexes(user_id: str, event: ServiceEvent) -> str:
        await store.index("notes", "d1", f"{event.payload['text']} {DOCUMENT}")
        return "done"

    @feature(entity=user, trigger="asked", max_retries=0)
    async def looks(user_id: str, event: ServiceEvent) -> str:
        return str(await store.search("notes", f"{event.payload['text']} {QUERY}"))


async def call_all(client: httpx.AsyncClient) -> list[httpx.Response]:
    """Call everything that fails over HTTP; return the responses."""
    answers = [
        await client.post(f"/v1/contexts/{name}", json={"params": {"text": PARAM}})
        for name in FAILING
    ]
    answers.append(await client.post("/v1/search/notes", json={"query": QUERY}))
    answers.append(await client.put("/v1/index/notes/d2", json={"text": DOCUMENT}))
    answers.append(await client.get("/v1/features/broken?entity_id=u1"))
    assert [answer.status_code for answer in answers if answer.status_code < 500] == []
    done = await client.post("/v1/contexts/works", json={"params": {"text": PARAM}})
    assert done.status_code == 200
    return [*answers, await client.get(f"/v1/context/{done.json()['context_id']}")]


def found_in(text: Any) -> list[str]:
    return [marker for marker in MARKERS if marker in str(text)]


def files_with_markers(home: Path) -> dict[str, list[str]]:
    """Return the files of a home that contain a marker, except that of the payload."""
    found: dict[str, list[str]] = {}
    for file in home.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        markers = [each for each in MARKERS if each != PAYLOAD and each.encode() in content]
        found |= {file.name: markers} if markers else {}
    return found


async def test_no_input_of_a_failure_is_written_anywhere(
    settings: Settings, clock: ManualClock, capsys: pytest.CaptureFixture[str], spans: Spans
) -> None:
    chosen = settings.replace(
        record={"include_content": False},
        telemetry={"enabled": True, "provider": "global", "content": True},
    )
    async with FeatureStore(settings=chosen, clock=clock) as store:
        declare_callers(store, desk(store))
        await store.index("notes", "d0", "words without a secret")
        transport = httpx.ASGITransport(app=create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = await call_all(client)
        await store.publish("asked", "u1", {"text": PAYLOAD})
        await store.drain()
        clock.advance("1h")
        await store.drain()
        letters = await store.dead_letters.list()
    assert len(letters) == len(FAILING) + 2
    assert found_in([letter.error + letter.traceback for letter in letters]) == []
    assert found_in([answer.text for answer in answers]) == []
    assert spans.all()
    assert found_in(spans.texts()) == []
    said = capsys.readouterr().err
    for event, count in [("dead letter", len(letters)), ("refresh failed", len(FAILING))]:
        assert len(records(said, event)) == count
    assert [line[:600] for line in said.splitlines() if found_in(line)] == []
    assert files_with_markers(Path(settings.home)) == {}
