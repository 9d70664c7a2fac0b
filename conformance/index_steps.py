"""Conformance tests of the ``VectorIndex`` port: any order of operations, next to a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import pytest

from conformance import index_model as model
from conformance.documents import SPEC, chunk, embedding
from conformance.suite import Opened, Suite, outcome
from headwater.core.clock import to_micros
from headwater.errors import HeadwaterError
from headwater.model.indexes import IndexSpec
from headwater.ports import (
    AllOf,
    AnyOf,
    Compare,
    DocumentWrite,
    Filter,
    IndexedChunk,
    Not,
    VectorIndex,
    VectorQuery,
)

_SPECS = [msgspec.structs.replace(SPEC, chunk_tokens=size) for size in (1, 2, 3)]
# Vectors whose products are exact, so that equal scores are equal on every store.
_VECTORS = [
    *([1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 1, 0]),
    *([1, 1, 1, 1], [1, 1, -1, -1], [-1, 1, -1, 1], [1, -1, 1, 1]),
]
_WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
_DOCUMENTS = ["a", "b", "c", "d"]
_STEPS = 40
_ALL = 1_000


class IndexStepsConformance(Suite):
    """Operations in any order have the effects that a plain model of an index has."""

    @pytest.mark.parametrize("seed", [10, 13])
    async def test_any_order_of_operations_has_the_results_of_a_model(
        self, store: Opened, other: Opened, seed: int
    ) -> None:
        await _Run(store, other, Random(seed)).run()


class _Run:
    """A store and a model, to which the same random operations are applied."""

    def __init__(self, store: Opened, other: Opened, random: Random) -> None:
        self._store = store
        self._stores = [store, other]
        self._random = random
        self._model = model.IndexModel()
        self._moments = [0]
        """The time of the last change after each step."""
        self._first_known = 0
        self._done: list[str] = []

    @property
    def _vectors(self) -> VectorIndex:
        return self._random.choice(self._stores).vectors

    async def run(self) -> None:
        operations: dict[Callable[[], Awaitable[None]], int] = {
            self._write: 12,
            self._commit: 6,
            self._create: 2,
            self._repair: 3,
            self._activate: 3,
            self._prune: 1,
            self._drop: 1,
        }
        await self._create()
        for _ in range(_STEPS):
            (operation,) = self._random.choices([*operations], [*operations.values()])
            self._model.step += 1
            self._done.append(operation.__name__)
            await operation()
            self._moments.append(max(await self._last_change(), self._moments[-1]))
            await self._compare()

    async def _last_change(self) -> int:
        generations = await self._vectors.generations("docs")
        times = [
            time for each in generations for time in (each.created_at, each.changed_at) if time
        ]
        return max(map(to_micros, times), default=0)

    async def _write(self) -> None:
        writes = [self._document() for _ in range(self._random.randint(1, 3))]
        self._model.write(writes)
        await self._vectors.write(writes)

    async def _commit(self) -> None:
        writes = [self._document() for _ in range(self._random.randint(1, 3))]
        self._model.write(writes)
        leases, batch = await self._store.take_clicks(1)
        await self._store.bus.commit(msgspec.structs.replace(outcome(batch), documents=writes))
        await self._store.leases.release(leases)

    def _document(self) -> DocumentWrite:
        name = self._random.choice(_DOCUMENTS)
        generation = self._random.randint(0, self._model.last_generation + 1)
        if self._random.random() < 0.6 and self._model.active is not None:
            generation = self._model.active.number
        if self._random.random() < 0.2:
            return DocumentWrite(index="docs", document=name, text=None, generation=generation)
        before = self._model.documents.get(name)
        text, version = " ".join(self._random.choices(_WORDS, k=self._random.randint(0, 7))), None
        metadata: Any = {"n": self._random.randint(0, 2), "tags": self._random.sample("xyz", 2)}
        if before is not None and before.text is not None and self._random.random() < 0.4:
            text = before.text
            metadata = self._random.choice([metadata, before.metadata])
            version = self._random.choice([None, before.version, before.version - 1])
        return self._split(name, text, metadata, generation, version)

    def _split(
        self, name: str, text: str, metadata: Any, generation: int, version: int | None
    ) -> DocumentWrite:
        known = self._model.generation(generation)
        size = 1 if known is None else known.spec.chunk_tokens
        words = text.split()
        chunks: list[IndexedChunk] = []
        for position, start in enumerate(range(0, len(words), size)):
            own = " ".join(words[start : start + size])
            vector = _VECTORS[crc32(own.encode()) % len(_VECTORS)]
            made = chunk(name, own, position, vector)
            repeated = sum(each.text == own for each in chunks)
            chunks.append(msgspec.structs.replace(made, id=f"{made.id}~{repeated}"))
        return DocumentWrite(
            index="docs",
            document=name,
            text=text,
            metadata=metadata,
            generation=generation,
            chunks=chunks,
            version=version,
        )

    async def _create(self) -> None:
        spec: IndexSpec = self._random.choice(_SPECS)
        created = await self._vectors.create("docs", spec)
        assert created.number == self._model.create(spec)

    async def _repair(self) -> None:
        for generation in self._model.in_use:
            stored = await self._vectors.outdated("docs", generation.number, after="", limit=_ALL)
            writes = [
                self._split(
                    each.document, each.text, each.metadata, generation.number, each.version
                )
                for each in stored
            ]
            self._model.write(writes)
            await self._vectors.write(writes)

    async def _activate(self) -> None:
        number = self._random.randint(1, self._model.last_generation + 1)
        expected = self._model.activate(number)
        if expected is None:
            with pytest.raises(HeadwaterError, match="index status"):
                await self._vectors.activate("docs", number)
        else:
            assert await self._vectors.activate("docs", number) == expected

    async def _prune(self) -> None:
        step = self._random.randint(self._first_known, self._model.step - 1)
        self._first_known = step
        moment = self._moments[step]
        # Several steps have the same time if they changed no generation.
        expected = self._model.prune(self._moments.index(moment) + 1)
        assert await self._vectors.prune("docs", moment + 1) == expected, self._done

    async def _drop(self) -> None:
        assert await self._vectors.drop("docs") == self._model.drop()

    async def _compare(self) -> None:
        expected, vectors = self._model, self._vectors
        active, version = expected.active, await vectors.version("docs")
        assert (version and version.generation) == (active and active.number), self._done
        await self._compare_documents(vectors)
        found = await vectors.generations("docs")
        assert [(each.number, each.state, each.spec) for each in found] == [
            (each.number, each.state, each.spec) for each in expected.generations
        ], self._done
        for generation, stored in zip(expected.generations, found, strict=True):
            if generation.state != "retired":
                assert (stored.documents, stored.chunks, stored.outdated) == (
                    len(generation.versions),
                    len(generation.current()),
                    len(expected.outdated(generation)),
                ), self._done
        for number in range(1, expected.last_generation + 2):
            await self._compare_searches(vectors, number)

    async def _compare_documents(self, vectors: VectorIndex) -> None:
        expected = self._model
        listed = await vectors.list_documents("docs", after="", limit=_ALL)
        assert [each.document for each in listed] == sorted(expected.present()), self._done
        stored = await vectors.documents("docs", _DOCUMENTS)
        assert [(each.version, each.metadata, each.indexed_at, each.status) for each in listed] == [
            (each.version, each.metadata, each.indexed_at, each.status)
            for _, each in sorted(stored.items())
        ]
        assert {
            name: (each.text, each.metadata, each.version) for name, each in stored.items()
        } == {
            name: (each.text, each.metadata, each.version)
            for name, each in expected.present().items()
        }, self._done
        for generation in expected.in_use:
            outdated = await vectors.outdated("docs", generation.number, after="", limit=_ALL)
            assert [each.document for each in outdated] == expected.outdated(generation)

    async def _compare_searches(self, vectors: VectorIndex, number: int) -> None:
        generation = self._model.generation(number)
        step = self._random.choice([None, None, *range(self._first_known, self._model.step + 1)])
        if generation is not None and generation.state == "retired" and step is None:
            step = self._model.step
        as_of = None if step is None else self._moments[step]
        chunks = (
            []
            if generation is None
            else generation.current(self._model.step if step is None else step)
        )
        query = VectorQuery(
            index="docs",
            generation=number,
            limit=self._random.choice([1, 3, _ALL]),
            filters=self._filter(),
            as_of=as_of,
            embedding=embedding(*self._random.choice(_VECTORS)),
            terms=self._random.sample(_WORDS, 2),
        )
        await self._compare_nearest(vectors, query, chunks)
        await self._compare_matching(vectors, query, chunks)

    async def _compare_nearest(
        self, vectors: VectorIndex, query: VectorQuery, chunks: list[model.ModelChunk]
    ) -> None:
        assert query.embedding is not None
        hits = (await vectors.nearest(msgspec.structs.replace(query, terms=()))).hits
        expected = model.nearest(chunks, query.embedding, query.filters, query.limit)
        assert [(hit.score, hit.id) for hit in hits] == expected, (self._done, query)
        by_id = {each.chunk.id: each for each in chunks}
        for hit in hits:
            own = by_id[hit.id]
            assert (hit.document, hit.text, hit.position, hit.metadata, hit.version) == (
                own.document,
                own.chunk.text,
                own.chunk.position,
                own.metadata,
                own.version,
            ), self._done

    async def _compare_matching(
        self, vectors: VectorIndex, query: VectorQuery, chunks: list[model.ModelChunk]
    ) -> None:
        every = msgspec.structs.replace(query, embedding=None, limit=_ALL)
        hits = (await vectors.matching(every)).hits
        expected = model.matching(chunks, query.terms, query.filters)
        assert {hit.id: hit.score for hit in hits} == pytest.approx(expected), self._done

    def _filter(self) -> Filter | None:
        number, tag = self._random.randint(0, 2), self._random.choice("xyz")
        return self._random.choice(
            [
                None,
                Compare("n", "gte", number),
                AllOf([Compare("n", "lt", number), Compare("tags", "eq", tag)]),
                AnyOf([Compare("n", "eq", number), Not(Compare("tags", "in", [tag]))]),
            ]
        )
