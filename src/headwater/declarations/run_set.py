"""The versions of features that a worker runs."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.declarations.features import FeatureDef


class RunSet:
    """The versions of features that run on events, in declared order, and on schedules.

    It never changes: every worker has its own, and a batch runs with one.
    """

    def __init__(
        self, triggered: Iterable[FeatureDef], scheduled: Iterable[FeatureDef] = ()
    ) -> None:
        self.triggered = tuple(triggered)
        self._by_event_type: dict[str, tuple[FeatureDef, ...]] = {}
        self.touches: dict[str, frozenset[str]] = {}
        """The names of the entities whose features an event type triggers."""
        for feature in self.triggered:
            for event_type in feature.triggers:
                others = self._by_event_type.get(event_type, ())
                self._by_event_type[event_type] = (*others, feature)
                touched = self.touches.get(event_type, frozenset())
                self.touches[event_type] = touched | {feature.entity.name}
        self.declared = frozenset(
            [f"{each.series} on {trigger}" for each in self.triggered for trigger in each.triggers]
            + [f"{each.series} on schedule" for each in scheduled]
        )
        """What a worker registers: each version with each of its triggers, or its schedule."""

    def triggered_by(self, event_type: str, only: str | None = None) -> tuple[FeatureDef, ...]:
        """Return the versions that an event triggers; a redriven event only the failed one."""
        features = self._by_event_type.get(event_type, ())
        if only is None:
            return features
        return tuple(feature for feature in features if feature.series == only)
