"""Health and metrics of the processes of a server, merged into one answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import msgspec
from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headwater.engine.objectives import ObjectiveCounts, ObjectiveKey
from headwater.model.health import Health

_OBJECTIVES = ("headwater_objective_target", "headwater_objective_recent")


class Family(msgspec.Struct, frozen=True, array_like=True):
    """The samples of one metric: name, labels and value of each."""

    name: str
    documentation: str
    kind: str
    samples: list[tuple[str, dict[str, str], float | str]]
    """Values that JSON cannot represent, NaN and the infinities, are texts."""

    @property
    def is_summed(self) -> bool:
        """Whether it counts something that all processes of the server do together."""
        return self.kind in ("counter", "histogram") and self.name.startswith("headwater_")


class Report(msgspec.Struct, frozen=True):
    """The state of one process; without gauges if it does not answer."""

    health: Health | None = None
    metrics: list[Family] = []
    labels: dict[str, str] = {}
    """Labels of the metrics that are not summed: the kind and number of the process."""


class ServerProcesses(Protocol):
    """The other processes of a server, which run until it stops."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    async def reports(self) -> Sequence[Report]:
        """Return the reports of all processes, soon even if one hangs."""


async def all_reports(processes: ServerProcesses | None) -> Sequence[Report]:
    """Return the reports of this process and of the other ``processes``."""
    return [Report(metrics=own_metrics())] if processes is None else await processes.reports()


def open_breakers(reports: Sequence[Report]) -> list[str]:
    """Return the features whose circuit breaker is open in a process."""
    name = "headwater_circuit_breaker_open"
    families = [family for report in reports for family in report.metrics if family.name == name]
    samples = chain.from_iterable(family.samples for family in families)
    return sorted({labels["feature"] for _, labels, value in samples if value == 1})


def objective_counts(reports: Sequence[Report]) -> ObjectiveCounts:
    """Return the good and bad results of each objective and window in all processes."""
    targets: dict[ObjectiveKey, float] = {}
    counts = Counter[tuple[ObjectiveKey, str, str]]()
    for family in (family for report in reports for family in report.metrics):
        for _, labels, value in family.samples if family.name in _OBJECTIVES else ():
            key = msgspec.convert([labels[name] for name in ObjectiveKey._fields], ObjectiveKey)
            if "window" in labels:
                counts[key, labels["window"], labels["result"]] += int(float(value))
            else:
                targets[key] = float(value)
    return ObjectiveCounts(targets, counts)


def own_metrics(collector: Collector = REGISTRY) -> list[Family]:
    """Return all metrics of this process, or those of one collector."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [
                (name, labels, value if math.isfinite(value) else str(value))
                for name, labels, value, *_ in metric.samples
            ],
        )
        for metric in collector.collect()
    ]


def add_up(families: Iterable[Family]) -> list[Family]:
    """Return each metric once, with the sums of the samples that have the same labels."""
    added: dict[str, Family] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in families:
        added.setdefault(family.name, family)
        values = sums.setdefault(family.name, {})
        for name, labels, value in family.samples:
            key, number = (name, tuple(labels.items())), float(value)
            before = values.get(key)
            if before is not None:
                # The time from which on it counts is that of the first process.
                number = min(before, number) if name.endswith("_created") else before + number
            values[key] = number
    return [
        Family(name, of.documentation, of.kind,
               [(sample, dict(labels), value) for (sample, labels), value in sums[name].items()])
        for name, of in added.items()
    ]  # fmt: skip


class MergedMetrics(Collector):
    """The metrics of several processes: sums of counts, and others with the reports' labels."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports
        self._has_workers = any("worker" in report.labels and report.metrics for report in reports)

    def collect(self) -> Iterator[Metric]:
        """Return each metric once, with the samples of all processes."""
        merged: dict[str, Metric] = {}
        all_of = [(report.labels, family) for report in self._reports for family in report.metrics]
        counts = add_up(family for _, family in all_of if family.is_summed)
        others = [(labels, family) for labels, family in all_of if not family.is_summed]
        none: dict[str, str] = {}
        for added, family in (*((none, family) for family in counts), *others):
            # Elsewhere the gauges that only workers measure are NaN, which would make every sum
            # and maximum NaN.
            skips_nan = self._has_workers and "worker" not in added
            metric = merged.setdefault(
                family.name, Metric(family.name, family.documentation, family.kind)
            )
            for name, labels, text in family.samples:
                value = float(text)
                if not (skips_nan and math.isnan(value)):
                    metric.add_sample(name, labels | added, value)
        return iter(merged.values())
