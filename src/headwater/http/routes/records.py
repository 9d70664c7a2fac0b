"""Routes that read and redact a record as a document, or read the bytes of its core."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from headwater.errors import DamagedRecordError, RecordDocumentError
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.admin import RedactBody
from headwater.model.kinds import RecordRef
from headwater.records.document import RecordDocument, export
from headwater.store.feature_store import FeatureStore

Part = Annotated[
    Literal["document", "core"],
    Meta(description="The whole record, or only the bytes that were hashed.", examples=["core"]),
]


class Records:
    """Reads and redacts records."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/v1/record/{ref}",
                "records",
                self.read_record,
                documents=(RecordDocument, dict[str, Any]),
                has_etag=True,
                applies_limits=True,
            ),
            Route(
                "POST", "/v1/record/{ref}/redact", "admin", self.redact, documents=RecordDocument
            ),
        ]

    async def read_record(self, ref: RecordRef, part: Part = "document") -> ApiResponse:
        """Read a record by its hash or context id; ``part=core`` returns the hashed bytes."""
        record = await self._store.get_record(ref)
        if part == "core":
            is_named_in_full = ref in (record.record_hash, record.context_id)
            core = ApiResponse(record.core)
            return core.as_immutable(record.record_hash) if is_named_in_full else core
        try:
            # The same hash has another document after a redaction.
            return ApiResponse(export(record)).with_etag()
        except RecordDocumentError as error:
            raise DamagedRecordError(record.context_id, "core", str(error)) from error

    async def redact(self, ref: RecordRef, body: RedactBody) -> ApiResponse:
        """Erase values of a record permanently; its hash and signature stay valid."""
        record = await self._store.records.redact(
            ref, *body.pointers, reason=body.reason, by=body.by, everywhere=body.everywhere
        )
        return ApiResponse(export(record))
