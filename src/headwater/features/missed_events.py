"""The events that a feature may have missed, because workers committed them without it. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from headwater.declarations.features import FeatureDef
from headwater.model.catalog import CatalogState


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
