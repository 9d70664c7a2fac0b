"""The dashboard and the alert rules name metrics that exist, in expressions that parse."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.telemetry.alerts import ALERTS, RUNBOOK, alert_rules
from headwater.telemetry.dashboard import dashboard
from headwater.telemetry.panels import ROWS
from tests.docs.pages import DOCS, quoted, rows, sections

ROOT = Path(__file__).parents[2]
FUNCTIONS = {
    *("sum", "max", "min", "rate", "increase", "deriv", "histogram_quantile"),
    *("by", "and", "or"),
}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
OF_THE_PROCESS = {"process_resident_memory_bytes": (), "process_open_fds": ()}
TARGETS = {"instance", "le"}

EXPRESSIONS = [
    *(expression for row in ROWS for panel in row.panels for _, expression in panel.series),
    *(alert.expression for alert in ALERTS),
]


def _known() -> dict[str, tuple[str, ...]]:
    """Return the labels of every series in the reference."""
    known: dict[str, tuple[str, ...]] = dict(OF_THE_PROCESS)
    for name, kind, labels, _ in rows(sections(DOCS / "reference" / "metrics.md")["Metrics"]):
        for suffix in SUFFIXES[kind]:
            known[quoted(name) + suffix] = tuple(re.findall(r"`(\w+)`", labels))
    return known


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_metrics_labels_and_functions_that_exist(expression: str) -> None:
    known = _known()
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\[(?:\d+[mhd]|\$__rate_interval)\]", "", bare)
    used = set(re.findall(r"[a-z_]+", re.sub(r"\{[^}]*\}", "", bare)))
    metrics = used & known.keys()
    assert metrics, expression
    labels = {label for metric in metrics for label in known[metric]} | TARGETS
    assert used - metrics - FUNCTIONS <= labels, expression
    assert {name for name in used if name.startswith("headwater")} <= metrics
    assert set(re.findall(r"\{(\w+)", bare)) <= labels
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing), expression


def test_every_metric_of_the_reference_is_on_the_dashboard() -> None:
    shown = " ".join(expression for expression in EXPRESSIONS)
    for name, *_ in rows(sections(DOCS / "reference" / "metrics.md")["Metrics"]):
        assert quoted(name) in shown, f"add a panel with {name} to telemetry/panels.py"


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_paragraph_in_the_how_to_with_its_threshold(alert: object) -> None:
    assert isinstance(alert, type(ALERTS[0]))
    text = sections(ROOT / "docs" / RUNBOOK)[alert.name]
    for question in ("**Meaning.**", "**Look at.**", "**Do.**"):
        assert question in text
    flat = text.replace(",", "")
    for threshold in re.findall(r"[<>=]=? (\d[\d.]*)", alert.expression):
        assert threshold in ("0", "1") or threshold in flat, threshold
    assert f"`{alert.lasts}`" in text
    assert f"`{alert.severity}`" in text


def test_the_commands_print_what_prometheus_and_grafana_load() -> None:
    printed = CliRunner().invoke(app, ["metrics", "alerts"])
    assert yaml.safe_load(printed.stdout) == alert_rules()
    printed = CliRunner().invoke(app, ["metrics", "alerts", "--docs-url", "https://docs.example/"])
    rule = yaml.safe_load(printed.stdout)["groups"][0]["rules"][0]
    address = f"https://docs.example/how-to/alerts.md#{rule['alert'].lower()}"
    assert rule["annotations"]["runbook_url"] == address
    printed = CliRunner().invoke(app, ["metrics", "dashboard"])
    assert yaml.safe_load(printed.stdout) == dashboard()
