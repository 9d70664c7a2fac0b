"""The overview of a store: its state in a few numbers and sentences, also if it does not answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from headwater.backends.connect import inspect
from headwater.core.clock import from_micros
from headwater.declarations.runtime import runtime_of
from headwater.doctor.workload import (
    Workload,
    judge,
    judge_objectives,
    observe,
    shown_duration,
    unobserved,
    waiting_text,
)
from headwater.engine import last_hour as hour
from headwater.engine.last_hour import STEP, ContextCounts, LastHour, summed
from headwater.engine.objectives import NO_OBJECTIVES, ObjectiveCounts, ObjectiveKey, noted_counts
from headwater.errors import HeadwaterError
from headwater.model.dead_letters import LetterGroups
from headwater.model.health import (
    Concern,
    ContextState,
    Finding,
    Findings,
    Health,
    Overview,
    OverviewFinding,
    OverviewStatus,
    Series,
    StoreState,
    WorkerState,
)
from headwater.model.indexes import IndexStatus
from headwater.ports import Cached
from headwater.store.feature_store import FeatureStore

_ANSWER_SECONDS = 2.0
_INSPECTION_SECONDS = 60.0
_FIRST_INSPECTION_SECONDS = 0.5
_KEPT = timedelta(days=3650)
_MICROS = 1_000_000
_PER_MINUTE = 60 // STEP
_PART = 120 // STEP

# What each part of the store is described by: the area of its findings, and their checks.
_DESCRIBED = {
    "sqlite": ("embedded store", ("SQLite", "disk")),
    "redis": ("message bus", ("connection", "memory")),
    "postgres": ("relational store", ("connection", "connections")),
}
# Warnings about servers and disks that become problems; others are choices of the installation.
_GROWING = frozenset({"clock", "connections", "disk", "memory", "outbox", "write-ahead log"})

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
    "objectives": ("{subject} {summary}", "{number} objectives are being missed"),
}
_OTHER = ("The installation needs attention", "The installation needs attention")
_RANKS = {check: rank for rank, check in enumerate(_TITLES)}
_LATE = frozenset({"lag", "partitions", "schedules", "slow partition"})


class _Shown(msgspec.Struct, frozen=True):
    """The status that was shown last, and since when the store has it."""

    status: OverviewStatus
    since: datetime


class _Observed(NamedTuple):
    workload: Workload
    indexes: Sequence[IndexStatus]
    problem: str = ""
    results: Mapping[tuple[ObjectiveKey, str, str], int] = {}
    """Of the objectives, in workers that are not processes of this server."""


class StoreOverview:
    """The overview of a store; its backends are inspected once a minute, in the background."""

    def __init__(self, store: FeatureStore, hour: LastHour) -> None:
        self._store = store
        self._hour = hour
        self._inspected: list[Finding] = []
        self._inspecting: asyncio.Task[list[Finding]] | None = None
        self._inspected_at = -_INSPECTION_SECONDS

    async def read(
        self,
        health: Sequence[Health],
        open_breakers: Sequence[str],
        counts: ObjectiveCounts = NO_OBJECTIVES,
    ) -> Overview:
        """Return how the store is, given the health of its parts and what the workers know."""
        samples = self._hour.samples().samples
        observed, inspected = await asyncio.gather(
            self._observe(health, has_objectives=bool(counts.targets)), self._inspections()
        )
        findings = judge(self._store, observed.workload, open_breakers, samples)
        if observed.problem and all(part.ok for part in health):
            report = Findings("workload", "the store")
            problem = observed.problem
            concern = Concern(subject="The store", summary="does not answer", detail=problem)
            report.concern("error", "store", problem, "see `GET /readyz` and the log", concern)
            findings += report.all
        objectives = counts.plus(observed.results).states()
        findings += judge_objectives(objectives)
        overview = overview_of(observed.workload, findings, inspected, observed.indexes, samples)
        overview = replace(overview, objectives=objectives)
        if observed.problem:
            overview = replace(overview, waiting=None, dead_letters=None)
        return replace(overview, since=await self._since(overview))

    async def _observe(self, health: Sequence[Health], *, has_objectives: bool) -> _Observed:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                workload = await observe(self._store, health)
                notes = (await runtime_of(self._store).open()).backends.notes
                owners = {lag.owner for lag in workload.lags if lag.owner}
                results = await noted_counts(notes, owners) if has_objectives else {}
                try:
                    indexes = await self._store.indexes.list()
                except HeadwaterError:
                    indexes = []  # the health of their server says why
                return _Observed(workload, indexes, results=results)
        except TimeoutError:
            problem = f"it did not answer within {_ANSWER_SECONDS:g} s"
        except HeadwaterError as error:
            problem = str(error)
        return _Observed(unobserved(self._store, health), [], problem)

    async def _inspections(self) -> list[Finding]:
        """Return what the last inspection of the backends found; wait only for the first."""
        is_first = self._inspecting is None
        now = time.monotonic()
        is_running = self._inspecting is not None and not self._inspecting.done()
        if not is_running and now - self._inspected_at >= _INSPECTION_SECONDS:
            self._inspected_at = now
            self._inspecting = asyncio.create_task(inspect(self._store.settings, self._store.clock))
        if self._inspecting is not None:
            seconds = _FIRST_INSPECTION_SECONDS if is_first else 0
            await asyncio.wait({self._inspecting}, timeout=seconds)
            if self._inspecting.done():
                self._inspected = self._inspecting.result()
        return self._inspected

    async def _since(self, overview: Overview) -> datetime | None:
        """Return since when the store has its status, as far as anybody looked."""
        key = f"overview:{self._store.settings.worker.consumer_group}"
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                engine = await runtime_of(self._store).open()
                stored = await engine.backends.notes.get(key)
                last = msgspec.json.decode(stored.value, type=_Shown) if stored else None
                if last is None or last.status != overview.status:
                    last = _Shown(overview.status, overview.since or overview.at)
                    value = Cached(msgspec.json.encode(last), engine.clock.micros())
                    await engine.backends.notes.put(key, value, _KEPT)
        except (TimeoutError, HeadwaterError):
            return overview.since
        return min(last.since, overview.since or last.since)


def series_of(end: int, samples: hour.Samples) -> Series:
    """Return rates, backlog and durations of the last hour, which ended at ``end``."""
    minutes = hour.each_minute(samples)
    return Series(
        end=from_micros(end * _MICROS),
        step_seconds=STEP,
        accepted_per_second=hour.each_rate(samples, hour.accepted),
        processed_per_second=hour.each_rate(samples, hour.committed),
        waiting=hour.each_backlog(samples, lambda backlog: sum(backlog.waiting)),
        oldest_seconds=hour.each_backlog(samples, lambda backlog: backlog.oldest_seconds),
        dead_letters=hour.each_backlog(samples, lambda backlog: backlog.dead_letters),
        contexts_per_minute=[None if minute is None else float(minute.total) for minute in minutes],
        fresh_percent=[None if minute is None else minute.fresh_percent for minute in minutes],
        assembly_p99_ms=[None if minute is None else minute.p99_ms for minute in minutes],
    )


def overview_of(
    workload: Workload,
    findings: Sequence[Finding],
    inspected: Sequence[Finding],
    indexes: Sequence[IndexStatus],
    samples: hour.Samples,
) -> Overview:
    """Return the state of a store; ``inspected`` are the findings about its backends."""
    concerns = _concerns([*findings, *inspected])
    return Overview(
        status=_status(concerns),
        since=min((concern.since for concern in concerns if concern.since), default=None),
        title=_title(concerns, workload, samples),
        subtitle=subtitle_of(concerns, workload, samples),
        at=workload.at,
        findings=concerns,
        partitions=len(workload.lags),
        unowned=sum(lag.owner is None for lag in workload.lags),
        waiting=workload.waiting,
        dead_letters=workload.letters.letters,
        workers=_workers(workload, samples),
        stores=[*(_part(area, inspected) for area in workload.health), *map(_index, indexes)],
        contexts=_contexts(samples),
        objectives=[],
    )


def _concerns(findings: Sequence[Finding]) -> list[OverviewFinding]:
    """Return the findings that need attention, the worst first."""
    concerns = [
        finding
        for finding in findings
        if finding.severity == "error"
        or (finding.severity == "warning" and finding.check in _GROWING)
        or finding.concern is not None
    ]
    concerns.sort(key=_order)
    return [
        OverviewFinding(
            severity="error" if finding.severity == "error" else "warning",
            check=finding.check,
            remedy=finding.remedy,
            **asdict(
                finding.concern
                or Concern(
                    subject=finding.check, summary=f"of the {finding.area}", detail=finding.found
                )
            ),
        )
        for finding in concerns
    ]


def _order(finding: Finding) -> tuple[bool, bool, int]:
    """Order findings: a problem of now is worse than an installation that is at risk."""
    is_risk = finding.check not in _RANKS
    return is_risk, finding.severity == "warning", _RANKS.get(finding.check, 0)


def _workers(workload: Workload, samples: hour.Samples) -> list[WorkerState]:
    """Return the live workers, those with the most partitions first."""
    rates = hour.partition_rates(samples)
    held: dict[str, list[int]] = {}
    for lag in workload.lags:
        held.setdefault(lag.owner or "", []).append(lag.partition)
    workers = [
        WorkerState(
            id=worker,
            group=group.name,
            partitions=held.get(worker, []),
            events_per_second=sum(rates[n] for n in held.get(worker, [])) if rates else None,
            heartbeat_seconds=workload.age(heartbeat),
        )
        for group in workload.groups
        for worker, heartbeat in zip(group.workers, group.heartbeats, strict=True)
    ]
    return sorted(workers, key=lambda worker: (-len(worker.partitions), worker.group, worker.id))


def _part(part: Health, inspected: Sequence[Finding]) -> StoreState:
    area, checks = _DESCRIBED.get(part.name, ("", ()))
    described = [
        finding.found
        for finding in inspected
        if finding.area == area and finding.check in checks and finding.severity == "ok"
    ]
    return StoreState(
        name=part.name,
        description=", ".join(described),
        ok=part.ok,
        needed=part.needed,
        detail=part.detail,
    )


def _index(index: IndexStatus) -> StoreState:
    chunks = "1 chunk" if index.chunks == 1 else f"{index.chunks:,} chunks"
    documents = "1 document" if index.documents == 1 else f"{index.documents:,} documents"
    generation = next(
        (candidate.number for candidate in index.generations if candidate.state == "active"), None
    )
    version = "" if generation is None else f"v{generation}, "
    waiting = "1 document waits" if index.outdated == 1 else f"{index.outdated:,} documents wait"
    return StoreState(
        name=f"index {index.name}",
        description=f"{version}{chunks} of {documents}" if index.documents else "empty",
        ok=not index.outdated,
        needed=False,
        detail=f"{waiting} to be embedded" if index.outdated else "",
    )


def _contexts(samples: hour.Samples) -> list[ContextState]:
    """Return the contexts of the last hour, the most frequent first."""
    parts = [samples[first : first + _PART] for first in range(0, len(samples), _PART)]
    by_part = [hour.by_context(part) for part in parts]
    contexts = [
        ContextState(
            name=name,
            total=counts.total,
            per_minute=round(counts.total * _PER_MINUTE / len(samples), 2),
            p99_ms=counts.p99_ms,
            fresh_percent=counts.fresh_percent,
            fresh_series=[part[name].fresh_percent if name in part else None for part in by_part],
        )
        for name, counts in hour.by_context(samples).items()
    ]
    return sorted(contexts, key=lambda context: (-context.total, context.name))


def _status(concerns: Sequence[OverviewFinding]) -> OverviewStatus:
    """Return one word for the worst concern; an installation at risk is not failing yet."""
    if any(concern.severity == "error" and concern.check in _RANKS for concern in concerns):
        return "failing"
    return "attention" if concerns else "healthy"


def _title(concerns: Sequence[OverviewFinding], workload: Workload, samples: hour.Samples) -> str:
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
    """Return the reason and the consequence."""
    if not concerns and not _has_worked(workload, samples):
        return "Workers hold all partitions, and no event has arrived yet."
    contexts = summed(hour.by_context(samples).values())
    if not concerns or concerns[0].check == "dead letters":
        return f"{_flow(workload)} {_freshness(contexts)}"
    worst, meaning = concerns[0], ""
    if worst.check in _LATE and contexts.degraded:
        percent = 100 * contexts.degraded / contexts.total
        meaning = f", so {percent:.0f} % of contexts were degraded in the last hour"
    flow = "" if worst.check in ("health", "store", "partitions", "lag") else _flow(workload) + " "
    reason = f"{worst.subject} {worst.summary}"
    if worst.check in ("health", "store") or worst.check not in _RANKS:
        reason = worst.detail
    elif worst.check == "partitions":
        reason = f"{reason}; {worst.detail[:1].lower()}{worst.detail[1:]}"
    return f"{flow}{reason.rstrip('.')}{meaning}."


def _flow(workload: Workload) -> str:
    """Return whether events are handled, and whether any was put aside."""
    oldest = min((lag.oldest_at for lag in workload.lags if lag.oldest_at), default=None)
    flow = "Events flow"
    if oldest is not None:
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
    is_most = 2 * count > letters.grouped
    return f", most of `{feature}`" if is_most else f", of {len(counts)} features"


def _freshness(counts: ContextCounts) -> str:
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
