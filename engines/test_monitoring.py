"""Prometheus takes the alert rules and the dashboard's queries; alerts fire when they should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.downloads import PROMETHEUS, debian_package
from engines.processes import free_ports, wait_for_port
from headwater.cli.projects import MONITORING
from tests.servers import POLL_SECONDS, READY_WITHIN_SECONDS

_FEATURES = """
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="visit")
def last_visit(user_id: str, event: ServiceEvent) -> str:
    return event.event_id
"""
RULES = Path(str(MONITORING.joinpath("alerts.yml")))
DASHBOARD = json.loads(MONITORING.joinpath("dashboard.json").read_text())
QUERIES = [
    target["expr"].replace("$__rate_interval", "1m")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]

# Series of a minute's steps, and the alerts that fire a quarter of an hour after their beginning.
SITUATIONS: dict[str, tuple[dict[str, str], list[str]]] = {
    "a backlog that grows": ({"headwater_lag_seconds": "0+30x30"}, ["HeadwaterLagGrowing"]),
    "a backlog that shrinks": ({"headwater_lag_seconds": "900-30x30"}, []),
    "a short backlog": ({"headwater_lag_seconds": "20+1x30"}, []),
    "partitions without a worker": (
        {"headwater_unowned_partitions": "4x30"},
        ["HeadwaterPartitionsUnowned"],
    ),
    "partitions that change hands": ({"headwater_unowned_partitions": "0x13 4 4 0x20"}, []),
    "failing requests": (
        {
            'headwater_http_requests_total{status="200"}': "0+980x30",
            'headwater_http_requests_total{status="503"}': "0+20x30",
        },
        ["HeadwaterErrorRate"],
    ),
    "a few failing requests": (
        {
            'headwater_http_requests_total{status="200"}': "0+9950x30",
            'headwater_http_requests_total{status="503"}': "0+50x30",
        },
        [],
    ),
    "a record that is lost": (
        {'headwater_records_total{outcome="failed"}': "0x13 1x20"},
        ["HeadwaterRecordsNotWritten"],
    ),
    "records that are stored": ({'headwater_records_total{outcome="stored"}': "0+9x30"}, []),
    "an objective that burns": (
        {
            'headwater_objective_total{name="support",result="bad"}': "0+20x30",
            'headwater_objective_total{name="support",result="good"}': "0+80x30",
            'headwater_objective_target{name="support"}': "0.99x30",
        },
        ["HeadwaterObjectiveBurns", "HeadwaterObjectiveBurnsFast"],
    ),
    "an objective that is met": (
        {
            'headwater_objective_total{name="support",result="bad"}': "0+1x30",
            'headwater_objective_total{name="support",result="good"}': "0+99x30",
            'headwater_objective_target{name="support"}': "0.99x30",
        },
        [],
    ),
}


def promtool(*arguments: str) -> str:
    """Return what promtool prints; fail with it if it finds a fault."""
    program = debian_package(PROMETHEUS) / "usr" / "bin" / "promtool"
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_promtool_takes_every_rule_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(RULES))
    recorded = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(QUERIES)]
    queries = tmp_path / "queries.yml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", str(queries))


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    names = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]
    for situation, (series, firing) in SITUATIONS.items():
        given = [{"series": name, "values": values} for name, values in series.items()]
        # Whether an alert fires is asked as a query, since a test of alerts compares all labels.
        fired = 'count by (alertname) (ALERTS{{alertname="{}",alertstate="firing"}}) > bool 0'
        asked = [
            {
                "expr": fired.format(name),
                "eval_time": "15m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}]
                if name in firing
                else [],
            }
            for name in names
        ]
        test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
        file = tmp_path / "test.yml"
        document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
        file.write_text(yaml.safe_dump(document))
        assert "SUCCESS" in promtool("test", "rules", str(file)), situation


@pytest.fixture
def served(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a worker, which has handled an event."""
    (port,) = free_ports(1)
    (tmp_path / "features.py").write_text(_FEATURES)
    command = (sys.executable, "-m", "headwater", "serve", "--port", str(port))
    variables = os.environ | {"HEADWATER_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(command, cwd=tmp_path, env=variables)
    try:
        wait_for_port(process, port)
        url = f"http://127.0.0.1:{port}/ingest/visit?wait=30s"
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, b'{"entity_id": "ada"}', headers)
        with urllib.request.urlopen(asked) as response:
            assert json.loads(response.read())["visible"]
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def running(tmp_path: Path, scraped: int) -> Iterator[str]:
    """Run Prometheus with the rules, which scrapes a port of this machine; yield its address."""
    (port,) = free_ports(1)
    targets = [{"targets": [f"127.0.0.1:{scraped}"]}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "headwater", "static_configs": targets}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = (
        debian_package(PROMETHEUS) / "usr" / "bin" / "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for_port(process, port)
        _wait_until_ready(url := f"http://127.0.0.1:{port}")
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str) -> None:
    """Wait until Prometheus has opened its storage, for which it does not wait with listening."""
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/-/ready").close()
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
        else:
            return


def answer(url: str, path: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}") as response:
        return json.loads(response.read())["data"]


@pytest.mark.timeout(120)
def test_a_prometheus_that_scrapes_a_server_answers_the_dashboard(
    tmp_path: Path, served: int
) -> None:
    with running(tmp_path, served) as url:
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not (up := answer(url, "query", query="up == 1")["result"]):
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
        assert up[0]["metric"]["job"] == "headwater"
        for query in QUERIES:
            answer(url, "query", query=query)
        processed = "sum(headwater_events_processed_total)"
        assert answer(url, "query", query=processed)["result"][0]["value"][1] == "1"
        rules = answer(url, "rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
