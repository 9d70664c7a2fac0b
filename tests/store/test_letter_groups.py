"""Dead letters are grouped by feature and kind of error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, create_app, entity, feature
from headwater.core.clock import SystemClock
from headwater.engine.letters import group_letters
from headwater.model.dead_letters import LetterGroups
from headwater.ports import LetterSummary
from headwater.settings.schema import Settings

START = datetime(2026, 1, 1, tzinfo=UTC)


def letter(number: int, feature: str, error: str, event_type: str = "purchase") -> LetterSummary:
    at = START + timedelta(minutes=number)
    return LetterSummary(str(number), feature, event_type, error, 3, at, at + timedelta(seconds=9))


def test_letters_of_one_feature_and_one_kind_of_error_are_one_group() -> None:
    letters = [
        letter(4, "spend", "no order 4", "refund"),
        letter(3, "spend", "no order 3"),
        letter(2, "visits", "no order 2"),
        letter(1, "spend", "KeyError: 'x'"),
    ]
    found = group_letters(letters, 9, str.upper)
    assert [(group.feature, group.error, group.count) for group in found.groups] == [
        ("SPEND", "no order <n>", 2),
        ("VISITS", "no order <n>", 1),
        ("SPEND", "KeyError: 'x'", 1),
    ]
    first = found.groups[0]
    assert (first.sample, first.attempts, first.ids) == ("no order 4", 6, ["4", "3"])
    assert first.event_types == ["refund", "purchase"]
    assert (first.first_failed_at, first.last_dead_at) == (
        START + timedelta(minutes=3),
        START + timedelta(minutes=4, seconds=9),
    )
    assert (found.letters, found.grouped, found.others) == (9, 4, 0)


def test_the_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.engine.letters.MOST_GROUPS", 2)
    letters = [letter(number, f"f{number % 4}", "no") for number in range(10)]
    found = group_letters(letters, 10, str)
    assert [(group.feature, group.count) for group in found.groups] == [("f0", 3), ("f1", 3)]
    assert found.others == 4


@pytest.mark.both_environments
async def test_the_letters_of_a_group_are_listed_and_settled_over_http(settings: Settings) -> None:
    store = FeatureStore(settings=settings.replace(api_key="key"), clock=SystemClock())

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", max_retries=0)
    def spend(user_id: str, event: ServiceEvent) -> int:
        raise ValueError(f"no order {event.payload['order']}")

    for order in range(5):
        await store.publish("visit", f"u{order}", {"order": order})
    await store.publish("visit", "u9", {})
    await store.drain()
    transport = httpx.ASGITransport(create_app(store))
    headers = {"X-API-Key": "key"}
    async with (
        store,
        httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as client,
    ):
        answer = (await client.get("/v1/dead-letters/groups")).json()
        orders, missing = answer["groups"]
        assert (orders["feature"], orders["error"]) == ("spend", "ValueError: no order <n>")
        assert (orders["count"], answer["letters"]) == (5, 6)
        assert missing["sample"] == "KeyError: 'order'"
        only = {"feature": "spend", "error": orders["error"], "newest_first": "true", "limit": 3}
        listed = (await client.get("/v1/dead-letters", params=only)).json()["dead_letters"]
        assert [each["id"] for each in listed] == orders["ids"][:3]
        rest = (
            await client.get("/v1/dead-letters", params={**only, "after": listed[-1]["id"]})
        ).json()["dead_letters"]
        assert [each["id"] for each in rest] == orders["ids"][3:]
        first, *others = orders["ids"]
        await store.dead_letters.discard(first)
        body = {"ids": [first, others[0]], "partial": True}
        settled = (await client.post("/v1/dead-letters/discard", json=body)).json()["dead_letters"]
        assert sorted((each["id"], each["outcome"]) for each in settled) == sorted(
            [(first, "gone"), (others[0], "discarded")]
        )
        body = {"ids": [*others[1:], *missing["ids"]], "partial": True, "error": missing["error"]}
        body["event_type"] = "no such type"
        settled = (await client.post("/v1/dead-letters/discard", json=body)).json()["dead_letters"]
        assert settled == []
        all_of = {"feature": "spend", "error": orders["error"]}
        redriven = (await client.post("/v1/dead-letters/redrive", json=all_of)).json()
        assert {each["outcome"] for each in redriven["dead_letters"]} == {"redriven"}
        assert sorted(each["id"] for each in redriven["dead_letters"]) == sorted(others[1:])
        (left,) = (await client.get("/v1/dead-letters/groups")).json()["groups"]
        assert left["ids"] == missing["ids"]


@pytest.mark.both_environments
async def test_letters_are_grouped_again_only_if_they_have_changed(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="purchase", max_retries=0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    async def fail() -> LetterGroups:
        await store.publish("purchase", "ada")
        await store.drain()
        return await store.dead_letters.groups()

    assert [(await fail()).letters for _ in range(3)] == [1, 2, 3]
    groups = await store.dead_letters.groups()
    assert await store.dead_letters.groups() is groups
    first, *_ = await store.dead_letters.list()
    await store.dead_letters.discard(first.id)
    assert (await store.dead_letters.groups()).groups[0].count == 2
    assert (await fail()).groups[0].count == 3
