"""Searches of indexes inside of contexts, retrievers and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from headwater.declarations.graph import SAMPLES
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import SearchResult
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
from headwater.features.reader import Reader, ReferenceOwner, References, id_field
from headwater.ports import VectorIndex
from headwater.retrieval.past_versions import AsOf
from headwater.retrieval.search import Searcher

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
            return await self._searcher.run(*query, as_of)
        return await self._run_in_past(query, past, key())

    async def _run_in_past(
        self, query: IndexQuery, past: Past, key: RetrievalKey
    ) -> SearchResult | TrackedRetrieval:
        version, recorded = past.searched(key, query.declared.name), past.results(key)
        is_recorded = version is not None and version != NO_VERSION
        try:
            result = await self._searcher.run(*query, version if is_recorded else past.began)
        except IndexVersionGoneError:
            if recorded is not None and query.is_of(recorded.searched):
                return await self._recorded(recorded, query.declared.name)
            track_search(ReplayedSearch(query.declared.name, "gone"))
            with in_present():
                return await self._searcher.run(*query)
        track_search(ReplayedSearch(query.declared.name, "recorded" if is_recorded else "moment"))
        return result

    async def _recorded(self, recorded: TrackedRetrieval, index: str) -> TrackedRetrieval:
        """Return recorded results; metadata that the record has not are those of the documents."""
        if recorded.read is not None:
            track_search(ReplayedSearch(recorded.retriever, "results"))
            return recorded
        track_search(ReplayedSearch(index, "texts"))
        documents = await self._vectors.documents(
            index, {chunk.document for chunk in recorded.chunks if chunk.document is not None}
        )
        chunks = [
            replace(chunk, metadata=dict(documents[chunk.document].metadata))
            if chunk.document in documents
            else chunk
            for chunk in recorded.chunks
        ]
        return recorded._replace(chunks=chunks)


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
