"""All values of one entity: each with its freshness, or with the problem of its feature."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from headwater.contexts.freshness import judge
from headwater.declarations.features import FeatureDef
from headwater.errors import BackendError, HeadwaterError
from headwater.features.call_scope import tracking
from headwater.features.caller_limits import limited_caller
from headwater.features.read_tracking import Reads, judged, tracked_feature
from headwater.features.reader import Reader
from headwater.model.features import EntityValue, EntityValues
from headwater.model.lineage import FreshnessViolation
from headwater.model.problems import Problem
from headwater.model.values import FeatureValue
from headwater.store.runtime import Runtime

Outcomes = dict[str, FeatureValue | HeadwaterError]


async def read_entity(
    runtime: Runtime, entity: str, entity_id: str, problem_of: Callable[[HeadwaterError], Problem]
) -> EntityValues:
    """Read all features of one entity that have values; one that fails does not fail the others.

    Raises:
        BackendError: The store is unavailable, so that no value can be read.
    """
    definition = runtime.registry.entity(entity)
    text_id = definition.text_id(entity_id)
    limited = limited_caller()
    if limited is not None:
        await limited.check_entity((await runtime.open()).ownership, definition.name, text_id)
    features = [
        feature
        for feature in runtime.registry.features.values()
        if feature.entity is definition and feature.codec.kind != "none" and feature.windows is None
    ]
    # Windows are evaluated from stored states, so they cost no round trip of their own.
    stored = [feature.name for feature in features if feature.stored or feature.window]
    others = [feature.name for feature in features if not (feature.stored or feature.window)]
    reader = (await runtime.open()).reader
    reads = await asyncio.gather(
        _read_stored(reader, stored, text_id),
        *(_read(reader, [name], text_id) for name in others),
    )
    outcomes: Outcomes = {name: outcome for read in reads for name, outcome in read.items()}
    now, values = runtime.scope_clock.now(), []
    for feature in features:
        outcome = outcomes[feature.name]
        if isinstance(outcome, FeatureValue):
            values.append(_judged(feature, text_id, outcome, now))
        else:
            problem = problem_of(outcome)
            values.append(
                EntityValue(feature=feature.name, sla_ms=_sla_ms(feature), problem=problem)
            )
    return EntityValues(definition.name, text_id, now, values)


async def _read_stored(reader: Reader, names: Sequence[str], entity_id: str) -> Outcomes:
    """Read stored values in one round trip; if one of them is unreadable, one by one."""
    outcomes = await _read(reader, names, entity_id) if names else {}
    if any(isinstance(outcome, HeadwaterError) for outcome in outcomes.values()):
        for name in names:
            outcomes |= await _read(reader, [name], entity_id)
    return outcomes


async def _read(reader: Reader, names: Sequence[str], entity_id: str) -> Outcomes:
    try:
        with tracking(Reads()):
            (row,) = await reader.read(names, [entity_id])
    except BackendError:
        raise
    except HeadwaterError as error:
        return dict.fromkeys(names, error)
    return {name: row[name] for name in names}


def _judged(feature: FeatureDef, entity_id: str, value: FeatureValue, now: datetime) -> EntityValue:
    """Return a value with its freshness, by its own SLA and those of its inputs."""
    tracked, reads = tracked_feature(feature, entity_id, value), Reads()
    reads.track_read(tracked)
    violations = judge(reads, None, now).freshness.violations
    has_sla = any(sla_ms is not None for _, sla_ms in judged(tracked))
    return EntityValue(
        feature=feature.name,
        value=value.value,
        as_of=value.as_of,
        written_at=value.written_at,
        age_ms=value.age_ms(now),
        source=value.source,
        rule=value.rule,
        current_at=value.current_at,
        sla_ms=_sla_ms(feature),
        is_fresh=not violations if has_sla else None,
        violations=[FreshnessViolation(**msgspec.structs.asdict(each)) for each in violations],
    )


def _sla_ms(feature: FeatureDef) -> int | None:
    sla = feature.freshness_sla
    return None if sla is None else sla // timedelta(milliseconds=1)
