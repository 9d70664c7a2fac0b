"""Conformance tests of the ``VectorIndex`` port: documents and their chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.documents import (
    SPEC,
    changed_at,
    chunk,
    document,
    found,
    listed,
    near,
    removal,
    stored_document,
    texts,
    words,
)
from conformance.suite import Opened, Suite, outcome
from headwater.core.clock import from_micros
from headwater.errors import HeadwaterError, LeaseLostError
from headwater.ports import DocumentWrite, VectorIndex


class VectorIndexConformance(Suite):
    """Documents, their chunks and the embeddings of these."""

    @pytest.fixture
    async def vectors(self, store: Opened) -> VectorIndex:
        """Return the vectors of a store with an empty index."""
        await store.vectors.create("docs", SPEC)
        return store.vectors

    async def test_a_write_that_has_returned_is_seen_by_every_later_search(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        for number in range(20):
            await vectors.write([document("a", f"text {number}")])
            assert set(await found(other.vectors)) == {f"text {number}"}
            assert texts(await other.vectors.matching(words(str(number)))) == [f"text {number}"]
            assert await changed_at(other.vectors) == await changed_at(vectors)

    async def test_a_write_whose_batch_was_committed_is_seen_by_every_later_search(
        self, store: Opened, other: Opened
    ) -> None:
        await store.vectors.create("docs", SPEC)
        before = await changed_at(store.vectors)
        _, batch = await store.take_clicks(2)
        writes = [document("a", "one"), document("b", "two"), document("a", "three")]
        await store.bus.commit(msgspec.structs.replace(outcome(batch), documents=writes))
        assert await changed_at(other.vectors) > before
        assert set(await found(other.vectors)) == {"two", "three"}
        stored = await stored_document(other.vectors, "a")
        assert stored is not None
        assert stored.version == 2

    async def test_a_write_that_is_ordered_and_about_an_earlier_time_than_the_document_is_discarded(
        self, store: Opened, vectors: VectorIndex
    ) -> None:
        def about(as_of: int, text: str | None) -> DocumentWrite:
            write = removal("a") if text is None else document("a", text)
            return msgspec.structs.replace(write, as_of=as_of, is_ordered=True)

        await vectors.write([about(10, "ten")])
        await vectors.write([about(20, "twenty"), about(15, "late")])
        assert set(await found(vectors)) == {"twenty"}
        # The same text again, about a later time.
        await vectors.write([about(30, "twenty"), about(25, "late"), about(25, None)])
        assert set(await found(vectors)) == {"twenty"}
        # Also by the documents of a batch, and of two of one moment the later one counts.
        _, batch = await store.take_clicks(1)
        writes = [about(29, "late"), about(30, "thirty")]
        await store.bus.commit(msgspec.structs.replace(outcome(batch), documents=writes))
        assert set(await found(vectors)) == {"thirty"}
        await vectors.write([about(50, None), about(40, "late")])
        assert set(await found(vectors)) == set()
        # A write that is not ordered is about its own time, or leaves the document at a later one.
        await vectors.write([document("a", "now"), about(60, "late")])
        assert set(await found(vectors)) == {"now"}

    async def test_a_batch_that_is_not_committed_writes_no_document(
        self, store: Opened, other: Opened
    ) -> None:
        await store.vectors.create("docs", SPEC)
        _, batch = await store.take_clicks(1)
        lost = msgspec.structs.replace(batch.lease, epoch=batch.lease.epoch - 1)
        stale = msgspec.structs.replace(batch, lease=lost)
        with pytest.raises(LeaseLostError):
            await store.bus.commit(
                msgspec.structs.replace(outcome(stale), documents=[document("a", "one")])
            )
        assert await found(other.vectors) == {}
        assert await stored_document(other.vectors, "a") is None

    async def test_a_search_finds_the_chunks_of_one_version_of_a_document(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        async def rewrite() -> None:
            for number in range(30):
                await vectors.write([document("a", *(f"{number} {part}" for part in range(5)))])

        writer = asyncio.create_task(rewrite())
        while not writer.done():
            await asyncio.sleep(0)
            for hits in (
                await other.vectors.nearest(near()),
                await other.vectors.matching(words(*map(str, range(5)))),
            ):
                versions = [text.split()[0] for text in texts(hits)]
                assert len(set(versions)) <= 1
                assert len(versions) in (0, 5)
        await writer

    async def test_a_write_is_stored_all_or_none(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "old")])
        wrong = msgspec.structs.replace(
            document("b", "two"),
            chunks=[msgspec.structs.replace(chunk("b", "two"), embedding=b"\0" * 8)],
        )
        with pytest.raises(HeadwaterError, match="dimensions"):
            await vectors.write([document("a", "new"), wrong])
        assert set(await found(vectors)) == {"old"}
        stored = await stored_document(vectors, "a")
        assert stored is not None
        assert (stored.text, stored.version) == ("old", 1)

    async def test_writes_take_effect_in_the_given_order(self, vectors: VectorIndex) -> None:
        await vectors.write(
            [document("a", "one"), document("a", "two"), document("b", "x"), removal("b")]
        )
        assert set(await found(vectors)) == {"two"}
        stored = await stored_document(vectors, "a")
        assert stored is not None
        assert stored.version == 2
        assert await stored_document(vectors, "b") is None

    async def test_a_document_that_is_stored_in_this_form_is_left_as_it_is(
        self, vectors: VectorIndex
    ) -> None:
        write = document("a", "one", "two", metadata={"b": [1, None], "a": {"x": 1.5}})
        await vectors.write([write])
        before = await vectors.version("docs"), await stored_document(vectors, "a")
        same = msgspec.structs.replace(write, metadata={"a": {"x": 1.5}, "b": [1, None]})
        await vectors.write([same])
        assert (await vectors.version("docs"), await stored_document(vectors, "a")) == before

    async def test_a_chunk_with_id_position_and_metadata_of_a_current_one_is_kept(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one", "two", "three")])
        first = await found(vectors)
        await vectors.write([document("a", "one", "three", "four")])
        hits = await found(vectors)
        assert {text: hit.version for text, hit in hits.items()} == {
            "one": 1,
            "three": 2,
            "four": 2,
        }
        assert hits["one"] == first["one"]
        assert hits["three"].position == 1
        assert hits["four"].indexed_at == await changed_at(vectors) > first["one"].indexed_at

    async def test_a_chunk_of_other_metadata_is_replaced(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "one", metadata={"lang": "en"})])
        await vectors.write([document("a", "one", metadata={"lang": "de"})])
        (hit,) = (await vectors.nearest(near())).hits
        assert (hit.version, hit.metadata) == (2, {"lang": "de"})

    async def test_a_write_to_an_index_that_was_dropped_is_discarded(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.create("more", SPEC)
        await vectors.drop("docs")
        await vectors.write([document("a", "one"), document("b", "two", index="more")])
        assert await vectors.version("docs") is None
        assert await stored_document(vectors, "a") is None
        assert set(await found(vectors, index="more")) == {"two"}

    async def test_embeddings_are_known_by_their_content_hash(self, vectors: VectorIndex) -> None:
        vectors_ = [(1, 2, 3, 4), (-1, 0, 0, 0), (0, 0, 1, 1)]
        write = document("a", "one", "two", "three", vectors=vectors_)
        await vectors.write([write, document("b", "two", vectors=vectors_[1:2])])
        known = {each.content_hash: each.embedding for each in write.chunks}
        asked = [write.chunks[0].content_hash, write.chunks[1].content_hash, "sha256:unknown"]
        assert await vectors.embeddings("docs", 1, asked) == {
            each: known[each] for each in asked[:2]
        }
        assert await vectors.embeddings("docs", 1, []) == {}
        assert await vectors.embeddings("docs", 2, asked) == {}
        assert await vectors.embeddings("none", 1, asked) == {}

    async def test_a_document_is_stored_as_it_was_written(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        text = "ü \U0001f600 'quoted\" \\ %s \r\n\t \0 end"
        metadata: dict[str, Any] = {
            "": None,
            "a.b": [1, 2.5, "x", [True]],
            "ü'\"": {"x": {"y": []}},
            "n": -(2**63),
        }
        name = "a'\"/#ü\0b"
        write = document(name, text, metadata=metadata)
        await vectors.write([write])
        stored = await stored_document(other.vectors, name)
        assert stored is not None
        assert (stored.text, stored.metadata, stored.version) == (text, metadata, 1)
        assert stored.indexed_at == from_micros(await changed_at(vectors))
        (hit,) = (await other.vectors.nearest(near())).hits
        (written,) = write.chunks
        assert (hit.id, hit.document, hit.position) == (written.id, name, 0)
        assert (hit.text, hit.content_hash, hit.metadata) == (text, written.content_hash, metadata)

    async def test_the_ids_of_documents_are_returned_in_their_order(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        names = ["a", "b", "ü", "a" * 200 + "2", "a" * 200 + "1", "B", "\U0001f600"]
        await vectors.write([document(name, "text") for name in names])
        await vectors.write([removal("b")])
        ordered = sorted(set(names) - {"b"})
        assert await listed(other.vectors) == ordered
        assert await listed(other.vectors, limit=2) == ordered[:2]
        assert await listed(other.vectors, after=ordered[1], limit=3) == ordered[2:5]
        assert await listed(other.vectors, after="\U0001f600") == []
        assert await other.vectors.list_documents("none", after="", limit=3) == []

    async def test_documents_whose_ids_begin_with_a_prefix_are_listed_without_their_texts(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        long = "a" * 200
        names = ["a", "a/", "a/1", "a/\U0010fffd", "a0", "b", f"{long}1", f"{long}2", f"{long}/3"]
        await vectors.write([document(name, "text", metadata={"of": name}) for name in names])
        await vectors.write([document("a/1", "text again"), removal("b")])
        for prefix in ("", "a", "a/", "a/1", long, f"{long}2", "b", "c"):
            expected = sorted(each for each in names if each.startswith(prefix) and each != "b")
            assert await listed(other.vectors, prefix=prefix) == expected
            assert await listed(other.vectors, prefix=prefix, limit=1) == expected[:1]
            for after in expected:
                later = [each for each in expected if each > after]
                assert await listed(other.vectors, prefix=prefix, after=after) == later
        (entry,) = await other.vectors.list_documents("docs", prefix="a/1", after="", limit=9)
        stored = await stored_document(other.vectors, "a/1")
        assert stored is not None
        assert (entry.index, entry.document, entry.version) == ("docs", "a/1", 2)
        assert (entry.indexed_at, entry.metadata, entry.status) == (stored.indexed_at, {}, "ready")

    async def test_a_search_does_not_find_chunks_that_were_replaced_and_pruned_since_the_last_one(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        await vectors.write([document("a", "one two"), document("b", "one")])
        assert set(await found(other.vectors)) == {"one two", "one"}
        await vectors.write([document("a", "three")])
        assert await vectors.prune("docs", await changed_at(vectors) + 1) == 1
        await vectors.write([document("b", "one four")])
        assert set(await found(other.vectors)) == {"three", "one four"}
        assert texts(await other.vectors.matching(words("one"))) == ["one four"]

    async def test_prune_removes_chunks_that_were_replaced_before_a_time(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        moments = []
        for text in ("one", "two", "three"):
            await vectors.write([document("a", text, "kept")])
            moments.append(await changed_at(vectors))
        assert set(await found(other.vectors, as_of=moments[0])) == {"one", "kept"}
        assert await vectors.prune("docs", moments[0]) == 0
        assert await vectors.prune("docs", moments[1]) == 0
        assert await vectors.prune("docs", moments[1] + 1) == 1
        assert set(await found(other.vectors, as_of=moments[0])) == {"kept"}
        assert texts(await other.vectors.matching(words("one", "kept", as_of=moments[0]))) == [
            "kept"
        ]
        assert set(await found(other.vectors, as_of=moments[1])) == {"two", "kept"}
        assert set(await found(other.vectors)) == {"three", "kept"}
        assert await vectors.prune("docs", moments[2] + 1) == 1
        assert await vectors.prune("none", moments[2]) == 0
