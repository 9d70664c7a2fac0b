"""The Grafana dashboard, made from the table of panels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.telemetry.panels import ROWS, Panel

_COLUMNS = 24
_WIDTH, _HEIGHT = 8, 7
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it; it asks for the Prometheus data source."""
    return {
        "title": "Headwater",
        "uid": "headwater",
        "tags": ["headwater"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    y = number = 0
    for row in ROWS:
        number += 1
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        y += 1
        for index, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(index, _COLUMNS // _WIDTH)
            place = {
                "x": column * _WIDTH,
                "y": y + line * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            }
            yield _panel(panel, number, place)
        lines = -(-len(row.panels) // (_COLUMNS // _WIDTH))
        y += lines * _HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "legendFormat": legend,
                "expr": expression,
            }
            for place, (legend, expression) in enumerate(panel.series)
        ],
    }
