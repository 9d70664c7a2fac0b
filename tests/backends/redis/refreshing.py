"""A features file with a schedule, and its worker as a separate process.

Run as ``python -m tests.backends.redis.refreshing work``; where the store is, the environment says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from headwater import FeatureStore, Worker, entity, feature
from headwater.cli.processes import run_long

store = FeatureStore()
LAST = "u7"


@entity(store)
class User:
    user_id: str


@feature(entity=User, refresh="1h")
def checked(user_id: str) -> int:
    """Create a file when the last entity starts, and wait until the file is removed."""
    sign = Path(store.settings.home) / "refreshing"
    if user_id == LAST:
        sign.write_text(str(os.getpid()))
        while sign.exists():
            time.sleep(0.005)
    return os.getpid()


async def work() -> None:
    """Run a worker until SIGTERM."""
    worker = Worker(store)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await store.close()


if __name__ == "__main__":
    run_long(work())
