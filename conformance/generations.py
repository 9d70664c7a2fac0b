"""Conformance tests of the ``VectorIndex`` port: the generations of an index."""

from __future__ import annotations

import asyncio

import pytest

from conformance.documents import (
    OTHER_SPEC,
    SPEC,
    changed_at,
    document,
    found,
    near,
    removal,
    stored_document,
    words,
)
from conformance.suite import Connect, Opened, Suite
from headwater.core.clock import from_micros
from headwater.errors import NotFoundError
from headwater.model.indexes import Generation
from headwater.ports import NO_GENERATION, VectorIndex


async def generation(vectors: VectorIndex, number: int) -> Generation:
    """Return one generation of the index."""
    return next(each for each in await vectors.generations("docs") if each.number == number)


async def fill(vectors: VectorIndex, number: int) -> None:
    """Bring a generation up to the current versions of all documents."""
    stored = await vectors.outdated("docs", number, after="", limit=100)
    await vectors.write(
        [
            document(
                each.document,
                *each.text.split("\n"),
                metadata=each.metadata,
                generation=number,
                version=each.version,
            )
            for each in stored
        ]
    )


async def statuses(vectors: VectorIndex) -> dict[str, str]:
    """Return the status of each document."""
    stored = await vectors.documents("docs", ["a", "b"])
    return {name: each.status for name, each in stored.items()}


class GenerationsConformance(Suite):
    """Generations of an index, each complete in itself."""

    @pytest.fixture
    async def vectors(self, store: Opened) -> VectorIndex:
        """Return the vectors of a store with an empty index."""
        await store.vectors.create("docs", SPEC)
        return store.vectors

    async def test_an_index_that_was_never_created_has_no_version(self, store: Opened) -> None:
        assert await store.vectors.version("docs") is None
        assert await store.vectors.generations() == []
        assert await store.vectors.generations("docs") == []
        assert await stored_document(store.vectors, "a") is None

    async def test_the_first_generation_of_an_index_is_active_at_once(
        self, store: Opened, other: Opened
    ) -> None:
        created = await store.vectors.create("docs", SPEC)
        assert (created.number, created.state, created.spec) == (1, "active", SPEC)
        assert created.activated_at is not None
        assert created.changed_at is None
        version = await other.vectors.version("docs")
        assert version is not None
        assert (version.index, version.generation, version.spec) == ("docs", 1, SPEC)
        assert version.text == f"1.{version.changed_at}"

    async def test_a_later_generation_is_being_built_until_activate(
        self, vectors: VectorIndex
    ) -> None:
        later = await vectors.create("docs", OTHER_SPEC)
        assert (later.number, later.state, later.activated_at) == (2, "building", None)
        version = await vectors.version("docs")
        assert version is not None
        assert version.generation == 1
        assert await vectors.activate("docs", 2) == 0
        now = await vectors.version("docs")
        assert now is not None
        assert (now.generation, now.spec) == (2, OTHER_SPEC)
        assert now.changed_at > version.changed_at
        states = [(each.number, each.state) for each in await vectors.generations("docs")]
        assert states == [(1, "retired"), (2, "active")]

    async def test_hits_tell_whether_their_generation_was_the_active_one(
        self, vectors: VectorIndex
    ) -> None:
        async def active() -> list[bool]:
            queries = [near(generation=number) for number in (1, 2)]
            by_words = [words("x", generation=number) for number in (1, 2)]
            found = [await vectors.nearest(query) for query in queries]
            found += [await vectors.matching(query) for query in by_words]
            return [hits.is_active for hits in found]

        assert await active() == [True, False, True, False]
        await vectors.create("docs", OTHER_SPEC)
        assert await active() == [True, False, True, False]
        await vectors.activate("docs", 2)
        assert await active() == [False, True, False, True]
        await vectors.drop("docs")
        assert await active() == [False] * 4

    async def test_create_returns_the_newest_generation_with_the_spec(
        self, store: Opened, other: Opened
    ) -> None:
        created = await asyncio.gather(
            *(each.vectors.create("docs", SPEC) for each in (store, other) * 5)
        )
        assert {each.number for each in created} == {1}
        assert (await store.vectors.create("docs", OTHER_SPEC)).number == 2
        assert (await other.vectors.create("docs", OTHER_SPEC)).number == 2
        assert (await other.vectors.create("docs", SPEC)).number == 1

    async def test_create_never_returns_a_retired_generation(self, vectors: VectorIndex) -> None:
        await vectors.create("docs", OTHER_SPEC)
        await vectors.activate("docs", 2)
        again = await vectors.create("docs", SPEC)
        assert (again.number, again.state) == (3, "building")

    async def test_activate_changes_nothing_while_documents_are_outdated(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one"), document("b", "two")])
        before = await vectors.version("docs")
        assert (await vectors.create("docs", OTHER_SPEC)).outdated == 2
        await vectors.write([document("a", "one", generation=2)])
        assert await vectors.activate("docs", 2) == 1
        assert await vectors.version("docs") == before
        await vectors.write([document("b", "two", generation=2)])
        assert await vectors.activate("docs", 2) == 0
        assert set(await found(vectors, generation=2)) == {"one", "two"}

    async def test_activate_of_an_unknown_generation_is_an_error(
        self, vectors: VectorIndex
    ) -> None:
        with pytest.raises(NotFoundError, match="has no generation 7"):
            await vectors.activate("docs", 7)

    async def test_generations_are_counted_and_come_oldest_first(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.create("more", SPEC)
        await vectors.write([document("a", "one", "two"), document("b", "three"), document("c")])
        await vectors.create("docs", OTHER_SPEC)
        await vectors.write([document("a", "one", "four"), removal("b")])
        await vectors.write([document("a", "one", "four", generation=2)])
        listed = [
            (each.index, each.number, each.documents, each.chunks, each.outdated)
            for each in await vectors.generations()
        ]
        assert listed == [("docs", 1, 2, 2, 0), ("docs", 2, 1, 2, 1), ("more", 1, 0, 0, 0)]
        assert [each.number for each in await vectors.generations("docs")] == [1, 2]
        version = await vectors.version("docs")
        assert version is not None
        first = await generation(vectors, 1)
        assert first.changed_at == from_micros(version.changed_at)

    async def test_in_other_generations_than_that_of_the_write_the_document_is_outdated(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one"), document("b", "two")])
        await vectors.create("docs", OTHER_SPEC)
        await fill(vectors, 2)
        assert (await generation(vectors, 2)).outdated == 0
        await vectors.write([document("a", "new"), document("c", "added")])
        outdated = await vectors.outdated("docs", 2, after="", limit=10)
        assert [(each.document, each.text) for each in outdated] == [("a", "new"), ("c", "added")]
        assert set(await found(vectors, generation=2)) == {"one", "two"}
        await fill(vectors, 2)
        assert await vectors.outdated("docs", 2, after="", limit=10) == []
        assert set(await found(vectors, generation=2)) == {"new", "two", "added"}

    async def test_no_document_is_outdated_in_a_retired_generation(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one"), document("b", "two")])
        await vectors.create("docs", OTHER_SPEC)
        await fill(vectors, 2)
        await vectors.activate("docs", 2)
        await vectors.write([document("c", "added", generation=2)])
        assert (await generation(vectors, 1)).outdated == 0
        for name in "abc":
            await vectors.write([removal(name, generation=2)])
        assert (await generation(vectors, 1)).outdated == 0

    async def test_in_all_generations_the_document_is_outdated_if_that_one_is_gone(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "new", generation=7)])
        stored = await stored_document(vectors, "a")
        assert stored is not None
        assert (stored.text, stored.version) == ("new", 1)
        assert await vectors.outdated("docs", 1, after="", limit=10) == [stored]
        assert await found(vectors) == {}

    async def test_the_status_of_a_document_that_is_outdated_in_the_active_generation_is_indexing(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one"), document("b", "two")])
        await vectors.create("docs", OTHER_SPEC)
        assert await statuses(vectors) == {"a": "ready", "b": "ready"}
        await vectors.write([document("a", "new", generation=NO_GENERATION)])
        assert await statuses(vectors) == {"a": "indexing", "b": "ready"}
        await fill(vectors, 2)
        assert await statuses(vectors) == {"a": "indexing", "b": "ready"}
        await vectors.activate("docs", 2)
        assert await statuses(vectors) == {"a": "ready", "b": "ready"}

    async def test_a_write_for_a_version_that_is_not_the_current_one_is_discarded(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one"), document("b", "two"), removal("b")])
        await vectors.create("docs", OTHER_SPEC)
        await vectors.write([document("a", "new")])
        before = await vectors.generations()
        await vectors.write(
            [
                document("a", "one", generation=2, version=1),
                document("b", "two", generation=2, version=1),
                document("c", "x", generation=2, version=1),
            ]
        )
        assert await vectors.generations() == before
        assert await found(vectors, generation=2) == {}
        stored = await stored_document(vectors, "a")
        assert stored is not None
        assert stored.text == "new"

    async def test_a_write_for_the_current_version_makes_no_version(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one", metadata={"lang": "en"})])
        before = await stored_document(vectors, "a")
        await vectors.create("docs", OTHER_SPEC)
        await fill(vectors, 2)
        assert await stored_document(vectors, "a") == before
        assert (await generation(vectors, 1)).outdated == 0
        (filled,) = (await vectors.nearest(near(generation=2))).hits
        (first,) = (await vectors.nearest(near())).hits
        # A document is not fresher because it was embedded again.
        assert filled == first

    async def test_outdated_documents_come_in_pages_by_their_id(self, vectors: VectorIndex) -> None:
        names = ["ä", "b", "a", "\U0001f600", "Z", "a b", "x" * 500]
        await vectors.write([document(name, "one", metadata={"n": name}) for name in names])
        await vectors.create("docs", OTHER_SPEC)
        listed: list[str] = []
        page = await vectors.outdated("docs", 2, after="", limit=3)
        while page:
            listed += [each.document for each in page]
            page = await vectors.outdated("docs", 2, after=listed[-1], limit=3)
        assert listed == sorted(names)

    async def test_drop_removes_an_index_with_all_its_generations(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        await vectors.create("more", SPEC)
        await vectors.write([document("a", "one", index="more"), document("a", "one")])
        await vectors.write([document("b", "two"), document("c", "three"), removal("c")])
        before = await changed_at(vectors)
        await vectors.create("docs", OTHER_SPEC)
        assert await vectors.drop("docs") == 2
        assert await vectors.drop("docs") == 0
        assert await other.vectors.version("docs") is None
        assert await stored_document(other.vectors, "a") is None
        assert [each.index for each in await other.vectors.generations()] == ["more"]
        assert set(await found(vectors, index="more")) == {"one"}
        again = await vectors.create("docs", SPEC)
        assert (again.state, again.documents) == ("active", 0)
        assert again.number > 2
        assert await changed_at(other.vectors) > before
        assert await found(vectors, generation=again.number) == {}

    async def test_prune_removes_generations_that_were_replaced_before_a_time(
        self, connect: Connect, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one")])
        await vectors.create("docs", OTHER_SPEC)
        await fill(vectors, 2)
        moment = await changed_at(vectors)
        assert await vectors.activate("docs", 2) == 0
        await vectors.write([document("a", "two", generation=2)])
        assert await vectors.prune("docs", moment) == 0
        assert set(await found(vectors, as_of=moment)) == {"one"}
        assert set(await found(vectors)) == {"one"}
        assert await vectors.prune("docs", await changed_at(vectors) + 1) == 3
        assert [each.number for each in await vectors.generations("docs")] == [2]
        other = await connect()
        assert await found(other.vectors) == {}
        assert set(await found(other.vectors, generation=2)) == {"two"}
