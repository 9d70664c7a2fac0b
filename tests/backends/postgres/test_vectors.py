"""Documents, chunks and embeddings in Postgres."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from conformance.documents import stored_document
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.errors import InvalidInputError
from headwater.ports import AllOf, AnyOf, Compare, Not
from tests.backends.postgres.documents import (
    embedding,
    near,
    random_embedding,
    spec,
    with_terms,
    write,
)
from tests.backends.postgres.story import Open

X, Y, Z = embedding(1, 0, 0), embedding(0, 1, 0), embedding(0, 0, 1)


async def test_nearest_chunks_come_first(past: PostgresEnvironment) -> None:
    await past.vectors.create("docs", spec())
    await past.vectors.write([write("a", "one", vectors=[X]), write("b", "two", vectors=[Y])])
    found = await past.vectors.nearest(near(embedding(2, 1, 0)))
    assert [hit.document for hit in found.hits] == ["a", "b"]
    assert [hit.score for hit in found.hits] == pytest.approx([2 / 5**0.5, 1 / 5**0.5], abs=1e-5)
    version = await past.vectors.version("docs")
    assert version is not None
    assert found.changed_at == version.changed_at


async def test_counters_follow_every_write(past: PostgresEnvironment) -> None:
    vectors = past.vectors
    await vectors.create("docs", spec())
    await vectors.write([write("a", "one", "two"), write("b", "three")])
    await vectors.create("docs", spec(embedder="test/other"))
    await vectors.write([write("a", "one", "four", generation=2)])
    await vectors.write([write("b"), write("c", "five")])
    first, second = await vectors.generations("docs")
    assert (first.documents, first.chunks, first.outdated) == (2, 3, 1)
    assert (second.documents, second.chunks, second.outdated) == (1, 2, 1)
    assert [each.document for each in await vectors.outdated("docs", 2, after="", limit=9)] == ["c"]
    assert await vectors.activate("docs", 2) == 1
    await vectors.write([write("c", "five", generation=2, version=1)])
    assert await vectors.activate("docs", 2) == 0
    version = await vectors.version("docs")
    assert version is not None
    assert version.generation == 2


async def test_a_past_search_finds_replaced_chunks(past: PostgresEnvironment) -> None:
    vectors = past.vectors
    await vectors.create("docs", spec())
    await vectors.write([write("a", "old", vectors=[X])])
    before = await vectors.version("docs")
    assert before is not None
    await vectors.write([write("a", "new", vectors=[X]), write("b", "new too", vectors=[Y])])
    then = await vectors.nearest(near(X, as_of=before.changed_at))
    assert [hit.text for hit in then.hits] == ["old"]
    matched = await vectors.matching(with_terms("old", "new", as_of=before.changed_at))
    assert [hit.text for hit in matched.hits] == ["old"]
    assert [hit.text for hit in (await vectors.nearest(near(X))).hits] == ["new", "new too"]
    assert await vectors.prune("docs", before.changed_at + 10**12) == 1
    assert (await vectors.nearest(near(X, as_of=before.changed_at))).hits == []


async def test_bm25_is_exact(past: PostgresEnvironment) -> None:
    vectors = past.vectors
    await vectors.create("docs", spec())
    texts = {"a": "cat cat dog", "b": "cat", "c": "bird " * 300, "d": "dog bird fish fish fish"}
    await vectors.write([write(name, text) for name, text in texts.items()])
    found = await vectors.matching(with_terms("cat", "fish", "bird"))
    lengths = {name: len(text.split()) for name, text in texts.items()}
    average = sum(lengths.values()) / 4

    def score(name: str) -> float:
        total = 0.0
        for term in ("cat", "fish", "bird"):
            having = sum(term in text.split() for text in texts.values())
            idf = math.log(1 + (4 - having + 0.5) / (having + 0.5))
            count = min(texts[name].split().count(term), 255)
            norm = 1.2 * (0.25 + 0.75 * lengths[name] / average)
            total += idf * count * 2.2 / (count + norm)
        return total

    assert {hit.document: hit.score for hit in found.hits} == {
        name: pytest.approx(score(name), rel=1e-6) for name in texts
    }
    enough = await vectors.matching(with_terms("cat", "fish", "bird", min_terms=2))
    assert [hit.document for hit in enough.hits] == ["d"]


@pytest.mark.parametrize(
    "term",
    [
        "it's",
        "back\\slash",
        "a\\'b",
        "'",
        "\\",
        "zero\0byte",
        "\x01",
        "ä" * 3_000,
        "a & !b | (c:*)",
    ],
)
async def test_any_term_is_found(past: PostgresEnvironment, term: str) -> None:
    await past.vectors.create("docs", spec())
    given = write("a\0b", "text\0", metadata={"na\0me": "va\0lue"})
    chunks = [given.chunks[0].__class__("id\0", 0, "te\0xt", "sha256:1", X, [term, "other"])]
    given = type(given)(
        index="docs",
        document="a\0b",
        text="te\0xt",
        metadata={"na\0me": "va\0lue"},
        generation=1,
        chunks=chunks,
    )
    await past.vectors.write([given, write("b", "unrelated")])
    [hit] = (await past.vectors.matching(with_terms(term))).hits
    assert (hit.id, hit.document, hit.text) == ("id\0", "a\0b", "te\0xt")
    assert hit.metadata == {"na\0me": "va\0lue"}
    wanted = near(X, filters=Compare("na\0me", "eq", "va\0lue"))
    assert [hit.document for hit in (await past.vectors.nearest(wanted)).hits] == ["a\0b"]
    stored = await stored_document(past.vectors, "a\0b")
    assert stored is not None
    assert stored.text == "te\0xt"


async def test_a_selective_filter_finds_all_its_chunks(opening: Open, database: Connection) -> None:
    """Five of many chunks, none of them near the query."""
    past = await opening(vectors={"max_scan_tuples": 100})
    chance = random.Random(1)
    await past.vectors.create("docs", spec(8))
    texts = [str(number) for number in range(1_000)]
    await past.vectors.write(
        [
            write(
                text,
                text,
                vectors=[random_embedding(chance, 8)],
                metadata={"rare": int(text) % 200 == 0, "number": int(text)},
            )
            for text in texts
        ]
    )
    await database.execute("ANALYZE")
    query = near(random_embedding(chance, 8), filters=Compare("rare", "eq", value=True))
    found = await past.vectors.nearest(query)
    assert sorted(int(hit.document) for hit in found.hits) == [0, 200, 400, 600, 800]


async def test_filters(past: PostgresEnvironment) -> None:
    await past.vectors.create("docs", spec())
    metadata: dict[str, dict[str, Any]] = {
        "a": {"n": 1, "s": "x", "tags": ["p", "q"]},
        "b": {"n": 2.5, "s": "y", "tags": []},
        "c": {"n": True, "s": None},
        "d": {"n": "1", "s": "é"},
        "e": {"n": 2**63, "nested": {"n": 1}},
    }
    await past.vectors.write([write(name, name, metadata=each) for name, each in metadata.items()])

    async def found(given: Compare | AllOf | AnyOf | Not) -> str:
        hits = (await past.vectors.nearest(near(X, filters=given))).hits
        return "".join(sorted(hit.document for hit in hits))

    assert await found(Compare("n", "eq", 1.0)) == "a"
    assert await found(Compare("n", "eq", "1")) == "d"
    assert await found(Compare("n", "eq", value=True)) == "c"
    assert await found(Compare("n", "eq", float(2**63))) == "e"
    assert await found(Compare("n", "gt", 1)) == "be"
    assert await found(Compare("n", "lte", 2.5)) == "ab"
    assert await found(Compare("s", "gt", "x")) == "bd"
    assert await found(Compare("s", "eq", None)) == "c"
    assert await found(Compare("tags", "eq", "q")) == "a"
    assert await found(Compare("tags", "in", ["z", "p"])) == "a"
    assert await found(Not(Compare("n", "gt", 1))) == "acd"
    assert await found(AllOf([])) == "abcde"
    assert await found(AnyOf([])) == ""
    assert await found(AnyOf([Compare("n", "eq", 1), Compare("s", "in", ["y"])])) == "ab"


async def test_an_embedding_of_another_size_is_refused(past: PostgresEnvironment) -> None:
    await past.vectors.create("docs", spec())
    with pytest.raises(InvalidInputError, match="2 dimensions, and the generation 3"):
        await past.vectors.write([write("a", "one", vectors=[embedding(1, 0)])])
    with pytest.raises(InvalidInputError, match="2 dimensions, and the generation 3"):
        await past.vectors.nearest(near(embedding(1, 0)))


async def test_drop_removes_the_tables(past: PostgresEnvironment, database: Connection) -> None:
    await past.vectors.create("docs", spec())
    await past.vectors.write([write("a", "one")])
    assert await past.vectors.drop("docs") == 1
    assert await past.vectors.version("docs") is None
    assert await past.vectors.generations("docs") == []
    assert (await past.vectors.nearest(near(X))).hits == ()
    tables = await database.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_chunks%' "
        "AND relnamespace = current_schema()::regnamespace"
    )
    assert tables == 0
    generation = await past.vectors.create("docs", spec())
    assert generation.number == 2
    assert await stored_document(past.vectors, "a") is None


@pytest.mark.parametrize("halfvec", [True, False])
async def test_embeddings_are_read_back(opening: Open, halfvec: bool) -> None:
    past = await opening(vectors={"halfvec": halfvec})
    await past.vectors.create("docs", spec())
    vector = embedding(1, 2, 3)
    given = write("a", "one", vectors=[vector])
    await past.vectors.write([given])
    key = given.chunks[0].content_hash
    found = await past.vectors.embeddings("docs", 1, [key, "sha256:unknown"])
    assert [*found] == [key]
    if not halfvec:
        assert found[key] == vector
    [hit] = (await past.vectors.nearest(near(vector, with_embeddings=True))).hits
    assert hit.embedding == found[key]
    assert hit.score == pytest.approx(1, abs=1e-2 if halfvec else 1e-5)


async def test_of_equal_scores_the_smaller_ids_are_found(past: PostgresEnvironment) -> None:
    await past.vectors.create("docs", spec())
    names = [f"d{number:03}" for number in range(100)]
    await past.vectors.write([write(name, name, vectors=[X]) for name in reversed(names)])
    found = await past.vectors.nearest(near(X, limit=7))
    assert [hit.document for hit in found.hits] == names[:7]


@pytest.mark.parametrize(("dimensions", "storage"), [(1_600, b"p"), (1_601, b"e")])
async def test_embeddings_are_in_the_rows_if_these_fit_into_a_page(
    past: PostgresEnvironment, database: Connection, dimensions: int, storage: bytes
) -> None:
    await past.vectors.create("docs", spec(dimensions))
    rng = random.Random(5)
    vector = random_embedding(rng, dimensions)
    words = " ".join(rng.randbytes(8).hex() for _ in range(2_000))
    document = "d" + rng.randbytes(250).hex()
    metadata = {"note": rng.randbytes(4_000).hex()}
    await past.vectors.write([write(document, words, metadata=metadata, vectors=[vector])])
    [hit] = (await past.vectors.nearest(near(vector))).hits
    assert (hit.document, hit.text) == (document, words)
    found = await database.fetchval(
        "SELECT attstorage FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relname LIKE '\\_chunks\\__' AND attname = 'embedding' "
        "AND relnamespace = current_schema()::regnamespace"
    )
    assert found == storage
