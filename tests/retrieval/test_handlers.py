"""Indexing inside handlers: part of the transaction of their event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import ClosedError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.retrieval.support import (
    GIRAFFES,
    PARCELS,
    RETURNS,
    Words,
    declare_docs,
    documents,
    texts,
)

pytestmark = pytest.mark.both_environments


@pytest.fixture
def words(store: FeatureStore) -> Words:
    return declare_docs(store)


async def edit(store: FeatureStore, *edits: str, page: str = "page") -> None:
    """Publish an event for each text, and handle them."""
    for text in edits:
        await store.publish("edited", page, {"text": text})
    await store.drain()


async def test_a_handler_indexes_with_its_event(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def length(user_id: str, event: ServiceEvent) -> int:
        text = event.payload["text"]
        await store.index("docs", user_id, text, {"by": user_id})
        return len(text)

    await edit(store, PARCELS)
    (chunk,) = await store.search("docs", "parcels")
    assert (chunk.document, chunk.text, chunk.metadata) == ("page", PARCELS, {"by": "page"})
    assert await store.get_feature("length", "page") == len(PARCELS)
    await edit(store, RETURNS)
    (chunk,) = await store.search("docs", "parcels")
    assert (chunk.text, chunk.version) == (RETURNS, 2)


async def test_a_search_of_a_past_moment_finds_what_a_live_search_found_then(
    settings: Settings,
) -> None:
    async with FeatureStore(settings=settings) as store:
        declare_docs(store)

        @entity(store)
        class Page:
            page_id: str

        @feature(entity=Page, trigger="edited")
        async def length(page_id: str, event: ServiceEvent) -> int:
            await store.index("docs", page_id, event.payload["text"])
            return len(event.payload["text"])

        moments = []
        for page in range(5):  # of several partitions
            await edit(store, f"parcels {page}", page=f"page {page}")
            moments.append(store.clock.now())
        for page, moment in enumerate(moments):
            found = await store.search("docs", "parcels", top_k=10, as_of=moment)
            assert sorted(texts(found)) == [f"parcels {number}" for number in range(page + 1)]


@pytest.mark.parametrize("order", ["event_time", "stream"])
async def test_documents_follow_the_order_of_the_feature_that_indexes_them(
    store: FeatureStore, user: type, words: Words, clock: ManualClock, order: Any
) -> None:
    fails = True

    @feature(entity=user, trigger="edited", order=order, max_retries=0)
    async def page(user_id: str, event: ServiceEvent) -> str:
        text = str(event.payload["text"])
        if text == "parcels redriven" and fails:
            raise ValueError("not yet")
        await store.index("docs", user_id, text)
        return text

    @feature(entity=user, trigger="edited", order=order)
    async def copied(user_id: str, event: ServiceEvent) -> None:
        if event.payload["text"] != "parcels redriven":
            await store.index("docs", f"copy of {user_id}", event.payload["text"])

    async def shown() -> dict[str | None, str]:
        found = await store.search("docs", "parcels", top_k=10)
        return {each.document: each.text.removeprefix("parcels ") for each in found}

    for minutes, text in ((0, "redriven"), (10, "new"), (5, "late")):
        at = clock.now() - timedelta(minutes=60 - minutes)
        await store.publish("edited", "page", {"text": f"parcels {text}"}, timestamp=at)
        await store.drain()
    last = "new" if order == "event_time" else "late"
    assert await shown() == {"page": last, "copy of page": last}
    assert await store.get_feature("page", "page") == f"parcels {last}"
    fails = False
    (letter,) = await store.dead_letters.list()
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    redriven = "new" if order == "event_time" else "redriven"
    assert await shown() == {"page": redriven, "copy of page": last}
    assert await store.get_feature("page", "page") == f"parcels {redriven}"


async def test_a_sync_handler_indexes_and_removes(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    def edited(user_id: str, event: ServiceEvent) -> None:
        store.sync.index("docs", user_id, event.payload["text"])

    @feature(entity=user, trigger="deleted")
    def deleted(user_id: str, event: ServiceEvent) -> None:
        store.sync.unindex("docs", user_id)

    await edit(store, PARCELS)
    assert texts(await store.search("docs", "parcels")) == [PARCELS]
    await store.publish("deleted", "page")
    await store.drain()
    assert await store.search("docs", "parcels") == []


async def test_a_handler_that_fails_leaves_nothing(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited", max_retries=0)
    async def failing(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", user_id, event.payload["text"])
        raise ValueError("after indexing")

    await edit(store, PARCELS)
    assert words.texts == [PARCELS]
    assert await store.search("docs", "parcels") == []
    assert len(await store.dead_letters.list()) == 1


async def test_an_embedder_that_fails_is_a_failure_of_the_handler(
    store: FeatureStore, user: type, words: Words, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="edited", max_retries=1)
    async def edited(user_id: str, event: ServiceEvent) -> str:
        await store.index("docs", user_id, event.payload["text"])
        return str(event.payload["text"])

    words.failures = [OSError("down")]
    await edit(store, PARCELS)
    assert texts(await store.search("docs", "parcels")) == [PARCELS]
    words.failures = [OSError("down"), OSError("still down")]
    await edit(store, RETURNS)
    (letter,) = await store.dead_letters.list()
    assert "still down" in letter.error
    assert texts(await store.search("docs", "parcels")) == [PARCELS]
    assert await store.get_feature("edited", "page") == PARCELS
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert texts(await store.search("docs", "parcels")) == [RETURNS]
    assert await store.get_feature("edited", "page") == RETURNS


async def test_the_last_write_of_a_document_in_a_handler_counts(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", "changed", PARCELS)
        await store.index("docs", "changed", RETURNS)
        await store.index("docs", "gone", GIRAFFES)
        await store.unindex("docs", "gone")
        await store.unindex("docs", "back")
        await store.index("docs", "back", GIRAFFES)

    await edit(store, "")
    found = await store.search("docs", "days")
    assert {(chunk.document, chunk.text, chunk.version) for chunk in found} == {
        ("changed", RETURNS, 1),
        ("back", GIRAFFES, 1),
    }


async def test_features_of_one_event_write_in_declared_order(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def first(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", "shared", PARCELS)

    @feature(entity=user, trigger="edited")
    async def second(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", "shared", RETURNS)

    await edit(store, "")
    (chunk,) = await store.search("docs", "days")
    assert (chunk.text, chunk.version) == (RETURNS, 2)


async def test_events_of_one_batch_apply_in_their_order(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", user_id, event.payload["text"])

    await edit(store, PARCELS, RETURNS, GIRAFFES)
    stored = await store.indexes.get_document("docs", "page")
    assert stored is not None
    assert (stored.text, stored.version) == (GIRAFFES, 3)
    assert texts(await store.search("docs", "animals")) == [GIRAFFES]


async def test_a_handler_does_not_find_its_own_writes(
    store: FeatureStore, user: type, words: Words
) -> None:
    seen: list[Any] = []

    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> None:
        seen.append(texts(await store.search("docs", "days")))
        await store.index("docs", user_id, event.payload["text"])
        seen.append(texts(await store.search("docs", "days")))

    await edit(store, PARCELS)
    await edit(store, RETURNS)
    assert seen == [[], [], [PARCELS], [PARCELS]]


async def test_a_run_that_has_ended_writes_nothing(
    store: FeatureStore, user: type, words: Words
) -> None:
    late: list[asyncio.Task[None]] = []
    may_write = asyncio.Event()

    async def write_later(verb: Callable[[], Any]) -> None:
        await may_write.wait()
        await verb()

    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> None:
        verbs = (
            lambda: store.index("docs", "late", PARCELS),
            lambda: store.unindex("docs", "early"),
        )
        late.extend(asyncio.create_task(write_later(verb)) for verb in verbs)

    await store.index("docs", "early", GIRAFFES)
    await edit(store, "")
    may_write.set()
    for task in late:
        with pytest.raises(ClosedError, match="index 'docs' after its run had ended"):
            await task
    assert documents(await store.search("docs", "days")) == ["early"]


async def test_direct_writes_follow_those_of_handlers(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> None:
        await store.index("docs", user_id, event.payload["text"])

    await edit(store, PARCELS)
    await store.index("docs", "page", RETURNS)
    (chunk,) = await store.search("docs", "days")
    assert (chunk.text, chunk.version) == (RETURNS, 2)
    await edit(store, GIRAFFES)
    await store.unindex("docs", "page")
    assert await store.search("docs", "days") == []


async def test_a_write_of_a_handler_to_a_dropped_index_is_discarded(
    store: FeatureStore, user: type, words: Words
) -> None:
    @feature(entity=user, trigger="edited")
    async def edited(user_id: str, event: ServiceEvent) -> str:
        await store.index("docs", user_id, event.payload["text"])
        await store.indexes.drop("docs")
        return "handled"

    await edit(store, PARCELS)
    assert await store.get_feature("edited", "page") == "handled"
    assert await store.search("docs", "parcels") == []
