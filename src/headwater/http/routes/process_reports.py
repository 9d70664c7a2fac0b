"""Health and metrics of the processes of a server, merged into one answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import msgspec
from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headwater.model.health import Health


class Family(msgspec.Struct, frozen=True, array_like=True):
    """The samples of one metric: name, labels and value of each."""

    name: str
    documentation: str
    kind: str
    samples: list[tuple[str, dict[str, str], float | str]]
    """Values that JSON cannot represent, NaN and the infinities, are texts."""


class Report(msgspec.Struct, frozen=True):
    """The state of one process; without metrics if it does not answer."""

    health: Health | None = None
    metrics: list[Family] = []
    labels: dict[str, str] = {}
    """Labels of the metrics: the kind and number of the process."""


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


class MergedMetrics(Collector):
    """The metrics of several processes, with the labels of their reports."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports
        self._has_workers = any("worker" in report.labels and report.metrics for report in reports)

    def collect(self) -> Iterator[Metric]:
        """Return each metric once, with the samples of all processes."""
        merged: dict[str, Metric] = {}
        for report in self._reports:
            # Elsewhere the gauges that only workers measure are NaN, which would make every sum
            # and maximum NaN.
            skips_nan = self._has_workers and "worker" not in report.labels
            for family in report.metrics:
                metric = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.kind)
                )
                for name, labels, text in family.samples:
                    value = float(text)
                    if not (skips_nan and math.isnan(value)):
                        metric.add_sample(name, labels | report.labels, value)
        return iter(merged.values())
