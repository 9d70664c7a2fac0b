"""Adding chunks to the table of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.binary_rows import (
    bigint,
    copied,
    half_vector,
    integer,
    jsonb,
    term_vector,
    vector,
)
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable
from headwater.backends.postgres.vectors.stored_text import escape, fields_json
from headwater.core.batching import batched
from headwater.ports import DocumentWrite, IndexedChunk

# A statement with so many chunks takes far less than its timeout, also with large embeddings, and
# encoding them blocks the event loop for some milliseconds only.
CHUNKS_AT_ONCE = 100

_COLUMNS = (
    *("document", "id", "position", "text", "content_hash", "metadata", "fields"),
    *("version", "indexed_at", "valid_from", "length", "terms", "embedding"),
)


class PreparedWrite(NamedTuple):
    """A write with the forms of its parts in which they are stored, and the time of it."""

    write: DocumentWrite
    document: str
    metadata: bytes
    digest: bytes
    moment: int


class DocumentVersion(NamedTuple):
    """A version of a document, and the time of it."""

    source: PreparedWrite
    number: int
    indexed_at: int


async def copy_chunks(
    connection: Connection,
    table: ChunkTable,
    chunks: Sequence[tuple[IndexedChunk, DocumentVersion]],
) -> None:
    """Add chunks, each with the version that brought it, as of the time of the write."""
    for portion in batched(chunks, CHUNKS_AT_ONCE):
        await _copy(connection, table, portion)


async def _copy(
    connection: Connection,
    table: ChunkTable,
    chunks: Sequence[tuple[IndexedChunk, DocumentVersion]],
) -> None:
    encode = half_vector if table.is_half else vector
    metadata = {version.source.document: version.source.metadata for _, version in chunks}
    fields = {document: jsonb(fields_json(values)) for document, values in metadata.items()}
    rows = (
        (
            version.source.document.encode(),
            escape(chunk.id).encode(),
            integer(chunk.position),
            escape(chunk.text).encode(),
            chunk.content_hash.encode(),
            version.source.metadata,
            fields[version.source.document],
            integer(version.number),
            bigint(version.indexed_at),
            bigint(version.source.moment),
            integer(len(chunk.terms)),
            term_vector(chunk.terms),
            encode(chunk.embedding),
        )
        for chunk, version in chunks
    )
    await connection.copy_to_table(
        table.name, source=copied(rows), columns=_COLUMNS, format="binary"
    )
