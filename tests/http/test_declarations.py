"""The card of one declaration over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.store import cards
from tests.http.conftest import MakeStore, client_of, problem_of
from tests.http.key_files import add_key


async def card(client: httpx.AsyncClient, kind: str, name: str) -> dict[str, Any]:
    response = await client.get(f"/v1/declarations/{kind}/{name}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def ids(neighbours: list[dict[str, Any]]) -> list[str]:
    return [each["node"]["id"] for each in neighbours]


async def test_a_feature_has_code_options_and_dependencies(client: httpx.AsyncClient) -> None:
    found = await card(client, "feature", "total_spend")
    assert found["code"]["text"].startswith("@feature(entity=user, trigger=")
    assert "return before + float" in found["code"]["text"]
    assert not found["code"]["is_cut"]
    assert found["declared_at"].partition(":")[0].endswith("tests/http/conftest.py")
    assert (found["feature"]["type"], found["feature"]["triggers"]) == ("float", ["purchase"])
    assert ids(found["providers"]) == ["event:purchase"]
    assert ids(found["consumers"]) == ["feature:blurb"]
    assert (found["provider_count"], found["consumer_count"]) == (1, 1)
    assert found["activity"]["values"]["is_complete"]
    assert found["activity"]["dead_letters"] == {"count": 0, "is_complete": True}
    assert found["breaker_open"] is False


async def test_dependencies_are_counted_through_others(client: httpx.AsyncClient) -> None:
    found = await card(client, "event", "purchase")
    assert ids(found["consumers"]) == ["feature:total_spend"]
    assert (found["provider_count"], found["consumer_count"]) == (0, 2)
    assert found["code"] is None
    blurb = await card(client, "feature", "blurb")
    assert (len(blurb["providers"]), blurb["provider_count"]) == (2, 3)
    assert blurb["breaker_open"] is None


async def test_an_entity_has_its_features(client: httpx.AsyncClient) -> None:
    found = await card(client, "entity", "Order")
    order = found["entity"]
    assert (order["name"], order["id_field"], order["id_type"]) == ("Order", "order_id", "int")
    assert (ids(found["consumers"]), found["consumer_count"]) == (["feature:next_number"], 1)


async def test_long_code_is_cut(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "LONGEST_CODE", 40)
    code = (await card(client, "feature", "total_spend"))["code"]
    assert (len(code["text"]) <= 40, code["is_cut"]) == (True, True)


async def test_an_unknown_name_and_kind_are_named(client: httpx.AsyncClient) -> None:
    problem = problem_of(await client.get("/v1/declarations/feature/total_spnd"))
    assert (problem["status"], problem["nearest"]) == (404, "total_spend")
    problem = problem_of(await client.get("/v1/declarations/event/purchas"))
    assert (problem["type"].rpartition(":")[2], problem["nearest"]) == (
        "unknown-event",
        "purchase",
    )
    assert problem_of(await client.get("/v1/declarations/thing/x"))["status"] == 422


async def test_a_key_reads_the_cards_that_its_limits_allow(
    make_store: MakeStore, tmp_path: Path
) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, "orders", "read", entities=frozenset({"Order"}))
    async with client_of(make_store(keys_file=str(path)), key=key) as client:
        assert (await card(client, "feature", "next_number"))["feature"]["entity"] == "Order"
        problem = problem_of(await client.get("/v1/declarations/feature/total_spend"))
        assert (problem["status"], "nearest" in problem) == (404, False)
