"""A read of history first copies all committed rows, over any number of pages."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.backends.postgres import outbox_consumer as drain
from tests.engine.support import past, query


async def test_an_event_behind_many_redriven_dead_letters_is_in_history_at_once(
    store: FeatureStore, user: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    # Redriven events are in history already, so whole pages of the log add no row.
    monkeypatch.setitem(drain.LIMITS, "events", 5)
    failing = [ServiceEvent("buy", "u1", {}) for _ in range(40)]
    await store.bus.publish_many(failing)
    await store.drain()
    assert await query(store, "SELECT count(*) FROM events") == [(40,)]
    await store.dead_letters.redrive(*[letter.id for letter in await store.dead_letters.list()])
    await store.publish("buy", "u1", {"amount": 7})
    newest = "SELECT payload::text FROM events ORDER BY received_at DESC LIMIT 1"
    assert await query(store, newest) == [('{"amount":7}',)]
    await store.drain()
    assert await past(store, "total") == [7]
    assert await query(store, "SELECT count(*) FROM events") == [(41,)]


async def test_values_of_many_commits_are_in_history_at_once(
    store: FeatureStore, user: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 0

    # A page is one commit.
    monkeypatch.setitem(drain.LIMITS, "history", 1)
    for number in range(20):
        await store.set_feature("total", "u1", number)
    assert await past(store, "total") == list(range(20))
