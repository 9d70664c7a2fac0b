"""How the freshness of a value is judged: by its reads, or by what still waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.features.call_scope import Past
from headwater.features.derivation_cache import Derivation
from headwater.features.read_plan import Plan
from headwater.features.read_tracking import Reads
from headwater.model.catalog import CatalogState
from headwater.model.values import Cells, FeatureValue, FreshnessRule


def derivation_of(feature: FeatureDef, reads: Reads, now: datetime) -> Derivation:
    """Return how a value was computed from the reads of its function."""
    provenance, inputs = frozenset(reads.provenance), tuple(reads.features)
    is_undated = reads.as_of().incomplete
    if feature.freshness == "caught_up":
        return Derivation(provenance, inputs, "caught_up", now, is_undated)
    if not inputs:
        return Derivation(provenance, is_undated=is_undated)
    if not reads.retrievals and not reads.contexts:
        return Derivation(provenance, inputs, "inputs", None, is_undated)
    others = reads.other_moments()
    current_at = None if others.incomplete else others.oldest
    return Derivation(provenance, inputs, "age", current_at, is_undated)


class Evidence(NamedTuple):
    """What shows that values are current."""

    moments: Sequence[datetime] = ()
    """Until when all events of the partition of each entity are committed."""
    unhandled: Sequence[frozenset[str]] = ()
    """The series that could not handle an event of each entity."""
    runs: Mapping[str, datetime | None] = {}
    """The beginning of the last successful run of each query, by feature."""
    missed: Mapping[str, Missed | None] = {}
    """The events that triggered features may have missed."""


def apply_rules(
    plan: Plan,
    ids: Sequence[str],
    cells: Sequence[Cells],
    rows: Sequence[dict[str, FeatureValue]],
    past: Past | None,
    evidence: Evidence,
) -> None:
    """Add the moments at which values were known to be current, for the features that need it."""
    for place, (entity_id, row) in enumerate(zip(ids, rows, strict=True)):
        for feature in plan.caught_up:
            value = row[feature.name]
            rule: FreshnessRule = "caught_up"
            current_at: datetime | None = None
            if value.source == "missing":
                pass
            elif past is not None:
                rule, current_at = past.judged(feature, entity_id)
            elif feature.triggers and feature.series in evidence.unhandled[place]:
                rule = "dead_letter"
            elif feature.triggers:
                missed = evidence.missed.get(feature.name)
                current_at = evidence.moments[place]
                if missed is not None:
                    is_guess = missed.has_never_run and value.source == "default"
                    current_at = None if is_guess else min(current_at, missed.since)
            elif value.source == "online":
                current_at = value.written_at
            else:
                current_at = _default_since(feature, cells[place], evidence.runs.get(feature.name))
            row[feature.name] = msgspec.structs.replace(value, rule=rule, current_at=current_at)


def _default_since(feature: FeatureDef, cells: Cells, ran: datetime | None) -> datetime | None:
    """Return the moment at which the default of a schedule was known to be right, if there is one.

    A query that ran and did not return an entity shows it. A function was not called for an
    entity without a value, so its default is a guess.
    """
    expired = cells.get(feature.series)
    if ran is None:
        return None if expired is None else from_micros(expired.written_at)
    # Without materialize, rows of entities that were not known at that time are left out.
    is_complete = feature.materialize or any(
        cell.written_at < to_micros(ran) for cell in cells.values()
    )
    return ran if is_complete else None


class Missed(NamedTuple):
    """Since when a feature may have missed events, and whether no worker has ever run it."""

    since: datetime
    has_never_run: bool


def missed_events(state: CatalogState, feature: FeatureDef, group: str) -> Missed | None:
    """Return what a triggered feature may have missed, as the workers of a group have run it.

    Where no worker ever ran, nothing is missed: all events wait.
    """
    began = state.worked_since
    if began is None:
        return None
    runs = state.runs.get(group, {})
    noted = [runs.get(f"{feature.series} on {trigger}") for trigger in feature.triggers]
    known_runs = [run for run in noted if run is not None]
    moments = [moment for run in known_runs for moment in (run.missed_since, run.left_at) if moment]
    if len(known_runs) < len(noted):  # no worker has run it with one of its triggers
        moments.append(began)
    return Missed(min(moments), not known_runs) if moments else None
