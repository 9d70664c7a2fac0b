"""The generation of an index that a call uses, and the embedder of that generation."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.logging import log
from headwater.declarations.indexes import IndexDef
from headwater.errors import ConfigError, IndexMismatchError
from headwater.features.services import Services
from headwater.model.indexes import IndexSpec
from headwater.ports import Embedding, IndexVersion
from headwater.retrieval.embeddings import Embedder, Embedders, TextKind


class Generations:
    """Chooses generations of indexes, and their embedders."""

    def __init__(self, services: Services, embedders: Embedders) -> None:
        self._vectors = services.backends.vectors
        self._embedders = embedders
        self.embed = services.interceptors.call("embed", _embed)
        self._warned: set[tuple[str, IndexSpec]] = set()

    def check(self, index: IndexDef) -> None:
        """Raise ConfigError or DeclarationError if the declared embedder cannot be used here."""
        self._embedders.check(index)

    def declared(self, index: IndexDef) -> IndexSpec:
        """Return how an index is declared to be split and embedded."""
        embedder = self._embedders.of(index)
        return IndexSpec(
            embedder=embedder.name,
            dimensions=embedder.dimensions,
            chunk_tokens=index.chunk_tokens,
            overlap=index.overlap,
        )

    async def active(self, index: IndexDef) -> IndexVersion:
        """Return the active generation for a write; create the first one if there is none.

        If the index is empty, it is one as the index is declared now: there is nothing to rebuild.
        """
        declared = self.declared(index)
        version = await self._vectors.version(index.name)
        while version is None or (version.spec != declared and await self._is_empty(index)):
            created = await self._vectors.create(index.name, declared)
            if created.state == "building":
                await self._vectors.activate(index.name, created.number)
            version = await self._vectors.version(index.name)
        self._warn(index, version.spec, declared)
        return version

    async def _is_empty(self, index: IndexDef) -> bool:
        return not await self._vectors.list_documents(index.name, after="", limit=1)

    def embedder(self, index: IndexDef, built: IndexSpec, *, is_active: bool = True) -> Embedder:
        """Return the embedder that a generation was built with.

        Warn if the active one was built with another than the declared one.

        Raise IndexMismatchError if that is another than the declared one and is not available.
        """
        declared = self._embedders.of(index)
        if (declared.name, declared.dimensions) == (built.embedder, built.dimensions):
            return declared
        try:
            embedder = self._embedders.named(built.embedder, built.dimensions)
        except ConfigError:
            embedder = None
        if embedder is None or embedder.dimensions != built.dimensions:
            built_with = _described(built.embedder, built.dimensions)
            described = _described(declared.name, declared.dimensions)
            raise IndexMismatchError(index.name, built_with, described)
        if is_active:
            self._warn(index, built, self.declared(index))
        return embedder

    async def warm_up(self, index: IndexDef, built: IndexSpec) -> None:
        """Load the model of a generation's embedder, if it is one of this process."""
        embedder = self.embedder(index, built)
        if embedder.name.startswith("local/"):
            await embedder.embed(
                ["a document, because embeddings of queries are cached"], "document"
            )

    def _warn(self, index: IndexDef, built: IndexSpec, declared: IndexSpec) -> None:
        if built == declared or (index.name, built) in self._warned:
            return
        self._warned.add((index.name, built))
        log.warning(
            "index was built in another way than it is declared",
            index=index.name,
            differences=built.differences(declared),
            remedy=f"headwater index reindex {index.name}",
        )


async def _embed(embedder: Embedder, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
    return await embedder.embed(texts, kind)


def _described(embedder: str, dimensions: int) -> str:
    return f"{embedder} ({dimensions} dimensions)"
