"""The verbs of a client that load many documents, or retain them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from headwater.client.server import ServerVerbs, sending
from headwater.core.codec import encode_custom
from headwater.declarations.indexes import IndexRef, index_name
from headwater.model.indexes import (
    Document,
    Documents,
    DocumentsBody,
    LoadReport,
    NewDocument,
    OnLoaded,
    RetainedIndex,
    batches,
)
from headwater.model.problems import NDJSON
from headwater.store.verbs.indexes import IndexVerbs

# Half of the default limit of servers.
_BYTES_AT_ONCE = 500_000


class IndexCalls(ServerVerbs, IndexVerbs):
    """``client.indexes``: load, describe, rebuild and drop indexes."""

    @sending(IndexVerbs.load)
    async def load(
        self, index: IndexRef, documents: Documents, progress: OnLoaded | None
    ) -> LoadReport:
        name = index_name(index)
        total = await self._load(name, [])  # checks the name
        async for batch in batches(documents):
            for part in _requests([_new_document(each) for each in batch]):
                total = total.plus(await self._load(name, part))
                if progress is not None:
                    progress(total)
        return total

    async def _load(self, index: str, documents: Sequence[NewDocument]) -> LoadReport:
        path, body = "/v1/indexes/{}/documents", DocumentsBody(documents)
        return await self._server.follow(LoadReport, path, index, body=body, is_repeatable=True)

    @sending(IndexVerbs.retain)
    async def retain(self, index: IndexRef, document_ids: Collection[str | int]) -> int:
        with NamedTemporaryFile(prefix="headwater-", suffix=".ndjson") as file:
            for document_id in document_ids:
                file.write(msgspec.json.encode(str(document_id)) + b"\n")
            file.flush()
            kept = await self._server.upload(
                RetainedIndex,
                "/v1/indexes/{}/retain",
                index_name(index),
                file=Path(file.name),
                media_type=NDJSON,
            )
        return kept.removed


def _new_document(document: Document) -> NewDocument:
    return NewDocument(id=str(document.id), text=document.text, metadata=dict(document.metadata))


def _requests(documents: Sequence[NewDocument]) -> Iterator[Sequence[NewDocument]]:
    """Yield documents in parts that servers accept; one that is larger is sent alone."""
    middle = len(documents) // 2
    if middle and sum(map(_size, documents)) > _BYTES_AT_ONCE:
        yield from _requests(documents[:middle])
        yield from _requests(documents[middle:])
    else:
        yield documents


def _size(document: NewDocument) -> int:
    return len(msgspec.json.encode(document, enc_hook=encode_custom))
