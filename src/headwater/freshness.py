"""The freshness of a context: what was read is no older than its SLA, or a violation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from headwater.clock import to_micros
from headwater.lineage import Context, FreshnessStatus, FreshnessViolation
from headwater.scope import FeatureNote, RetrievalNote, Scope

Reason = Literal["stale", "missing", "default"]


class Verdict(NamedTuple):
    """Whether everything was fresh, what was not, and how old the oldest was."""

    status: FreshnessStatus
    violations: Sequence[FreshnessViolation]
    stalest_ms: int | None


def judge(scope: Scope, sla_ms: int | None, now: datetime) -> Verdict:
    """Holds everything that was read against the SLA; without one everything is fresh."""
    violations = [] if sla_ms is None else list(_violations(scope, sla_ms, now))
    ages = [
        *(note.value.age_ms(now) for note in scope.features),
        *(age_ms(note, now) for note in scope.retrievals),
        *(context.lineage.stalest_ms for context in scope.contexts),
    ]
    known = [age for age in ages if age is not None]
    status: FreshnessStatus = "degraded" if violations else "guaranteed"
    return Verdict(status, violations, max(known, default=None))


def age_ms(note: RetrievalNote, now: datetime) -> int:
    """How long ago a search was made."""
    return max(0, (to_micros(now) - to_micros(note.searched_at)) // 1_000)


def is_fresh(note: FeatureNote, sla_ms: int | None, now: datetime) -> bool:
    """Says whether a feature's value is as fresh as asked."""
    return sla_ms is None or _reason(note, sla_ms, now) is None


def _reason(note: FeatureNote, sla_ms: int, now: datetime) -> Reason | None:
    if note.value.source in ("missing", "default"):
        return "missing" if note.value.source == "missing" else "default"
    age = note.value.age_ms(now)
    # What was made from a default speaks of no moment, and nobody can say that it is fresh.
    if age is None:
        return "default"
    return "stale" if age > sla_ms else None


def _violations(scope: Scope, sla_ms: int, now: datetime) -> Iterator[FreshnessViolation]:
    for note in scope.features:
        reason = _reason(note, sla_ms, now)
        if reason is not None:
            yield FreshnessViolation(
                kind="feature",
                name=note.feature.name,
                entity_id=note.entity_id,
                age_ms=note.value.age_ms(now),
                sla_ms=sla_ms,
                reason=reason,
            )
    for search in scope.retrievals:
        age = age_ms(search, now)
        if age > sla_ms:
            yield FreshnessViolation(
                kind="retrieval",
                name=search.retriever,
                entity_id=None,
                age_ms=age,
                sla_ms=sla_ms,
                reason="stale",
            )
    for context in scope.contexts:
        yield from _inherited(context, sla_ms)


def _inherited(context: Context, sla_ms: int) -> Iterator[FreshnessViolation]:
    """What a context inside this one had read, held against this one's SLA."""
    stalest = context.lineage.stalest_ms
    missing = [
        read
        for read in context.lineage.features
        if read.source in ("missing", "default") or read.age_ms is None
    ]
    if missing or (stalest is not None and stalest > sla_ms):
        yield FreshnessViolation(
            kind="context",
            name=context.name,
            entity_id=None,
            age_ms=stalest,
            sla_ms=sla_ms,
            reason="missing" if missing else "stale",
        )
