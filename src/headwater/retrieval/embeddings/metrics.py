"""Metrics of embeddings."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

REQUESTS = Counter(
    "headwater_embedding_requests_total",
    "Batches of texts sent to a model or provider; `outcome` is `done` or `failed`.",
    ["embedder", "outcome"],
)
SECONDS = Histogram(
    "headwater_embedding_seconds",
    "Time to embed a batch, retries included.",
    ["embedder"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
RETRIES = Counter(
    "headwater_embedding_retries_total",
    "Requests that were sent again after an error.",
    ["embedder"],
)
TEXTS = Counter(
    "headwater_embedding_texts_total", "Texts embedded; cached ones do not count.", ["embedder"]
)
TOKENS = Counter(
    "headwater_embedding_tokens_total", "Tokens, as the provider counts them.", ["embedder"]
)
COST = Counter(
    "headwater_embedding_cost_usd_total",
    "Price of the embedded tokens in US dollars; only models with a known price.",
    ["embedder"],
)
CACHE = Counter(
    "headwater_embedding_cache_total",
    "Texts looked up in the cache; `outcome` is `hit` or `miss`.",
    ["embedder", "outcome"],
)
