"""An outage is logged once, not for every attempt."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import Outage
from headwater.settings.schema import Settings
from tests.engine.support import records, until
from tests.servers import restartable_valkey

_TRIES = 25


async def test_a_worker_logs_an_outage_of_redis_and_its_end_once(
    production: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, tell = Counter[Outage](), Outage.report

    def count(outage: Outage, *arguments: object, **fields: object) -> None:
        tries[outage] += 1
        tell(outage, *arguments, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Outage, "report", count)
    with restartable_valkey() as (url, machine):
        store = FeatureStore(settings=production.replace(redis={"url": url}))

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy")
        async def total(user_id: str, event: ServiceEvent) -> int:
            return int(event.payload["amount"])

        @feature(entity=User, refresh="1s", materialize=True)
        async def score(user_id: str) -> int:
            return 1

        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        await store.publish("buy", "u1", {"amount": 1})
        await until(lambda: worker.health().ok)
        machine.kill()
        await until(lambda: tries.total() >= _TRIES)
        machine.start()
        said = ""

        def back() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return len(records(said, "back after an outage")) == len(tries)

        await until(back)
        await store.publish("buy", "u1", {"amount": 2})

        async def handled() -> bool:
            return bool(await store.get_feature("total", "u1") == 2)

        await until(handled)
        worker.stop()
        await running
        await store.close()
    loud = [line for line in said.splitlines() if '"level":"error"' in line or "warning" in line]
    assert len(loud) == len(tries)
    parts = [record["part"] for record in records(said, "back after an outage")]
    # A longer outage reaches more parts.
    assert len(set(parts)) == len(parts)
    assert {"events", "messages"} <= {*parts}
