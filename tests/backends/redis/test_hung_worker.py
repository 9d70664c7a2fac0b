"""A worker with too many hung threads exits, even during other failures."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headwater.backends.connect import migrate
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from tests.engine.support import until
from tests.servers import restartable_valkey

FEATURES = """
import threading
from pathlib import Path
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="stick", max_retries=0)
def sticks(user_id: str, event: ServiceEvent) -> int:
    Path(event.payload["begun"]).touch()
    threading.Event().wait()
    return 0
"""


@pytest.mark.timeout(120)
async def test_a_worker_with_too_many_hung_threads_exits_although_redis_is_gone(
    postgres_url: str, tmp_path: Path
) -> None:
    file, begun = tmp_path / "features.py", tmp_path / "begun"
    file.write_text(FEATURES)
    with restartable_valkey() as (redis_url, machine):
        settings = Settings().replace(
            redis={"url": redis_url},
            postgres={"url": postgres_url, "schema": "hung_worker"},
        )
        await migrate(settings)
        store = load_store(file)
        await runtime_of(store).rebind(settings, store.clock)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headwater", "worker", str(file)),
            cwd=tmp_path,
            env={
                **os.environ,
                "HEADWATER_REDIS_URL": redis_url,
                "HEADWATER_POSTGRES_URL": postgres_url,
                "HEADWATER_POSTGRES_SCHEMA": "hung_worker",
                "HEADWATER_WORKER_HANDLER_TIMEOUT": "2",
                "HEADWATER_WORKER_DRAIN_TIMEOUT": "2",
                "HEADWATER_WORKER_MAX_HUNG_THREADS": "1",
            },
        )
        try:
            async with store:
                await store.publish("stick", "u1", {"begun": str(begun)})
                await until(begun.exists)
            machine.kill()
            await until(lambda: process.returncode is not None)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == os.EX_SOFTWARE
