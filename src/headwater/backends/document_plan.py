"""What a write does to a document and its chunks: decided here, applied by each vector store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from headwater.errors import InvalidInputError
from headwater.ports import DocumentWrite, Embedding, IndexedChunk

_LAST = "\U0010ffff"
"""A code point that is no character: it comes after all that an id has."""


def id_range(prefix: str, after: str) -> tuple[str, str]:
    """Return the first id after one that may begin with a prefix, and the end of all such ids."""
    return (prefix if after < prefix else f"{after}\0"), prefix + _LAST


class DocumentState(NamedTuple):
    """The current version of a stored document; that of a removed one is its last."""

    version: int
    indexed_at: int
    as_of: int
    is_removed: bool


class DocumentPlan(NamedTuple):
    """A document after a write: its version, the time of that, and the time that it is about."""

    change: Literal["kept", "confirmed", "replaced", "removed"]
    """A document is confirmed by the same text and metadata, which are about a later time."""
    version: int
    indexed_at: int
    as_of: int
    is_new: bool = False
    """Whether it was not there before, or removed."""


def plan_document(
    write: DocumentWrite, before: DocumentState | None, moment: int, *, is_same: bool
) -> DocumentPlan | None:
    """Return what a write does to a document at a moment; None if it is discarded.

    ``is_same`` is whether the stored document has the text and the metadata of the write.
    """
    if write.version is not None:
        if before is None or before.version != write.version or not is_same:
            return None
        return DocumentPlan("kept", before.version, before.indexed_at, before.as_of)
    as_of = moment if write.as_of is None else write.as_of
    if before is None:
        return (
            None if write.text is None else DocumentPlan("replaced", 1, moment, as_of, is_new=True)
        )
    if write.is_ordered and write.as_of is not None and write.as_of < before.as_of:
        return None
    as_of = max(as_of, before.as_of)
    if write.text is None:
        return None if before.is_removed else DocumentPlan("removed", before.version, moment, as_of)
    if is_same:
        change: Literal["kept", "confirmed"] = "confirmed" if as_of > before.as_of else "kept"
        return DocumentPlan(change, before.version, before.indexed_at, as_of)
    return DocumentPlan("replaced", before.version + 1, moment, as_of, is_new=before.is_removed)


class CurrentChunk(NamedTuple):
    """A chunk of a document that searches find now."""

    seq: int
    id: str
    position: int
    metadata: bytes
    length: int = 0


class ChunkPlan(NamedTuple):
    """The current chunks that end with a write, and the chunks that begin."""

    ended: Sequence[CurrentChunk]
    added: Sequence[IndexedChunk]


def plan_chunks(
    current: Iterable[CurrentChunk],
    chunks: Iterable[IndexedChunk],
    metadata: bytes,
    dimensions: int,
) -> ChunkPlan:
    """Return how the chunks of a document change; one with equal id, position and metadata stays.

    Raise InvalidInputError if the embedding of a new chunk has another number of dimensions.
    """
    added = {(chunk.id, chunk.position): chunk for chunk in chunks}
    ended = [
        chunk
        for chunk in current
        if chunk.metadata != metadata or added.pop((chunk.id, chunk.position), None) is None
    ]
    for chunk in added.values():
        check_embedding(chunk.embedding, dimensions)
    return ChunkPlan(ended, [*added.values()])


def check_embedding(embedding: Embedding, dimensions: int) -> None:
    """Raise InvalidInputError if an embedding has other dimensions than its generation."""
    if len(embedding) != 4 * dimensions:
        raise InvalidInputError(
            f"an embedding has {len(embedding) / 4:g} dimensions, and the generation {dimensions}; "
            "use the generation's embedder, or create a generation with another spec"
        )
