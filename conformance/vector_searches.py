"""Conformance tests of the ``VectorIndex`` port: searches by embedding, words and filters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import Any

import msgspec
import pytest

from conformance.documents import (
    EAST,
    NORTH,
    SPEC,
    changed_at,
    document,
    embedding,
    found,
    near,
    removal,
    texts,
    words,
)
from conformance.suite import Opened, Suite
from headwater.declarations.filters import matches
from headwater.errors import HeadwaterError
from headwater.ports import AllOf, AnyOf, Compare, DocumentWrite, Filter, Not, VectorIndex
from headwater.ports.vectors import Scalar

PRECISION = 1e-5

METADATA: Sequence[Mapping[str, Any]] = [
    {},
    {"x": 1},
    {"x": 1.0},
    {"x": True},
    {"x": "1"},
    {"x": None},
    {"x": 0},
    {"x": False},
    {"x": -0.5},
    {"x": ""},
    {"x": "a"},
    {"x": "B"},
    {"x": "ä"},
    {"x": "\uffff"},
    {"x": "\U0001f600"},
    {"x": 'it\'s "q" \\ %'},
    {"x": []},
    {"x": [1, "a", None]},
    {"x": [True, [2]]},
    {"x": [2, 2, {"y": 1}]},
    {"x": {"y": 1}},
    {"x": 2**53 + 1},
    {"x": float(2**53)},
    {"x": 2**63 - 1},
    {"x.y": 1},
    {"": 1},
    {"ü'\"$": 1, "x": 2},
    {"X": 1},
]
VALUES: Sequence[Any] = [
    *(None, True, False, 0, 1, 1.0, 2, -0.5, 2**53 + 1, float(2**53), 2**63 - 1),
    *("", "1", "a", "B", "ä", "\uffff", "\U0001f600", 'it\'s "q" \\ %'),
]

UNUSUAL_TERMS = (
    *('"', "'", "a b", "A", "a*", "NEAR", "OR", "a:b", "^a", "-a", "ü", "日本", "\U0001f600"),
    *("\\", "%", "_", "_41", "a.b", ".", "(", "\t", "&", "|", "!", "<->", "x" * 3_000),
)


def every_comparison() -> list[Filter]:
    """Return comparisons of every operator with every kind of value, and hostile names."""
    compared = [
        Compare("x", operator, value)
        for operator in ("eq", "gt", "gte", "lt", "lte")
        for value in VALUES
    ]
    lists: list[list[Scalar]] = [[], [1], [True, "a"], ["ä", None, 2.0]]
    among = [Compare("x", "in", values) for values in lists]
    named = [Compare(name, "eq", 1) for name in ("", "x.y", "ü'\"$", "X", "$.x", "none", "x]")]
    return [*compared, *among, *named]


def combined(rng: random.Random, depth: int) -> Filter:
    """Return a random condition."""
    if depth == 0:
        return rng.choice(every_comparison())
    conditions = [combined(rng, depth - 1) for _ in range(rng.randrange(3))]
    choices: list[Filter] = [
        AllOf(conditions),
        AnyOf(conditions),
        Not(combined(rng, depth - 1)),
    ]
    return rng.choice(choices)


def bm25(wanted: Sequence[str], chunks: Sequence[Sequence[str]]) -> list[float]:
    """Return the score of each chunk, with the formula that all stores use."""
    mean = sum(map(len, chunks)) / len(chunks)
    scores = [0.0] * len(chunks)
    for term in set(wanted):
        frequency = sum(term in chunk for chunk in chunks)
        weight = log(1 + (len(chunks) - frequency + 0.5) / (frequency + 0.5))
        for n, chunk in enumerate(chunks):
            count = Counter(chunk)[term]
            scores[n] += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(chunk) / mean))
    return scores


def with_terms(write: DocumentWrite, terms: Sequence[str]) -> DocumentWrite:
    """Return a document whose chunks have these terms."""
    chunks = [msgspec.structs.replace(chunk, terms=terms) for chunk in write.chunks]
    return msgspec.structs.replace(write, chunks=chunks)


class VectorSearchConformance(Suite):
    """Searches of the chunks of a generation."""

    @pytest.fixture
    async def vectors(self, store: Opened) -> VectorIndex:
        """Return the vectors of a store with an empty index."""
        await store.vectors.create("docs", SPEC)
        return store.vectors

    async def test_scores_are_cosines_and_the_nearest_chunk_comes_first(
        self, vectors: VectorIndex
    ) -> None:
        directions = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (-2, 0, 0, 0), (3, 4, 0, 0)]
        names = ["same", "half", "across", "opposite", "near"]
        await vectors.write([document("a", *names, vectors=directions)])
        hits = (await vectors.nearest(near(EAST))).hits
        assert [hit.text for hit in hits] == ["same", "half", "near", "across", "opposite"]
        cosines = [1, 1 / sqrt(2), 0.6, 0, -1]
        assert [hit.score for hit in hits] == pytest.approx(cosines, abs=PRECISION)
        limited = (await vectors.nearest(near(EAST, limit=2))).hits
        assert limited == hits[:2]

    async def test_of_equal_scores_the_smaller_chunk_id_comes_first(
        self, vectors: VectorIndex
    ) -> None:
        names = ["c", "b", "ä", "Z", "a", "d"]
        await vectors.write([document(name, "same text") for name in names])
        for limit in (1, 3, 6):
            near_ones = (await vectors.nearest(near(limit=limit))).hits
            matching = (await vectors.matching(words("same", limit=limit))).hits
            assert [hit.document for hit in near_ones] == sorted(names)[:limit]
            assert [hit.document for hit in matching] == sorted(names)[:limit]

    async def test_hits_below_the_minimum_score_are_left_out(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "one", "two", vectors=[EAST, (1, 1, 0, 0)])])
        assert texts(await vectors.nearest(near(min_score=0.7))) == ["one", "two"]
        assert texts(await vectors.nearest(near(min_score=0.72))) == ["one"]
        assert texts(await vectors.nearest(near(NORTH, min_score=0.8))) == []

    async def test_embeddings_come_with_the_hits_on_request(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "one", "two", vectors=[(1, 2, 3, 4), NORTH])])
        wanted = {"one": embedding(1, 2, 3, 4), "two": embedding(*NORTH)}
        asked = await found(vectors, with_embeddings=True)
        assert {text: hit.embedding for text, hit in asked.items()} == wanted
        (hit,) = (await vectors.matching(words("one", with_embeddings=True))).hits
        assert hit.embedding == wanted["one"]
        assert {hit.embedding for hit in (await found(vectors)).values()} == {None}

    async def test_an_embedding_of_other_dimensions_is_refused(self, vectors: VectorIndex) -> None:
        with pytest.raises(HeadwaterError, match="dimensions"):
            await vectors.nearest(near((1, 0)))

    async def test_a_search_of_an_unknown_generation_finds_nothing(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "one")])
        assert await found(vectors, generation=2) == {}
        assert await found(vectors, index="none") == {}
        assert (await vectors.matching(words("one", generation=2))).hits == ()

    async def test_hits_tell_the_time_of_the_last_change_that_was_searched(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        for text in ("one", "two"):
            await vectors.write([document("a", text)])
            moment = await changed_at(vectors)
            assert (await other.vectors.nearest(near())).changed_at == moment
            assert (await other.vectors.matching(words("none"))).changed_at == moment

    async def test_a_search_of_the_past_finds_the_chunks_that_were_current_then(
        self, vectors: VectorIndex, other: Opened
    ) -> None:
        before = await changed_at(vectors)
        rng = random.Random(7)
        past: list[tuple[int, list[Any]]] = []
        for number in range(12):
            name = rng.choice("abc")
            vector = tuple(rng.uniform(-1, 1) for _ in EAST)
            if number % 4 == 3:
                await vectors.write([removal(name)])
            else:
                await vectors.write([document(name, f"x {number}", "x y", vectors=[vector, EAST])])
            hits = [await vectors.nearest(near()), await vectors.matching(words("x", "y"))]
            past.append((await changed_at(vectors), [each.hits for each in hits]))
        for moment, (nearest, matching) in past:
            then = (await other.vectors.nearest(near(as_of=moment))).hits
            assert then == nearest
            assert (await other.vectors.matching(words("x", "y", as_of=moment))).hits == matching
        assert (await vectors.nearest(near(as_of=before))).hits == []
        future = (await vectors.nearest(near(as_of=past[-1][0] + 10**12))).hits
        assert future == past[-1][1][0]

    async def test_chunks_that_have_any_of_the_terms_are_found_with_bm25_scores(
        self, vectors: VectorIndex
    ) -> None:
        rng = random.Random(3)
        chunks = [
            " ".join(rng.choice("abcdefgh") for _ in range(rng.randrange(1, 20))) for _ in range(40)
        ]
        chunks = list(dict.fromkeys(chunks))
        await vectors.write([document(f"d{n}", text) for n, text in enumerate(chunks)])
        for wanted in (["a"], ["a", "b"], ["h", "a", "h"], ["zebra", "c"]):
            expected = {
                chunks[n]: score
                for n, score in enumerate(bm25(wanted, [each.split() for each in chunks]))
                if score > 0
            }
            hits = (await vectors.matching(words(*wanted))).hits
            assert {hit.text: hit.score for hit in hits} == pytest.approx(expected, abs=PRECISION)
            best_first = sorted(expected.values(), reverse=True)
            assert [hit.score for hit in hits] == pytest.approx(best_first, abs=PRECISION)
            assert len((await vectors.matching(words(*wanted, limit=3))).hits) == 3

    async def test_chunks_with_too_few_of_the_different_terms_are_not_found(
        self, vectors: VectorIndex
    ) -> None:
        await vectors.write([document("a", "x x x"), document("b", "x y"), document("c", "x y z")])
        await vectors.write([document("d", "x y z")])
        await vectors.write([document("d", "y")])
        for enough, expected in ((1, "abcd"), (2, "bc"), (3, "c"), (4, "")):
            hits = (await vectors.matching(words("x", "y", "x", "z", min_terms=enough))).hits
            assert {hit.document for hit in hits} == set(expected)
        best = (await vectors.matching(words("x", "y", "z"))).hits[0]
        chosen = await vectors.matching(words("x", "y", "z", min_terms=3))
        assert list(chosen.hits) == [best]

    async def test_replaced_chunks_do_not_count_in_scores(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "x y"), document("b", "y z z")])
        alone = (await vectors.matching(words("x"))).hits
        for number in range(5):
            await vectors.write([document("c", f"x {number}")])
        await vectors.write([removal("c")])
        assert (await vectors.matching(words("x"))).hits == alone

    async def test_a_search_without_terms_finds_nothing(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "one")])
        assert texts(await vectors.matching(words())) == []
        assert texts(await vectors.matching(words("two"))) == []

    async def test_a_term_may_have_any_characters(self, vectors: VectorIndex) -> None:
        writes = []
        for number, term in enumerate(UNUSUAL_TERMS):
            other_terms = ["plain", "a", "b", term + "x", "x" + term]
            writes += [
                with_terms(document(f"own {number}", term), [*other_terms, term]),
                with_terms(document(f"other {number}", f"not {term}"), other_terms),
            ]
        await vectors.write(writes)
        for term in UNUSUAL_TERMS:
            assert texts(await vectors.matching(words(term))) == [term]
            both = texts(await vectors.matching(words("plain", term)))
            assert (both[0], len(both)) == (term, len(writes))

    async def test_filters_have_their_exact_meaning(self, vectors: VectorIndex) -> None:
        await vectors.write(
            [document(f"d{n:02}", "text", metadata=each) for n, each in enumerate(METADATA)]
        )
        rng = random.Random(5)
        filters = [*every_comparison(), *(combined(rng, 2) for _ in range(60))]
        for condition in filters:
            expected = [f"d{n:02}" for n, each in enumerate(METADATA) if matches(condition, each)]
            hits = (await vectors.nearest(near(filters=condition))).hits
            assert [hit.document for hit in hits] == expected, condition

    async def test_filters_apply_before_the_limit(self, vectors: VectorIndex) -> None:
        await vectors.write(
            [
                document(
                    f"d{n:03}",
                    f"word {n}",
                    metadata={"n": n},
                    vectors=[(1, n / 1_000, 0, 0)],
                )
                for n in range(300)
            ]
        )
        condition = Compare("n", "gte", 290)
        hits = (await vectors.nearest(near(limit=5, filters=condition))).hits
        assert [hit.document for hit in hits] == [f"d{n}" for n in range(290, 295)]
        matching = (await vectors.matching(words("word", limit=5, filters=condition))).hits
        assert [hit.document for hit in matching] == [f"d{n}" for n in range(290, 295)]

    async def test_filters_of_the_past_see_the_metadata_of_then(self, vectors: VectorIndex) -> None:
        await vectors.write([document("a", "one", metadata={"lang": "en"})])
        moment = await changed_at(vectors)
        await vectors.write([document("a", "one", metadata={"lang": "de"})])
        english = Compare("lang", "eq", "en")
        assert texts(await vectors.nearest(near(filters=english))) == []
        (then,) = (await vectors.nearest(near(filters=english, as_of=moment))).hits
        assert (then.metadata, then.version) == ({"lang": "en"}, 1)
