"""Replays: past events through the present handler give the values that they would have given."""

from __future__ import annotations

from pathlib import Path

from headwater import FeatureStore, ServiceEvent, feature
from headwater.history.backfill.replay import last_cells
from tests.history.backfill.support import history, order_of, replay_all


async def test_a_replay_gives_the_values_of_a_feature_that_was_there_from_the_first_day(
    store: FeatureStore, user: type, tmp_path: Path
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("total", user_id) or 0.0
        return float(before + event.payload["amount"])

    for number in range(40):
        await store.publish("buy", f"u{number % 7}", {"amount": float(number)})
    await store.drain()
    order = await order_of(store, "total", tmp_path, files=4)
    report = await replay_all(store, order)
    assert (report.events, report.values, report.failures) == (40, 40, 0)
    first = await history(store, "total")
    assert await history(store, "total@2") == first
    cells = {i: cell for page in last_cells(order) for i, cell in page.items()}
    assert {i: float(bytes(cell["total@2"].value)) for i, cell in cells.items()} == {
        f"u{i}": await store.get_feature("total", f"u{i}") for i in range(7)
    }
