"""A worker names the features whose type or query has changed since the last one."""

from __future__ import annotations

import asyncio

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.settings.schema import Settings
from tests.engine.support import records

pytestmark = pytest.mark.both_environments


async def start_worker(settings: Settings, annotation: type, sql: str) -> None:
    """Run a worker of a features file with this type and this query until it has started."""
    async with FeatureStore(settings=settings) as store:

        @store.entity
        class User:
            user_id: str

        async def total(user_id: str, event: ServiceEvent) -> object:
            return annotation(1)

        def orders(user_id: str) -> int: ...  # type: ignore[empty-body]

        total.__annotations__["return"] = annotation
        feature(entity=User, trigger="purchase")(total)
        feature(entity=User, refresh="1h", materialize=True, sql=sql)(orders)
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        worker.stop()
        await running


async def test_a_changed_return_type_and_a_changed_query_are_named_at_start(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    ones, twos = (f"SELECT 'u1' AS user_id, {number} AS value" for number in (1, 2))
    await start_worker(settings, int, ones)
    await start_worker(settings, int, ones.replace(" ", "\n  "))
    assert "feature has another" not in capsys.readouterr().err
    await start_worker(settings, str, twos)
    logged = capsys.readouterr().err
    (changed,) = records(logged, "feature has another type")
    assert (changed["feature"], changed["before"], changed["now"]) == ("total", "int", "str")
    (changed,) = records(logged, "feature has another query")
    assert changed["feature"] == "orders"
    await start_worker(settings, str, twos)
    assert "feature has another" not in capsys.readouterr().err
