"""Declaring indexes: options, defaults and errors with file and line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater import FeatureStore, Index
from headwater.declarations.indexes import index_name
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    DeclarationError,
    DuplicateNameError,
    InvalidInputError,
    UnknownNameError,
)
from headwater.errors.hints import Location


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.0] for _ in texts]


def test_an_index_is_declared_with_its_options(store: FeatureStore) -> None:
    docs = Index(
        store,
        "docs",
        embedder=embed,
        dimensions=2,
        chunk_tokens=200,
        overlap=20,
        keep_versions="7d",
    )
    declared = runtime_of(store).registry.index("docs")
    assert (declared.name, declared.embedder, declared.dimensions) == ("docs", embed, 2)
    assert (declared.chunk_tokens, declared.overlap) == (200, 20)
    assert declared.keep_versions == timedelta(days=7)
    assert declared.location.file == __file__
    assert repr(docs) == "<Index 'docs'>"
    assert index_name(docs) == index_name("docs") == "docs"


def test_an_index_has_defaults(store: FeatureStore) -> None:
    Index(store, "help-center")
    declared = runtime_of(store).registry.index("help-center")
    assert (declared.embedder, declared.chunk_tokens, declared.overlap) == (None, 400, 40)
    assert declared.keep_versions == timedelta(days=30)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"chunk_token": 5}, "unknown option 'chunk_token'; did you mean 'chunk_tokens'?"),
        ({"chunk_tokens": 0}, "chunk_tokens must be a whole number from 16 to 8192, not 0"),
        ({"chunk_tokens": 2.5}, "chunk_tokens must be a whole number from 16 to 8192, not 2.5"),
        ({"overlap": -1}, "overlap must be a whole number from 0 to 8192, not -1"),
        ({"chunk_tokens": 100, "overlap": 51}, "overlap is 51, more than half of chunk_tokens=100"),
        ({"keep_versions": "soon"}, "keep_versions: 'soon' is not a duration"),
        ({"embedder": embed}, "a function as embedder needs dimensions="),
        ({"embedder": ""}, "embedder must be a text that is not empty, not ''"),
        ({"embedder": "opnai"}, "unknown provider 'opnai'; did you mean 'openai'? A server"),
        ({"embedder": "ollama/bge-m3"}, "is the provider openai with embeddings.base_url"),
        ({"embedder": 5}, "embedder must be a text that is not empty, not 5"),
        ({"model": ""}, "model must be a text that is not empty"),
        ({"embedder": "openai/a", "model": "b"}, "drop one"),
        (
            {"embedder": "openai", "model": "text-embedding-3-small", "dimensions": 4_000},
            "openai/text-embedding-3-small has at most 1536 dimensions, not 4000",
        ),
        (
            {"embedder": "cohere/embed-v4.0", "dimensions": 300},
            "cohere/embed-v4.0 has 256 or 512 or 1024 or 1536 dimensions, not 300",
        ),
        ({"dimensions": True}, "dimensions must be a whole number from 1 to 16000, not True"),
    ],
)
def test_an_invalid_option_is_refused_with_file_and_line(
    store: FeatureStore, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        Index(store, "docs", **options)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"{__file__}:")
    assert "Index 'docs'" in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "-docs", "_docs", "1st", "a/b", "x" * 257, 5])
def test_an_invalid_name_is_refused(store: FeatureStore, name: Any) -> None:
    with pytest.raises(DeclarationError, match="index"):
        Index(store, name)


def test_a_name_is_declared_once(store: FeatureStore) -> None:
    Index(store, "docs")
    with pytest.raises(DuplicateNameError, match="docs"):
        Index(store, "docs")


def test_an_unknown_index_is_refused_with_the_nearest(store: FeatureStore) -> None:
    Index(store, "handbook")
    with pytest.raises(UnknownNameError, match="unknown index 'handbok'; did you mean 'handbook'"):
        runtime_of(store).registry.index("handbok")


@pytest.mark.parametrize("declares", [Index, None])
def test_an_implied_index_has_defaults_until_it_is_declared(
    store: FeatureStore, declares: Callable[..., Index] | None
) -> None:
    registry = runtime_of(store).registry
    registry.imply_index("docs", Location("features.py", 3))
    assert registry.index("docs").chunk_tokens == 400
    if declares is not None:
        declares(store, "docs", chunk_tokens=100)
        registry.imply_index("docs", Location("features.py", 9))
        assert registry.index("docs").chunk_tokens == 100
    assert list(registry.all_indexes()) == ["docs"]


def test_an_index_is_referred_to_by_text_or_declaration() -> None:
    with pytest.raises(InvalidInputError, match="named by a text or its declaration, not 5"):
        index_name(5)  # type: ignore[arg-type]
