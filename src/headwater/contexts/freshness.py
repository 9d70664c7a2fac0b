"""The freshness of a context: what was read is no older than its SLA, or a violation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from headwater.features.read_tracking import ReadTracker, TrackedContext, TrackedFeature
from headwater.records.lineage import FreshnessStatus, FreshnessViolation

_MILLISECOND = timedelta(milliseconds=1)

Reason = Literal["stale", "missing", "default"]


class Verdict(NamedTuple):
    """Whether everything was fresh, what was not, and how old the oldest was."""

    status: FreshnessStatus
    violations: Sequence[FreshnessViolation]
    stalest_ms: int | None


def judge(scope: ReadTracker, sla_ms: int | None, now: datetime) -> Verdict:
    """Holds everything that was read against the SLA; without one everything is fresh."""
    violations = [] if sla_ms is None else list(_violations(scope, sla_ms, now))
    return Verdict(
        "degraded" if violations else "guaranteed", violations, age_ms(scope.oldest, now)
    )


def age_ms(moment: datetime | None, now: datetime) -> int | None:
    """Milliseconds since a moment, rounded up: nothing is older than this says; None if none."""
    return None if moment is None else max(0, -((moment - now) // _MILLISECOND))


def feature_reason(note: TrackedFeature, sla_ms: int | None, now: datetime) -> Reason | None:
    """Why a feature's value is not as fresh as asked, if it is not."""
    if sla_ms is None:
        return None
    if note.value.source == "missing":
        return "missing"
    # What was made from a default speaks of no moment, and nobody can say that it is fresh.
    if note.value.source == "default" or note.value.as_of is None:
        return "default"
    return reason(note.value.as_of, sla_ms, now)


def reason(moment: datetime | None, sla_ms: int | None, now: datetime) -> Reason | None:
    """Why something of this moment is not as fresh as asked, if it is not."""
    if sla_ms is None:
        return None
    age = age_ms(moment, now)
    if age is None:
        return "missing"
    return "stale" if age > sla_ms else None


def _context_reason(note: TrackedContext, sla_ms: int, now: datetime) -> Reason | None:
    if note.incomplete:
        return "missing"
    # One that read nothing is its own text, which was made just now.
    return None if note.oldest is None else reason(note.oldest, sla_ms, now)


def _violations(scope: ReadTracker, sla_ms: int, now: datetime) -> Iterator[FreshnessViolation]:
    for read in scope.features:
        why = feature_reason(read, sla_ms, now)
        if why is not None:
            yield FreshnessViolation(
                kind="feature",
                name=read.feature.name,
                entity_id=read.entity_id,
                age_ms=age_ms(read.value.as_of, now),
                sla_ms=sla_ms,
                reason=why,
            )
    for search in scope.retrievals:
        why = reason(search.oldest, sla_ms, now)
        if why is not None:
            yield FreshnessViolation(
                kind="retrieval",
                name=search.retriever,
                entity_id=None,
                age_ms=age_ms(search.oldest, now),
                sla_ms=sla_ms,
                reason=why,
            )
    for inner in scope.contexts:
        why = _context_reason(inner, sla_ms, now)
        if why is not None:
            yield FreshnessViolation(
                kind="context",
                name=inner.context.name,
                entity_id=None,
                age_ms=age_ms(inner.oldest, now),
                sla_ms=sla_ms,
                reason=why,
            )
