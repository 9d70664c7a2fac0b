"""The freshness of a context: judge every value that it used by its rule and its SLA. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from headwater.errors import StoreLostError
from headwater.features.read_tracking import (
    Moments,
    Reads,
    TrackedContext,
    TrackedRetrieval,
    judged,
)
from headwater.model.lineage import FreshnessStatus, ViolationReason
from headwater.model.values import FeatureValue, TrackedFeature
from headwater.records.core import Core, Freshness, Violation

_MILLISECOND = timedelta(milliseconds=1)


def check_freshness(
    reads: Reads,
    used: Sequence[TrackedFeature],
    sla_ms: int | None,
    now: datetime,
    *,
    strict: bool,
    loss: StoreLostError | None = None,
) -> Freshness:
    """Compare everything that was used with its SLA; without an SLA everything is fresh.

    Values of a store that lost its data, and searches that failed, are never fresh.
    """
    violations = (
        *(() if loss is None else (_lost(loss, sla_ms),)),
        *feature_violations(used, sla_ms, now),
        *_search_violations(reads, sla_ms, now),
        *_context_violations(reads, sla_ms, now),
    )
    status: FreshnessStatus = "guaranteed"
    if violations:
        status = "refused" if strict else "degraded"
    return Freshness(
        status=status,
        sla_ms=sla_ms,
        stalest_ms=age_ms(_stalest(reads, used), now),
        violations=violations,
    )


def _lost(loss: StoreLostError, sla_ms: int | None) -> Violation:
    return Violation(kind="store", name=loss.server, age_ms=None, sla_ms=sla_ms or 0, reason="lost")


def age_ms(moment: datetime | None, now: datetime) -> int | None:
    """Return the milliseconds since a moment, rounded up, so that no age is understated."""
    return None if moment is None else max(0, -((moment - now) // _MILLISECOND))


def judge(read: TrackedFeature, sla_ms: int | None, now: datetime) -> tuple[datetime | None, bool]:
    """Return the moment from which the age of a value counts, and whether the value is fresh.

    The moment is None if the value, or an input that decides about it, has none.
    """
    moments, fresh = Moments(), True
    for tracked, sla in judged(read, sla_ms):
        moments.add(tracked.value.moment)
        fresh = fresh and _value_reason(tracked.value, sla, now) is None
    return None if moments.incomplete else moments.oldest, fresh


def reason(moment: datetime | None, sla_ms: int | None, now: datetime) -> ViolationReason | None:
    """Return why data of this moment violates the SLA, or None if it does not."""
    if sla_ms is None:
        return None
    age = age_ms(moment, now)
    if age is None:
        return "missing"
    return "stale" if age > sla_ms else None


def _value_reason(value: FeatureValue, sla_ms: int | None, now: datetime) -> ViolationReason | None:
    if sla_ms is None:
        return None
    if value.source == "missing":
        return "missing"
    if value.moment is None:
        if value.rule == "dead_letter":
            return "dead_letter"
        # A value computed from a default has no event time, so its freshness cannot be shown.
        is_guess = value.rule == "caught_up" and value.source == "default"
        return "never_ran" if is_guess else "default"
    return reason(value.moment, sla_ms, now)


def search_reason(
    search: TrackedRetrieval, sla_ms: int | None, now: datetime
) -> ViolationReason | None:
    """Return why a search violates the SLA, or None if it does not."""
    if search.failed:
        return "missing"
    return reason(search.oldest, search_sla(search, sla_ms), now)


def search_sla(search: TrackedRetrieval, sla_ms: int | None) -> int | None:
    """Return the SLA of a search: its own, or that of the context."""
    return sla_ms if search.sla_ms is None else search.sla_ms


def _context_reason(
    inner: TrackedContext, sla_ms: int | None, now: datetime
) -> ViolationReason | None:
    if inner.has_failed or (inner.incomplete and sla_ms is not None):
        return "missing"
    if inner.broken_sla_ms is not None:
        return "missing" if inner.incomplete else "stale"
    # A context that read nothing consists of literal text, which cannot be stale.
    return None if inner.oldest is None else reason(inner.oldest, sla_ms, now)


def _stalest(reads: Reads, used: Sequence[TrackedFeature]) -> datetime | None:
    moments = reads.other_moments()
    for read in used:
        for tracked, _ in judged(read):
            moments.add(tracked.value.moment)
    return moments.oldest


def feature_violations(
    used: Sequence[TrackedFeature], sla_ms: int | None, now: datetime
) -> Iterator[Violation]:
    """Yield one violation for each value that is not fresh, also if several depend on it."""
    named: set[tuple[str, str]] = set()
    for read in used:
        for tracked, sla in judged(read, sla_ms):
            why = _value_reason(tracked.value, sla, now)
            if sla is None or why is None or (tracked.feature, tracked.entity_id) in named:
                continue
            named.add((tracked.feature, tracked.entity_id))
            yield Violation(
                kind="feature",
                name=tracked.feature,
                entity_id=tracked.entity_id,
                age_ms=age_ms(tracked.value.moment, now),
                sla_ms=sla,
                reason=why,
                used_by=None if tracked is read else read.feature,
            )


def _search_violations(reads: Reads, sla_ms: int | None, now: datetime) -> Iterator[Violation]:
    for search in reads.retrievals:
        why = search_reason(search, sla_ms, now)
        if why is not None:
            yield Violation(
                kind="retrieval",
                name=search.retriever,
                age_ms=age_ms(search.oldest, now),
                sla_ms=search_sla(search, sla_ms) or 0,
                reason=why,
            )


def _context_violations(reads: Reads, sla_ms: int | None, now: datetime) -> Iterator[Violation]:
    for inner in reads.contexts:
        why = _context_reason(inner, sla_ms, now)
        if why is not None:
            yield Violation(
                kind="context",
                name=inner.context.name,
                age_ms=age_ms(inner.oldest, now),
                sla_ms=min(_known(inner.broken_sla_ms, sla_ms), default=0),
                reason=why,
            )


def broken_sla_ms(core: Core, reads: Reads, used: Sequence[TrackedFeature]) -> int | None:
    """Return the shortest SLA of its own that something inside a context does not meet.

    Such an SLA replaces the one of the context, so it also holds in the contexts around it.
    """
    if core.freshness.status == "guaranteed":
        return None
    alone = check_freshness(reads, used, None, core.created_at, strict=False)
    return min(
        (violation.sla_ms for violation in alone.violations if violation.sla_ms), default=None
    )


def _known(*slas: int | None) -> Iterator[int]:
    return (sla for sla in slas if sla is not None)
