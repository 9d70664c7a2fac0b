"""The search behind the retrievers of other frameworks."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from headwater.declarations.contexts import RetrieverFunction
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import RetrieverDef, SearchOptions
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.features.call_scope import current_reads, tracking
from headwater.features.read_tracking import Reads
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.store import StoreVerbs, SyncVerbs

T = TypeVar("T")

AnyStore: TypeAlias = StoreVerbs | SyncVerbs[Any]
"""A store, or a client of one, async or blocking."""

Searched: TypeAlias = str | RetrieverFunction[...]
"""The name of an index, or a declared retriever."""

PROVENANCE = "headwater"
"""The key of the metadata that says where a chunk comes from."""

_OPTIONS = (*SearchOptions.__struct_fields__, "as_of")
_ALIASES = {"k": "top_k", "similarity_top_k": "top_k", "filter": "filters"}
"""The names that other frameworks have for options of a search."""


class FoundChunk(NamedTuple):
    """A chunk, and the version of the index that it was found in."""

    chunk: Chunk
    index_version: str | None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the chunk, with its provenance under one key."""
        chunk = self.chunk
        provenance = {
            "chunk": chunk.id,
            "document": chunk.document,
            "position": chunk.position,
            "score": chunk.score,
            "version": chunk.version,
            "indexed_at": chunk.indexed_at and chunk.indexed_at.isoformat(),
            "index_version": self.index_version,
        }
        return {**chunk.metadata, PROVENANCE: provenance}


def run(store: AnyStore, call: Coroutine[Any, Any, T]) -> T:
    """Run a call of async code to its end."""
    blocking = store.sync if isinstance(store, FeatureStore) else store
    if isinstance(blocking, SyncVerbs):
        return blocking.run(call)
    call.close()
    raise InvalidInputError(f"{store!r} cannot block; await the async method, or pass a Client")


async def awaited(store: AnyStore, call: Coroutine[Any, Any, T]) -> T:
    """Await a call; the connections of a blocking client belong to its own loop."""
    if isinstance(store, SyncVerbs) and not isinstance(store.verbs, FeatureStore):
        return await store.run_apart(call)
    return await call


def verbs_of(store: AnyStore) -> StoreVerbs:
    """Return the async verbs of a store or a client."""
    return store.verbs if isinstance(store, SyncVerbs) else store


async def search(
    store: AnyStore, searched: Searched, query: str, *given: Mapping[str, Any]
) -> list[FoundChunk]:
    """Search an index with options of ``store.search``, or call a retriever with arguments.

    Later ones of ``given`` replace earlier ones. Options may have the names of LangChain and
    LlamaIndex: ``k``, ``similarity_top_k`` and ``filter``. In a context, the search is part of its
    lineage.
    """
    reads = Reads()
    with tracking(reads):
        if isinstance(searched, str):
            options = dict(option for given_options in given for option in _options(given_options))
            chunks = await verbs_of(store).search(searched, query, **options)
        else:
            arguments = dict(
                argument for given_options in given for argument in given_options.items()
            )
            parameter = _query_parameter(searched.definition, arguments)
            chunks = await searched(**{parameter: query}, **arguments)
    current_reads().track_all(reads)
    searches = [retrieval.searched for retrieval in reads.retrievals if retrieval.searched]
    versions = {searched.name: searched.version for searched in searches}
    # The id of a chunk begins with its index.
    return [FoundChunk(chunk, versions.get((chunk.id or "").partition("/")[0])) for chunk in chunks]


async def passages(
    store: AnyStore, searched: Searched, query: str, given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what a search finds in the form that tools return it to models."""
    hits = await search(store, searched, query, given)
    return [{"document": hit.chunk.document, "text": hit.chunk.text} for hit in hits]


def _options(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield options of ``store.search`` under our names."""
    for alias, value in given.items():
        name = _ALIASES.get(alias, alias)
        if name not in _OPTIONS:
            raise InvalidInputError(
                f"unknown option {alias!r} of a search; {nearest(alias, _OPTIONS)}"
            )
        yield name, value


def _query_parameter(retriever: RetrieverDef, arguments: Mapping[str, Any]) -> str:
    """Return the parameter that takes the query.

    It is a parameter that the retriever's template of the query refers to; without a template, the
    parameter ``query`` or the first one. Parameters that are given as arguments are skipped.
    """
    parameters = retriever.signature.parameters
    for given in arguments:
        if given not in parameters:
            raise InvalidInputError(
                f"retriever {retriever.name!r} has no parameter {given!r}, and options such as "
                f"top_k belong to its declaration; {nearest(given, parameters)}"
            )
    if retriever.search is not None:
        candidates = [name for name in retriever.search.query.references if name in parameters]
    else:
        candidates = sorted(parameters, key=lambda name: name != "query")
    for name in candidates:
        if name not in arguments:
            return name
    raise InvalidInputError(
        f"retriever {retriever.name!r} has no parameter left for the query; give arguments only "
        "for its other parameters"
    )
