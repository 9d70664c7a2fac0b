"""Health and metrics of worker processes, reported to the server that started them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec
from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headwater.ports import Health


class Family(msgspec.Struct, frozen=True, array_like=True):
    """The samples of one metric: name, labels and value of each."""

    name: str
    documentation: str
    kind: str
    samples: list[tuple[str, dict[str, str], float | str]]
    """Values that JSON cannot represent, NaN and the infinities, are texts."""


class Report(msgspec.Struct, frozen=True):
    """The state of one worker process; without metrics if it does not answer."""

    health: Health
    metrics: list[Family] = []


class WorkerProcesses(Protocol):
    """Worker processes that run next to a server until it stops."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    async def reports(self) -> Mapping[str, Report]:
        """Return the report of each process by its number, soon even if a process hangs."""


def own_metrics() -> list[Family]:
    """Return all metrics of this process."""
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
        for metric in REGISTRY.collect()
    ]


class MergedMetrics(Collector):
    """The metrics of a server and of its worker processes, which get the label ``worker``."""

    def __init__(self, reports: Mapping[str, Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        """Return each metric once, with the samples of all processes."""
        merged: dict[str, Metric] = {}
        for number, report in self._reports.items():
            for family in report.metrics:
                metric = merged.setdefault(family.name, _metric(family))
                for name, labels, value in family.samples:
                    metric.add_sample(name, labels | {"worker": number}, float(value))
        for own in REGISTRY.collect():
            reported = merged.pop(own.name, None)
            yield own if reported is None else _joined(own, reported)
        yield from merged.values()


def _metric(family: Family) -> Metric:
    return Metric(family.name, family.documentation, family.kind)


def _joined(own: Metric, reported: Metric) -> Metric:
    """Return both metrics as one.

    The gauges that only workers measure are NaN here, which would make every sum and maximum NaN.
    """
    reported.samples[:0] = [each for each in own.samples if not math.isnan(each.value)]
    return reported
