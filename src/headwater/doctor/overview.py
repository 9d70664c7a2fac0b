"""The state of a store in a few numbers and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from headwater.core.clock import from_micros
from headwater.doctor.headlines import RANKS, status_of, subtitle_of, title_of
from headwater.doctor.workload import Workload
from headwater.engine import hour_series as hour
from headwater.engine.last_hour import STEP
from headwater.model.health import (
    Concern,
    ContextState,
    Finding,
    Health,
    Overview,
    OverviewFinding,
    Series,
    StoreState,
    WorkerState,
)
from headwater.model.indexes import IndexStatus

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
        status=status_of(concerns),
        since=min((concern.since for concern in concerns if concern.since), default=None),
        title=title_of(concerns, workload, samples),
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
    )


def _concerns(findings: Sequence[Finding]) -> list[OverviewFinding]:
    """Return the findings that need attention, the worst first."""
    concerns = [finding for finding in findings if _matters(finding)]
    concerns.sort(key=_order)
    return list(map(_concern, concerns))


def _order(finding: Finding) -> tuple[bool, bool, int]:
    """Order findings: a problem of now is worse than an installation that is at risk."""
    is_risk = finding.check not in RANKS
    return is_risk, finding.severity == "warning", RANKS.get(finding.check, 0)


def _matters(finding: Finding) -> bool:
    is_growing = finding.severity == "warning" and finding.check in _GROWING
    return finding.severity == "error" or is_growing or finding.concern is not None


def _concern(finding: Finding) -> OverviewFinding:
    concern = finding.concern or Concern(
        subject=finding.check, summary=f"of the {finding.area}", detail=finding.found
    )
    return OverviewFinding(
        severity="error" if finding.severity == "error" else "warning",
        check=finding.check,
        remedy=finding.remedy,
        **asdict(concern),
    )


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
            events_per_second=sum(rates[partition] for partition in held.get(worker, []))
            if rates
            else None,
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
    return StoreState(
        name=f"index {index.name}",
        description=f"{version}{chunks} of {documents}" if index.documents else "empty",
        ok=not index.outdated,
        needed=False,
        detail=f"{index.outdated:,} documents have to be embedded again" if index.outdated else "",
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
