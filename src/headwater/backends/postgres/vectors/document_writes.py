"""Writing versions of documents, with their chunks, in one transaction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import asyncpg
import msgspec

from headwater.backends.document_plan import (
    CurrentChunk,
    DocumentPlan,
    DocumentState,
    plan_chunks,
    plan_document,
)
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import ROW_ERRORS, headline
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable
from headwater.backends.postgres.vectors.stored_forms import (
    bigint,
    copied,
    digest_of,
    escape,
    fields_json,
    half_vector,
    integer,
    jsonb,
    metadata_json,
    term_vector,
    unescape,
    vector,
)
from headwater.core.batching import batched
from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import InvalidInputError
from headwater.ports import NO_GENERATION, CommittedWrites, DocumentWrite, IndexedChunk

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
_STORED = """
SELECT d.document, d.id, d.version, d.indexed_at, d.as_of, d.digest,
       ARRAY(SELECT v.generation_id FROM _document_versions AS v
             WHERE v.document_id = d.id ORDER BY v.generation_id) AS generations,
       ARRAY(SELECT v.version FROM _document_versions AS v
             WHERE v.document_id = d.id ORDER BY v.generation_id) AS versions
FROM unnest($2::text[]) AS given (document)
JOIN _documents AS d ON d.index_id = $1
    AND left(d.document, 128) = left(given.document, 128) AND d.document = given.document
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


class _DocumentRow(NamedTuple):
    """A stored document, and the version of it that each generation has; the default is new."""

    id: int = 0
    version: int = 0
    digest: bytes = b""
    state: DocumentState | None = None
    versions: Mapping[int, int] = {}


DatedWrite = tuple[int, DocumentWrite]
"""A write and the time of it, in microseconds."""


class PreparedWrite(NamedTuple):
    """A write with the forms of its parts in which they are stored, and the time of it."""

    write: DocumentWrite
    document: str
    metadata: bytes
    digest: bytes
    moment: int


class PlannedWrite(NamedTuple):
    """A write, and what it does to the document that is stored."""

    source: PreparedWrite
    row: _DocumentRow
    plan: DocumentPlan


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
            metadata = metadata_json(write.metadata)
            digest = digest_of(write.text or "", metadata)
            portion[write.document] = PreparedWrite(
                write, escape(write.document), metadata, digest, moment
            )
    yield [*portion.values()]


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
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """Changes of the counters of each generation."""
        self._closed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._new_chunks: defaultdict[int, list[tuple[IndexedChunk, PlannedWrite]]] = defaultdict(
            list
        )
        self._new_versions: list[tuple[PlannedWrite, int]] = []

    async def run(self, writes: Sequence[PreparedWrite]) -> None:
        rows = await self._rows(writes)
        planned: list[PlannedWrite] = []
        for prepared in writes:
            row = rows.get(prepared.document, _DocumentRow())
            is_same = row.digest == prepared.digest
            plan = plan_document(prepared.write, row.state, prepared.moment, is_same=is_same)
            if plan is not None:
                planned.append(PlannedWrite(prepared, row, plan))
        current = await self._current(planned)
        for write in planned:
            self._apply(write, current)
        await self._store(planned)

    async def _rows(self, writes: Sequence[PreparedWrite]) -> dict[str, _DocumentRow]:
        rows = await self._connection.fetch(
            _STORED, self._index_id, [prepared.document for prepared in writes]
        )
        return {
            document: _DocumentRow(
                *(row_id, version, digest),
                DocumentState(version, indexed_at, as_of, is_removed=not digest),
                dict(zip(generations, versions, strict=True)),
            )
            for document, row_id, version, indexed_at, as_of, digest, generations, versions in rows
        }

    async def _current(
        self, writes: Sequence[PlannedWrite]
    ) -> dict[tuple[int, str], list[CurrentChunk]]:
        """Return the current chunks of documents in the generations that a write changes."""
        documents_of: defaultdict[int, list[str]] = defaultdict(list)
        for source, row, plan in writes:
            table = self._tables.get(source.write.generation)
            for generation_id in row.versions:
                if plan.change == "removed" or (table and table.generation_id == generation_id):
                    documents_of[generation_id].append(source.document)
        chunks: defaultdict[tuple[int, str], list[CurrentChunk]] = defaultdict(list)
        for generation_id, documents in documents_of.items():
            statement = _CURRENT.format(table=self._by_id[generation_id].name)
            for document, seq, chunk_id, position, metadata, length in await self._connection.fetch(
                statement, documents
            ):
                chunk = CurrentChunk(seq, unescape(chunk_id), position, metadata.encode(), length)
                chunks[generation_id, document].append(chunk)
        return chunks

    def _apply(
        self, write: PlannedWrite, current: dict[tuple[int, str], list[CurrentChunk]]
    ) -> None:
        """Count what a write changes, and collect the chunks that it ends and adds."""
        source, row, plan = write
        self._documents += plan.is_new - (plan.change == "removed")
        if plan.change in ("replaced", "removed"):
            for generation_id, version in row.versions.items():
                self._counts[generation_id]["up_to_date"] -= version == row.version
        if plan.change == "removed":
            for generation_id in row.versions:
                self._counts[generation_id]["documents"] -= 1
                chunks = current.get((generation_id, source.document), ())
                self._close(generation_id, chunks, source.moment)
            return
        table = self._tables.get(source.write.generation)
        if table is None:
            return
        generation_id, has_version = table.generation_id, row.versions.get(table.generation_id)
        ended, added = plan_chunks(
            current.get((generation_id, source.document), ()),
            *(source.write.chunks, source.metadata, table.dimensions),
        )
        self._close(generation_id, ended, source.moment)
        self._new_chunks[generation_id] += [(chunk, write) for chunk in added]
        if ended or added or has_version != plan.version:
            counts = self._counts[generation_id]
            counts["chunks"] += len(added)
            counts["terms"] += sum(len(chunk.terms) for chunk in added)
            counts["documents"] += has_version is None
            counts["up_to_date"] += has_version != plan.version
            self._new_versions.append((write, generation_id))

    def _close(self, generation_id: int, chunks: Sequence[CurrentChunk], moment: int) -> None:
        if chunks:
            self._closed[generation_id] += [(chunk.seq, moment) for chunk in chunks]
            self._counts[generation_id]["chunks"] -= len(chunks)
            self._counts[generation_id]["terms"] -= sum(chunk.length for chunk in chunks)

    async def _store(self, writes: Sequence[PlannedWrite]) -> None:
        execute = self._connection.execute
        by_change: defaultdict[str, list[PlannedWrite]] = defaultdict(list)
        for write in writes:
            by_change["added" if not write.row.id else write.plan.change].append(write)
        if confirmed := by_change["confirmed"]:
            rows = [(plan.as_of, row.id) for _, row, plan in confirmed]
            await execute(_SET_AS_OF, *_columns(rows))
        for generation_id, closed in self._closed.items():
            statement = _CLOSE.format(table=self._by_id[generation_id].name)
            await execute(statement, *_columns(closed))
        for generation_id, chunks in self._new_chunks.items():
            await copy_chunks(self._connection, self._by_id[generation_id], chunks)
        if removed := by_change["removed"]:
            await execute(
                _REMOVE_DOCUMENTS,
                *_columns(
                    (plan.indexed_at, plan.as_of, row.id, escape(source.write.cause))
                    for source, row, plan in removed
                ),
            )
        if replaced := by_change["replaced"]:
            await execute(_CHANGE_DOCUMENTS, *_columns(_document_row(*write) for write in replaced))
        ids = {write.source.document: write.row.id for write in writes}
        if added := by_change["added"]:
            columns = _columns(_document_row(*write) for write in added)
            inserted = await self._connection.fetch(_ADD_DOCUMENTS, self._index_id, *columns)
            ids |= dict(map(tuple, inserted))
        if self._new_versions:
            await execute(
                _SET_VERSIONS,
                *_columns(
                    (ids[source.document], generation_id, plan.version)
                    for (source, _, plan), generation_id in self._new_versions
                ),
            )
        if self._counts or removed or replaced or added:
            counts = self._counts.values()
            counters = ("documents", "up_to_date", "chunks", "terms")
            columns = ([count[name] for count in counts] for name in counters)
            await execute(_COUNT, self._last, [*self._counts], *columns)
            await execute(_CHANGED, self._index_id, self._last, self._documents)


def _columns(rows: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    """Return rows as the columns that ``unnest`` takes."""
    return map(list, zip(*rows, strict=True))


def _document_row(source: PreparedWrite, row: _DocumentRow, plan: DocumentPlan) -> tuple[Any, ...]:
    """Return the columns of a new or changed document, which has an id already if it is stored."""
    return (
        *(plan.indexed_at, plan.as_of, row.id or source.document, plan.version),
        *(escape(source.write.cause), source.digest, escape(source.write.text or "")),
        source.metadata.decode(),
    )


async def copy_chunks(
    connection: Connection, table: ChunkTable, chunks: Sequence[tuple[IndexedChunk, PlannedWrite]]
) -> None:
    """Add chunks, each with the version that brought it, as of the time of the write."""
    encode = half_vector if table.is_half else vector
    for portion in batched(chunks, CHUNKS_AT_ONCE):
        metadata = {write.source.document: write.source.metadata for _, write in portion}
        fields = {document: jsonb(fields_json(values)) for document, values in metadata.items()}
        rows = (
            (
                *(source.document.encode(), escape(chunk.id).encode(), integer(chunk.position)),
                *(escape(chunk.text).encode(), chunk.content_hash.encode()),
                *(source.metadata, fields[source.document], integer(plan.version)),
                *(bigint(plan.indexed_at), bigint(source.moment), integer(len(chunk.terms))),
                *(term_vector(chunk.terms), encode(chunk.embedding)),
            )
            for chunk, (source, _, plan) in portion
        )
        await connection.copy_to_table(
            table.name, source=copied(rows), columns=_COLUMNS, format="binary"
        )


# A failure of one write, which would fail each time and must not block the rows after it. A table
# of chunks without its columns is one whose extension was dropped.
_FAILURES = (
    InvalidInputError,
    *ROW_ERRORS,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedObjectError,
)


class CommittedDocuments:
    """Writes of documents from the outbox."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def apply(self, connection: Connection, committed: Iterable[CommittedWrites]) -> None:
        """Write documents in the transaction of the caller, each with the time of its commit.

        A document whose chunks cannot be stored is stored without them, so that it is outdated in
        its generation and is embedded again.
        """
        # The clock of the server that stamps commits may be ahead of this one's.
        now = self._clock.micros()
        writes = [(min(commit.at, now), write) for commit in committed for write in commit.writes]
        try:
            await self._write(connection, writes)
        except _FAILURES:
            for at, write in writes:
                await self._write_alone(connection, at, write)

    async def _write_alone(self, connection: Connection, at: int, write: DocumentWrite) -> None:
        without_chunks = msgspec.structs.replace(write, generation=NO_GENERATION, chunks=())
        for attempt in (write, without_chunks):
            try:
                await self._write(connection, [(at, attempt)])
            except _FAILURES as error:
                log.error(
                    "document could not be indexed",
                    index=write.index,
                    document=write.document,
                    cause=write.cause,
                    error=headline(error),
                )
            else:
                return

    async def _write(self, connection: Connection, writes: Sequence[DatedWrite]) -> None:
        async with connection.transaction():
            await write_documents(connection, writes)
