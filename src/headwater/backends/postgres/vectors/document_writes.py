"""Writing versions of documents, with their chunks, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
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
from headwater.backends.postgres.vectors.stored_text import (
    digest_of,
    escape,
    fields_json,
    metadata_json,
)
from headwater.core.batching import batched
from headwater.ports import DocumentWrite, IndexedChunk

# Always in the same order, so that two transactions with the same indexes cannot deadlock.
_LOCK = """
SELECT id, name, changed_at FROM _indexes
WHERE name = ANY ($1::text[]) AND active IS NOT NULL ORDER BY name FOR UPDATE
"""
# A retired generation is searched only for the time before, and stays as it was.
_TABLES = """
SELECT id, index_id, number, dimensions, is_half FROM _generations
WHERE index_id = ANY ($1) AND state <> 'retired'
"""
_KNOWN = """
SELECT d.document, d.id, d.version, d.indexed_at, d.as_of, d.digest,
       ARRAY(SELECT v.generation_id FROM _document_versions AS v
             WHERE v.document_id = d.id ORDER BY v.generation_id) AS generations,
       ARRAY(SELECT v.version FROM _document_versions AS v
             WHERE v.document_id = d.id ORDER BY v.generation_id) AS versions
FROM unnest($2::text[]) AS wanted (document)
JOIN _documents AS d ON d.index_id = $1
    AND left(d.document, 128) = left(wanted.document, 128) AND d.document = wanted.document
"""
_CURRENT = """
SELECT document, seq, id, position, metadata::text, length FROM {table}
WHERE document = ANY ($1::text[]) AND valid_to IS NULL
"""
_CLOSE = """
UPDATE {table} AS c SET valid_to = g.moment
FROM unnest($1::bigint[], $2::bigint[]) AS g (seq, moment) WHERE c.seq = g.seq
"""
_ADD_DOCUMENTS = """
INSERT INTO _documents
    (index_id, indexed_at, as_of, document, version, cause, digest, text, metadata)
SELECT $1, * FROM unnest(
    $2::bigint[], $3::bigint[], $4::text[], $5::integer[], $6::text[], $7::bytea[], $8::text[],
    $9::json[]
) RETURNING document, id
"""
_CHANGE_DOCUMENTS = """
UPDATE _documents AS d
SET indexed_at = g.moment, as_of = g.as_of, version = g.version, cause = g.cause,
    digest = g.digest, text = g.text, metadata = g.metadata
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::integer[], $5::text[], $6::bytea[], $7::text[],
    $8::json[]
) AS g (moment, as_of, id, version, cause, digest, text, metadata)
WHERE d.id = g.id
"""
_SET_VERSIONS = """
INSERT INTO _document_versions (document_id, generation_id, version)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[])
ON CONFLICT (document_id, generation_id) DO UPDATE SET version = excluded.version
"""
_REMOVE_DOCUMENTS = """
WITH versions AS (DELETE FROM _document_versions WHERE document_id = ANY ($3::bigint[]))
UPDATE _documents AS d
SET indexed_at = g.moment, as_of = g.as_of, cause = g.cause, digest = '', text = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS g (moment, as_of, id, cause)
WHERE d.id = g.id
"""
_SET_AS_OF = """
UPDATE _documents AS d SET as_of = g.as_of
FROM unnest($1::bigint[], $2::bigint[]) AS g (as_of, id) WHERE d.id = g.id
"""
_COUNT = """
UPDATE _generations AS g SET changed_at = $1, documents = g.documents + d.documents,
    up_to_date = g.up_to_date + d.up_to_date,
    chunks = g.chunks + d.chunks, terms = g.terms + d.terms
FROM unnest($2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[])
    AS d (id, documents, up_to_date, chunks, terms)
WHERE g.id = d.id
"""
_CHANGED = "UPDATE _indexes SET changed_at = $2, documents = documents + $3 WHERE id = $1"
# A statement with so many chunks takes far less than its timeout, also with large embeddings, and
# encoding them blocks the event loop for some milliseconds only.
CHUNKS_AT_ONCE = 100
_COLUMNS = (
    *("document", "id", "position", "text", "content_hash", "metadata", "fields"),
    *("version", "indexed_at", "valid_from", "length", "terms", "embedding"),
)


class _Known(NamedTuple):
    """A stored document, and the version of it that each generation has."""

    id: int
    version: int
    indexed_at: int
    as_of: int
    digest: bytes
    versions: dict[int, int]

    @property
    def is_removed(self) -> bool:
        return not self.digest


class _Current(NamedTuple):
    """A current chunk of a generation."""

    seq: int
    key: tuple[str, int, str]
    """Its id, position and metadata."""
    length: int


class _Counts:
    """Changes of the counters of a generation."""

    def __init__(self) -> None:
        self.documents = 0
        self.up_to_date = 0
        self.chunks = 0
        self.terms = 0


DatedWrite = tuple[int, DocumentWrite]
"""A write and the time of it, in microseconds."""


async def write_documents(connection: Connection, writes: Sequence[DatedWrite]) -> None:
    """Write versions of documents in their order; the caller has begun a transaction.

    A write that is not later than one before it, or than the last change of its index, gets the
    time after that: readers may have seen the index in that version, without this write.
    """
    by_index: defaultdict[str, list[DatedWrite]] = defaultdict(list)
    for dated in writes:
        by_index[dated[1].index].append(dated)
    indexes = await connection.fetch(_LOCK, [*by_index])
    rows = await connection.fetch(_TABLES, [row["id"] for row in indexes])
    for index_id, name, changed_at in indexes:
        tables = {
            number: ChunkTable(generation_id, dimensions, is_half)
            for generation_id, owner, number, dimensions, is_half in rows
            if owner == index_id
        }
        for portion in _without_repetition(by_index[name], changed_at + 1):
            await _IndexWrite(connection, index_id, tables, portion[-1].moment).run(portion)


def _without_repetition(
    writes: Iterable[DatedWrite], earliest: int
) -> Iterator[list[PreparedWrite]]:
    """Yield the writes in portions in which each document is once, with their moments.

    Writes of one time stay together, unless they repeat a document among themselves.
    """
    portion: dict[str, PreparedWrite] = {}
    moment = earliest
    for at, dated in groupby(writes, key=itemgetter(0)):
        together = [write for _, write in dated]
        if any(write.document in portion for write in together):
            yield [*portion.values()]
            portion, moment = {}, moment + 1
        moment = max(moment, at)
        for write in together:
            if write.document in portion:
                yield [*portion.values()]
                portion, moment = {}, moment + 1
            portion[write.document] = _prepared(write, moment)
    yield [*portion.values()]


def _prepared(write: DocumentWrite, moment: int) -> PreparedWrite:
    metadata = metadata_json(write.metadata)
    digest = digest_of(write.text or "", metadata)
    return PreparedWrite(write, escape(write.document), metadata, digest, moment)


class _IndexWrite:
    """A write of different documents of one index, whose row the transaction has locked."""

    def __init__(
        self, connection: Connection, index_id: int, tables: dict[int, ChunkTable], last: int
    ) -> None:
        self._connection = connection
        self._index_id = index_id
        self._tables = tables
        self._by_id = {table.generation_id: table for table in tables.values()}
        self._last = last
        self._documents = 0
        self._counts: defaultdict[int, _Counts] = defaultdict(_Counts)
        self._closed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._new_chunks: defaultdict[int, list[tuple[IndexedChunk, DocumentVersion]]] = (
            defaultdict(list)
        )
        self._added: list[PreparedWrite] = []
        self._changed: list[tuple[_Known, PreparedWrite]] = []
        self._removed: list[tuple[int, int, int, str]] = []
        self._confirmed: list[tuple[int, int]] = []
        """Documents that were written with the same text, and are about a later time now."""
        self._new_versions: list[tuple[DocumentVersion, int]] = []

    async def run(self, writes: Sequence[PreparedWrite]) -> None:
        old = await self._known(writes)
        writes = [prepared for prepared in writes if _applies(prepared, old.get(prepared.document))]
        current = await self._current(writes, old)
        for prepared in writes:
            if prepared.write.text is None:
                self._remove(prepared, old[prepared.document], current)
            else:
                self._write(prepared, old.get(prepared.document), current)
        if self._confirmed:
            await self._connection.execute(
                _SET_AS_OF, *map(list, zip(*self._confirmed, strict=True))
            )
        if self._counts or self._added or self._changed or self._removed:
            await self._store({document: stored.id for document, stored in old.items()})

    async def _known(self, writes: Sequence[PreparedWrite]) -> dict[str, _Known]:
        rows = await self._connection.fetch(
            _KNOWN, self._index_id, [prepared.document for prepared in writes]
        )
        return {
            row["document"]: _Known(
                *(row["id"], row["version"], row["indexed_at"], row["as_of"], row["digest"]),
                dict(zip(row["generations"], row["versions"], strict=True)),
            )
            for row in rows
        }

    async def _current(
        self, writes: Sequence[PreparedWrite], known: dict[str, _Known]
    ) -> dict[tuple[int, str], list[_Current]]:
        """Return the current chunks of documents in the generations that a write changes."""
        documents_of: defaultdict[int, list[str]] = defaultdict(list)
        for prepared in writes:
            if prepared.document in known:
                for generation_id in self._changed_generations(prepared, known[prepared.document]):
                    documents_of[generation_id].append(prepared.document)
        chunks: defaultdict[tuple[int, str], list[_Current]] = defaultdict(list)
        for generation_id, documents in documents_of.items():
            statement = _CURRENT.format(table=self._by_id[generation_id].name)
            for document, seq, chunk_id, position, metadata, length in await self._connection.fetch(
                statement, documents
            ):
                current = _Current(seq, (chunk_id, position, metadata), length)
                chunks[generation_id, document].append(current)
        return chunks

    def _changed_generations(self, prepared: PreparedWrite, known: _Known) -> Iterable[int]:
        if prepared.write.text is None:
            return known.versions
        table = self._tables.get(prepared.write.generation)
        return (
            ()
            if table is None or table.generation_id not in known.versions
            else (table.generation_id,)
        )

    def _remove(
        self,
        prepared: PreparedWrite,
        known: _Known,
        current: dict[tuple[int, str], list[_Current]],
    ) -> None:
        self._documents -= 1
        row = (prepared.moment, _as_of(prepared, known), known.id, escape(prepared.write.cause))
        self._removed.append(row)
        for generation_id, version in known.versions.items():
            self._counts[generation_id].documents -= 1
            self._counts[generation_id].up_to_date -= version == known.version
            self._close(
                generation_id, current.get((generation_id, prepared.document), ()), prepared.moment
            )

    def _write(
        self,
        prepared: PreparedWrite,
        known: _Known | None,
        current: dict[tuple[int, str], list[_Current]],
    ) -> None:
        version = self._put(prepared, known)
        table = self._tables.get(prepared.write.generation)
        if table is None:
            return
        had = known.versions.get(table.generation_id) if known else None
        chunks = current.get((table.generation_id, prepared.document), [])
        is_changed = self._replace(table, chunks, version)
        if is_changed or had != version.number:
            counts = self._counts[table.generation_id]
            counts.documents += had is None
            counts.up_to_date += had != version.number
            self._new_versions.append((version, table.generation_id))

    def _put(self, prepared: PreparedWrite, known: _Known | None) -> DocumentVersion:
        """Store the text and metadata unless they are the same; return the version."""
        if known is not None and known.digest == prepared.digest:
            if prepared.write.version is None and (as_of := _as_of(prepared, known)) > known.as_of:
                self._confirmed.append((as_of, known.id))
            return DocumentVersion(prepared, known.version, known.indexed_at)
        if known is None:
            self._documents += 1
            self._added.append(prepared)
            return DocumentVersion(prepared, 1, prepared.moment)
        self._documents += known.is_removed
        self._changed.append((known, prepared))
        for generation_id, had in known.versions.items():
            self._counts[generation_id].up_to_date -= had == known.version
        return DocumentVersion(prepared, known.version + 1, prepared.moment)

    def _replace(
        self, table: ChunkTable, current: Sequence[_Current], version: DocumentVersion
    ) -> bool:
        """Replace the chunks that differ; return whether there are any."""
        metadata = version.source.metadata.decode()
        chunks = {
            (escape(chunk.id), chunk.position, metadata): chunk
            for chunk in version.source.write.chunks
        }
        kept = {chunk.key for chunk in current} & chunks.keys()
        gone = [chunk for chunk in current if chunk.key not in kept]
        new = [chunk for key, chunk in chunks.items() if key not in kept]
        self._close(table.generation_id, gone, version.source.moment)
        for chunk in new:
            table.check(chunk.embedding)
            self._new_chunks[table.generation_id].append((chunk, version))
            self._counts[table.generation_id].chunks += 1
            self._counts[table.generation_id].terms += len(chunk.terms)
        return bool(gone or new)

    def _close(self, generation_id: int, chunks: Iterable[_Current], moment: int) -> None:
        for chunk in chunks:
            self._closed[generation_id].append((chunk.seq, moment))
            self._counts[generation_id].chunks -= 1
            self._counts[generation_id].terms -= chunk.length

    async def _store(self, ids: dict[str, int]) -> None:
        execute = self._connection.execute
        for generation_id, closed in self._closed.items():
            statement = _CLOSE.format(table=self._by_id[generation_id].name)
            await execute(statement, *map(list, zip(*closed, strict=True)))
        for generation_id, chunks in self._new_chunks.items():
            table = self._by_id[generation_id]
            await copy_chunks(self._connection, table, chunks)
        if self._removed:
            await execute(_REMOVE_DOCUMENTS, *map(list, zip(*self._removed, strict=True)))
        if self._changed:
            changed = [prepared for _, prepared in self._changed]
            versions = [known.version + 1 for known, _ in self._changed]
            known_ids = [known.id for known, _ in self._changed]
            moments = [prepared.moment for prepared in changed]
            about = [_as_of(prepared, known) for known, prepared in self._changed]
            columns = _columns(changed)
            await execute(_CHANGE_DOCUMENTS, moments, about, known_ids, versions, *columns)
        if self._added:
            rows = await self._connection.fetch(
                _ADD_DOCUMENTS,
                *(self._index_id, [prepared.moment for prepared in self._added]),
                [_as_of(prepared, None) for prepared in self._added],
                [prepared.document for prepared in self._added],
                *([1] * len(self._added), *_columns(self._added)),
            )
            ids = {**ids, **dict(map(tuple, rows))}
        if self._new_versions:
            await execute(
                _SET_VERSIONS,
                [ids[version.source.document] for version, _ in self._new_versions],
                [generation_id for _, generation_id in self._new_versions],
                [version.number for version, _ in self._new_versions],
            )
        await self._count()

    async def _count(self) -> None:
        counts = [*self._counts.values()]
        await self._connection.execute(
            _COUNT,
            *(self._last, [*self._counts]),
            [count.documents for count in counts],
            [count.up_to_date for count in counts],
            [count.chunks for count in counts],
            [count.terms for count in counts],
        )
        await self._connection.execute(_CHANGED, self._index_id, self._last, self._documents)


def _applies(prepared: PreparedWrite, known: _Known | None) -> bool:
    """Return whether a write concerns the document as it is now."""
    if known is not None and prepared.write.version is None and prepared.write.is_late(known.as_of):
        return False
    if prepared.write.text is None:
        return known is not None and not known.is_removed
    if prepared.write.version is None:
        return True
    return (
        known is not None
        and known.version == prepared.write.version
        and known.digest == prepared.digest
    )


def _as_of(prepared: PreparedWrite, known: _Known | None) -> int:
    """Return the time that a document is about after a write."""
    as_of = prepared.moment if prepared.write.as_of is None else prepared.write.as_of
    return as_of if known is None else max(as_of, known.as_of)


def _columns(
    writes: Sequence[PreparedWrite],
) -> tuple[list[str], list[bytes], list[str], list[str]]:
    """Return cause, digest, text and metadata of each document."""
    return (
        [escape(prepared.write.cause) for prepared in writes],
        [prepared.digest for prepared in writes],
        [escape(prepared.write.text or "") for prepared in writes],
        [prepared.metadata.decode() for prepared in writes],
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
