"""The cache in Redis, also on a cluster, where its keys and the count of drops are apart."""

from __future__ import annotations

from datetime import timedelta

from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.ports import Cached

HOUR = timedelta(hours=1)


async def test_a_drop_reaches_the_values_of_all_servers(store: FeatureStore) -> None:
    cache = (await runtime_of(store).open()).backends.cache
    now, before = store.clock.micros(), await cache.drops()
    keys = [f"search:{number}" for number in range(100)]
    for key in (*keys, "kept"):
        await cache.put(key, Cached(b"found", now), HOUR, drops=None if key == "kept" else before)
    await cache.drop("search:")
    for key in keys:
        await cache.put(key, Cached(b"found", now), HOUR, drops=before)
        assert await cache.get(key) is None
    assert await cache.get("kept") == Cached(b"found", now)
