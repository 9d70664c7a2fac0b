"""Route that reads a record as a document, or the bytes of its core."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from headwater.errors import DamagedRecordError, RecordDocumentError
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.kinds import RecordRef
from headwater.records.document import RecordDocument, export
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.outcomes import RECORDED

Part = Annotated[
    Literal["document", "core"],
    Meta(description="The whole record, or only the bytes that were hashed.", examples=["core"]),
]


class Records:
    """Reads records."""

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
                raises=RECORDED,
                applies_limits=True,
            ),
        ]

    async def read_record(self, ref: RecordRef, part: Part = "document") -> ApiResponse:
        """Read a record by its hash or context id, with its outcomes.

        ``part=core`` returns the hashed bytes.
        """
        record = await self._store.get_record(ref)
        if part == "core":
            is_named_in_full = ref in (record.record_hash, record.context_id)
            core = ApiResponse(record.core)
            return core.as_immutable(record.record_hash) if is_named_in_full else core
        try:
            outcomes = await self._store.records.sealed_outcomes(record.context_id)
            # The same hash has another document after a redaction or with a new outcome.
            return ApiResponse(export(record, outcomes)).with_etag()
        except RecordDocumentError as error:
            raise DamagedRecordError(record.context_id, "core", str(error)) from error
