"""Metrics of embeddings."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

REQUESTS = Counter(
    "headwater_embedding_requests_total",
    "Batches of texts sent to a model.",
    ["embedder", "outcome"],
)
SECONDS = Histogram(
    "headwater_embedding_seconds",
    "Time to embed a batch of texts, retries included.",
    ["embedder"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
RETRIES = Counter(
    "headwater_embedding_retries_total", "Requests that were sent again.", ["embedder"]
)
TEXTS = Counter("headwater_embedding_texts_total", "Texts embedded by a model.", ["embedder"])
TOKENS = Counter("headwater_embedding_tokens_total", "Tokens counted by a provider.", ["embedder"])
COST = Counter(
    "headwater_embedding_cost_usd_total", "Price of the tokens, in US dollars.", ["embedder"]
)
CACHE = Counter(
    "headwater_embedding_cache_total", "Texts looked up in the cache.", ["embedder", "outcome"]
)
