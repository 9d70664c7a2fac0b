"""Searches of indexes inside of contexts, retrievers and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from headwater.declarations.graph import SAMPLES
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import SearchResult
from headwater.declarations.items import Chunk
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import IndexSearch, RetrieverDef, SearchOptions
from headwater.errors import (
    DeclarationError,
    FormatError,
    IndexVersionGoneError,
    InvalidInputError,
    RetrieverFailedError,
    TemplateError,
)
from headwater.errors.hints import nearest
from headwater.features.call_scope import (
    Past,
    ReplayedSearch,
    current_scope,
    in_present,
    track_search,
)
from headwater.features.read_tracking import IndexSearched, RetrievalKey, TrackedRetrieval
from headwater.features.reader import Reader
from headwater.features.template_reads import ReferenceOwner, References, id_field
from headwater.model.indexes import StoredDocument
from headwater.ports import VectorIndex
from headwater.retrieval.past_versions import AsOf
from headwater.retrieval.search import OutsideCallError, Searcher

NO_VERSION = "0.0"
"""The version of an index that has never been written to."""


class IndexQuery(NamedTuple):
    """What an index is searched for, and how."""

    declared: IndexDef
    text: str
    options: SearchOptions

    def searched(self, version: str, embedder: str | None) -> IndexSearched:
        """Return the search for the record."""
        return IndexSearched(
            name=self.declared.name,
            version=version,
            embedder=embedder,
            mode=self.options.mode,
            query=self.text,
            filters=self.options.filters,
        )

    def is_of(self, recorded: IndexSearched | None) -> bool:
        """Return whether a recorded search was for the same, in the same way."""
        return recorded is not None and recorded == self.searched(
            recorded.version, recorded.embedder
        )


class IndexSearches:
    """Resolves the templates of retrievers, and searches the past inside of a replay."""

    def __init__(
        self, registry: Registry, reader: Reader, searcher: Searcher, vectors: VectorIndex
    ) -> None:
        self._registry = registry
        self._references = References(registry, reader)
        self._searcher = searcher
        self._vectors = vectors

    async def resolve(
        self, retriever: RetrieverDef, search: IndexSearch, arguments: Mapping[str, Any]
    ) -> IndexQuery:
        """Return the query of one call; features that its templates name are read."""
        names = [name for name in search.references if name not in arguments]
        values = dict(arguments)
        if names:
            values |= await self._references.read(names, arguments, _owner(retriever))
        try:
            query, options = search.resolved(values)
        except FormatError as error:
            raise RetrieverFailedError(retriever.name, error) from error
        return IndexQuery(self._registry.index(search.index), query, options)

    async def run(
        self, query: IndexQuery, key: Callable[[], RetrievalKey], as_of: AsOf | None = None
    ) -> SearchResult | TrackedRetrieval:
        """Search an index; in an as_of replay, the version that the record has for this call.

        If that version is gone, return the recorded search with its results, if they are known.
        ``key`` returns the key of the call, which is only needed in a replay.
        """
        past = current_scope().past
        if past is None or as_of is not None:
            track_search(ReplayedSearch(query.declared.name, "now"))
            return await self._run_now(query, as_of)
        return await self._run_in_past(query, past, key())

    async def _run_now(self, query: IndexQuery, as_of: AsOf | None = None) -> SearchResult:
        try:
            return await self._searcher.run(*query, as_of)
        except OutsideCallError:
            return await self._words(query, as_of)

    async def _run_in_past(
        self, query: IndexQuery, past: Past, key: RetrievalKey
    ) -> SearchResult | TrackedRetrieval:
        version, recorded = past.searched(key, query.declared.name), past.results(key)
        is_recorded = version is not None and version != NO_VERSION
        as_of = version if is_recorded else past.began
        try:
            result = await self._searcher.run(*query, as_of)
        except IndexVersionGoneError:
            if recorded is not None and query.is_of(recorded.searched):
                return await self._recorded(recorded, query.declared.name)
            track_search(ReplayedSearch(query.declared.name, "gone"))
            with in_present():
                return await self._run_now(query)
        except OutsideCallError:
            former = recorded or past.former_results(key)
            if former is None or former.failed:
                return await self._words(query, as_of)
            return await self._unasked(query, version, former, is_same=recorded is not None)
        track_search(ReplayedSearch(query.declared.name, "recorded" if is_recorded else "moment"))
        return result

    async def _words(self, query: IndexQuery, as_of: AsOf | None) -> SearchResult:
        """Search for words alone, because what embeds or ranks may not be called."""
        track_search(ReplayedSearch(query.declared.name, "unasked"))
        words = replace(query.options, mode="text", rerank=None)
        return await self._searcher.run(query.declared, query.text, words, as_of)

    async def _unasked(
        self, query: IndexQuery, version: str | None, former: TrackedRetrieval, *, is_same: bool
    ) -> TrackedRetrieval:
        """Return the former result, because embedders and rankers may not be called.

        That is exact for the same search of the same version, if no document has changed since.
        """
        index, searched = query.declared.name, former.searched
        chunks = former.chunks[: query.options.top_k]
        documents = await self._documents(index, chunks)
        is_exact = (
            is_same
            and query.is_of(searched)
            and searched is not None
            and searched.version == version
            and all(
                document is not None and document.version == chunk.version
                for chunk, document in zip(chunks, documents, strict=True)
            )
        )
        track_search(ReplayedSearch(index, "results" if is_exact else "unasked"))
        return former._replace(chunks=list(map(_described, chunks, documents)))

    async def _documents(self, index: str, chunks: Sequence[Chunk]) -> list[StoredDocument | None]:
        """Return the document of each chunk as it is now; None if it is unknown."""
        ids = {chunk.document for chunk in chunks if chunk.document is not None}
        found = await self._vectors.documents(index, ids)
        return [found.get(chunk.document or "") for chunk in chunks]

    async def _recorded(self, recorded: TrackedRetrieval, index: str) -> TrackedRetrieval:
        """Return recorded results; metadata that the record has not are those of the documents."""
        if recorded.read is not None:
            track_search(ReplayedSearch(recorded.retriever, "results"))
            return recorded
        track_search(ReplayedSearch(index, "texts"))
        documents = await self._documents(index, recorded.chunks)
        return recorded._replace(chunks=list(map(_described, recorded.chunks, documents)))


def _described(chunk: Chunk, document: StoredDocument | None) -> Chunk:
    return chunk if document is None else replace(chunk, metadata=dict(document.metadata))


def check_retrievers(registry: Registry) -> None:
    """Raise DeclarationError if a template of a retriever has an unknown reference."""
    for retriever in registry.retrievers.values():
        if retriever.search is not None:
            _check(registry, retriever, retriever.search)


def _check(registry: Registry, retriever: RetrieverDef, search: IndexSearch) -> None:
    parameters, owner = retriever.signature.parameters, _owner(retriever)
    for name in search.references:
        if name in parameters:
            continue
        if name not in registry.features:
            names = [*parameters, *registry.features]
            raise DeclarationError(
                f"{owner.name} refers to {name!r}, which is neither one of its parameters nor a "
                f"feature; {nearest(name, names)}",
                owner.location,
            )
        try:
            id_field(registry, name, parameters, owner)
        except InvalidInputError as error:
            raise DeclarationError(str(error), owner.location) from error
    features = {
        name: registry.features[name] for name in search.references if name not in parameters
    }
    samples = {name: SAMPLES.get(feature.codec.kind) for name, feature in features.items()}
    try:
        search.resolved(dict.fromkeys(parameters) | samples)
    except FormatError as error:
        raise TemplateError(f"{owner.name}: {error}", owner.location) from error


def _owner(retriever: RetrieverDef) -> ReferenceOwner:
    return ReferenceOwner(f"retriever {retriever.name!r}", retriever.location)
