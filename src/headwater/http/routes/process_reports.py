"""Health and metrics of the processes of a server, merged into one answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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


def own_metrics(collector: Collector = REGISTRY) -> list[Family]:
    """Return all metrics of this process, or those of one collector."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [
                (
                    each.name,
                    each.labels,
                    each.value if math.isfinite(each.value) else str(each.value),
                )
                for each in metric.samples
            ],
        )
        for metric in collector.collect()
    ]


class MergedMetrics(Collector):
    """The metrics of several processes, with the labels of their reports."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports
        self._has_workers = any(_is_worker(report) and report.metrics for report in reports)

    def collect(self) -> Iterator[Metric]:
        """Return each metric once, with the samples of all processes."""
        merged: dict[str, Metric] = {}
        for report in self._reports:
            for family in report.metrics:
                metric = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.kind)
                )
                self._add_samples(metric, family, report)
        return iter(merged.values())

    def _add_samples(self, metric: Metric, family: Family, report: Report) -> None:
        # Elsewhere the gauges that only workers measure are NaN, which would make every sum and
        # maximum NaN.
        skips_nan = self._has_workers and not _is_worker(report)
        for name, labels, text in family.samples:
            value = float(text)
            if not (skips_nan and math.isnan(value)):
                metric.add_sample(name, labels | report.labels, value)


def _is_worker(report: Report) -> bool:
    return "worker" in report.labels
