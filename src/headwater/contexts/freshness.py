"""The freshness of a context: judge every value that it used by its rule and its SLA. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from headwater.errors import StoreLostError
from headwater.features.read_tracking import (
    Moments,
    Reads,
    TrackedContext,
    TrackedRetrieval,
    imposes,
    judged,
)
from headwater.model.lineage import FreshnessStatus, ViolationReason
from headwater.model.values import FeatureValue, TrackedFeature
from headwater.records.core import Freshness, Violation

_MILLISECOND = timedelta(milliseconds=1)


class Judgement(NamedTuple):
    """The freshness of everything that a context read, judged once for all that ask."""

    freshness: Freshness
    values: Sequence[tuple[datetime | None, bool]]
    """For each value that was read: the moment from which its age counts, and if it is fresh."""
    moments: Moments
    """The moments by which the contexts around this one are judged."""
    broken_sla_ms: int | None
    """The shortest SLA of its own that something inside does not meet.

    Such an SLA replaces the one of the context, so it also holds in the contexts around it.
    """


def judge(
    reads: Reads,
    sla_ms: int | None,
    now: datetime,
    *,
    used: Sequence[bool] | None = None,
    strict: bool = False,
    loss: StoreLostError | None = None,
) -> Judgement:
    """Compare everything that was used with its SLA; without an SLA everything is fresh.

    ``used`` tells which of the values reached the text; without it, all. Values of a store that
    lost its data, and searches that failed, are never fresh.
    """
    values = _Values(sla_ms, now, reads.other_moments(), reads.other_moments(now))
    verdicts = [
        values.judge(read, is_used=used is None or used[place])
        for place, read in enumerate(reads.features)
    ]
    violations = (
        *values.violations.values(),
        *_search_violations(reads, sla_ms, now),
        *_context_violations(reads, sla_ms, now),
    )
    if loss is not None:
        lost = Violation(
            kind="store", name=loss.server, age_ms=None, sla_ms=sla_ms or 0, reason="lost"
        )
        violations = (lost, *violations)
    status: FreshnessStatus = "guaranteed"
    broken: int | None = None
    if violations:
        status = "refused" if strict else "degraded"
        broken = min((*values.broken, *_broken_slas(reads, now)), default=None)
    freshness = Freshness(
        status=status,
        sla_ms=sla_ms,
        stalest_ms=age_ms(values.stalest.oldest, now),
        violations=violations,
    )
    return Judgement(freshness, verdicts, values.current, broken)


class _Values:
    """The values that a context read, judged one by one."""

    def __init__(
        self, sla_ms: int | None, now: datetime, stalest: Moments, current: Moments
    ) -> None:
        self._sla_ms = sla_ms
        self._now = now
        self.stalest = stalest
        self.current = current
        self.violations: dict[tuple[str, str], Violation] = {}
        """One for each value that is not fresh, also if several depend on it."""
        self.broken: list[int] = []

    def judge(self, read: TrackedFeature, *, is_used: bool) -> tuple[datetime | None, bool]:
        """Return the moment from which the age of a value counts, and whether it is fresh.

        The moment is None if the value, or an input that decides about it, has none.
        """
        moments, fresh = Moments(), True
        for tracked, own_sla_ms in judged(read):
            moment = tracked.value.moment
            sla_ms = self._sla_ms if own_sla_ms is None else own_sla_ms
            why = _value_reason(tracked.value, sla_ms, self._now)
            moments.add(moment)
            fresh = fresh and why is None
            if is_used:
                self.stalest.add(moment)
                if imposes(moment, own_sla_ms, self._now):
                    self.current.add(moment)
                if why is not None and sla_ms is not None:
                    self._add(read, tracked, sla_ms, why)
                    if own_sla_ms is not None:
                        self.broken.append(own_sla_ms)
        return None if moments.incomplete else moments.oldest, fresh

    def _add(
        self, read: TrackedFeature, tracked: TrackedFeature, sla_ms: int, why: ViolationReason
    ) -> None:
        key = (tracked.feature, tracked.entity_id)
        if key not in self.violations:
            self.violations[key] = Violation(
                kind="feature",
                name=tracked.feature,
                entity_id=tracked.entity_id,
                age_ms=age_ms(tracked.value.moment, self._now),
                sla_ms=sla_ms,
                reason=why,
                used_by=None if tracked is read else read.feature,
            )


def judge_value(
    read: TrackedFeature, sla_ms: int | None, now: datetime
) -> tuple[datetime | None, bool]:
    """Return the moment from which the age of one value counts, and whether it is fresh."""
    return _Values(sla_ms, now, Moments(), Moments()).judge(read, is_used=False)


def age_ms(moment: datetime | None, now: datetime) -> int | None:
    """Return the milliseconds since a moment, rounded up, so that no age is understated."""
    return None if moment is None else max(0, -((moment - now) // _MILLISECOND))


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
                sla_ms=min(_set(inner.broken_sla_ms, sla_ms), default=0),
                reason=why,
            )


def _broken_slas(reads: Reads, now: datetime) -> Iterator[int]:
    for search in reads.retrievals:
        if search.sla_ms and search_reason(search, None, now) is not None:
            yield search.sla_ms
    yield from _set(*(inner.broken_sla_ms for inner in reads.contexts))


def _set(*slas: int | None) -> Iterator[int]:
    return (sla for sla in slas if sla is not None)
