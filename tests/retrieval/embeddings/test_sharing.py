"""Texts are embedded once: in one call, in concurrent calls, and by several processes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headwater.backends.memory import MemoryCache
from headwater.errors import BackendUnavailableError, EmbeddingError
from headwater.ports import Cached
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS
from headwater.testing import ManualClock
from tests.engine.support import until
from tests.retrieval.embeddings.provider_server import ANSWERED, Hang, ProviderServer, error
from tests.retrieval.embeddings.support import Open, declared

OPTIONS: dict[str, Any] = {"provider": "openai", "model": "m", "dimensions": 8}


class OpenCache(MemoryCache):
    """A cache whose entries the test can read and replace."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.puts: dict[str, tuple[Cached, timedelta]] = {}

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        self.puts[key] = (cached, ttl)
        await super().put(key, cached, ttl, drops=drops)


class BrokenCache(MemoryCache):
    """A cache that cannot be reached."""

    async def get(self, key: str) -> Cached | None:
        raise BackendUnavailableError("no Redis")

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        raise BackendUnavailableError("no Redis")


def texts_of(server: ProviderServer) -> list[str]:
    return [text for seen in server.seen for text in seen.texts]


async def test_equal_texts_of_a_call_are_embedded_once(
    server: ProviderServer, opened: Open
) -> None:
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    one, other, again = await embedder.embed(["a", "bb", "a"], "document")
    assert one == again != other
    assert texts_of(server) == ["a", "bb"]
    assert await embedder.embed([], "document") == []


async def test_processes_share_embeddings(server: ProviderServer, opened: Open) -> None:
    clock = ManualClock()
    cache = OpenCache(clock)
    options = {**OPTIONS, "base_url": server.url, "cache_ttl": "2h"}
    first = await opened(clock, cache, **options).of(declared()).embed(["a", "b"], "query")
    second = opened(clock, cache, **options).of(declared())
    assert await second.embed(["b", "a"], "query") == first[::-1]
    assert texts_of(server) == ["a", "b"]
    clock.advance("2h")
    await second.embed(["a"], "query")
    assert texts_of(server) == ["a", "b", "a"]


async def test_an_embedding_is_cached_for_one_model_kind_and_server_only(
    server: ProviderServer, opened: Open
) -> None:
    clock = ManualClock()
    cache = OpenCache(clock)
    every = opened(clock, cache, **OPTIONS, base_url=server.url)
    await every.of(declared()).embed(["a"], "query")
    await every.of(declared()).embed(["a"], "document")
    await every.of(declared("openai/n", dimensions=8)).embed(["a"], "query")
    await (
        opened(clock, cache, **OPTIONS, base_url=server.url + "/")
        .of(declared())
        .embed(["a"], "query")
    )
    assert len(server.seen) == 4
    assert len(cache.puts) == 4
    assert all(key.startswith(f"{CACHED_EMBEDDINGS}openai/") for key in cache.puts)
    lifetimes = {key.split(":")[-2]: ttl for key, (_, ttl) in cache.puts.items()}
    assert lifetimes == {"query": timedelta(days=1), "document": timedelta(minutes=10)}


@pytest.mark.parametrize("damaged", [b"", b"\x00" * 32, b"\x00\x00\xc0\x7f" * 8, b"x" * 31])
async def test_a_damaged_cache_entry_is_ignored(
    server: ProviderServer, opened: Open, damaged: bytes
) -> None:
    clock = ManualClock()
    cache = OpenCache(clock)
    embedder = opened(clock, cache, base_url=server.url, **OPTIONS).of(declared())
    first = await embedder.embed(["a"], "query")
    [(key, (cached, ttl))] = cache.puts.items()
    await cache.put(key, Cached(damaged, cached.kept_at), ttl)
    assert await embedder.embed(["a"], "query") == first
    assert len(server.seen) == 2


async def test_a_cache_that_cannot_be_reached_is_only_slower(
    server: ProviderServer, opened: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    embedder = opened(clock, BrokenCache(clock), base_url=server.url, **OPTIONS).of(declared())
    assert len(await embedder.embed(["a"], "query")) == 1
    logged = capsys.readouterr().err
    assert "could not read cached embeddings" in logged
    assert "could not cache embeddings" in logged


async def test_a_call_that_failed_in_the_middle_is_not_paid_twice(
    server: ProviderServer, opened: Open
) -> None:
    options = {**OPTIONS, "base_url": server.url, "batch_size": 1, "concurrency": 1}
    embedder = opened(**options).of(declared())
    server.faults.extend([ANSWERED, ANSWERED, error(400)])
    with pytest.raises(EmbeddingError):
        await embedder.embed(["a", "b", "c", "d"], "document")
    assert texts_of(server) == ["a", "b", "c"]  # "d" was not tried
    assert len(await embedder.embed(["a", "b", "c", "d"], "document")) == 4
    assert texts_of(server) == ["a", "b", "c", "c", "d"]


async def test_a_process_makes_a_limited_number_of_requests_at_once(
    server: ProviderServer, opened: Open
) -> None:
    options = {**OPTIONS, "base_url": server.url, "batch_size": 1, "concurrency": 2}
    every = opened(**options)
    hangs = [Hang(), Hang()]
    server.faults.extend(hangs)
    calls = [
        asyncio.ensure_future(every.of(declared()).embed([f"{n}a", f"{n}b"], "document"))
        for n in range(3)
    ]
    for hang in hangs:
        await hang.begun.wait()
    for hang in hangs:
        hang.go.set()
    await asyncio.gather(*calls)
    assert len(server.seen) == 6
    assert server.most_running == 2


async def test_concurrent_calls_share_the_embedding_of_a_text(
    server: ProviderServer, opened: Open
) -> None:
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    server.faults.append(hang := Hang())
    first = asyncio.ensure_future(embedder.embed(["a", "b"], "query"))
    await hang.begun.wait()
    second = asyncio.ensure_future(embedder.embed(["b", "c"], "query"))
    third = asyncio.ensure_future(embedder.embed(["b"], "query"))
    await until(lambda: len(server.seen) == 2)  # the second call embeds its own text meanwhile
    hang.go.set()
    assert (await first)[1] == (await second)[0] == (await third)[0]
    assert texts_of(server) == ["a", "b", "c"]


async def test_a_call_that_fails_fails_the_calls_that_wait_for_it(
    server: ProviderServer, opened: Open
) -> None:
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    server.faults.append(error(400))
    calls = [asyncio.ensure_future(embedder.embed(["a"], "query")) for _ in range(3)]
    assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [
        EmbeddingError
    ] * 3
    assert len(server.seen) == 1
    assert len(await embedder.embed(["a"], "query")) == 1


async def test_a_cancelled_call_leaves_the_text_to_those_that_wait_for_it(
    server: ProviderServer, opened: Open
) -> None:
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    server.faults.append(hang := Hang())
    first = asyncio.ensure_future(embedder.embed(["a"], "query"))
    await hang.begun.wait()
    second = asyncio.ensure_future(embedder.embed(["a"], "query"))
    await asyncio.sleep(0)
    first.cancel()
    assert len(await second) == 1
    assert first.cancelled()
    assert texts_of(server) == ["a", "a"]
    hang.go.set()


async def test_queries_of_a_function_are_cached_if_its_model_is_named(opened: Open) -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return [[1.0, 2.0] for _ in texts]

    every = opened(batch_size=2)
    for _ in range(2):
        await every.of(declared(embed, dimensions=2)).embed(["a"], "query")
    assert calls == [["a"], ["a"]]
    for _ in range(2):
        await every.of(declared(embed, model="mine", dimensions=2)).embed(["a", "b", "c"], "query")
    assert calls[2:] == [["a", "b"], ["c"]]
    await every.of(declared(embed, model="mine", dimensions=2)).embed(["a"], "document")
    assert calls[4:] == [["a"]]


async def test_tokens_cost_and_cache_hits_are_counted(server: ProviderServer, opened: Open) -> None:
    server.dimensions = 1536
    name = "openai/text-embedding-3-small"
    before = {metric: sample(metric, name) for metric in (TOKENS, COST, TEXTS)}
    hits = sample(CACHE, name, outcome="hit")
    embedder = opened(provider="openai", base_url=server.url).of(declared())
    for _ in range(2):
        await embedder.embed(["one two three", "four"], "query")
    assert sample(TOKENS, name) == before[TOKENS] + 4
    assert sample(TEXTS, name) == before[TEXTS] + 2
    # 0.02 USD per million tokens
    assert sample(COST, name) - before[COST] == pytest.approx(4 * 0.02e-6)
    assert sample(CACHE, name, outcome="hit") == hits + 2
    assert sample("headwater_embedding_requests_total", name, outcome="done") >= 1
    assert sample("headwater_embedding_seconds_count", name) >= 1


TOKENS = "headwater_embedding_tokens_total"
TEXTS = "headwater_embedding_texts_total"
COST = "headwater_embedding_cost_usd_total"
CACHE = "headwater_embedding_cache_total"


def sample(metric: str, embedder: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, {"embedder": embedder, **labels}) or 0.0
