"""A features file and its worker as a separate process, for tests that kill it.

Run as ``python -m tests.processes.program ROLE``; the environment says where the store is.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.cli.processes import run_long
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of

SMALL_FILE = 1 << 20

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger=["note", "slow_note"], max_retries=0)
async def journal(user_id: str, event: ServiceEvent) -> list[tuple[int, int]]:
    """Return the number of each event and the process that handled it, in order of effect."""
    before = await store.get_feature("journal", user_id) or []
    if event.event_type == "slow_note":
        await asyncio.to_thread(_wait_until_removed, Path(event.payload["begun"]))
    else:
        await asyncio.sleep(0)
    return [*before, (event.payload["number"], os.getpid())]


def _wait_until_removed(sign: Path) -> None:
    """Create a file to show that the handler runs, and wait until the test removes it."""
    sign.touch()
    while sign.exists():
        time.sleep(0.005)


@feature(entity=User, trigger="bomb", max_retries=0)
async def survived(user_id: str, event: ServiceEvent) -> bool:
    """Kill the process if the payload says so."""
    if event.payload.get("fatal"):
        os.kill(os.getpid(), signal.SIGKILL)
    return True


@feature(entity=User, trigger="hang", max_retries=0)
def hung(user_id: str, event: ServiceEvent) -> bool:
    """Exit the process from a thread."""
    os._exit(3)


@feature(entity=User, trigger="stuck", max_retries=0)
def stuck(user_id: str, event: ServiceEvent) -> bool:
    """Block the thread until the process ends."""
    threading.Event().wait()
    return True


async def work() -> None:
    """Run a worker until SIGTERM; SIGUSR1 forbids large files, SIGUSR2 allows them again."""
    worker = Worker(store, owns_process=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    loop.add_signal_handler(signal.SIGUSR1, _limit_files, SMALL_FILE)
    loop.add_signal_handler(signal.SIGUSR2, _limit_files, resource.RLIM_INFINITY)
    await worker.run()
    await store.close()


def _limit_files(size: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    log.warning("file size limited", size=size)


async def roll() -> None:
    """Process events and move them and their history into segments, in an endless loop."""
    engine = await runtime_of(store).open()
    while True:
        await store.drain()
        await engine.backends.offline.maintain()


async def publish() -> None:
    """Publish one event and print that it was published."""
    await store.publish("note", "u1", {"number": 0})
    sys.stdout.write("published\n")


if __name__ == "__main__":
    log.configure("info", "json")
    run_long({"work": work, "roll": roll, "publish": publish}[sys.argv[1]]())
