"""Contexts that used several inputs are found without reading all that used one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random

import pytest

from headwater.contexts.recorded import search as module
from headwater.contexts.recorder import ProvenanceIndex
from headwater.declarations.runtime import runtime_of
from headwater.store.verbs.records import RecordVerbs
from tests.contexts.recorded.shop import Shop
from tests.stored import record

START = datetime(2026, 1, 15, tzinfo=UTC)
INPUTS = {"feature": "total", "chunk": "c1", "document": "d1"}


async def store_contexts(shop: Shop, uses: list[set[str]]) -> list[str]:
    """Store a context for each set of inputs, two in each second; return their ids in order."""
    log = (await runtime_of(shop.store).open()).backends.records
    index = ProvenanceIndex(await log.index_key())
    made = []
    for number, kinds in enumerate(uses):
        kept = record(at=START + timedelta(seconds=number // 2))
        await log.append(kept, [index.key(kind, INPUTS[kind]) for kind in kinds])
        made.append((kept.created_at, kept.context_id, kinds))
    made.sort(key=lambda each: each[:2], reverse=True)
    return [context_id for _, context_id, kinds in made if kinds == set(INPUTS)]


async def pages(verbs: RecordVerbs, limit: int, *, oldest_first: bool = False) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = await verbs.find(
            feature="total",
            chunk="c1",
            document="d1",
            limit=limit,
            oldest_first=oldest_first,
            cursor=cursor,
        )
        found.append([each.context_id for each in page.contexts])
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_pages_have_the_contexts_with_all_inputs_in_order(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, kinds = Random(3), [*INPUTS]
    uses = [set(random.sample(kinds, random.choice([1, 2, 3, 3]))) for _ in range(60)]
    expected = await store_contexts(shop, uses)
    assert 10 < len(expected) < 50
    for most in (1_000, 4):
        monkeypatch.setattr(module, "_MOST_EXAMINED", most)
        for limit in (1, 3, 100):
            newest = await pages(shop.store.records, limit)
            assert [*chain(*newest)] == expected
            oldest = await pages(shop.store.records, limit, oldest_first=True)
            assert [*chain(*oldest)] == expected[::-1]


async def test_a_page_ends_if_no_context_has_all_inputs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_contexts(shop, [{"feature", ("chunk", "document")[n % 2]} for n in range(30)])
    monkeypatch.setattr(module, "_MOST_EXAMINED", 5)
    found = await pages(shop.store.records, 10)
    assert len(found) > 3
    assert not any(found)
