"""How the freshness of a value is judged: by its reads, or by what still waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from headwater.core.values import FeatureValue
from headwater.declarations.features import FeatureDef
from headwater.features.derivation_cache import Derivation
from headwater.features.frame import Past
from headwater.features.read_plan import Plan
from headwater.features.read_tracking import Reads


def derivation_of(feature: FeatureDef, reads: Reads, now: datetime) -> Derivation:
    """Return how a value was computed from the reads of its function."""
    provenance, inputs = frozenset(reads.provenance), tuple(reads.features)
    if feature.freshness == "caught_up":
        return Derivation(provenance, inputs, "caught_up", now)
    if not inputs:
        return Derivation(provenance)
    if not reads.retrievals and not reads.contexts:
        return Derivation(provenance, inputs, "inputs")
    others = reads.other_moments()
    return Derivation(provenance, inputs, "age", None if others.incomplete else others.oldest)


def apply_rules(
    plan: Plan,
    ids: Sequence[str],
    rows: Sequence[dict[str, FeatureValue]],
    moments: Sequence[datetime],
    past: Past | None,
    now: datetime,
) -> None:
    """Add the moments at which values were known to be current, for the features that need it."""
    for place, (entity_id, row) in enumerate(zip(ids, rows, strict=True)):
        for feature in plan.caught_up:
            value = row[feature.name]
            current_at: datetime | None = now
            if value.source == "missing":
                current_at = None
            elif past is not None:
                current_at = past.current_at(feature, entity_id)
            elif feature.triggers:
                current_at = moments[place]
            elif value.source == "online":
                current_at = value.written_at
            row[feature.name] = msgspec.structs.replace(
                value, rule="caught_up", current_at=current_at
            )
