"""Every run of a handler gets the payload as it was accepted, although handlers may change it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

ACCEPTED: dict[str, Any] = {"amount": 12.5, "items": [{"sku": "tea"}], "address": {"city": "Rome"}}


def spoil(event: ServiceEvent) -> dict[str, Any]:
    """Return the payload as the handler got it; then change it at every level."""
    got: dict[str, Any] = json.loads(json.dumps(event.payload))
    event.payload.pop("amount", None)
    event.payload["items"][0]["sku"] = "coffee"
    event.payload["items"].clear()
    event.payload["address"].clear()
    return got


async def test_a_handler_that_changes_the_payload_does_not_change_it_for_its_retries(
    store: FeatureStore, user: type
) -> None:
    seen: list[dict[str, Any]] = []

    @feature(entity=user, trigger="buy", max_retries=2)
    async def spent(user_id: str, event: ServiceEvent) -> float:
        amount = event.payload.get("amount")
        seen.append(spoil(event))
        await store.set_feature("spent", user_id, 1.0)
        if len(seen) < 3:
            raise ConnectionError("try later")
        return float(amount)  # type: ignore[arg-type]

    await store.publish("buy", "u1", ACCEPTED)
    await store.drain()
    assert seen == [ACCEPTED] * 3
    assert await store.get_feature("spent", "u1") == 12.5
    assert await store.dead_letters.list() == []


async def test_a_handler_that_changes_the_payload_does_not_change_it_for_other_features(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy")
    async def first(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return spoil(event)

    @feature(entity=user, trigger="buy")
    def second(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return spoil(event)

    @feature(entity=user, trigger="buy")
    def third(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        assert isinstance(event.payload, dict)
        return event.payload

    await store.publish("buy", "u1", ACCEPTED)
    await store.drain()
    assert await store.dead_letters.list() == []
    assert await store.get_features(["first", "second", "third"], ["u1"]) == {
        "u1": dict.fromkeys(("first", "second", "third"), ACCEPTED)
    }


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_dead_letter_holds_the_payload_that_was_accepted_and_redrive_runs_it(
    store: FeatureStore, user: type, is_async: bool
) -> None:
    is_fixed = False

    def run(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        got = spoil(event)
        if not is_fixed:
            raise LookupError("no price")
        return got

    async def run_async(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return run(user_id, event)

    feature(entity=user, name="bought", trigger="buy", max_retries=1)(
        run_async if is_async else run
    )
    await store.publish("buy", "u1", ACCEPTED)
    await store.drain()
    (letter,) = await store.dead_letters.list()
    assert letter.event.payload == ACCEPTED
    is_fixed = True
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert await store.dead_letters.list() == []
    assert await store.get_feature("bought", "u1") == ACCEPTED


async def test_a_handler_that_runs_again_because_another_wrote_gets_the_accepted_payload(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    seen: list[dict[str, Any]] = []
    both_run = asyncio.Barrier(2)

    @feature(entity=user, trigger="never")
    async def met(user_id: str, event: ServiceEvent) -> int:
        return 0

    @feature(entity=user, trigger="buy", max_retries=0)
    async def bought(user_id: str, event: ServiceEvent) -> None:
        seen.append(spoil(event))
        before = await store.get_feature("met", "friend") or 0
        if len(seen) <= 2:
            await both_run.wait()
        await store.set_feature("met", "friend", before + 1)

    await runtime_of(store).rebind(settings.replace(partitions=1), clock)
    await store.bus.publish_many([ServiceEvent("buy", name, ACCEPTED) for name in ("u1", "u2")])
    await store.drain()
    assert await store.get_feature("met", "friend") == 2
    assert seen == [ACCEPTED] * 3


async def test_a_payload_may_hold_numpy_scalars(store: FeatureStore, user: type) -> None:
    seen: list[dict[str, Any]] = []

    @feature(entity=user, trigger="buy")
    async def spent(user_id: str, event: ServiceEvent) -> float:
        seen.append(event.payload)
        return float(event.payload["amount"])

    row = {"amount": np.float32(1.5), "count": np.int64(3), "paid": np.bool_(True)}  # noqa: FBT003
    for _ in range(2):
        await store.publish("buy", "u1", {**row, "prices": [np.float64(0.5)]}, event_id="one")
    await store.drain()
    assert seen == [{"amount": 1.5, "count": 3, "paid": True, "prices": [0.5]}]
    assert await store.get_feature("spent", "u1") == 1.5
