"""Indexing: documents are split and embedded, and written with all their chunks at once."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec

from headwater.declarations.filters import matches, parse_filters
from headwater.declarations.indexes import IndexDef
from headwater.errors import TooManyChunksError
from headwater.features.call_scope import current_scope, track_source, track_sources
from headwater.features.caller_limits import check_document_limits, check_index_limits
from headwater.features.services import Services
from headwater.model.indexes import (
    DocumentPage,
    Documents,
    IndexedDocument,
    IndexSpec,
    LoadReport,
    OnLoaded,
    StoredDocument,
    batches,
)
from headwater.model.values import check_utf8
from headwater.ports import NO_GENERATION, DocumentWrite, Embedding, IndexedChunk, IndexVersion
from headwater.retrieval.analysis import terms
from headwater.retrieval.document_checks import PlainDocument, checked_document, checked_id
from headwater.retrieval.generations import Generations
from headwater.retrieval.index_searches import NO_VERSION

# Splitting fewer characters takes less time than a thread hop.
_SPLIT_INLINE = 4_000
_REPAIRED_TOGETHER = 64
# Of all but one document: a crash loses what was embedded since the last write.
_REPAIRED_CHARACTERS = 400_000
_PAGE = 1_000
_MOST_PAGES = 10

# Texts are compared and not values, because 1, 1.0 and true are equal.
_encode = msgspec.json.Encoder(order="sorted").encode


class _Piece(NamedTuple):
    """A piece of a document that has no embedding yet."""

    id: str
    text: str
    content_hash: str
    terms: Sequence[str]


class _Split(NamedTuple):
    """Documents in pieces, and the embeddings that are known of these, by content hash."""

    documents: Sequence[PlainDocument]
    pieces: Sequence[Sequence[_Piece]]
    known: Mapping[str, Embedding]

    @property
    def unknown(self) -> dict[str, str]:
        """The texts without embeddings, by content hash."""
        pieces = chain.from_iterable(self.pieces)
        texts = {piece.content_hash: piece.text for piece in pieces}
        return {key: text for key, text in texts.items() if key not in self.known}


class Indexer:
    """Prepares and writes versions of documents."""

    def __init__(self, services: Services, generations: Generations) -> None:
        self._vectors = services.backends.vectors
        self._limits = services.settings.indexes
        self._generations = generations

    def checked(self, document_id: object, text: object, metadata: object) -> PlainDocument:
        """Return a document as it is stored; raise InvalidInputError if it cannot be."""
        return checked_document(document_id, text, metadata, self._limits)

    async def index(
        self,
        index: IndexDef,
        document_id: str | int,
        text: object,
        metadata: object,
        *,
        wait: bool = True,
    ) -> None:
        """Write a document; inside a handler as part of the handler's transaction.

        Without ``wait``, a large one is stored without its chunks: it is outdated in all
        generations, so that a worker splits and embeds it. Raise TooManyChunksError if it has more
        chunks than a request may have.
        """
        check_document_limits(index, document_id)
        document = self.checked(document_id, text, metadata)
        transaction = current_scope().transaction
        cause = "index" if transaction is None else transaction.cause
        version = await self._generations.active(index)
        split = await self._split(index, version, [document])
        if not wait:
            self._check_chunks(index, sum(map(len, split.pieces)))
        if not wait and len(split.unknown) > self._limits.background_chunks:
            write = DocumentWrite(
                index=index.name,
                document=document.id,
                text=document.text,
                metadata=document.metadata,
                generation=NO_GENERATION,
                cause=cause,
            )
        else:
            (write,) = await self._embedded(index, version, split, cause)
        if transaction is not None:
            transaction.stage_document(write)
        elif write.generation == NO_GENERATION:
            await self._vectors.write([write])
        else:
            await self.write(index, [write])

    async def check_request(self, index: IndexDef, documents: Sequence[PlainDocument]) -> None:
        """Raise TooManyChunksError if documents have more chunks than a request may have."""
        version = await self._vectors.version(index.name)
        spec = self._generations.declared(index) if version is None else version.spec
        self._check_chunks(index, sum(map(len, await _split_all(index.name, documents, spec))))

    def _check_chunks(self, index: IndexDef, chunks: int) -> None:
        if chunks > self._limits.max_request_chunks:
            raise TooManyChunksError(index.name, chunks, self._limits.max_request_chunks)

    async def unindex(self, index: IndexDef, document_id: str | int) -> None:
        """Remove a document; inside a handler as part of the handler's transaction."""
        check_document_limits(index, document_id)
        document = checked_id(document_id)
        transaction = current_scope().transaction
        version = await self._vectors.version(index.name)
        if version is None:
            return
        if transaction is None:
            await self._vectors.write([_removal(version, document, "unindex")])
        else:
            transaction.stage_document(_removal(version, document, transaction.cause))

    async def write(self, index: IndexDef, writes: Sequence[DocumentWrite]) -> None:
        """Store versions of documents; when this returns, every search finds them."""
        await self._vectors.write(writes)
        await self.settle(index, writes[-1].generation)

    async def settle(self, index: IndexDef, generation: int) -> None:
        """Repair the documents of the active generation if it is another than the written one.

        A reindexing that ended in the meantime has not seen the documents in it.
        """
        version = await self._vectors.version(index.name)
        if version is not None and version.generation != generation:
            await self.repair(index, version)

    async def document(self, index: IndexDef, document_id: object) -> StoredDocument | None:
        """Return the current version of a document."""
        check_index_limits(index)
        track_source("document", index.name, str(document_id))
        document = checked_id(document_id)
        return (await self._vectors.documents(index.name, [document])).get(document)

    async def listed(
        self,
        index: IndexDef,
        prefix: str,
        filters: Mapping[str, Any] | None,
        limit: int,
        cursor: str | None,
    ) -> DocumentPage:
        """Return a page of documents, by id.

        With filters, one call looks at ten thousand documents at most.
        """
        check_index_limits(index)
        check_utf8(prefix, "the prefix of documents")
        condition = parse_filters(filters)
        after = "" if cursor is None else checked_id(cursor)
        await self._track(index)
        page: list[IndexedDocument] = []
        for _ in range(_MOST_PAGES):
            size = limit + 1 if condition is None else _PAGE
            rows = await self._vectors.list_documents(
                index.name, prefix=prefix, after=after, limit=size
            )
            page += [row for row in rows if condition is None or matches(condition, row.metadata)]
            if len(page) > limit or len(rows) < size:
                break
            after = rows[-1].document
            await asyncio.sleep(0)  # because the read of an embedded store does not suspend
        else:
            return _page(index, page, after)
        return _page(index, page[:limit], page[limit - 1].document if len(page) > limit else None)

    async def _track(self, index: IndexDef) -> None:
        """Note what a function reads: all of an index, in its version before that."""
        if current_scope().reads is not None:
            version = await self._vectors.version(index.name)
            track_source("index", index.name, NO_VERSION if version is None else version.text)

    async def load(
        self, index: IndexDef, documents: Documents, progress: OnLoaded | None = None
    ) -> LoadReport:
        """Write many documents, in batches that are embedded and stored together."""
        loaded = LoadReport()
        async for batch in batches(documents):
            for document in batch:
                check_document_limits(index, document.id)
            version = await self._generations.active(index)
            plain = [
                self.checked(document.id, document.text, document.metadata) for document in batch
            ]
            changed = await self._changed(index, plain)
            writes = await self.prepare(index, version, changed, "load")
            if writes:
                await self.write(index, writes)
            chunks = sum(len(write.chunks) for write in writes)
            loaded = loaded.plus(LoadReport(len(writes), chunks, len(plain) - len(changed)))
            if progress is not None:
                progress(loaded)
        return loaded

    async def _changed(
        self, index: IndexDef, documents: Sequence[PlainDocument]
    ) -> list[PlainDocument]:
        """Return the documents that are not stored in this form; of equal ids, the last one."""
        latest = {document.id: document for document in documents}
        stored = await self._vectors.documents(index.name, latest.keys())
        return [
            document
            for document in latest.values()
            if (old := stored.get(document.id)) is None
            or old.text != document.text
            or _encode(old.metadata) != _encode(document.metadata)
        ]

    async def retain(self, index: IndexDef, document_ids: Collection[object]) -> int:
        """Remove all documents but some; return how many were removed."""
        retained = set(map(checked_id, document_ids))
        removed, after = 0, ""
        while page := await self._vectors.list_documents(index.name, after=after, limit=_PAGE):
            after = page[-1].document
            version = await self._vectors.version(index.name)
            if version is None:
                return removed  # the index was dropped
            removals = [
                _removal(version, listed.document, "retain")
                for listed in page
                if listed.document not in retained
            ]
            await self._vectors.write(removals)
            removed += len(removals)
        return removed

    async def repair(
        self, index: IndexDef, version: IndexVersion, report: Callable[[int], None] | None = None
    ) -> None:
        """Bring the outdated documents of a generation up to date; report them as they are done."""
        after = ""
        while documents := await self.outdated(index, version, after):
            await self.update(index, version, documents)
            if report is not None:
                report(len(documents))
            after = documents[-1].id

    async def outdated(
        self, index: IndexDef, version: IndexVersion, after: str, *, alone: bool = False
    ) -> list[PlainDocument]:
        """Return the next outdated document of a generation, or those to be repaired together."""
        most = 1 if alone else _REPAIRED_TOGETHER
        stored = await self._vectors.outdated(
            index.name, version.generation, after=after, limit=most
        )
        sizes = list(accumulate(len(old.text) for old in stored))
        return [
            PlainDocument(old.document, old.text, dict(old.metadata), old.version)
            for old in stored[: max(1, bisect_right(sizes, _REPAIRED_CHARACTERS))]
        ]

    async def update(
        self, index: IndexDef, version: IndexVersion, documents: Sequence[PlainDocument]
    ) -> None:
        """Bring outdated documents up to date in a generation, unless they changed meanwhile."""
        await self._vectors.write(await self.prepare(index, version, documents, "reindex"))

    async def prepare(
        self,
        index: IndexDef,
        version: IndexVersion,
        documents: Sequence[PlainDocument],
        cause: str,
    ) -> list[DocumentWrite]:
        """Return the writes of documents, with chunks and embeddings for one generation."""
        split = await self._split(index, version, documents)
        return await self._embedded(index, version, split, cause)

    async def _split(
        self, index: IndexDef, version: IndexVersion, documents: Sequence[PlainDocument]
    ) -> _Split:
        pieces = await _split_all(index.name, documents, version.spec)
        hashes = {piece.content_hash for of_document in pieces for piece in of_document}
        known: Mapping[str, Embedding] = {}
        if hashes:
            known = await self._vectors.embeddings(index.name, version.generation, hashes)
        return _Split(documents, pieces, known)

    async def _embedded(
        self, index: IndexDef, version: IndexVersion, split: _Split, cause: str
    ) -> list[DocumentWrite]:
        """Return the writes of documents; only their unknown texts are embedded."""
        embeddings, unknown = split.known, split.unknown
        if unknown:
            embedder = self._generations.embedder(index, version.spec)
            made = await self._generations.embed(embedder, [*unknown.values()], "document")
            embeddings = {**embeddings, **dict(zip(unknown, made, strict=True))}
        return [
            DocumentWrite(
                index=index.name,
                document=document.id,
                text=document.text,
                metadata=document.metadata,
                generation=version.generation,
                chunks=[
                    IndexedChunk(
                        piece.id,
                        position,
                        piece.text,
                        piece.content_hash,
                        embeddings[piece.content_hash],
                        piece.terms,
                    )
                    for position, piece in enumerate(of_document)
                ],
                cause=cause,
                version=document.version,
            )
            for document, of_document in zip(split.documents, split.pieces, strict=True)
        ]


def _page(index: IndexDef, documents: Sequence[IndexedDocument], after: str | None) -> DocumentPage:
    track_sources(("document", index.name, each.document) for each in documents)
    return DocumentPage(index=index.name, documents=documents, next_cursor=after)


def _removal(version: IndexVersion, document: str, cause: str) -> DocumentWrite:
    return DocumentWrite(
        index=version.index,
        document=document,
        text=None,
        generation=version.generation,
        cause=cause,
    )


async def preload() -> None:
    """Load the modules that the first document needs, in a thread.

    Loading them in the event loop would block it, for more than a second on a busy machine.
    """
    await asyncio.to_thread(_preload)


def _preload() -> None:
    import headwater.retrieval.embeddings.providers  # noqa: F401, PLC0415 - loads NumPy

    spec = IndexSpec(embedder="", dimensions=1, chunk_tokens=16, overlap=0)
    _pieces("", PlainDocument("", "words", {}), spec)


async def _split_all(
    index: str, documents: Sequence[PlainDocument], spec: IndexSpec
) -> list[list[_Piece]]:
    def split_all() -> list[list[_Piece]]:
        return [_pieces(index, document, spec) for document in documents]

    is_short = sum(len(document.text) for document in documents) <= _SPLIT_INLINE
    return split_all() if is_short else await asyncio.to_thread(split_all)


def _pieces(index: str, document: PlainDocument, spec: IndexSpec) -> list[_Piece]:
    from headwater.retrieval.chunking import split  # noqa: PLC0415 - compiling its patterns is slow

    seen: Counter[str] = Counter()
    pieces = []
    for text in split(document.text, spec.chunk_tokens, spec.overlap):
        digest = sha256(text.encode()).hexdigest()
        short = digest[:16]
        seen[short] += 1
        suffix = f"~{seen[short]}" if seen[short] > 1 else ""
        chunk_id = f"{index}/{document.id}#{short}{suffix}"
        pieces.append(_Piece(chunk_id, text, f"sha256:{digest}", terms(text)))
    return pieces
