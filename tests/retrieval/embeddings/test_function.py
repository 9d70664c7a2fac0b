"""Embedders that are functions of the user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headwater.errors import DeclarationError, EmbeddingError
from tests.retrieval.embeddings.support import declared, embedders, vector


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), 1.0] for text in texts]


async def lengths_later(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return lengths(texts)


def wrapped(texts: list[str]) -> Any:
    return lengths_later(texts)


def generated(texts: list[str]) -> Iterator[tuple[int, int]]:
    yield from ((len(text), 1) for text in texts)


def array(texts: list[str]) -> Any:
    return np.array(lengths(texts), dtype=np.float32)


class Model:
    def __call__(self, texts: list[str]) -> list[list[float]]:
        return lengths(texts)


class LoopModel:
    """A model that must be called in the event loop."""

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        assert threading.current_thread() is threading.main_thread()
        return lengths(texts)


@pytest.mark.parametrize(
    "function", [lengths, lengths_later, wrapped, generated, array, Model(), LoopModel()]
)
async def test_a_function_embeds(function: Any) -> None:
    embedder = embedders().of(declared(function, dimensions=2))
    one, other = await embedder.embed(["abc", ""], "document")
    assert vector(one) == pytest.approx([3 / 10**0.5, 1 / 10**0.5])
    assert vector(other).tolist() == [0, 1]
    assert await embedder.embed([], "query") == []


def test_an_embedder_is_named_by_its_function_or_model() -> None:
    assert embedders().of(declared(lengths, dimensions=2)).name == "function/lengths"
    assert embedders().of(declared(Model(), dimensions=2)).name == "function/Model"
    assert embedders().of(declared(lengths, model="v2", dimensions=2)).name == "function/v2"
    assert embedders().named("function/lengths", 2) is None


async def test_a_sync_function_does_not_block_the_event_loop() -> None:
    go = threading.Event()

    def waits(texts: list[str]) -> list[list[float]]:
        assert go.wait(60)
        return lengths(texts)

    task = asyncio.ensure_future(
        embedders(timeout=60).of(declared(waits, dimensions=2)).embed(["a"], "query")
    )
    await asyncio.sleep(0)
    go.set()  # the loop gets here while the function waits
    assert len(await task) == 1


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ([[1, 2]], "it returned 1 vectors for 2 texts; it must return one vector for each text"),
        ([[1, 2], [1, 2, 3]], r"a vector of 3 dimensions, not 2; declare .* Index\(dimensions=…\)"),
        ([[1, 2], [[1, 2]]], r"a vector of \(1, 2\) dimensions"),
        ([[1, 2], [1, float("nan")]], "it must return finite numbers"),
        ([[1, 2], [float("inf"), 1]], "an infinite number"),
        ([[1, 2], [0, 0]], "a vector with only zeros; a zero vector has no direction"),
        ([[1, 2], ["a", "b"]], "not a list of numbers"),
        ([[1, 2], None], "of .* dimensions"),
        (None, "it raised TypeError: .*; correct the function"),
    ],
)
async def test_results_that_cannot_be_used_are_refused(result: object, problem: str) -> None:
    embedder = embedders().of(declared(lambda texts: result, model="mine", dimensions=2))
    with pytest.raises(EmbeddingError, match=f"function/mine failed: .*{problem}"):
        await embedder.embed(["a", "b"], "document")


@pytest.mark.parametrize("error", [ValueError("quota"), TimeoutError("quota")])
async def test_an_error_of_the_function_is_named(error: Exception) -> None:
    async def fails(texts: list[str]) -> None:
        raise error

    with pytest.raises(EmbeddingError, match=f"it raised {type(error).__name__}: quota"):
        await embedders().of(declared(fails, dimensions=2)).embed(["a"], "document")


async def test_a_function_that_takes_too_long_is_ended() -> None:
    never = asyncio.Event()

    async def waits(texts: list[str]) -> None:
        await never.wait()

    with pytest.raises(EmbeddingError, match=r"it timed out after 0\.01 s; .*EMBEDDINGS_TIMEOUT"):
        await embedders(timeout=0.01).of(declared(waits, dimensions=2)).embed(["a"], "query")


def test_the_dimensions_of_a_function_must_be_declared() -> None:
    with pytest.raises(DeclarationError, match=r"^app\.py:7: index 'docs': .*pass dimensions="):
        embedders().of(declared(lengths))
