"""Listing the documents of an index: pages, prefixes, filters, and what contexts note of it."""

from __future__ import annotations

import pytest

from headwater import Chunk, Document, FeatureStore, context, retriever
from headwater.errors import InvalidInputError, UnknownNameError
from tests.retrieval.support import declare_docs


async def load_pages(store: FeatureStore, count: int) -> None:
    declare_docs(store)
    pages = [
        Document(f"{'odd' if number % 2 else 'even'}/{number:04}", "", {"number": number})
        for number in range(count)
    ]
    await store.indexes.load("docs", pages)


async def listed(store: FeatureStore, **options: object) -> list[str]:
    """Return the ids of all pages."""
    ids, cursor = [], None
    while True:
        page = await store.indexes.list_documents("docs", cursor=cursor, **options)  # type: ignore[arg-type]
        ids += [each.document for each in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            return ids


@pytest.mark.both_environments
async def test_pages_have_all_documents_once_by_id_prefix_and_filter(store: FeatureStore) -> None:
    await load_pages(store, 25)
    ids = sorted(f"{'odd' if number % 2 else 'even'}/{number:04}" for number in range(25))
    for limit in (1, 7, 25, 1_000):
        assert await listed(store, limit=limit) == ids
        odd = [each for each in ids if each.startswith("odd/")]
        assert await listed(store, limit=limit, prefix="odd/") == odd
        late = {"number": {"$gte": 20}}
        assert await listed(store, limit=limit, filters=late, prefix="odd/") == odd[-2:]
    page = await store.indexes.list_documents("docs", limit=25)
    assert (len(page.documents), page.next_cursor) == (25, None)
    assert repr(page) == "<DocumentPage documents=25, the last page>"
    first = page.to_dicts()[0]
    assert (first["document"], first["version"], first["status"]) == ("even/0000", 1, "ready")
    assert first["metadata"] == {"number": 0}


async def test_a_call_with_a_filter_looks_at_a_bounded_number_of_documents(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.retrieval.indexing._PAGE", 3)
    monkeypatch.setattr("headwater.retrieval.indexing._MOST_PAGES", 2)
    await load_pages(store, 20)
    page = await store.indexes.list_documents("docs", filters={"number": 19})
    assert (page.documents, page.next_cursor) == ([], "even/0010")
    assert await listed(store, filters={"number": 19}) == ["odd/0019"]


async def test_a_removed_document_is_not_listed_and_an_unknown_index_is_named(
    store: FeatureStore,
) -> None:
    await load_pages(store, 3)
    await store.unindex("docs", "odd/0001")
    assert await listed(store) == ["even/0000", "even/0002"]
    with pytest.raises(UnknownNameError, match="did you mean 'docs'"):
        await store.indexes.list_documents("doc")
    for invalid in ({"cursor": "\n"}, {"prefix": "\ud800"}, {"filters": {"n": {"$gt": None}}}):
        with pytest.raises(InvalidInputError):
            await store.indexes.list_documents("docs", **invalid)


@pytest.mark.both_environments
async def test_what_lists_documents_is_found_by_them_and_never_served_stale(
    store: FeatureStore,
) -> None:
    await load_pages(store, 3)

    @retriever(store, cache_ttl="1h")
    async def titles(prefix: str) -> list[Chunk]:
        page = await store.indexes.list_documents("docs", prefix=prefix)
        return [Chunk(text=each.document) for each in page.documents]

    @context(store)
    async def contents(prefix: str) -> str:
        return " ".join(chunk.text for chunk in await titles(prefix))

    made = await contents("odd/")
    assert made.content == "odd/0001"
    (record,) = (await store.records.find(document="odd/0001")).contexts
    assert record.context_id == made.context_id
    await store.index("docs", "odd/0003", "")
    assert (await contents("odd/")).content == "odd/0001 odd/0003"
