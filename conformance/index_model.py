"""A plain model of an index of documents, which the stores are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import log1p
from typing import Any

import msgspec

from conformance.documents import cosine
from headwater.declarations.filters import matches
from headwater.model.indexes import IndexSpec
from headwater.ports import DocumentWrite, Embedding, Filter, IndexedChunk

_K1, _B = 1.2, 0.75
NEVER = 1 << 62


class ModelDocument(msgspec.Struct):
    """The current version of a document; without text, it was removed at a time."""

    text: str | None
    metadata: Mapping[str, Any]
    version: int
    changed: int


class ModelChunk(msgspec.Struct):
    """A chunk, and the steps between which it was current."""

    document: str
    chunk: IndexedChunk
    metadata: Mapping[str, Any]
    version: int
    valid_from: int
    valid_to: int = NEVER


class ModelGeneration(msgspec.Struct):
    """All chunks of a generation, and the versions of documents that it has."""

    number: int
    spec: IndexSpec
    state: str
    versions: dict[str, int] = {}
    chunks: list[ModelChunk] = []
    retired: int = NEVER
    changed: int = 0

    def current(self, step: int = NEVER - 1) -> list[ModelChunk]:
        """Return the chunks that were current after a step."""
        return [each for each in self.chunks if each.valid_from <= step < each.valid_to]

    def end(self, document: str, kept: Collection[tuple[str, int]], step: int) -> None:
        """End the current chunks of a document but some."""
        for each in self.current():
            key = (each.chunk.id, each.chunk.position)
            if each.document == document and key not in kept:
                each.valid_to = step
                self.changed = step


class IndexModel:
    """An index whose times are steps: the number of operations so far."""

    def __init__(self) -> None:
        self.documents: dict[str, ModelDocument] = {}
        self.generations: list[ModelGeneration] = []
        self.last_generation = 0
        self.step = 0

    @property
    def active(self) -> ModelGeneration | None:
        return next((each for each in self.generations if each.state == "active"), None)

    @property
    def in_use(self) -> list[ModelGeneration]:
        return [each for each in self.generations if each.state != "retired"]

    def generation(self, number: int) -> ModelGeneration | None:
        return next((each for each in self.generations if each.number == number), None)

    def present(self) -> dict[str, ModelDocument]:
        """Return the documents that were not removed."""
        return {name: each for name, each in self.documents.items() if each.text is not None}

    def outdated(self, generation: ModelGeneration) -> list[str]:
        """Return the documents that a generation has not in their current version."""
        return sorted(
            name
            for name, each in self.present().items()
            if generation.versions.get(name) != each.version
        )

    def create(self, spec: IndexSpec) -> int:
        for each in reversed(self.in_use):
            if each.spec == spec:
                return each.number
        self.last_generation += 1
        state = "active" if self.active is None else "building"
        self.generations.append(
            ModelGeneration(self.last_generation, spec, state, changed=self.step)
        )
        return self.last_generation

    def activate(self, number: int) -> int | None:
        """Return the number of outdated documents; None if it cannot be activated."""
        generation = self.generation(number)
        if generation is None or generation.state == "retired":
            return None
        outdated = len(self.outdated(generation))
        if not outdated and generation.state == "building":
            for each in self.in_use:
                if each.number < number:
                    each.state, each.retired = "retired", self.step
            generation.state, generation.changed = "active", self.step
        return outdated

    def write(self, writes: Sequence[DocumentWrite]) -> None:
        for each in writes if self.active is not None else ():
            self._write(each)

    def _write(self, write: DocumentWrite) -> None:
        before = self.documents.get(write.document)
        if write.text is None:
            if before is not None and before.text is not None:
                before.text, before.changed = None, self.step
                for generation in self.in_use:
                    if generation.versions.pop(write.document, None) is not None:
                        generation.changed = self.step
                        generation.end(write.document, (), self.step)
            return
        is_same = before is not None and (before.text, before.metadata) == (
            write.text,
            write.metadata,
        )
        if write.version is not None and (
            before is None or not is_same or before.version != write.version
        ):
            return
        if before is None or not is_same:
            version = 1 if before is None else before.version + 1
            before = ModelDocument(write.text, write.metadata, version, self.step)
            self.documents[write.document] = before
        self._fill(write, before)

    def _fill(self, write: DocumentWrite, document: ModelDocument) -> None:
        generation = self.generation(write.generation)
        if generation is None or generation.state == "retired":
            return
        if generation.versions.get(write.document) != document.version:
            generation.versions[write.document] = document.version
            generation.changed = self.step
        wanted = {(chunk.id, chunk.position): chunk for chunk in write.chunks}
        kept = {
            (each.chunk.id, each.chunk.position)
            for each in generation.current()
            if each.document == write.document and each.metadata == document.metadata
        } & wanted.keys()
        generation.end(write.document, kept, self.step)
        for key, chunk in wanted.items():
            if key not in kept:
                added = (write.document, chunk, document.metadata, document.version, self.step)
                generation.chunks.append(ModelChunk(*added))
                generation.changed = self.step

    def drop(self) -> int:
        documents = len(self.present())
        self.documents, self.generations = {}, []
        return documents

    def prune(self, before: int) -> int:
        """Forget all that was replaced before a step; return its number."""
        removed = 0
        for generation in list(self.generations):
            if generation.retired < before:
                self.generations.remove(generation)
                removed += 1 + len(generation.chunks)
            else:
                kept = [each for each in generation.chunks if each.valid_to >= before]
                removed += len(generation.chunks) - len(kept)
                generation.chunks = kept
        self.documents = {
            name: each
            for name, each in self.documents.items()
            if each.text is not None or each.changed >= before
        }
        return removed


def nearest(
    chunks: Sequence[ModelChunk], embedding: Embedding, filters: Filter | None, limit: int
) -> list[tuple[float, str]]:
    """Return the scores and ids of the chunks nearest to an embedding."""
    scores = [
        (cosine(each.chunk.embedding, embedding), each.chunk.id)
        for each in chunks
        if filters is None or matches(filters, each.metadata)
    ]
    return sorted(scores, key=lambda found: (-found[0], found[1]))[:limit]


def matching(
    chunks: Sequence[ModelChunk], terms: Collection[str], filters: Filter | None
) -> dict[str, float]:
    """Return the BM25 scores of the chunks that have one of the terms, by chunk id."""
    mean = sum(len(each.chunk.terms) for each in chunks) / max(len(chunks), 1)
    counts = [Counter(each.chunk.terms) for each in chunks]
    scores: dict[str, float] = {}
    for term in set(terms):
        having = sum(term in count for count in counts)
        weight = log1p((len(chunks) - having + 0.5) / (having + 0.5))
        for each, count in zip(chunks, counts, strict=True):
            if term in count and (filters is None or matches(filters, each.metadata)):
                norm = _K1 * (1 - _B + _B * len(each.chunk.terms) / max(mean, 1.0))
                score = weight * count[term] * (_K1 + 1) / (count[term] + norm)
                scores[each.chunk.id] = scores.get(each.chunk.id, 0.0) + score
    return scores
