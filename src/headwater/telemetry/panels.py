"""The panels of the Grafana dashboard.

Each expression is PromQL over the metrics of the reference. Gauges of the whole store are the same
in every worker, so that they are aggregated with ``max``; all others are summed over processes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Unit = Literal["short", "s", "reqps", "percentunit", "bytes", "currencyUSD"]


class Panel(NamedTuple):
    """A panel of the dashboard; each series is its legend and its expression."""

    title: str
    unit: Unit
    series: tuple[tuple[str, str], ...]
    about: str = ""


class PanelRow(NamedTuple):
    """A row of the dashboard."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}[$__rate_interval]))"


def _quantile(quantile: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return (
        f"histogram_quantile({quantile}, "
        f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"
    )


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"p{round(q * 100)}", _quantile(q, metric)) for q in (0.5, 0.95, 0.99))


def _hit_ratio(metric: str, by: str) -> str:
    hits = f'sum by ({by}) (rate({metric}{{outcome="hit"}}[$__rate_interval]))'
    return f"{hits} / sum by ({by}) (rate({metric}[$__rate_interval]))"


def _per(label: str, expression: str) -> tuple[tuple[str, str], ...]:
    """Return the series of an expression with one label, which is their legend."""
    return ((f"{{{{{label}}}}}", expression),)


_STALEST = _quantiles("headwater_context_stalest_feature_seconds")
_EMBEDDING_RETRIES = _rate("headwater_embedding_retries_total", "embedder")
_REQUESTS = _rate("headwater_http_requests_total", "route, status")

ROWS = (
    PanelRow(
        "Events",
        (
            Panel(
                "Events per second",
                "reqps",
                (
                    ("{{event_type}}", _rate("headwater_events_processed_total", "event_type")),
                    ("failed", _rate("headwater_events_failed_total")),
                    ("retries", _rate("headwater_event_retries_total")),
                ),
            ),
            Panel("Processing time", "s", _quantiles("headwater_event_processing_seconds")),
            Panel("Commit time", "s", _quantiles("headwater_commit_seconds")),
            Panel(
                "Waiting events",
                "short",
                (
                    ("{{group}}", "max by (group) (headwater_group_lag_events)"),
                    ("workers' group", "max(headwater_lag_events)"),
                ),
                "Events that a consumer group has not committed.",
            ),
            Panel(
                "Age of the oldest waiting event",
                "s",
                (
                    ("{{group}}", "max by (group) (headwater_group_lag_seconds)"),
                    ("workers' group", "max(headwater_lag_seconds)"),
                ),
            ),
            Panel("Batch size", "short", _quantiles("headwater_batch_events")),
            Panel(
                "Dead letters",
                "short",
                (
                    ("waiting", "max(headwater_dead_letters_waiting)"),
                    (
                        "{{feature}}, last hour",
                        "sum by (feature) (increase(headwater_dead_letters_total[1h]))",
                    ),
                ),
            ),
            Panel(
                "Open circuit breakers",
                "short",
                (("{{feature}}", "max by (feature) (headwater_circuit_breaker_open)"),),
            ),
        ),
    ),
    PanelRow(
        "Workers",
        (
            Panel(
                "Partitions",
                "short",
                (
                    ("held", "sum(headwater_owned_partitions)"),
                    ("without a worker", "max(headwater_unowned_partitions)"),
                ),
            ),
            Panel(
                "Live workers",
                "short",
                (
                    ("{{group}}", "max by (group) (headwater_group_workers)"),
                    ("restarts, last hour", "sum(increase(headwater_worker_restarts_total[1h]))"),
                    (
                        "restarts of API processes, last hour",
                        "sum(increase(headwater_api_restarts_total[1h]))",
                    ),
                ),
            ),
            Panel(
                "Threads",
                "short",
                (
                    ("{{state}}", "sum by (state) (headwater_threads)"),
                    ("hung", "sum(headwater_hung_threads)"),
                ),
            ),
            Panel(
                "Refreshes",
                "short",
                (
                    (
                        "{{feature}} {{outcome}}",
                        "sum by (feature, outcome) (increase(headwater_refreshes_total[1h]))",
                    ),
                    (
                        "{{feature}} missed",
                        "sum by (feature) (increase(headwater_ticks_missed_total[1h]))",
                    ),
                ),
                "Runs of scheduled features in the last hour.",
            ),
            Panel(
                "Delay of refreshes",
                "s",
                (("{{feature}}", "max by (feature) (headwater_refresh_delay_seconds)"),),
            ),
        ),
    ),
    PanelRow(
        "HTTP",
        (
            Panel(
                "Requests per second",
                "reqps",
                (
                    (
                        "{{route}} {{status}}",
                        _rate("headwater_http_requests_total", "route, status"),
                    ),
                ),
            ),
            Panel(
                "p99 by route",
                "s",
                _per("route", _quantile(0.99, "headwater_http_request_seconds", "route")),
            ),
            Panel(
                "Share of server errors",
                "percentunit",
                (
                    (
                        "5xx",
                        'sum(rate(headwater_http_requests_total{status=~"5.."}[$__rate_interval]))'
                        " / sum(rate(headwater_http_requests_total[$__rate_interval]))",
                    ),
                ),
            ),
            Panel("Parts that work", "short", (("{{part}}", "min by (part) (headwater_ready)"),)),
        ),
    ),
    PanelRow(
        "Contexts",
        (
            Panel(
                "Contexts per second",
                "reqps",
                _per("status", _rate("headwater_context_freshness_status_total", "status")),
            ),
            Panel(
                "p99 of assembly",
                "s",
                (
                    (
                        "{{context}}",
                        _quantile(0.99, "headwater_context_assembly_seconds", "context"),
                    ),
                ),
            ),
            Panel(
                "Tokens, median",
                "short",
                _per("context", _quantile(0.5, "headwater_context_tokens", "context")),
            ),
            Panel(
                "Dropped items per second",
                "reqps",
                _per("context", _rate("headwater_context_items_dropped_total", "context")),
            ),
            Panel(
                "Freshness violations",
                "reqps",
                (
                    (
                        "{{feature}}",
                        _rate("headwater_context_freshness_violations_total", "feature"),
                    ),
                ),
            ),
            Panel(
                "Age of the oldest value",
                "s",
                _quantiles("headwater_context_stalest_feature_seconds"),
            ),
            Panel(
                "Records",
                "reqps",
                (
                    ("{{outcome}}", _rate("headwater_records_total", "outcome")),
                    ("contexts without a record", _rate("headwater_contexts_unrecorded_total")),
                    ("pending", "sum(headwater_records_pending)"),
                    ("erased {{kind}}", _rate("headwater_erased_writes_total", "kind")),
                ),
            ),
            Panel(
                "Hit ratio of computed features",
                "percentunit",
                _per("feature", _hit_ratio("headwater_feature_cache_total", "feature")),
            ),
        ),
    ),
    PanelRow(
        "Retrieval",
        (
            Panel(
                "Searches per second",
                "reqps",
                (
                    (
                        "{{retriever}} {{outcome}}",
                        _rate("headwater_retrievals_total", "retriever, outcome"),
                    ),
                ),
            ),
            Panel(
                "p99 of searches",
                "s",
                _per("retriever", _quantile(0.99, "headwater_retrieval_seconds", "retriever")),
            ),
            Panel(
                "Hit ratio of caches",
                "percentunit",
                (
                    ("{{retriever}}", _hit_ratio("headwater_retriever_cache_total", "retriever")),
                    ("{{embedder}}", _hit_ratio("headwater_embedding_cache_total", "embedder")),
                ),
            ),
            Panel(
                "Embedding requests per second",
                "reqps",
                (
                    (
                        "{{embedder}} {{outcome}}",
                        _rate("headwater_embedding_requests_total", "embedder, outcome"),
                    ),
                    (
                        "{{embedder}} retries",
                        _rate("headwater_embedding_retries_total", "embedder"),
                    ),
                ),
            ),
            Panel(
                "p99 of embedding",
                "s",
                _per("embedder", _quantile(0.99, "headwater_embedding_seconds", "embedder")),
            ),
            Panel(
                "Texts and tokens embedded per second",
                "reqps",
                (
                    ("{{embedder}} texts", _rate("headwater_embedding_texts_total", "embedder")),
                    ("{{embedder}} tokens", _rate("headwater_embedding_tokens_total", "embedder")),
                ),
            ),
            Panel(
                "Cost of embeddings per day",
                "currencyUSD",
                (
                    (
                        "{{embedder}}",
                        "sum by (embedder) (increase(headwater_embedding_cost_usd_total[1d]))",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Servers",
        (
            Panel(
                "Connections to Postgres",
                "short",
                (
                    ("{{state}}", "sum by (state) (headwater_postgres_connections)"),
                    ("waiting", "sum(headwater_postgres_waiting)"),
                ),
            ),
            Panel(
                "Age of the outbox",
                "s",
                (("age", "min(headwater_outbox_seconds)"),),
                "Time since all committed history was in Postgres.",
            ),
            Panel("Memory", "bytes", (("{{instance}}", "process_resident_memory_bytes"),)),
            Panel("Open files", "short", (("{{instance}}", "process_open_fds"),)),
        ),
    ),
)
