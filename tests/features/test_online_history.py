"""Every value that is online is in history, however it was written."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.core.clock import from_micros, to_micros
from headwater.declarations.runtime import runtime_of
from headwater.ports import Point
from headwater.testing import ManualClock
from tests.engine.support import past

SQL = "SELECT 'u1' AS user_id, {value} AS value"
AT = "TIMESTAMPTZ '2026-01-01 00:00:00+00' AS \"timestamp\""


def declare(store: FeatureStore, user: type, clock: ManualClock) -> None:
    """A feature of each way in which values are written."""

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> float:
        await store.set_feature("set_inside", user_id, event.payload["amount"])
        before: float = await store.get_feature("total", user_id) or 0.0
        return before + float(event.payload["amount"])

    @feature(entity=user, trigger="never")
    def set_inside(user_id: str, event: ServiceEvent) -> float: ...  # type: ignore[empty-body]

    @feature(entity=user, trigger="never")
    def set_outside(user_id: str, event: ServiceEvent) -> list[str]: ...  # type: ignore[empty-body]

    @feature(entity=user, refresh="5m", materialize=True)
    async def risk(user_id: str) -> float:
        return 1 / (1 + float(await store.get_feature("total", user_id)))

    @feature(entity=user, refresh="5m")
    def rank(user_id: str) -> int:
        return int(clock.now().timestamp())

    @feature(entity=user, refresh="5m", materialize=True, sql=SQL.format(value=7))
    def query_of_now(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user, refresh="5m", materialize=True, sql=f"{SQL.format(value=8)}, {AT}")
    def query_of_then(user_id: str) -> int: ...  # type: ignore[empty-body]


def declare_on_demand(store: FeatureStore, user: type, clock: ManualClock) -> None:
    @feature(entity=user, ttl="7m")
    async def cached(user_id: str) -> str:
        return f"{await store.get_feature('total', user_id)}"

    @feature(entity=user, log=True)
    def logged(user_id: str) -> str:
        return f"{clock.now():%H:%M:%S}"


@pytest.mark.both_environments
async def test_every_value_that_is_online_is_in_history(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare(store, user, clock)
    declare_on_demand(store, user, clock)
    names = list(runtime_of(store).registry.features)
    served: dict[str, set[object]] = {name: set() for name in names}
    for amount in (1.5, 2.5, 3.5):
        await store.publish("buy", "u1", {"amount": amount})
        await store.set_feature("set_outside", "u1", [str(amount)])
        await store.drain()
        (row,) = (await store.get_features(names, ["u1"])).values()
        for name, value in row.items():
            served[name].add(str(value))
        engine = await runtime_of(store).open()
        (cells,) = await engine.backends.online.get("User", ["u1"])
        assert set(cells) == {name for name in names if name != "logged"}
        points = [Point("u1", from_micros(cell.as_of)) for cell in cells.values()]
        found = await engine.backends.offline.as_of(list(cells), points)
        for place, (name, cell) in enumerate(cells.items()):
            value = found[place][place]
            assert value is not None, name
            assert (value.value, to_micros(value.as_of)) == (bytes(cell.value), cell.as_of), name
            assert to_micros(value.written_at) == cell.written_at, name
        clock.advance("5m")
    for name in names:
        assert {str(value) for value in await past(store, name)} == served[name], name
