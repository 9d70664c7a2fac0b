"""The lexical embedder, which compares words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.retrieval.embeddings.local import LexicalEmbedder
from tests.retrieval.embeddings.support import cosine, declared, embedders, vector


@given(st.lists(st.text(), max_size=4))
async def test_every_text_has_a_vector_of_unit_length(texts: list[str]) -> None:
    embedded = await LexicalEmbedder().embed(texts, "document")
    assert len(embedded) == len(texts)
    for each in map(vector, embedded):
        assert each.shape == (1024,)
        assert np.linalg.norm(each) == pytest.approx(1, abs=1e-6)


async def test_texts_with_common_words_are_near() -> None:
    question, answer, other = await LexicalEmbedder().embed(
        ["How do I return a pair of shoes?", "Return shoes within 30 days.", "We are in Berlin."],
        "document",
    )
    assert cosine(question, answer) > 0.4
    assert abs(cosine(question, other)) < 0.1


async def test_vectors_are_equal_in_every_process_and_on_every_machine() -> None:
    [embedded] = await LexicalEmbedder().embed(["Vectors are equal, everywhere: 東京"], "query")
    numbers = vector(embedded)
    found = {int(place): round(float(numbers[place]), 3) for place in np.flatnonzero(numbers)}
    assert found == {
        12: 0.427,
        121: 0.427,
        168: -0.427,
        298: -0.299,
        343: 0.299,
        350: 0.427,
        542: -0.299,
        687: 0.043,
    }


async def test_the_number_of_dimensions_is_free() -> None:
    embedder = embedders().of(declared("lexical", dimensions=8))
    assert (embedder.name, embedder.dimensions) == ("lexical/1", 8)
    [embedded] = await embedder.embed(["a text"], "document")
    assert vector(embedded).shape == (8,)
