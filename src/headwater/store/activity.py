"""What a declaration has done lately: ages of its values, its last run, its schedule and errors."""

from __future__ import annotations

from datetime import datetime
from statistics import median_low

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.features.schedule import last_due, next_due
from headwater.model.callers import Caller
from headwater.ports import RecordQuery
from headwater.store.runtime import Runtime
from headwater.store.visible_names import DeclarationKind

SAMPLED_ENTITIES = 200
SAMPLED_LETTERS = 500


class ValueSample(msgspec.Struct, frozen=True, kw_only=True):
    """The stored values of a feature for some entities: the first ones by id.

    ``is_complete`` is whether these are all entities. Ages count from ``as_of``; ``within_sla`` is
    the number of values that are not older than the SLA of the feature, if it has one.
    """

    entities: int
    is_complete: bool
    values: int
    expired: int
    newest_age_ms: int | None = None
    median_age_ms: int | None = None
    oldest_age_ms: int | None = None
    within_sla: int | None = None
    last_written_at: datetime | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When a scheduled feature was last due, and when it is due again."""

    last_due: datetime
    next_due: datetime


class LetterCount(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a feature among the newest; ``is_complete`` is whether these are all."""

    count: int
    is_complete: bool


class RefreshFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Since when the runs of a scheduled feature fail; the error is for administrators."""

    since: datetime
    error: str | None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the values, runs and errors of a declaration; null is not known.

    ``last_run_at`` is when a value of the sample was last written, or a context last recorded.
    """

    values: ValueSample | None = None
    schedule: Schedule | None = None
    refresh_failure: RefreshFailure | None = None
    last_run_at: datetime | None = None
    dead_letters: LetterCount | None = None


async def activity_of(
    runtime: Runtime, kind: DeclarationKind, name: str, caller: Caller | None
) -> Activity:
    """Return the activity of a declaration, as far as the caller may know it."""
    if kind == "feature":
        return await _of_feature(runtime, runtime.registry.feature(name), caller)
    if kind == "context" and (caller is None or (caller.may("records") and not caller.limits)):
        log = (await runtime.open()).backends.records
        latest = await log.records(RecordQuery(name=name, limit=1))
        return Activity(last_run_at=latest[0].created_at if latest else None)
    return Activity()


async def _of_feature(runtime: Runtime, feature: FeatureDef, caller: Caller | None) -> Activity:
    now, limits = runtime.clock.now(), None if caller is None else caller.limits
    values = letters = schedule = None
    if feature.kept:
        values = await _sample(runtime, feature, now, limits.tenant if limits else "")
    if feature.triggers and limits is None:
        letters = await _letters(runtime, feature.series)
    if feature.refresh is not None:
        schedule = Schedule(last_due=last_due(feature, now), next_due=next_due(feature, now))
    return Activity(
        values=values,
        schedule=schedule,
        refresh_failure=await _refresh_failure(runtime, feature, caller),
        last_run_at=values.last_written_at if values else None,
        dead_letters=letters,
    )


async def _refresh_failure(
    runtime: Runtime, feature: FeatureDef, caller: Caller | None
) -> RefreshFailure | None:
    if feature.refresh is None or (caller is not None and caller.limits is not None):
        return None
    outcomes = RefreshOutcomes((await runtime.open()).backends.notes, runtime.clock)
    outcome = (await outcomes.read([feature.name]))[feature.name]
    if outcome.failing_since is None:
        return None
    has_error = caller is None or caller.may("admin")
    return RefreshFailure(since=outcome.failing_since, error=outcome.error if has_error else None)


async def _sample(runtime: Runtime, feature: FeatureDef, now: datetime, tenant: str) -> ValueSample:
    online, entity = (await runtime.open()).backends.online, feature.entity.name
    ids = await online.entity_ids(entity, after=tenant, limit=SAMPLED_ENTITIES)
    ids = [each for each in ids if each.startswith(tenant)]
    rows = await online.get(entity, ids) if ids else []
    cells, micros = [row[feature.series] for row in rows if feature.series in row], to_micros(now)
    valid = [cell for cell in cells if not cell.expired(micros)]
    ages = sorted(max(0, micros - cell.as_of) // 1_000 for cell in valid)
    sla = feature.freshness_sla
    limit = None if sla is None else sla.total_seconds() * 1_000
    return ValueSample(
        entities=len(ids),
        is_complete=len(ids) < SAMPLED_ENTITIES,
        values=len(valid),
        expired=len(cells) - len(valid),
        newest_age_ms=ages[0] if ages else None,
        median_age_ms=median_low(ages) if ages else None,
        oldest_age_ms=ages[-1] if ages else None,
        within_sla=None if limit is None else sum(age <= limit for age in ages),
        last_written_at=from_micros(max(c.written_at for c in cells)) if cells else None,
    )


async def _letters(runtime: Runtime, series: str) -> LetterCount:
    letters = (await runtime.open()).backends.dead_letters
    if not await letters.count():
        return LetterCount(count=0, is_complete=True)
    found = await letters.summaries(SAMPLED_LETTERS)
    count = sum(each.feature == series for each in found)
    return LetterCount(count=count, is_complete=len(found) < SAMPLED_LETTERS)
