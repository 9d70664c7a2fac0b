"""The search behind the retrievers of other frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from headwater.declarations import Chunk, RetrieverFunction
from headwater.errors import InvalidInputError
from headwater.features.frame import current_reads, tracking
from headwater.features.read_tracking import Reads
from headwater.store.feature_store import FeatureStore

Searched: TypeAlias = str | RetrieverFunction[...]
"""The name of an index, or a declared retriever."""

PROVENANCE = "headwater"
"""The key of the metadata that says where a chunk comes from."""


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


async def search(
    store: FeatureStore, searched: Searched, query: str, arguments: Mapping[str, Any]
) -> list[FoundChunk]:
    """Search an index with options of ``store.search``, or call a retriever with arguments.

    In a context, the search is part of its lineage.
    """
    reads = Reads()
    with tracking(reads):
        if isinstance(searched, str):
            chunks = await store.search(searched, query, **arguments)
        else:
            chunks = await searched(**{_free_parameter(searched, arguments): query}, **arguments)
    current_reads().track_all(reads)
    searches = [retrieval.searched for retrieval in reads.retrievals if retrieval.searched]
    versions = {searched.name: searched.version for searched in searches}
    # The id of a chunk begins with its index.
    return [FoundChunk(each, versions.get((each.id or "").partition("/")[0])) for each in chunks]


def _free_parameter(retriever: RetrieverFunction[...], arguments: Mapping[str, Any]) -> str:
    """Return the first parameter that no argument is given for: it takes the query."""
    for name in retriever.definition.signature.parameters:
        if name not in arguments:
            return name
    raise InvalidInputError(
        f"retriever {retriever.definition.name!r} has no parameter left for the query; give "
        "arguments only for its other parameters"
    )
