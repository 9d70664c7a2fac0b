"""The sentences of the overview: how a store is, why, and what it means. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headwater.doctor.workload import Workload, shown_duration, waiting_text
from headwater.engine import hour_series as hour
from headwater.engine.last_hour import ContextCounts, summed
from headwater.model.dead_letters import LetterGroups
from headwater.model.health import OverviewFinding, OverviewStatus

# The title of the worst finding: for one of its kind, and for several.
_TITLES = {
    "health": ("{subject} is not ready", "{number} parts of the store are not ready"),
    "store": ("The store does not answer", "The store does not answer"),
    "partitions": ("{subject} have no worker", ""),
    "lag": ("Events wait too long", ""),
    "schedules": ("One schedule is late", "{number} schedules are late"),
    "dead letters": ("Some events could not be handled", "Some events could not be handled"),
    "circuit breakers": ("{subject} {summary}", ""),
    "consumer groups": ("A consumer group has no workers", "{number} groups have no workers"),
    "slow partition": ("One partition is slower than the others", ""),
    "contexts": ("Some contexts are not fresh", "Some contexts are not fresh"),
}
_OTHER = ("The installation needs attention", "The installation needs attention")
RANKS = {check: rank for rank, check in enumerate(_TITLES)}
_LATE = frozenset({"lag", "partitions", "schedules", "slow partition"})


def status_of(concerns: Sequence[OverviewFinding]) -> OverviewStatus:
    """Return one word for the worst concern; an installation at risk is not failing yet."""
    if any(concern.severity == "error" and concern.check in RANKS for concern in concerns):
        return "failing"
    return "attention" if concerns else "healthy"


def title_of(concerns: Sequence[OverviewFinding], workload: Workload, samples: hour.Samples) -> str:
    """Return a sentence without a full stop about the worst concern."""
    if not concerns:
        return "Everything works" if _has_worked(workload, samples) else "Ready for the first event"
    worst = concerns[0]
    number = sum(concern.check == worst.check for concern in concerns)
    one, several = _TITLES.get(worst.check, _OTHER)
    title = (several or one) if number > 1 else one
    text = title.format(subject=worst.subject, summary=worst.summary, number=number)
    return text[:1].upper() + text[1:]


def subtitle_of(
    concerns: Sequence[OverviewFinding], workload: Workload, samples: hour.Samples
) -> str:
    """Return why it is so, and what it means."""
    if not concerns and not _has_worked(workload, samples):
        return "Workers hold all partitions, and no event has arrived yet."
    contexts = summed(hour.by_context(samples).values())
    if not concerns:
        return f"{_flow(workload)} {_contexts(contexts)}"
    worst = concerns[0]
    if worst.check == "dead letters":
        return f"{_flow(workload)} {_contexts(contexts)}"
    meaning = ""
    if worst.check in _LATE and contexts.degraded:
        percent = 100 * contexts.degraded / contexts.total
        meaning = f", so {percent:.0f} % of contexts were degraded in the last hour"
    flow = "" if worst.check in ("health", "store", "partitions", "lag") else _flow(workload) + " "
    reason = f"{worst.subject} {worst.summary}"
    if worst.check in ("health", "store") or worst.check not in RANKS:
        reason = worst.detail
    elif worst.check == "partitions":
        reason = f"{reason}; {worst.detail[:1].lower()}{worst.detail[1:]}"
    return f"{flow}{reason.rstrip('.')}{meaning}."


def _flow(workload: Workload) -> str:
    """Return whether events are handled, and whether any was put aside."""
    oldest = min((lag.oldest_at for lag in workload.lags if lag.oldest_at), default=None)
    if oldest is None:
        flow = "Events flow"
    else:
        flow = f"{waiting_text(workload.waiting)}, at most {shown_duration(workload.age(oldest))}"
    number = workload.letters.letters
    if not number:
        return f"{flow}{'' if oldest is None else ','} and nothing is lost."
    letters = f"{number:,} dead letter{' waits' if number == 1 else 's wait'} for a decision"
    return f"{flow}; {letters}{_features(workload.letters)}."


def _features(letters: LetterGroups) -> str:
    """Return which features dead letters are of; nothing if they were settled meanwhile."""
    counts = Counter[str]()
    for group in letters.groups:
        counts[group.feature] += group.count
    if not counts:
        return ""
    feature, count = counts.most_common(1)[0]
    if len(counts) == 1:
        return f", {'' if count == 1 else 'all '}of `{feature}`"
    return (
        f", most of `{feature}`" if 2 * count > letters.grouped else f", of {len(counts)} features"
    )


def _contexts(counts: ContextCounts) -> str:
    if not counts.total:
        return "No context was recorded in the last hour."
    if not counts.degraded:
        number = "The only context" if counts.total == 1 else f"All {counts.total:,} contexts"
        return f"{number} of the last hour {'was' if counts.total == 1 else 'were'} fresh."
    return f"{counts.fresh_percent:.1f} % of {counts.total:,} contexts of the last hour were fresh."


def _has_worked(workload: Workload, samples: hour.Samples) -> bool:
    """Return whether an event was ever handled, or a context recorded in the last hour."""
    # The last partition has the ticks of schedules, which run without any event.
    handled = sum(lag.committed for lag in workload.lags[:-1])
    return bool(handled or hour.by_context(samples))
