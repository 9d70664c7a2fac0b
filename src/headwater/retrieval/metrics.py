"""Metrics of retrievers and searches."""

from __future__ import annotations

from prometheus_client import Histogram

from headwater.core.metrics import TallyCounter

RETRIEVALS = TallyCounter(
    "headwater_retrievals_total",
    "Calls of retrievers, and searches of an index as `search:` and its name; "
    "`outcome` is `done` or `failed`.",
    ["retriever", "outcome"],
)
SECONDS = Histogram(
    "headwater_retrieval_seconds",
    "Time of a call of a retriever, or a search, that succeeded.",
    ["retriever"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0),
)
CACHE = TallyCounter(
    "headwater_retriever_cache_total",
    "Calls of retrievers with a `cache_ttl`; `outcome` is `hit` or `miss`.",
    ["retriever", "outcome"],
)
