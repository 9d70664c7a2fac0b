"""Chunks: made from the results of a search, equal for all readers, and unchangeable."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import wraps
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headwater import Chunk, FeatureStore, context, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, InvalidInputError, RetrieverFailedError
from tests.engine.support import until_shared

BOTH = pytest.mark.parametrize("cache_ttl", [None, "5m"])


@dataclass
class Point:
    x: int


class Pair(msgspec.Struct):
    x: int


# Results do not change


@BOTH
@pytest.mark.parametrize(
    "metadata",
    [
        {"pages": (1, 2), "tags": {"a"}, "more": frozenset({1})},
        {"at": datetime(2026, 1, 1, tzinfo=UTC), "on": date(2026, 1, 1), "for": timedelta(1)},
        {"by_page": {1: "a", None: "b"}},
        {"$tag": 1},
        {"large": 2**70, "small": 0.1, "price": Decimal("1.10"), "nothing": None, "yes": True},
        {"raw": b"\x00", "key": UUID(int=1), "text": "ü", "deep": [{"a": [1.0]}]},
    ],
)
async def test_metadata_comes_back_as_it_was_found(
    store: FeatureStore, cache_ttl: str | None, metadata: dict[str, Any]
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    async def search() -> list[Chunk]:
        return [Chunk(text="a", metadata=metadata)]

    for _ in range(2):
        (found,) = await search()
        assert repr(found.metadata) == repr(metadata)


@BOTH
@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan, 0.1, -0.0, 5e-324])
async def test_scores_come_back_as_they_were_found(
    store: FeatureStore, cache_ttl: str | None, score: float
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    async def search() -> list[dict[str, Any]]:
        return [{"text": "a", "score": score}]

    for _ in range(2):
        assert repr((await search())[0].score) == repr(score)


@BOTH
@pytest.mark.parametrize(
    ("chunk", "problem"),
    [
        ({"text": "a\ud83d"}, "/text: character 1 is a lone surrogate.*errors='replace'"),
        ({"text": "a", "metadata": {"t": "\ud83d"}}, "/metadata/t: character 0 is a lone"),
        (
            {"text": "a", "metadata": {"t": object()}},
            "/metadata/t: records do not support the type builtins.object",
        ),
        ({"text": "a", "metadata": {"t": datetime(2026, 1, 1)}}, "/metadata/t: .*time zone"),  # noqa: DTZ001
        ({"text": "a", "metadata": {"t": [Point(1)]}}, "/metadata/t: a Point would come back"),
        ({"text": "a", "metadata": {"t": {"p": Pair(1)}}}, "/metadata/t: a Pair would come back"),
    ],
)
async def test_metadata_that_does_not_round_trip_is_refused_with_its_place(
    store: FeatureStore, cache_ttl: str | None, chunk: dict[str, Any], problem: str
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    async def search() -> list[Any]:
        return ["fine", chunk]

    with pytest.raises(
        RetrieverFailedError, match=f"result 1 cannot be stored in a record: {problem}"
    ):
        await search()


async def test_callers_that_share_a_search_get_separate_metadata(store: FeatureStore) -> None:
    made, go_on = [], asyncio.Event()

    @retriever(store, cache_ttl="5m")
    async def search() -> list[Chunk]:
        made.append(1)
        await go_on.wait()
        return [Chunk(text="a", metadata={"tags": ["x"]})]

    calls = [asyncio.create_task(search()) for _ in range(2)]
    await until_shared(store, 2)
    go_on.set()
    one, other = await asyncio.gather(*calls)
    one[0].metadata["tags"].append("mine")
    assert other[0].metadata == {"tags": ["x"]}
    assert made == [1]


async def test_chunks_that_a_function_gives_again_and_again_stay_its_own(
    store: FeatureStore,
) -> None:
    index = [Chunk(text="a", metadata={"tags": ["x"]})]

    @retriever(store)
    async def search() -> list[Chunk]:
        return index

    (await search())[0].metadata["tags"].append("mine")
    assert (await search())[0].metadata == {"tags": ["x"]}


# Mappings


@BOTH
async def test_other_keys_of_a_mapping_become_metadata(
    store: FeatureStore, cache_ttl: str | None
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    async def search() -> list[dict[str, Any]]:
        return [
            {"text": "a", "id": "1", "url": "https://x", "title": "T"},
            {"text": "b", "url": "https://y", "metadata": {"lang": "en"}},
        ]

    assert await search() == [
        Chunk(text="a", id="1", metadata={"url": "https://x", "title": "T"}),
        Chunk(text="b", metadata={"lang": "en", "url": "https://y"}),
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"text": "a", "url": "x", "metadata": {"url": "y"}}, "it has 'url' twice"),
        ({"text": "a", "url": "x", "metadata": "y"}, "metadata of a Chunk is a dict, not str"),
        ({"page_content": "a"}, "it has no 'text'"),
        ({"text": "a", "score": "high"}, "score of a Chunk is a number or None, not str"),
        ({"text": "a", "score": [1]}, "score of a Chunk is a number or None, not list"),
    ],
)
async def test_a_mapping_that_is_not_a_chunk_is_refused(
    store: FeatureStore, given: dict[str, Any], problem: str
) -> None:
    @retriever(store)
    async def search() -> list[dict[str, Any]]:
        return [given]

    with pytest.raises(RetrieverFailedError, match=f"result 0 of type dict is not .*{problem}"):
        await search()


def test_a_chunk_of_the_wrong_types_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidInputError, match="metadata of a Chunk is a dict, not list"):
        Chunk(text="a", metadata=[])  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="score of a Chunk is a number or None, not str"):
        Chunk(text="a", score="0.5")  # type: ignore[arg-type]
    assert Chunk(text="a", score=Decimal("0.5")).score == 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("document", 5, "document of a Chunk is plain text or None, not int"),
        ("document", "a\ud800", "has a lone surrogate"),
        ("position", "3", "position of a Chunk is a whole number or None, not str"),
        ("version", True, "version of a Chunk is a whole number or None, not bool"),
        ("content_hash", b"", "content_hash of a Chunk is plain text or None, not bytes"),
        ("indexed_at", "now", "indexed_at of a Chunk is a datetime or None, not str"),
        ("indexed_at", datetime(2026, 1, 1), "indexed_at of a Chunk needs a time zone"),  # noqa: DTZ001
    ],
)
def test_an_invalid_origin_of_a_chunk_is_refused_when_it_is_made(
    field: str, value: Any, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        Chunk(text="a", **{field: value})


# Generators


@BOTH
async def test_a_generator_runs_in_a_thread_and_its_reads_are_noted(
    store: FeatureStore, user: type, cache_ttl: str | None
) -> None:
    @retriever(store, cache_ttl=cache_ttl)
    def search(user_id: str) -> Iterator[str]:
        yield threading.current_thread().name
        yield str(store.sync.get_feature("visits", user_id))

    @context(store)
    async def made(user_id: str) -> str:
        return " ".join(chunk.text for chunk in await search(user_id))

    ctx = await made("u1")
    assert ctx.content.startswith("headwater-sync")
    assert [read.feature for read in ctx.lineage.features] == ["visits"]


async def test_an_async_generator_is_a_search_as_well(store: FeatureStore, user: type) -> None:
    @retriever(store)
    async def search(user_id: str) -> AsyncIterator[str]:
        yield str(await store.get_feature("visits", user_id))
        yield threading.current_thread().name

    @context(store)
    async def made(user_id: str) -> str:
        return " ".join(chunk.text for chunk in await search(user_id))

    ctx = await made("u1")
    assert ctx.content == f"0 {threading.current_thread().name}"
    assert [read.feature for read in ctx.lineage.features] == ["visits"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_exception_in_a_generator_names_the_retriever(
    store: FeatureStore, kind: str
) -> None:
    def search() -> Iterator[str]:
        yield "a"
        raise OSError("index is away")

    async def async_search() -> AsyncIterator[str]:
        yield "a"
        raise OSError("index is away")

    function: Any = search if kind == "sync" else async_search
    with pytest.raises(RetrieverFailedError, match="'found' failed: OSError: index is away"):
        await retriever(store, name="found")(function)()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_generator_is_asked_for_no_more_than_top_k_and_closed(
    store: FeatureStore, kind: str
) -> None:
    steps: list[object] = []

    def search() -> Iterator[str]:
        try:
            for number in range(1_000_000):
                steps.append(number)
                yield str(number)
        finally:
            steps.append("closed")

    async def async_search() -> AsyncIterator[str]:
        try:
            for number in range(1_000_000):
                steps.append(number)
                yield str(number)
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    function: Any = search if kind == "sync" else async_search
    found = await retriever(store, name="found", top_k=2)(function)()
    assert [chunk.text for chunk in found] == ["0", "1"]
    assert steps == [0, 1, "closed"]


async def test_lazy_results_of_an_async_function_are_consumed_within_the_call(
    store: FeatureStore,
) -> None:
    @retriever(store)
    async def search() -> Iterator[str]:
        return (str(1 // number) for number in (1, 0))

    with pytest.raises(RetrieverFailedError, match="'search' failed: ZeroDivisionError"):
        await search()


# Empty bodies


def hidden(function: Any) -> Any:
    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def test_a_search_without_a_body_is_refused(store: FeatureStore) -> None:
    def dots(query: str) -> list[str]: ...  # type: ignore[empty-body]

    def passes(query: str) -> None:
        """Finds pages."""
        pass  # noqa: PIE790

    async def described(query: str, *, limit: int = 3) -> list[str]:  # type: ignore[empty-body]
        """Finds pages."""

    async def both(query: str) -> list[str]:  # type: ignore[empty-body]
        """Finds pages."""
        ...  # noqa: PIE790

    for function in (dots, passes, described, both, hidden(both)):
        with pytest.raises(DeclarationError, match="its body must be a search; it is empty"):
            retriever(store, name="search")(function)
    assert runtime_of(store).registry.retrievers == {}


def test_functions_without_results_may_be_retrievers(store: FeatureStore) -> None:
    async def nothing(query: str) -> list[str]:
        return []

    def missing(query: str) -> list[str]:
        raise NotImplementedError

    def none_yet(query: str) -> Iterator[str]:
        yield from ()

    for function in (nothing, missing, none_yet):
        retriever(store)(function)
    assert len(runtime_of(store).registry.retrievers) == 3
