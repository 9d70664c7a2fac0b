"""The maintenance that workers do at intervals: of history, of indexes, and by night."""

from __future__ import annotations

import asyncio
from functools import partial

from headwater.core.logging import Outage, log
from headwater.engine.auditing import audited
from headwater.engine.engine import Engine
from headwater.errors import BackendError
from headwater.history.retention import NightlyPruning
from headwater.model.admin import PrunedPart, PruneReport
from headwater.settings.environments import on_servers

_PAUSE_SECONDS = 5.0
_PRUNING_PAUSE_SECONDS = 60.0


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


async def prune_nightly(engine: Engine) -> None:
    """Remove what the settings do not keep, once a day; retry while that fails."""
    settings = engine.settings
    # Servers keep a table for each month, which is dropped faster than its rows are deleted.
    is_by_month = on_servers(settings)
    pruning = NightlyPruning(
        engine.backends,
        engine.catalog,
        settings.retention,
        partial(audited, engine),
        is_by_month=is_by_month,
    )
    outage = Outage("pruning")
    while pruning.is_wanted:
        try:
            report = await pruning.run(engine.clock.now())
            outage.recovered("worker")
        except BackendError as error:
            outage.report("error", "nightly pruning failed; retrying", error, "worker")
        else:
            if report is not None:
                _log(report)
        await asyncio.sleep(_PRUNING_PAUSE_SECONDS)


def _log(report: PruneReport) -> None:
    rows = {
        "history": _rows(report.history),
        "events": _rows(report.events),
        "records": _rows(report.records),
    }
    log.info("old rows pruned", **rows, held=list(report.held))


def _rows(part: PrunedPart | None) -> int:
    return 0 if part is None else part.rows
