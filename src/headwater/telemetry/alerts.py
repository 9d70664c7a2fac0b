"""The Prometheus alert rules."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

RUNBOOK = "how-to/alerts.md"


class Alert(NamedTuple):
    """An alert: its expression holds for a time; the how-to has a section of its name."""

    name: str
    expression: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str


ALERTS = (
    Alert(
        "HeadwaterLagGrowing",
        "max(headwater_lag_seconds) > 60 and max(deriv(headwater_lag_seconds[10m])) > 0",
        "5m",
        "critical",
        "The oldest waiting event is older than a minute, and the lag grows.",
    ),
    Alert(
        "HeadwaterDeadLetters",
        "max(headwater_dead_letters_waiting) > 0",
        "0m",
        "warning",
        "{{ $value }} dead letters wait: features could not handle these events.",
    ),
    Alert(
        "HeadwaterPartitionsUnowned",
        "max(headwater_unowned_partitions) > 0",
        "2m",
        "critical",
        "No worker holds {{ $value }} partitions, so their events wait.",
    ),
    Alert(
        "HeadwaterGroupAbandoned",
        "max by (group) (headwater_group_lag_events) > 0"
        " and max by (group) (headwater_group_workers) == 0",
        "10m",
        "warning",
        "The consumer group {{ $labels.group }} has events and no workers.",
    ),
    Alert(
        "HeadwaterRecordsNotWritten",
        'increase(headwater_records_total{outcome="failed"}[5m]) > 0'
        " or increase(headwater_contexts_unrecorded_total[5m]) > 0",
        "0m",
        "critical",
        "Contexts were served whose records could not be stored.",
    ),
    Alert(
        "HeadwaterErrorRate",
        'sum(rate(headwater_http_requests_total{status=~"5.."}[5m]))'
        " / sum(rate(headwater_http_requests_total[5m])) > 0.01",
        "5m",
        "critical",
        "{{ $value | humanizePercentage }} of the requests are answered with a server error.",
    ),
    Alert(
        "HeadwaterLatency",
        "histogram_quantile(0.99, sum by (le, route) "
        "(rate(headwater_http_request_seconds_bucket[5m]))) > 1",
        "10m",
        "warning",
        "The p99 of {{ $labels.route }} is {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "HeadwaterBreakerOpen",
        "max by (feature) (headwater_circuit_breaker_open) == 1",
        "5m",
        "warning",
        "The feature {{ $labels.feature }} has failed for many events in a row.",
    ),
    Alert(
        "HeadwaterOutboxOld",
        "min(headwater_outbox_seconds) > 300",
        "5m",
        "critical",
        "History has not been copied from Redis to Postgres for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "HeadwaterTicksMissed",
        "sum by (feature) (increase(headwater_ticks_missed_total[1h])) > 0"
        " or max by (feature) (headwater_refresh_delay_seconds) > 300",
        "0m",
        "warning",
        "The scheduled feature {{ $labels.feature }} runs late, or due times passed without a run.",
    ),
    Alert(
        "HeadwaterNotReady",
        "min by (instance, part) (headwater_ready) == 0",
        "2m",
        "critical",
        "The part {{ $labels.part }} of {{ $labels.instance }} does not work.",
    ),
    Alert(
        "HeadwaterWorkerRestarts",
        "sum by (instance) (increase(headwater_worker_restarts_total[15m])) > 2",
        "0m",
        "critical",
        "Worker processes of {{ $labels.instance }} ended and were started again.",
    ),
    Alert(
        "HeadwaterThreadsHung",
        "max by (instance) (headwater_hung_threads) > 0",
        "10m",
        "warning",
        "Functions hang in {{ $value }} threads of {{ $labels.instance }}.",
    ),
)


def alert_rules(docs_url: str = "docs") -> dict[str, Any]:
    """Return the rules as Prometheus loads them from a YAML file.

    ``docs_url`` is the address of the folder ``docs``.
    """
    rules = [_rule(alert, f"{docs_url.rstrip('/')}/{RUNBOOK}") for alert in ALERTS]
    return {"groups": [{"name": "headwater", "rules": rules}]}


def _rule(alert: Alert, runbook: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{runbook}#{alert.name.lower()}",
        },
    }
