"""Indexing documents directly: documents are split, embedded, replaced, refused and removed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from headwater import Document, FeatureStore, Index, Settings
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    EmbeddingError,
    IndexMismatchError,
    InvalidInputError,
    UnknownNameError,
)
from headwater.model.indexes import next_size
from tests.engine.support import records
from tests.retrieval.support import (
    GIRAFFES,
    PARCELS,
    RETURNS,
    Words,
    declare_docs,
    documents,
    index_all,
    texts,
)


async def version_of(store: FeatureStore, index: str = "docs") -> str | None:
    version = await (await runtime_of(store).open()).backends.vectors.version(index)
    return None if version is None else version.text


async def test_an_indexed_document_is_found_with_where_it_comes_from(store: FeatureStore) -> None:
    declare_docs(store)
    await store.index("docs", "parcels", PARCELS, {"lang": "en"})
    (chunk,) = await store.search("docs", "when do parcels arrive")
    digest = sha256(PARCELS.encode()).hexdigest()
    assert chunk.text == PARCELS
    assert chunk.id == f"docs/parcels#{digest[:16]}"
    assert chunk.content_hash == f"sha256:{digest}"
    assert (chunk.document, chunk.position, chunk.version) == ("parcels", 0, 1)
    assert chunk.metadata == {"lang": "en"}
    assert chunk.indexed_at is not None
    assert abs(chunk.indexed_at - store.clock.now()) < timedelta(milliseconds=1)
    assert chunk.score is not None
    assert 0 < chunk.score < 1


async def test_a_new_version_replaces_the_chunks_of_the_document(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    await store.index("docs", "parcels", "Parcels arrive tomorrow.")
    found = await store.search("docs", "parcels", top_k=10)
    assert PARCELS not in texts(found)
    (parcels,) = [chunk for chunk in found if chunk.document == "parcels"]
    assert (parcels.text, parcels.version, parcels.metadata) == ("Parcels arrive tomorrow.", 2, {})
    stored = await store.indexes.get_document("docs", "parcels")
    assert stored is not None
    assert (stored.text, stored.version) == ("Parcels arrive tomorrow.", 2)


async def test_only_chunks_with_new_content_are_embedded(store: FeatureStore) -> None:
    words = declare_docs(store, chunk_tokens=16, overlap=0)
    first = "# One\n\nThe first paragraph speaks of parcels and of nothing else at all."
    second = "# Two\n\nThe second paragraph speaks of giraffes and of nothing else at all."
    await store.index("docs", "page", f"{first}\n\n{second}")
    before = len(words.texts)
    assert before >= 2
    await store.index("docs", "page", f"{first}\n\n{second.replace('giraffes', 'lions')}")
    added = words.texts[before:]
    assert added
    assert all("first" not in text for text in added)
    assert len(words.texts) < 2 * before


async def test_the_same_text_changes_nothing(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)
    embedded, version = list(words.texts), await version_of(store)
    await index_all(store)
    assert (words.texts, await version_of(store)) == (embedded, version)


async def test_new_metadata_alone_is_a_new_version_that_embeds_nothing(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)
    embedded = list(words.texts)
    await store.index("docs", "parcels", PARCELS, {"lang": "fr"})
    assert words.texts == embedded
    (chunk,) = await store.search("docs", "parcels", filters={"lang": "fr"})
    assert (chunk.document, chunk.version) == ("parcels", 2)


async def test_a_text_in_two_documents_is_embedded_once(store: FeatureStore) -> None:
    words = declare_docs(store)
    await store.index("docs", "a", PARCELS)
    await store.index("docs", "b", PARCELS)
    assert words.texts == [PARCELS]
    assert sorted(filter(None, documents(await store.search("docs", "parcels")))) == ["a", "b"]


async def test_repeated_texts_of_a_document_have_ids_of_their_own(store: FeatureStore) -> None:
    declare_docs(store, chunk_tokens=16, overlap=0)
    part = "# Again\n\nThe same words fill this paragraph until it is long enough."
    await store.index("docs", "page", f"{part}\n\n{part}\n\n{part}")
    found = await store.search("docs", "same words", top_k=20)
    assert len({chunk.id for chunk in found}) == len(found) > 2
    assert {str(chunk.id).partition("~")[2] for chunk in found} == {"", "2", "3"}


async def test_a_removed_document_is_not_found(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    await store.unindex("docs", "parcels")
    assert "parcels" not in documents(await store.search("docs", "parcels"))
    assert await store.indexes.get_document("docs", "parcels") is None
    version = await version_of(store)
    await store.unindex("docs", "parcels")
    await store.unindex("docs", "never there")
    assert await version_of(store) == version


async def test_unindexing_in_an_index_that_is_empty_does_nothing(store: FeatureStore) -> None:
    declare_docs(store)
    await store.unindex("docs", "parcels")
    assert await version_of(store) is None


async def test_whole_numbers_are_ids_of_documents(store: FeatureStore) -> None:
    declare_docs(store)
    await store.index("docs", 5, PARCELS)
    await store.index("docs", np.int64(7), RETURNS)  # type: ignore[arg-type]
    assert sorted(filter(None, documents(await store.search("docs", "days")))) == ["5", "7"]
    await store.unindex("docs", 5)
    assert documents(await store.search("docs", "days")) == ["7"]


@pytest.mark.parametrize("text", ["", " \n\t ", "x", "…", "\0", "😀" * 50, "a" * 20_000])
async def test_any_text_is_accepted(store: FeatureStore, text: str) -> None:
    declare_docs(store)
    await store.index("docs", "odd", text)
    stored = await store.indexes.get_document("docs", "odd")
    assert stored is not None
    assert stored.text == text


async def test_numbers_of_numpy_are_metadata(store: FeatureStore) -> None:
    declare_docs(store)
    metadata = {"n": np.int64(5), "x": np.float32(0.5), "all": np.array([1, 2]), "pair": (1, "a")}
    await store.index("docs", "a", PARCELS, metadata)
    (chunk,) = await store.search("docs", "parcels")
    assert chunk.metadata == {"n": 5, "x": 0.5, "all": [1, 2], "pair": [1, "a"]}


async def test_an_unknown_index_is_refused_with_the_nearest(store: FeatureStore) -> None:
    declare_docs(store)
    for call in (
        store.index("doc", "a", "text"),
        store.unindex("doc", "a"),
        store.search("doc", "text"),
        store.indexes.get_document("doc", "a"),
        store.indexes.load("doc", []),
        store.indexes.reindex("doc"),
        store.indexes.drop("doc"),
    ):
        with pytest.raises(UnknownNameError, match="unknown index 'doc'; did you mean 'docs'"):
            await call


async def test_a_failing_embedder_leaves_the_document_as_it_was(store: FeatureStore) -> None:
    words = declare_docs(store)
    await store.index("docs", "parcels", PARCELS)
    words.failures = [OSError("no connection")]
    with pytest.raises(EmbeddingError, match="no connection"):
        await store.index("docs", "parcels", RETURNS)
    assert texts(await store.search("docs", "parcels")) == [PARCELS]


async def test_vectors_of_another_dimension_are_refused_with_both_numbers(
    store: FeatureStore,
) -> None:
    Index(store, "docs", embedder=Words(8), dimensions=16)
    with pytest.raises(EmbeddingError, match=r"8 dimensions, not 16"):
        await store.index("docs", "a", PARCELS)


async def test_concurrent_writes_leave_one_version_of_a_document(store: FeatureStore) -> None:
    declare_docs(store)
    versions = [f"Parcels of version {number}." for number in range(8)]
    await asyncio.gather(*(store.index("docs", "page", text) for text in versions))
    (found,) = await store.search("docs", "parcels", top_k=100)
    stored = await store.indexes.get_document("docs", "page")
    assert stored is not None
    assert found.text == stored.text
    assert stored.text in versions
    assert stored.version == len(versions)


async def test_documents_are_loaded_in_bulk(store: FeatureStore) -> None:
    words = declare_docs(store)
    progress: list[tuple[int, int]] = []
    pages = (
        Document(number, f"Page number {number} of many.", {"n": number}) for number in range(600)
    )
    loaded = await store.indexes.load(
        "docs", pages, progress=lambda done: progress.append((done.documents, done.chunks))
    )
    assert (loaded.documents, loaded.chunks) == progress[-1] == (600, 600)
    assert len(progress) > 1
    assert len(words.texts) == 600
    (chunk,) = await store.search("docs", "page number 77", filters={"n": 77})
    assert (chunk.document, chunk.text) == ("77", "Page number 77 of many.")


async def test_a_load_that_is_repeated_embeds_only_new_documents(store: FeatureStore) -> None:
    words = declare_docs(store)

    async def pages(count: int) -> Any:
        for number in range(count):
            yield Document(number, f"Page number {number}.")

    await store.indexes.load("docs", pages(5))
    version = await version_of(store)
    repeated = await store.indexes.load("docs", pages(5))
    assert (repeated.documents, repeated.unchanged) == (0, 5)
    assert (len(words.texts), await version_of(store)) == (5, version)
    continued = await store.indexes.load("docs", pages(7))
    assert (continued.documents, continued.unchanged) == (2, 5)
    assert len(words.texts) == 7


async def test_a_load_writes_documents_whose_metadata_changed(store: FeatureStore) -> None:
    """Values that are equal in Python, such as 1 and True, are different metadata."""
    declare_docs(store)
    for metadata in ({}, {"n": 1}, {"n": True}, {"n": 1.5}):
        loaded = await store.indexes.load("docs", [Document("a", PARCELS, metadata)])
        assert (loaded.documents, loaded.unchanged) == (1, 0)
        (found,) = await store.search("docs", "parcels")
        assert repr(found.metadata) == repr(metadata)


async def test_documents_that_are_not_retained_are_removed(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.retrieval.indexing._PAGE", 2)
    declare_docs(store)
    await store.indexes.load("docs", [Document(n, f"Page {n}.") for n in range(7)])
    assert await store.indexes.retain("docs", [1, "4", 99]) == 5
    assert set(documents(await store.search("docs", "page", top_k=9))) == {"1", "4"}
    assert await store.indexes.retain("docs", []) == 2
    assert await store.indexes.retain("docs", []) == 0


async def test_of_equal_ids_in_a_load_the_last_one_counts(store: FeatureStore) -> None:
    declare_docs(store)
    await store.index("docs", "a", PARCELS)
    await store.indexes.load("docs", [Document("a", RETURNS), Document("a", PARCELS)])
    assert texts(await store.search("docs", "days")) == [PARCELS]
    await store.indexes.load("docs", [Document("a", PARCELS), Document("a", RETURNS)])
    assert texts(await store.search("docs", "days")) == [RETURNS]


@pytest.mark.parametrize(
    ("characters", "seconds", "following"),
    [
        (50_000, 0.5, 100_000),
        (50_000, 4.0, 50_000),
        (50_000, 9.0, 25_000),
        (400_000, 0.5, 400_000),
        (12_500, 60.0, 12_500),
    ],
)
def test_batches_of_a_load_take_some_seconds(
    characters: int, seconds: float, following: int
) -> None:
    assert next_size(characters, seconds) == following


async def test_a_load_refuses_something_else_than_documents(store: FeatureStore) -> None:
    declare_docs(store)
    with pytest.raises(InvalidInputError, match=r"load takes documents such as Document\(.*tuple"):
        await store.indexes.load("docs", [("a", "text")])  # type: ignore[list-item]
    assert (await store.indexes.load("docs", [])).documents == 0


async def test_the_status_of_indexes_shows_contents_and_settings(store: FeatureStore) -> None:
    declare_docs(store)
    Index(store, "empty", embedder="lexical")
    await index_all(store)
    docs, empty = await store.indexes.list()
    assert (docs.name, docs.documents, docs.chunks, docs.outdated) == ("docs", 3, 3, 0)
    assert docs.version == await version_of(store)
    assert docs.spec == docs.declared_spec
    assert docs.spec is not None
    assert (docs.spec.embedder, docs.spec.dimensions) == ("function/Words", 64)
    assert not docs.needs_reindex
    assert (empty.name, empty.documents, empty.version, empty.spec) == ("empty", 0, None, None)
    assert repr(empty) == "<IndexStatus name='empty' documents=0 chunks=0 version=None>"


async def test_a_dropped_index_is_empty_and_can_be_used_again(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    assert await store.indexes.drop("docs") == 3
    assert await store.search("docs", "parcels") == []
    assert await version_of(store) is None
    await store.index("docs", "giraffes", GIRAFFES)
    assert documents(await store.search("docs", "giraffes")) == ["giraffes"]


async def test_every_verb_has_a_blocking_form(settings: Settings) -> None:
    def use() -> list[Any]:
        store = FeatureStore(settings=settings)
        declare_docs(store)
        store.sync.index("docs", "a", PARCELS)
        found = store.sync.search("docs", "parcels")
        store.sync.indexes.load("docs", [Document("b", RETURNS)])
        stored = store.sync.indexes.get_document("docs", "b")
        store.sync.unindex("docs", "a")
        (status,) = store.sync.indexes.list()
        done = [documents(found), stored and stored.text, status.documents]
        done += [store.sync.indexes.reindex("docs"), store.sync.indexes.drop("docs")]
        store.sync.close()
        return done

    assert await asyncio.to_thread(use) == [["a"], RETURNS, 1, 0, 1]


async def test_an_index_with_another_function_is_refused_with_the_remedy(
    settings: Settings,
) -> None:
    async with FeatureStore(settings=settings) as store:
        declare_docs(store)
        await store.index("docs", "parcels", PARCELS)
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical")
        for call in (store.index("docs", "b", RETURNS), store.search("docs", "parcels")):
            with pytest.raises(IndexMismatchError) as refused:
                await call
            assert "built with function/Words (64 dimensions)" in str(refused.value)
            assert "declared with lexical" in str(refused.value)
            assert "`headwater index reindex docs`" in str(refused.value)
        # Searching by words, unchanged documents and removals need no embedder.
        assert documents(await store.search("docs", "parcel", mode="text")) == ["parcels"]
        await store.index("docs", "parcels", PARCELS, {"lang": "en"})
        await store.unindex("docs", "parcels")


async def test_a_write_with_another_chunk_size_than_declared_is_logged_once(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical", overlap=0)
        await store.index("docs", "parcels", PARCELS)
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical", overlap=0, chunk_tokens=64)
        await store.index("docs", "returns", RETURNS)
        await store.unindex("docs", "parcels")
        await store.index("docs", "parcels", PARCELS)
        (status,) = await store.indexes.list()
        assert status.differences == ["chunk_tokens: declared 64, built 400"]
    (warning,) = records(
        capfd.readouterr().err, "index was built in another way than it is declared"
    )
    assert warning["differences"] == status.differences


async def test_an_index_built_with_an_available_embedder_keeps_it_until_it_is_rebuilt(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical")
        await store.index("docs", "parcels", PARCELS)
    async with FeatureStore(settings=settings) as store:
        words = declare_docs(store)
        await store.index("docs", "returns", RETURNS)
        assert documents(await store.search("docs", "returns"))[0] == "returns"
        assert not words.texts
        (status,) = await store.indexes.list()
        assert status.needs_reindex
    (warning,) = records(
        capfd.readouterr().err, "index was built in another way than it is declared"
    )
    assert warning["remedy"] == "headwater index reindex docs"
    assert warning["differences"][0].startswith("embedder: declared function/Words, built lexical/")
