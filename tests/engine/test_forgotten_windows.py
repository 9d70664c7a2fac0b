"""Windows of a forgotten entity: neither tiles nor contributions are left or come back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.ports import Replacement
from headwater.testing import ManualClock
from tests.features.window_shop import HOUR, buy, declare, served

pytestmark = pytest.mark.both_environments

NOTHING = {"spend_count_1h": 0, "spend_sum_30d": 0.0, "spend_last3_7d": None}


async def some(store: FeatureStore, user_id: str = "u1") -> dict[str, Any]:
    values = await served(store, user_id)
    return {name: values[name] for name in NOTHING}


async def stored(store: FeatureStore, user_id: str = "u1") -> tuple[int, int]:
    """Return how many values an entity has online, and how many rows in history."""
    backends = (await runtime_of(store).open()).backends
    (cells,) = await backends.online.get("User", [user_id])
    (rows,) = await backends.offline.rows("spend", [user_id], limit=100)
    return len(cells), len(rows)


@pytest.mark.parametrize("allow_return", [False, True])
async def test_an_entity_that_returns_starts_empty(
    store: FeatureStore, clock: ManualClock, tmp_path: Path, *, allow_return: bool
) -> None:
    declare(store)
    for user_id in ("u1", "u2"):
        await buy(store, clock, 5.0, HOUR / 2, user_id)
    await store.admin.forget("User", "u1", reason="request", allow_return=allow_return)
    assert await some(store) == NOTHING
    assert await stored(store) == (0, 0)
    clock.advance(timedelta(seconds=1))
    # A table of the warehouse still has the person.
    file = tmp_path / "spend.csv"
    file.write_text(f"user_id,timestamp,value\nu1,{(clock.now() - HOUR / 4).isoformat()},7.0\n")
    assert (await store.history.import_file(file, ["spend"])).erased == 1
    await store.admin.rebuild()
    assert await some(store) == NOTHING
    if allow_return:
        await buy(store, clock, 2.0)
        assert (await some(store))["spend_sum_30d"] == 2.0
    await store.admin.rebuild()
    assert not (await store.admin.audit()).differences
    assert (await some(store, "u2"))["spend_sum_30d"] == 5.0


@pytest.mark.parametrize("allow_return", [False, True])
async def test_a_batch_at_work_does_not_bring_tiles_back(
    store: FeatureStore, clock: ManualClock, *, allow_return: bool
) -> None:
    @entity(store)
    class User:
        user_id: str

    reached, opened = asyncio.Event(), asyncio.Event()
    opened.set()

    @feature(entity=User, trigger="buy", window="1h", aggregate=["count", "sum"])
    async def spend(user_id: str, event: ServiceEvent) -> float:
        reached.set()
        await opened.wait()
        return float(event.payload["amount"])

    await buy(store, clock, 5.0)
    reached.clear()
    opened.clear()
    handling = asyncio.create_task(buy(store, clock, 6.0))
    await reached.wait()
    clock.advance(timedelta(seconds=1))
    await store.admin.forget("User", "u1", reason="request", allow_return=allow_return)
    assert await stored(store) == (0, 0)
    opened.set()
    await handling
    assert await stored(store) == (0, 0)
    if allow_return:
        clock.advance(timedelta(seconds=1))
        await buy(store, clock, 7.0)
        assert await stored(store) == (1, 1)
        assert await store.get_feature("spend_sum_1h", "u1") == 7.0


async def test_a_rebuild_at_work_does_not_bring_tiles_back(
    store: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(store)
    await buy(store, clock, 5.0, HOUR / 2)
    online = (await runtime_of(store).open()).backends.online
    replace = online.replace

    async def forget_first(entity: str, series: str, cells: Mapping[str, Replacement]) -> list[str]:
        if series == "spend" and await stored(store) != (0, 0):
            await store.admin.forget("User", "u1", reason="request", allow_return=True)
        return list(await replace(entity, series, cells))

    monkeypatch.setattr(online, "replace", forget_first)
    await store.admin.rebuild()
    assert await stored(store) == (0, 0)
    assert await some(store) == NOTHING
