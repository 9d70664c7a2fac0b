"""The offer of a backfill for a triggered feature that was added after events had arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from headwater.core.logging import log
from headwater.core.sql_literals import text, texts
from headwater.declarations.features import FeatureDef
from headwater.declarations.series import declared_entry
from headwater.engine.engine import Engine
from headwater.errors import BackendError
from headwater.history.versions import missed_nothing
from headwater.model.catalog import VersionRun


class NewFeatures(NamedTuple):
    """Triggered features that no worker has run, and the time before which events are past."""

    features: Sequence[FeatureDef] = ()
    before: datetime | None = None


async def find_new_features(engine: Engine) -> NewFeatures:
    """Return the triggered features that no worker has run.

    For the first worker of a store nothing is past: all events wait for it.
    """
    state, registry = engine.catalog.state, engine.registry
    entries = {
        name: declared_entry(state, name, registry.features)
        for name, feature in registry.features.items()
        if feature.triggers and feature.codec.kind != "none"
    }
    added = [
        registry.features[name]
        for name, entry in entries.items()
        if entry is None or entry.run_since is None
    ]
    if not added or all(entry.run_since is None for entry in state.features.values()):
        return NewFeatures()
    waiting = [lag.oldest_at for lag in await engine.backends.bus.lag() if lag.oldest_at]
    return NewFeatures(added, min(waiting, default=engine.clock.now()))


async def settle_missed(engine: Engine, noted: asyncio.Event) -> None:
    """Record of versions that began to run later than others that they have missed no event.

    Until that is known, or if there are such events, their values count as behind.
    """
    await noted.wait()
    group, catalog = engine.settings.worker.consumer_group, engine.catalog
    for cause, run in catalog.state.runs.get(group, {}).items():
        if run.missed_since is None or catalog.state.pruned.events is not None:
            continue
        try:
            if not await _has_events(engine, cause.rpartition(" on ")[2], run):
                await catalog.change(partial(missed_nothing, group=group, cause=cause, run=run))
        except BackendError as error:
            log.warning("past events not counted", error=str(error))
            return


async def _has_events(engine: Engine, event_type: str, run: VersionRun) -> bool:
    """Return whether there are events that a version may have missed; some may only wait."""
    sql = (
        f"SELECT 1 FROM events WHERE event_type = {text(event_type)}"
        f" AND received_at < CAST({text(run.since.isoformat())} AS TIMESTAMPTZ) LIMIT 1"
    )
    return bool((await engine.backends.offline.query(sql, {})).rows)


async def offer_backfills(engine: Engine, new: NewFeatures) -> None:
    """Log the number of past events of each new feature that has some."""
    if not new.features or new.before is None:
        return
    types = {trigger for feature in new.features for trigger in feature.triggers}
    sql = (
        f"SELECT event_type, count(*) FROM events WHERE event_type IN ({texts(sorted(types))})"
        f" AND received_at < CAST({text(new.before.isoformat())} AS TIMESTAMPTZ)"
        " GROUP BY event_type"
    )
    try:
        answer = await engine.backends.offline.query(sql, {})
    except BackendError as error:
        log.warning("past events not counted", error=str(error))
        return
    counts: dict[str, int] = {event_type: count for event_type, count in answer.rows}
    for feature in new.features:
        events = sum(counts.get(trigger, 0) for trigger in feature.triggers)
        if events:
            log.info(
                "feature has past events",
                feature=feature.name,
                events=events,
                remedy=f"{events:,} past events; run `headwater backfill {feature.name}`",
            )
