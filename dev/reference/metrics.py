"""The Prometheus metrics, as the source creates them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from dev.reference.source import calls
from dev.reference.tables import code, table

_KINDS = {
    "Counter": "counter",
    "TallyCounter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "BatchHistogram": "histogram",
}


class Metric(NamedTuple):
    """A metric of the package."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def all_metrics() -> list[Metric]:
    """Return all metrics by name."""
    return sorted(metric for call in calls() for metric in _created(call))


def metrics() -> Iterator[str]:
    """Yield the table of all metrics."""
    return table(
        ("metric", "type", "labels", "meaning"),
        ((code(m.name), m.kind, code(*m.labels), m.meaning) for m in all_metrics()),
    )


def _created(call: ast.Call) -> Iterator[Metric]:
    match call:
        case ast.Call(
            func=ast.Name(kind), args=[ast.Constant(str(name)), ast.Constant(str(text)), *rest]
        ) if kind in _KINDS:
            # Our own histogram has bounds here and no labels.
            labels = ast.literal_eval(rest[0]) if rest and kind != "BatchHistogram" else ()
            yield Metric(name, _KINDS[kind], tuple(labels), text)
