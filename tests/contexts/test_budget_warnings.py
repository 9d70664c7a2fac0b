"""One item that does not fit never empties a context silently."""

from __future__ import annotations

import json

import httpx
import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.http.app import create_app
from tests.engine.support import records

OVERSIZED = "The parcel left the warehouse on Monday. " * 30
SMALL = ["Ada is a customer.", "She asked about a parcel.", "It was lost."]


def items(*, truncate: bool = False) -> list[ContextItem]:
    optional = [ContextItem(text, priority=1) for text in SMALL]
    return [ContextItem(OVERSIZED, priority=9, truncate=truncate), *optional]


@pytest.mark.both_environments
async def test_an_oversized_optional_item_that_empties_a_context_is_a_warning(
    store: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    @context(store, name="emptied", model="gpt-4o", max_tokens=100)
    async def emptied() -> list[ContextItem]:
        return [ContextItem("Be brief.", required=True), *items()]

    made = await emptied()
    assert made.content == "Be brief."
    (warning,) = made.meta["warnings"]
    assert warning == (
        "3 of 100 tokens are used: item 1 did not fit with its 241 tokens, so 3 of lower priority "
        "were dropped too; shorten the item, give it truncate=True, declare the context with "
        "backfill=True, or raise max_tokens"
    )
    (logged,) = records(capsys.readouterr().err, "context budget mostly unused")
    assert (logged["context"], logged["context_id"]) == ("emptied", made.context_id)
    assert logged["warning"] == warning
    past = await store.get_context_at(made.context_id)
    trace = await store.records.explain(made.context_id)
    assert past.meta["warnings"] == list(trace.warnings) == [warning]


@pytest.mark.parametrize("required", [[], ["Be brief."]])
async def test_a_single_oversized_item_is_a_warning_that_names_it(
    store: FeatureStore, required: list[str]
) -> None:
    @context(store, name="emptied", model="gpt-4o", max_tokens=100)
    async def emptied() -> list[ContextItem]:
        return [*(ContextItem(text, required=True) for text in required), ContextItem(OVERSIZED)]

    made = await emptied()
    assert made.content == "".join(required)
    (warning,) = made.meta["warnings"]
    assert warning == (
        f"{made.tokens} of 100 tokens are used: item {len(required)} did not fit with its 241 "
        "tokens; shorten the item, give it truncate=True, or raise max_tokens"
    )


async def test_backfill_keeps_the_other_items_and_names_the_first_that_did_not_fit(
    store: FeatureStore,
) -> None:
    @context(store, name="filled", model="gpt-4o", max_tokens=100, backfill=True)
    async def filled() -> list[ContextItem]:
        return [*items(), ContextItem(OVERSIZED, priority=8)]

    made = await filled()
    assert made.content == "\n\n".join(SMALL)
    (warning,) = made.meta["warnings"]
    assert "item 0 did not fit with its 241 tokens, and neither did 1 more; shorten" in warning
    assert "backfill=True" not in warning


async def test_truncate_fills_the_context_without_a_warning(store: FeatureStore) -> None:
    @context(store, name="filled", model="gpt-4o", max_tokens=100)
    async def filled() -> list[ContextItem]:
        return items(truncate=True)

    made = await filled()
    assert made.meta["warnings"] == []
    assert made.tokens > 90


async def test_a_well_filled_context_has_no_warning(store: FeatureStore) -> None:
    @context(store, name="filled", model="gpt-4o", max_tokens=60)
    async def filled() -> list[ContextItem]:
        first = ContextItem("The parcel left the warehouse on Monday. " * 6, priority=10)
        return [first, *items()]

    made = await filled()
    assert made.lineage.items_dropped == len(SMALL) + 1
    assert made.meta["warnings"] == []


async def test_a_response_over_http_has_the_warning(store: FeatureStore) -> None:
    @context(store, name="emptied", model="gpt-4o", max_tokens=100)
    async def emptied() -> list[ContextItem]:
        return items()

    transport = httpx.ASGITransport(create_app(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/v1/contexts/emptied", json={"params": {}})
    assert "item 0 did not fit" in json.loads(answer.content)["meta"]["warnings"][0]


@pytest.mark.both_environments
async def test_empty_items_cost_no_separators_and_the_record_verifies(store: FeatureStore) -> None:
    @context(store, name="sparse", model="gpt-4o")
    async def sparse() -> list[ContextItem]:
        return [ContextItem(text) for text in ("", "one", "", "", "two", "")]

    made = await sparse()
    assert made.content == "one\n\ntwo"
    assert made.lineage.items_dropped == 0
    report = await store.records.verify(made.context_id)
    assert report.of("reassembly").ok is True
    assert (await store.replay(made.context_id, "reassemble")).matches
