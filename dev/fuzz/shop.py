"""A store with something behind every route, served from a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.http.server.processes import serve
from headwater.settings.schema import Settings

KEY = "fuzz-3f9d1c7a5b2e8046"
PARAMS = {
    "type": "object",
    "properties": {
        "user_id": {"type": "string", "minLength": 1, "maxLength": 1024, "format": "printable"},
        "question": {"type": "string"},
    },
    "required": ["user_id", "question"],
    "additionalProperties": False,
}
"""The schema of the arguments of the shop's context."""


def shop(home: Path) -> FeatureStore:
    """Return a store with the names that the examples of the document use."""
    settings = Settings().replace(
        api_key=KEY, home=home, http={"access_log": False}, log={"level": "error"}
    )
    store = FeatureStore(settings=settings)
    Index(store, "help", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", default=0.0, max_retries=0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        amount = event.payload.get("amount")
        before: float = await store.get_feature("total_spend", user_id)
        return before + amount if isinstance(amount, int | float) else before

    @feature(entity=User)
    def greeting(user_id: str) -> str:
        return f"Hello {user_id}"

    @retriever(store, index="help", top_k=3)
    async def search_help(query: str) -> None: ...

    @context(store, max_tokens=400, freshness_sla="5m", model="gpt-4o")
    async def support(user_id: str, question: str) -> list[ContextItem]:
        found = await search_help(question) if question.strip() else []
        return [
            ContextItem("You are a support agent.", required=True),
            ContextItem.template("The customer has spent {total_spend}.", priority=80),
            *(ContextItem(chunk.text, source=chunk) for chunk in found),
        ]

    return store


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve the shop on a free port; yield its URL."""
    ready: Future[str] = Future()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def main() -> None:
        store = shop(home)
        await store.index("help", "shipping", "Parcels take two days.", {"topic": "shipping"})
        server = asyncio.create_task(
            serve(store, host="127.0.0.1", port=0, on_ready=ready.set_result)
        )
        stop.append((asyncio.get_running_loop(), server))
        try:
            await server
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="fuzzed-server")
    thread.start()
    try:
        yield ready.result(60)
    finally:
        for loop, server in stop:
            loop.call_soon_threadsafe(server.cancel)
        thread.join()
