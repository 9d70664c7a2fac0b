"""Replaying stored events through a feature's handler, and reading the results.

>>> report = await replay(job, runner, print)
>>> for changes in replayed_changes(job, definition):
...     await offline.append(changes)
>>> for cells in last_cells(job):
...     await online.restore(definition.entity.name, cells)
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from headwater.core.batching import batched
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import glob_literal, session
from headwater.core.logging import log
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import texts
from headwater.declarations.features import FeatureDef
from headwater.errors import BackfillRefusedError
from headwater.history.backfill.task import ReplayJob, ReplayTask
from headwater.history.importing import IMPORT
from headwater.model.backfills import BackfillProgress, OnProgress, ReplayReport
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import Cell, Cells
from headwater.ports import Change
from headwater.ports.history import VALUE_AS_JSON
from headwater.ports.runner import Runner

_PAGE = 5_000
_PROGRESS_SECONDS = 0.5


def check_replayable(feature: FeatureDef) -> None:
    """Raise BackfillRefusedError if a feature is not computed from events."""
    if feature.window is not None:
        family = feature.window.family
        raise BackfillRefusedError(
            feature.name,
            f"it is computed from the contributions of {family!r}; run `headwater backfill "
            f"{family}`",
        )
    if not feature.triggers:
        raise BackfillRefusedError(
            feature.name, "it has no trigger, so there are no events to compute it from"
        )
    if feature.codec.kind == "none":
        raise BackfillRefusedError(
            feature.name,
            "its handler returns nothing and only sets other features; move each of them into a "
            "feature with the same trigger, and backfill that one",
        )


async def replay(
    job: ReplayJob, runner: Runner, progress: OnProgress | None = None
) -> ReplayReport:
    """Replay the events of a job; what an earlier run of it has committed is not repeated.

    Raises BackfillRefusedError or ReplayWriteError if the handler does something that cannot be
    replayed.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    tasks = _tasks(job)
    async with _showing(tasks, progress):
        reports = [report async for report in runner.map(tasks)]
    unstored: Counter[str] = Counter()
    for report in reports:
        unstored.update(report.unstored)
    return ReplayReport(
        events=sum(report.events for report in reports),
        values=sum(report.values for report in reports),
        failures=sum(report.failures for report in reports),
        unstored=dict(unstored),
    )


def replayed_changes(job: ReplayJob, definition: FeatureDef) -> Iterator[list[Change]]:
    """Yield the rows of history of the new series in pages; those of an entity in order."""
    entity, kind = definition.entity.name, definition.codec.kind
    for task in _tasks(job):
        for values in task.commits().pages():
            for page in batched(values, _PAGE):
                yield [
                    Change(job.series, entity, v.entity_id, kind, v.cell, v.cause, v.online)
                    for v in page
                ]


def copied_changes(
    file: Path, scratch: Path, served: FeatureDef, variant: FeatureDef, since: datetime | None
) -> Iterator[list[Change]]:
    """Yield the values of a version as values of another one, those of an entity in order.

    These are the ones from before a time and, of a family, the imported ones, unless they do not
    fit its present type. ``file`` is what `OfflineStore.export_history` has written.
    """
    is_converted, codec = dict(served.chain), served.codec
    copied = [] if since is None else [f"as_of < make_timestamptz({to_micros(since)})"]
    if variant.windows is not None:
        copied.append(f"regexp_full_match(cause, '{IMPORT}(:[^#]*)?(#[0-9]+)?')")
    rows = f"""
SELECT entity_id, feature, kind, {VALUE_AS_JSON}, epoch_us(as_of), epoch_us(written_at), cause
FROM read_parquet({glob_literal(file)})
WHERE feature IN ({texts(list(is_converted))}) AND ({" OR ".join(copied)})
ORDER BY entity_id, as_of, written_at, seq"""

    with session(scratch) as duck:
        cursor = duck.run(rows)
        while page := cursor.fetchmany(_PAGE):
            changes = []
            for entity_id, series, stored_kind, value, as_of, written_at, cause in page:
                own, kind = value.encode(), stored_kind
                if is_converted[series]:
                    own, kind = codec.converted(own), codec.kind
                if variant.windows is not None and not variant.codec.fits(own):
                    log.warning(
                        "contribution does not fit its family any more",
                        feature=variant.name,
                        entity_id=entity_id,
                    )
                    continue
                cell = Cell(msgspec.Raw(own), as_of, written_at, served.expiry_of(written_at))
                changes.append(
                    Change(variant.series, variant.entity.name, entity_id, kind, cell, cause)
                )
            yield changes


def last_cells(job: ReplayJob) -> Iterator[dict[str, Cells]]:
    """Yield the last value of each entity under the new series, by entity id, in pages.

    It has the time at which it expires, which may be over.
    """
    for task in _tasks(job):
        cells: dict[str, Cells] = {}
        for values in task.commits().pages():
            # The values of a bucket follow each other, so all others are complete.
            buckets = {bucket_of(value.entity_id) for value in values}
            if len(cells) >= _PAGE:
                done = {i: cells.pop(i) for i in list(cells) if bucket_of(i) not in buckets}
                if done:
                    yield done
            cells |= {value.entity_id: {job.series: value.cell} for value in values if value.online}
        if cells:
            yield cells


def replay_failures(job: ReplayJob) -> Iterator[DeadLetter]:
    """Yield the events that the handler could not handle, and why."""
    for task in _tasks(job):
        yield from task.commits().failures()


def replay_progress(job: ReplayJob) -> int:
    """Return how many events have been replayed so far, by any process."""
    return _done(_tasks(job))


def _tasks(job: ReplayJob) -> list[ReplayTask]:
    return [ReplayTask(job, file) for file in job.files]


def _done(tasks: Sequence[ReplayTask]) -> int:
    return sum(task.commits().progress() for task in tasks)


@asynccontextmanager
async def _showing(tasks: list[ReplayTask], progress: OnProgress | None) -> AsyncIterator[None]:
    """Show the progress of tasks while the code inside runs, and at its end."""
    if progress is None:
        yield
        return
    total = await asyncio.to_thread(
        lambda: sum(task.events.count(task.job.folder) for task in tasks)
    )

    async def show() -> None:
        began, before = time.monotonic(), _done(tasks)
        while True:
            events = _done(tasks)
            seconds = time.monotonic() - began
            left = seconds / (events - before) * (total - events) if events > before else None
            progress(BackfillProgress("replay", events, total, left))
            await asyncio.sleep(_PROGRESS_SECONDS)

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
    progress(BackfillProgress("replay", total, total, 0.0))
