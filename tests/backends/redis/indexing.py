"""Processes that index documents in handlers, or store those of others, for tests that kill them.

Run as ``python -m tests.backends.redis.indexing ROLE``; the environment says where the store is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from headwater import FeatureStore, Index, ServiceEvent, Worker, entity, feature
from headwater.cli.processes import run_long
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of

store = FeatureStore()
docs = Index(store, "docs", embedder="lexical")


@entity(store)
class Page:
    page_id: str


@feature(entity=Page, trigger="edit", max_retries=0)
async def edits(page_id: str, event: ServiceEvent) -> int:
    """Count the edits of a page, and index its text."""
    number = (await store.get_feature("edits", page_id) or 0) + 1
    await store.index(docs, page_id, f"{event.payload['text']} edit {number}")
    if sign := event.payload.get("fatal"):
        _die_once(Path(sign))
    return number


def _die_once(sign: Path) -> None:
    """Kill the process unless the sign shows that another one was."""
    if not sign.exists():
        sign.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def work() -> None:
    """Run a worker until it is killed."""
    await Worker(store, owns_process=True).run()


async def settle() -> None:
    """Store the documents that were committed, in an endless loop."""
    engine = await runtime_of(store).open()
    while True:
        await engine.backends.vectors.version("docs")
        await asyncio.sleep(0)


if __name__ == "__main__":
    log.configure("info", "json")
    run_long({"work": work, "settle": settle}[sys.argv[1]]())
