"""All values of one entity: each with its freshness, or with the error of its feature."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from headwater.contexts.freshness import judge
from headwater.declarations.features import FeatureDef
from headwater.errors import BackendError, HeadwaterError
from headwater.features.call_scope import tracking
from headwater.features.caller_limits import limited_caller
from headwater.features.read_tracking import Reads, judged, tracked_feature
from headwater.features.reader import Reader
from headwater.model.values import FeatureValue, TrackedFeature
from headwater.records.core import Violation
from headwater.store.runtime import Runtime


class ReadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity, and its value or the error of reading it.

    ``has_sla`` is whether the feature, or a value it is computed from, has a freshness SLA;
    ``violations`` names the values that do not meet theirs.
    """

    feature: FeatureDef
    value: FeatureValue | None = None
    error: HeadwaterError | None = None
    has_sla: bool = False
    violations: Sequence[Violation] = ()


class EntityRead(msgspec.Struct, frozen=True):
    """All values of one entity, and when they were read."""

    entity: str
    entity_id: str
    read_at: datetime
    features: Sequence[ReadOutcome]


async def read_entity(runtime: Runtime, entity: str, entity_id: str) -> EntityRead:
    """Read all features of one entity that have values; one that fails does not fail the others.

    Raises:
        BackendError: The store is unavailable, so that no value can be read.
    """
    definition = runtime.registry.entity(entity)
    text_id = definition.text_id(entity_id)
    limited = limited_caller()
    if limited is not None:
        limited.check_entity(definition.name, text_id)
    features = [
        feature
        for feature in runtime.registry.features.values()
        if feature.entity is definition and feature.codec.kind != "none"
    ]
    reader = (await runtime.open()).reader
    stored = [feature for feature in features if feature.stored]
    others = [feature for feature in features if not feature.stored]
    found = await asyncio.gather(
        _read_stored(reader, stored, text_id), *(_read(reader, [f], text_id) for f in others)
    )
    reads = {read.feature.name: read for each in found for read in each}
    now = runtime.scope_clock.now()
    judgements = [_with_freshness(reads[feature.name], text_id, now) for feature in features]
    return EntityRead(definition.name, text_id, now, judgements)


async def _read_stored(
    reader: Reader, features: Sequence[FeatureDef], entity_id: str
) -> list[ReadOutcome]:
    """Read stored values in one round trip; if one of them is unreadable, one by one."""
    reads = await _read(reader, features, entity_id)
    if all(read.error is None for read in reads):
        return reads
    separate = [await _read(reader, [feature], entity_id) for feature in features]
    return [read for (read,) in separate]


async def _read(
    reader: Reader, features: Sequence[FeatureDef], entity_id: str
) -> list[ReadOutcome]:
    if not features:
        return []
    names = [feature.name for feature in features]
    try:
        with tracking(Reads()):
            (row,) = await reader.read(names, [entity_id])
    except BackendError:
        raise
    except HeadwaterError as error:
        return [ReadOutcome(feature=feature, error=error) for feature in features]
    return [ReadOutcome(feature=feature, value=row[feature.name]) for feature in features]


def _with_freshness(read: ReadOutcome, entity_id: str, now: datetime) -> ReadOutcome:
    if read.value is None:
        return read
    tracked, reads = tracked_feature(read.feature, entity_id, read.value), Reads()
    reads.track_read(tracked)
    return msgspec.structs.replace(
        read,
        has_sla=any(sla is not None for sla in _slas(tracked)),
        violations=judge(reads, None, now).freshness.violations,
    )


def _slas(read: TrackedFeature) -> Iterable[int | None]:
    return (sla_ms for _, sla_ms in judged(read))
