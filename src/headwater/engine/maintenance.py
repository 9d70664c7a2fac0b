"""The maintenance of history and indexes, which every worker does at intervals."""

from __future__ import annotations

import asyncio

from headwater.core.logging import Outage
from headwater.engine.engine import Engine
from headwater.errors import BackendError

_PAUSE_SECONDS = 5.0


async def maintain(engine: Engine) -> None:
    """Maintain history and indexes, also while one of them cannot be, until cancelled."""
    history, indexes = Outage("history"), Outage("indexes")
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        try:
            await engine.backends.offline.maintain()
            history.recovered("worker")
        except BackendError as error:
            history.report("error", "history maintenance failed; retrying", error, "worker")
        try:
            await engine.reindexer.maintain()
            indexes.recovered("worker")
        except BackendError as error:
            indexes.report("error", "index maintenance failed; retrying", error, "worker")
