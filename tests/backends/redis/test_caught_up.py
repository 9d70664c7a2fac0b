"""Freshness by waiting events on Redis: it costs no extra round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, feature
from headwater.backends.redis.connection import RedisConnection


def _declare(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy", default=0)
    async def aged(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy", default=0, freshness="caught_up")
    async def bought(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, template="{bought} bought")
    def blurb(user_id: str) -> str: ...  # type: ignore[empty-body]

    for name in ("aged", "bought", "blurb"):

        @context(store, name=f"of_{name}", freshness_sla="5m")
        async def made(user_id: str, name: str = name) -> ContextItem:
            return ContextItem.template(f"{{{name}}}")


async def test_a_caught_up_value_takes_as_many_round_trips_as_any_other(
    store: FeatureStore, user: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declare(store, user)
    sent: list[Any] = []
    send = RedisConnection.calls

    async def count(self: RedisConnection, commands: Sequence[Any]) -> list[Any]:
        # Every few seconds a read also checks the identity of the store.
        sent.extend(c[0] for c in commands if c[0] in ("EVALSHA", "GET", "MGET"))
        return await send(self, commands)

    await store.publish("buy", "u1")
    await store.drain()
    contexts = ("of_aged", "of_bought", "of_blurb")
    for name in contexts:
        await store.assemble(name, {"user_id": "u1"})
    monkeypatch.setattr(RedisConnection, "calls", count)
    commands: dict[str, list[Any]] = {}
    for name in contexts:
        sent.clear()
        ctx = await store.assemble(name, {"user_id": "u1"})
        assert ctx.freshness_status == "guaranteed"
        commands[name] = [*sent]
    assert len(commands["of_aged"]) == 1
    assert commands["of_bought"] == commands["of_blurb"] == ["EVALSHA"]
