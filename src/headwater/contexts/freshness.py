"""The freshness of a context: compare the age of every value read with the SLA. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from headwater.errors import StoreLostError
from headwater.features.read_tracking import ReadTracker, TrackedContext, TrackedFeature
from headwater.records.core import Freshness, Violation
from headwater.records.lineage import ViolationReason

_MILLISECOND = timedelta(milliseconds=1)


def check_freshness(
    reads: ReadTracker, sla_ms: int | None, now: datetime, loss: StoreLostError | None = None
) -> Freshness:
    """Compare everything that was read with the SLA; without an SLA everything is fresh.

    What was read of a store that lost its data is never fresh.
    """
    violations = () if sla_ms is None else tuple(_violations(reads, sla_ms, now))
    if loss is not None:
        violations = (_lost(loss, sla_ms), *violations)
    return Freshness(
        status="degraded" if violations else "guaranteed",
        sla_ms=sla_ms,
        stalest_ms=age_ms(reads.oldest, now),
        violations=violations,
    )


def _lost(loss: StoreLostError, sla_ms: int | None) -> Violation:
    return Violation(kind="store", name=loss.server, age_ms=None, sla_ms=sla_ms or 0, reason="lost")


def age_ms(moment: datetime | None, now: datetime) -> int | None:
    """Return the milliseconds since a moment, rounded up, so that no age is understated."""
    return None if moment is None else max(0, -((moment - now) // _MILLISECOND))


def feature_reason(
    read: TrackedFeature, sla_ms: int | None, now: datetime
) -> ViolationReason | None:
    """Return why a feature's value violates the SLA, or None if it does not."""
    if sla_ms is None:
        return None
    if read.value.source == "missing":
        return "missing"
    # A value computed from a default has no event time, so its freshness cannot be shown.
    if read.value.source == "default" or read.value.as_of is None:
        return "default"
    return reason(read.value.as_of, sla_ms, now)


def reason(moment: datetime | None, sla_ms: int | None, now: datetime) -> ViolationReason | None:
    """Return why data of this moment violates the SLA, or None if it does not."""
    if sla_ms is None:
        return None
    age = age_ms(moment, now)
    if age is None:
        return "missing"
    return "stale" if age > sla_ms else None


def _context_reason(inner: TrackedContext, sla_ms: int, now: datetime) -> ViolationReason | None:
    if inner.incomplete:
        return "missing"
    # A context that read nothing consists of literal text, which cannot be stale.
    return None if inner.oldest is None else reason(inner.oldest, sla_ms, now)


def _violations(reads: ReadTracker, sla_ms: int, now: datetime) -> Iterator[Violation]:
    for read in reads.features:
        why = feature_reason(read, sla_ms, now)
        if why is not None:
            yield Violation(
                kind="feature",
                name=read.feature.name,
                entity_id=read.entity_id,
                age_ms=age_ms(read.value.as_of, now),
                sla_ms=sla_ms,
                reason=why,
            )
    for search in reads.retrievals:
        why = reason(search.oldest, sla_ms, now)
        if why is not None:
            yield Violation(
                kind="retrieval",
                name=search.retriever,
                age_ms=age_ms(search.oldest, now),
                sla_ms=sla_ms,
                reason=why,
            )
    for inner in reads.contexts:
        why = _context_reason(inner, sla_ms, now)
        if why is not None:
            yield Violation(
                kind="context",
                name=inner.context.name,
                age_ms=age_ms(inner.oldest, now),
                sla_ms=sla_ms,
                reason=why,
            )
