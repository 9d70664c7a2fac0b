"""The versions of features that a worker runs."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef


class RunSet:
    """The versions of features that run on events, in declared order, and on schedules.

    It never changes: every worker has its own, and a batch runs with one.
    """

    def __init__(
        self,
        triggered: Iterable[FeatureDef],
        scheduled: Iterable[FeatureDef] = (),
        code: str = "",
    ) -> None:
        self.triggered = tuple(triggered)
        self.code = code
        """The hash of the code of all declared handlers, also of handlers that do not run."""
        self.by_event_type: dict[str, tuple[FeatureDef, ...]] = {}
        """The versions that each event type triggers; none of Headwater's own types does."""
        self.touches: dict[str, frozenset[str]] = {}
        """The names of the entities whose features an event type triggers."""
        for feature in self.triggered:
            for event_type in feature.triggers:
                others = self.by_event_type.get(event_type, ())
                self.by_event_type[event_type] = (*others, feature)
                touched = self.touches.get(event_type, frozenset())
                self.touches[event_type] = touched | {feature.entity.name}
        self.declared = frozenset(
            text for handler in (*self.triggered, *scheduled) for text in declared_as(handler)
        )
        """What a worker registers: each version, its triggers or its schedule, and its code."""

    def triggered_by(self, event_type: str, only: str | None = None) -> tuple[FeatureDef, ...]:
        """Return the versions that an event triggers; a redriven event only the failed one.

        In place of one whose values are converted, that is the version that converts them.
        """
        features = self.by_event_type.get(event_type, ())
        if only is None:
            return features
        failed = tuple(feature for feature in features if feature.series == only)
        return failed or tuple(
            feature for feature in features if any(series == only for series, _ in feature.chain)
        )


def declared_as(feature: FeatureDef) -> list[str]:
    """Return what a worker registers for a version that it runs.

    >>> declared_as(total_spend)
    ['total_spend@2 on purchase as 3f0c2a4b5d6e7f80']
    """
    causes = feature.triggers or ("schedule",)
    return [f"{feature.series} on {cause} as {definition_of(feature)}" for cause in causes]


def series_of(declared: str) -> str:
    """Return the series of something that a worker has registered."""
    return declared.rpartition(" on ")[0]


def cause_of(declared: str) -> str:
    """Return the event type that triggers something that a worker has registered, or `schedule`."""
    return without_code(declared).rpartition(" on ")[2]


def without_code(declared: str) -> str:
    """Return something that a worker has registered, without its code."""
    return declared.rpartition(" as ")[0]
