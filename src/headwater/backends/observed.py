"""Metrics and log records of events, contexts and records, and of what an erasure forbids."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from headwater.core.logging import LogRecord, log, timestamp
from headwater.core.metrics import BatchHistogram, TallyCounter
from headwater.core.tracebacks import last_line
from headwater.declarations.interceptors import Call, Commit, Interceptor, Step
from headwater.errors import FreshnessSLAError, RecordingError
from headwater.model.lineage import Context, FreshnessViolation
from headwater.model.outcomes import OutcomeKind
from headwater.model.values import INTERNAL
from headwater.ports import BatchOutcome, Handled, StoredRecord, Tick, Tombstone

UNTRIGGERED = "(untriggered)"
"""The label of all event types without a triggered feature, which callers choose freely."""


EVENTS_PROCESSED = Counter(
    "headwater_events_processed_total", "Events processed, including failed ones.", ["event_type"]
)
EVENTS_FAILED = Counter(
    "headwater_events_failed_total",
    "Events with a feature that failed after all retries.",
    ["event_type"],
)
EVENT_SECONDS = BatchHistogram(
    "headwater_event_processing_seconds",
    "Time from the start of an event's first feature to the end of its last, retries included.",
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0),
)
BATCH_EVENTS = BatchHistogram(
    "headwater_batch_events",
    "Number of events in a committed batch.",
    (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
)
COMMIT_SECONDS = BatchHistogram(
    "headwater_commit_seconds",
    "Time to commit a batch: values, history, dead letters and position.",
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0),
)
EVENT_RETRIES = Counter("headwater_event_retries_total", "Retries of handlers.")
DEAD_LETTERS = Counter("headwater_dead_letters_total", "Dead letters written.", ["feature"])
REFRESHES = Counter(
    "headwater_refreshes_total",
    "Runs of scheduled features; `outcome` is `done`, `failed` or `skipped`.",
    ["feature", "outcome"],
)
TICKS_MISSED = Counter(
    "headwater_ticks_missed_total", "Due times that passed without a run.", ["feature"]
)


CONTEXTS = TallyCounter(
    "headwater_context_freshness_status_total",
    "Contexts assembled; `status` is `guaranteed` or `degraded`.",
    ["status"],
)
CONTEXT_VIOLATIONS = Counter(
    "headwater_context_freshness_violations_total",
    "Stale, missing and default values in contexts; for a computed value `feature` is "
    "the input that is not fresh; it can also be the name of a retriever or an inner "
    "context.",
    ["feature"],
)
STALEST_SECONDS = BatchHistogram(
    "headwater_context_stalest_feature_seconds",
    "Age of the oldest value that a context used, by the `freshness` of its feature.",
    (0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0),
)
CONTEXTS_UNRECORDED = Counter(
    "headwater_contexts_unrecorded_total", "Contexts whose record could not be stored."
)
ASSEMBLY_SECONDS = Histogram(
    "headwater_context_assembly_seconds",
    "Time to assemble a context, without its record.",
    ["context"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0),
)
CONTEXT_TOKENS = Histogram(
    "headwater_context_tokens",
    "Tokens of a context.",
    ["context"],
    buckets=(100, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 128_000, 1_000_000),
)
ITEMS_DROPPED = Counter(
    "headwater_context_items_dropped_total", "Items that did not fit into a context.", ["context"]
)
RECORDS = TallyCounter(
    "headwater_records_total",
    "Records of contexts; `outcome` is `stored` or `failed`.",
    ["outcome"],
    ["stored", "failed"],
)
OUTCOMES = TallyCounter(
    "headwater_outcomes_total",
    "Outcomes of contexts; `kind` is `response`, `score`, `correction` or `error`.",
    ["kind"],
    get_args(OutcomeKind),
)
BILLED_RATIO = Histogram(
    "headwater_billed_to_predicted_ratio",
    "Billed input tokens of an answer, divided by the tokens that its context counted.",
    ["model"],
    buckets=(0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0),
)
RECORDS_PENDING = Gauge("headwater_records_pending", "Records that are being stored.")
ERASED_WRITES = Counter(
    "headwater_erased_writes_total",
    "Values, events and records of erased entities that were not written; `kind` is `value`, "
    "`event` or `record`.",
    ["kind"],
)

EXTERNAL = "(external)"
"""The label of contexts that are not declared here, whose names callers choose freely."""


def count_context(
    is_declared: Callable[[str], bool], context: Context | FreshnessSLAError | RecordingError
) -> None:
    """Count a context that was assembled or refused, and log its warnings."""
    if isinstance(context, FreshnessSLAError):
        _count_violations(is_declared, context.violations)
    if not isinstance(context, Context):
        if isinstance(context, RecordingError) or context.context_id is None:
            CONTEXTS_UNRECORDED.inc()
        return
    violations = context.freshness_violations
    _count_violations(is_declared, violations)
    name, lineage = context.name if is_declared(context.name) else EXTERNAL, context.lineage
    seconds, tokens = _of_context(name)
    seconds.observe(lineage.assembly_ms / 1000)
    tokens.observe(lineage.tokens)
    if lineage.items_dropped:
        ITEMS_DROPPED.labels(name).inc(lineage.items_dropped)
    CONTEXTS.add(context.freshness_status)
    if lineage.stalest_ms is not None:
        STALEST_SECONDS.observe(lineage.stalest_ms / 1000)
    if not context.meta["recorded"]:
        CONTEXTS_UNRECORDED.inc()
    for warning in context.meta["warnings"]:
        log.warning(
            "context budget mostly unused",
            context=context.name,
            context_id=context.context_id,
            warning=warning,
        )
    if violations:
        log.warning(
            "context is not fresh",
            context=context.name,
            context_id=context.context_id,
            violations=[f"{v.name}: {v.reason}" for v in violations],
        )


@cache
def _of_context(name: str) -> tuple[Histogram, Histogram]:
    """Return the histograms of a declared context; the library looks labels up under a lock."""
    return ASSEMBLY_SECONDS.labels(name), CONTEXT_TOKENS.labels(name)


def _count_violations(
    is_declared: Callable[[str], bool], violations: Sequence[FreshnessViolation]
) -> None:
    for violation in violations:
        name = violation.name
        CONTEXT_VIOLATIONS.labels(name if is_declared(name) else EXTERNAL).inc()


def count_outcome(
    kind: OutcomeKind, model: str | None, predicted: int | None, billed: int | None
) -> None:
    """Count an outcome, and how far the billed tokens are from those of its context.

    ``model`` is that of the context, or None if no declared context is for it.
    """
    OUTCOMES.add(kind)
    if billed is not None and predicted:
        BILLED_RATIO.labels(model or EXTERNAL).observe(billed / predicted)


def count_erased(kind: str, dropped: Mapping[Tombstone, int]) -> int:
    """Count and log what an erasure forbids, by the hash of the entity; return the number."""
    for tombstone, count in dropped.items():
        ERASED_WRITES.labels(kind).inc(count)
        log.info("erased entity not written", kind=kind, entity=tombstone.digest.hex(), count=count)
    return sum(dropped.values())


async def _commit(inner: Commit, outcome: BatchOutcome) -> None:
    began = time.perf_counter()
    await inner(outcome)
    COMMIT_SECONDS.observe(time.perf_counter() - began)
    BATCH_EVENTS.observe(len(outcome.handled))
    events = []
    for handled in outcome.handled:
        if handled.event.event_type.startswith(INTERNAL):
            _count_refresh(handled)
        else:
            events.append(handled)
    _count_events(events)
    now = timestamp()
    log.info_each(_records(events, now))
    for letter in outcome.dead:
        DEAD_LETTERS.labels(letter.feature).inc()
        log.error(
            "dead letter",
            feature=letter.feature,
            event_type=letter.event.event_type,
            entity_id=letter.event.entity_id,
            event_id=letter.event.event_id,
            attempts=letter.attempts,
            error=letter.error,
            raised_at=last_line(letter.traceback),
        )
        log.show(
            f"feature {letter.feature!r} failed: {letter.error}; its event is a dead letter, and "
            "`headwater dlq list` shows it"
        )
    log.flush()


def _count_events(events: Sequence[Handled]) -> None:
    EVENT_SECONDS.observe_all([handled.duration for handled in events])
    labels = [one.event.event_type if one.triggered else UNTRIGGERED for one in events]
    for label, count in Tally(labels).items():
        EVENTS_PROCESSED.labels(label).inc(count)
    for handled, label in zip(events, labels, strict=True):
        if handled.failures:
            EVENTS_FAILED.labels(label).inc()
        if handled.retries:
            EVENT_RETRIES.inc(handled.retries)


class _Processed(LogRecord, frozen=True, gc=False):
    event_type: str
    entity_id: str
    event_id: str
    duration_ms: float
    features_updated: Sequence[str]


class _Failed(_Processed, frozen=True, gc=False):
    features_failed: Sequence[str]


def _records(events: Iterable[Handled], now: str) -> Iterator[_Processed]:
    """Return the log records of processed events."""
    for handled in events:
        event = handled.event
        names = event.event_type, event.entity_id, event.event_id
        fields = *names, round(handled.duration * 1000, 3), handled.updated
        if handled.failures:
            failed = [failure.feature for failure in handled.failures]
            yield _Failed(now, "info", "event failed", *fields, failed)
        else:
            yield _Processed(now, "info", "event processed", *fields)


def _count_refresh(handled: Handled) -> None:
    if handled.skipped:
        REFRESHES.labels(handled.event.entity_id, "skipped").inc()
    failed = {failure.feature for failure in handled.failures}
    for name in failed:
        REFRESHES.labels(name, "failed").inc()
    for name in handled.updated:
        if name not in failed:
            REFRESHES.labels(name, "done").inc()


async def _publish_ticks(inner: Call, ticks: Sequence[Tick]) -> list[datetime | None]:
    before: list[datetime | None] = await inner(ticks)
    for tick, last in zip(ticks, before, strict=True):
        if last is not None and last < tick.due:
            missed = tick.schedule.missed(tick.feature, last, tick.due)
            TICKS_MISSED.labels(tick.feature).inc(missed)
    return before


async def _append_record(
    inner: Call, record: StoredRecord, keys: Collection[bytes], *, checked: int = 0
) -> None:
    """Store a record and count it; one that takes too long is cancelled, and has failed."""
    outcome = "failed"
    RECORDS_PENDING.inc()
    try:
        await inner(record, keys, checked=checked)
        outcome = "stored"
    finally:
        RECORDS_PENDING.dec()
        RECORDS.add(outcome)


class Metrics(Interceptor):
    """Counts committed events, ticks and records, and logs one record per event."""

    steps: Mapping[Step, Call] = {
        "bus.publish_ticks": _publish_ticks,
        "records.append": _append_record,
    }

    def commit(self, inner: Commit) -> Commit:
        return partial(_commit, inner)
