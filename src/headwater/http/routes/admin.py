"""Routes for administrators: redaction of records."""

from __future__ import annotations

from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.admin import Copies, PointersBody, RedactBody
from headwater.model.kinds import RecordRef
from headwater.records.document import RecordDocument, export
from headwater.store.feature_store import FeatureStore


class Administration:
    """Finds and erases values of records."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/record/{ref}/copies", "records", self.find_copies),
            Route(
                "POST", "/v1/record/{ref}/redact", "admin", self.redact, documents=RecordDocument
            ),
        ]

    async def find_copies(self, ref: RecordRef, body: PointersBody) -> Copies:
        """Find where else values of a record occur, in it and in the contexts inside it."""
        return Copies(await self._store.records.copies(ref, *body.pointers))

    async def redact(self, ref: RecordRef, body: RedactBody) -> ApiResponse:
        """Erase values of a record permanently; its hash and signature stay valid."""
        record = await self._store.records.redact(
            ref, *body.pointers, reason=body.reason, by=body.by, everywhere=body.everywhere
        )
        return ApiResponse(export(record))
