"""The dashboard and the alert rules name metrics that exist, in expressions that parse."""

import json
import re
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.cli.projects import MONITORING
from tests.docs.pages import DOCS, quoted, rows, sections

FUNCTIONS = {
    *("sum", "max", "min", "rate", "increase", "deriv", "histogram_quantile"),
    *("by", "and", "or"),
}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
OF_THE_PROCESS = {"process_resident_memory_bytes": (), "process_open_fds": ()}
TARGETS = {"instance", "le"}

RUNBOOK = DOCS / "how-to" / "alerts.md"
DASHBOARD = json.loads(MONITORING.joinpath("dashboard.json").read_text())
RULES = yaml.safe_load(MONITORING.joinpath("alerts.yml").read_text())
ALERTS = RULES["groups"][0]["rules"]
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
    *(alert["expr"] for alert in ALERTS),
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
        assert quoted(name) in shown, f"add a panel with {name} to telemetry/dashboard.json"


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_a_panel_has_the_chosen_data_source_a_unit_and_series_with_different_ids() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            continue
        targets = panel["targets"]
        assert [target["datasource"] for target in targets] == [source] * len(targets)
        assert panel["datasource"] == source
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in targets}) == len(targets) > 0


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_paragraph_in_the_how_to_with_its_threshold(
    alert: dict[str, Any],
) -> None:
    name, severity = alert["alert"], alert["labels"]["severity"]
    text = sections(RUNBOOK)[name]
    for question in ("**Meaning.**", "**Look at.**", "**Do.**"):
        assert question in text
    flat = text.replace(",", "")
    for threshold in re.findall(r"[<>=]=? (\d[\d.]*)", alert["expr"]):
        assert threshold in ("0", "1") or threshold in flat, threshold
    assert f"`{alert['for']}`" in text
    assert f"`{severity}`" in text
    assert severity in ("critical", "warning")
    assert alert["annotations"]["summary"]
    assert "runbook_url" not in alert["annotations"], "its address is that of somebody's site"


def test_the_commands_print_what_prometheus_and_grafana_load() -> None:
    printed = CliRunner().invoke(app, ["metrics", "alerts"])
    assert yaml.safe_load(printed.stdout) == RULES
    printed = CliRunner().invoke(app, ["metrics", "dashboard"])
    assert json.loads(printed.stdout) == DASHBOARD
