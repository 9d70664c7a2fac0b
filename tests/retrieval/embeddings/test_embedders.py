"""The choice of an index's embedder."""

from __future__ import annotations

import pytest

from headwater.errors import DeclarationError
from tests.retrieval.embeddings.support import declared, embedders


def test_an_unknown_provider_is_refused_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match=r"^app\.py:7: index 'docs': .*'lexicl'.*'lexical'"):
        embedders().of(declared("lexicl"))


def test_a_stored_generation_finds_its_embedder_by_name() -> None:
    every = embedders()
    assert every.named("lexical/1", 1024) is every.named("lexical/1", 1024)
