"""Routes that run retrievers, and load or retain the documents of an index."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from headwater.contexts.freshness import age_ms, search_reason
from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.declarations.items import Chunk
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.features.caller_limits import check_document_limits
from headwater.features.read_tracking import IndexSearched, TrackedRetrieval
from headwater.http.routing.request_parsing import UploadedFile
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.http.routing.streaming import ProgressResponse, Reporter
from headwater.model.indexes import (
    Document,
    DocumentsBody,
    LoadReport,
    RetainedIndex,
    RetrieveBody,
    Retrieved,
    RetrievedIndex,
    SearchHit,
)
from headwater.model.kinds import IndexName, RetrieverName
from headwater.model.problems import NDJSON, ActionLine, ProgressStep
from headwater.retrieval.document_checks import checked_document
from headwater.store.feature_store import FeatureStore
from headwater.store.retrieving import run_retriever


class Indexes:
    """Runs retrievers, and loads or retains the documents of an index."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._private = store.settings.record.is_private

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v1/retrievers/{name}",
                "read",
                self.run_retriever,
                documents=Retrieved,
                applies_limits=True,
            ),
            Route(
                "POST",
                "/v1/indexes/{index}/documents",
                "ingest",
                self.load_documents,
                returns=NDJSON,
                documents=ActionLine[LoadReport, LoadReport],
                applies_limits=True,
            ),
            Route(
                "POST",
                "/v1/indexes/{index}/retain",
                "admin",
                self.retain_documents,
                accepts=(NDJSON,),
                max_bytes="max_upload_bytes",
                returns=NDJSON,
                documents=ActionLine[ProgressStep, RetainedIndex],
            ),
        ]

    async def run_retriever(self, name: RetrieverName, body: RetrieveBody) -> ApiResponse:
        """Run a retriever by its name; nothing is recorded."""
        found = await run_retriever(runtime_of(self._store), name, body.params)
        result = _retrieved(found, self._store.clock.now())
        return ApiResponse(msgspec.json.encode(plain(result), enc_hook=encode_custom))

    async def load_documents(self, index: IndexName, body: DocumentsBody) -> ProgressResponse:
        """Index documents, in place of their earlier versions; unchanged ones are left as they are.

        If the client disconnects, some of them may be indexed; send them again.
        """
        limits = self._store.settings.indexes
        # All of them before the first is indexed, while a refusal can still have its own status.
        checked = [
            checked_document(each.id, each.text, each.metadata, limits) for each in body.documents
        ]
        runtime = runtime_of(self._store)
        definition = runtime.registry.index(index)
        for each in checked:
            check_document_limits(definition, each.id)
        await (await runtime.open()).indexer.check_request(definition, checked)
        documents = [Document(each.id, each.text, each.metadata) for each in checked]
        load = self._store.indexes.load
        return await ProgressResponse(
            lambda report: load(index, documents, progress=report.show), private=self._private
        ).begun()

    async def retain_documents(self, index: IndexName, body: UploadedFile) -> ProgressResponse:
        """Remove all documents but those whose ids are sent, each as JSON text on its own line."""

        async def action(_: Reporter) -> RetainedIndex:
            ids = await asyncio.to_thread(_ids_in, body.path)
            return RetainedIndex(index, await self._store.indexes.retain(index, ids))

        return ProgressResponse(action, private=self._private, closing=body.close)


def _retrieved(found: TrackedRetrieval, now: datetime) -> Retrieved:
    age = age_ms(found.oldest, now)
    why = search_reason(found, None, now)
    return Retrieved(
        retriever=found.retriever,
        arguments=found.arguments,
        chunks=_hits(found.chunks),
        searched_at=found.searched_at,
        age_ms=age,
        sla_ms=found.sla_ms,
        is_fresh=None if found.sla_ms is None else why is None,
        is_cached=found.cache_hit,
        cached_at=found.searched_at if found.cache_hit else None,
        latency_ms=found.latency_us / 1_000,
        failed=found.failed,
        index=_searched(found.searched),
    )


def _searched(index: IndexSearched | None) -> RetrievedIndex | None:
    return None if index is None else RetrievedIndex(**msgspec.structs.asdict(index))


def _hits(chunks: Sequence[Chunk]) -> list[SearchHit]:
    return [msgspec.convert(chunk, SearchHit, from_attributes=True) for chunk in chunks]


def _ids_in(file: Path) -> set[str]:
    ids: set[str] = set()
    with file.open("rb") as opened:
        for number, line in enumerate(opened, 1):
            try:
                ids.add(msgspec.json.decode(line.removeprefix(BOM_UTF8), type=str))
            except msgspec.DecodeError as error:
                raise InvalidInputError(
                    f'line {number} is not the id of a document: {error}; write it as "parcels"'
                ) from error
    return ids
