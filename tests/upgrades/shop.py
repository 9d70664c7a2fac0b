"""A features file that every release since 0.1.0 runs, and what it writes into a store.

`python -m tests.upgrades.keep` runs it as a program and keeps the files of the installed release.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    Settings,
    context,
    entity,
    feature,
)
from headwater.backends.postgres.migrate import migrate
from headwater.declarations.runtime import runtime_of

VISITS = 40
PEOPLE = ("ada", "bob", "eve")
FIRST = datetime(2026, 11, 16, 8, tzinfo=UTC)
PAGES = {
    "refunds": "A refund is paid within a week, to the card that was charged.",
    "parcels": "A parcel takes three days. Heavy parcels take five days.",
}


def declared(settings: Settings) -> FeatureStore:
    """Return a store with features of several kinds, a context and an index."""
    store = FeatureStore(settings=settings)
    Index(store, "help")

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Page:
        page_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id) or 0) + 1

    @feature(entity=User, trigger="visit")
    async def last_page(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["page"])

    @feature(entity=User, trigger="broken", max_retries=0)
    async def fragile(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("this handler always fails")

    @feature(entity=User, template="{visits} visits, the last to {last_page}")
    def summary(user_id: str) -> str: ...  # type: ignore[empty-body]  # as 0.1.0 had it

    @feature(entity=Page, trigger="page_saved")
    async def indexed(page_id: str, event: ServiceEvent) -> None:
        await store.index("help", page_id, event.payload["text"])

    @context(store, max_tokens=200, model="gpt-4o")
    async def support(user_id: str, question: str) -> list[ContextItem]:
        chunks = await store.search("help", question, top_k=1)
        return [
            ContextItem("You are a support agent.", required=True),
            ContextItem.template("{summary}", priority=80),
            *(ContextItem(chunk.text, source=chunk) for chunk in chunks),
            ContextItem(question, required=True),
        ]

    return store


async def visit(store: FeatureStore, numbers: range) -> None:
    """Publish visits with their own ids and times, one after the other for each person."""
    for number in numbers:
        person = PEOPLE[number % len(PEOPLE)]
        at = FIRST + timedelta(minutes=number)
        payload = {"page": f"page-{number}"}
        await store.publish("visit", person, payload, timestamp=at, event_id=f"visit-{number}")
    await store.drain()


async def write(settings: Settings) -> None:
    """Fill a store."""
    async with declared(settings) as store:
        await visit(store, range(VISITS // 2))
        for page, text in PAGES.items():
            await store.publish("page_saved", page, {"text": text})
        await store.publish("broken", "ada", event_id="broken-1")
        await store.drain()
        asked = {"user_id": "ada", "question": "When is a refund paid?"}
        sys.stdout.write((await store.assemble("support", asked)).context_id + "\n")
        # Older history becomes a segment, or leaves Redis; what comes now stays where it is.
        await (await runtime_of(store).open()).backends.offline.maintain()
        await visit(store, range(VISITS // 2, VISITS))


if __name__ == "__main__":
    embeddings = {"provider": "lexical"}
    if sys.argv[1] == "servers":
        chosen = Settings().replace(
            redis={"url": sys.argv[2]}, postgres={"url": sys.argv[3]}, embeddings=embeddings
        )
        asyncio.run(migrate(chosen))
    else:
        chosen = Settings().replace(
            home=sys.argv[1], embeddings=embeddings, offline={"segment_rows": 20}
        )
    asyncio.run(write(chosen))
