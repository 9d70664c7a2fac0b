"""Routes that export the list of recorded contexts."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Unpack

import msgspec
from starlette.responses import Response, StreamingResponse

from headwater.contexts.recorded import ContextQuery
from headwater.http.routing.route import Route
from headwater.model.contexts import LARGEST_PAGE, ContextPage, RecordSummary
from headwater.model.problems import NDJSON
from headwater.records.record import moment_text
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.records import SoughtContexts

CSV = "text/csv"

_COLUMNS = RecordSummary.__struct_fields__
# Spreadsheets run a cell that begins like this (OWASP, "CSV injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Encode = Callable[[Iterable[RecordSummary]], bytes]


class ContextLists:
    """Exports the list of recorded contexts."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        get = partial(Route, "GET", scope="records", applies_limits=True)
        return [
            get(
                "/v1/contexts/export-ndjson",
                function=self.export_contexts,
                returns=NDJSON,
                documents=RecordSummary,
            ),
            get(
                "/v1/contexts/export-csv",
                function=self.export_contexts_csv,
                returns=CSV,
                documents=str,
            ),
        ]

    async def export_contexts(self, **filters: Unpack[SoughtContexts]) -> Response:
        """Export the list of all recorded contexts that match, newest first, as lines of JSON.

        The connection is closed before the end if reading fails.
        """
        encode = msgspec.json.Encoder().encode_lines
        return await self._exported(ContextQuery(**filters), NDJSON, encode)

    async def export_contexts_csv(self, **filters: Unpack[SoughtContexts]) -> Response:
        """Export the list of all recorded contexts that match, newest first, as CSV.

        A text that a spreadsheet would take for a formula begins with an apostrophe. The connection
        is closed before the end if reading fails.
        """
        header = _csv([_COLUMNS])
        return await self._exported(ContextQuery(**filters), CSV, _csv_rows, header)

    async def _exported(
        self, query: ContextQuery, media_type: str, encode: Encode, head: bytes = b""
    ) -> Response:
        query.check()
        # The first page is read before the response begins, so that an error has its own status.
        first = await self._page(query, None)

        async def body() -> AsyncIterator[bytes]:
            page = first
            yield head + encode(page.contexts)
            while page.next_cursor is not None:
                page = await self._page(query, page.next_cursor)
                yield encode(page.contexts)

        extension = media_type.rpartition("/")[2].removeprefix("x-")
        headers = {
            "content-disposition": f'attachment; filename="contexts.{extension}"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        return StreamingResponse(body(), media_type=media_type, headers=headers)

    async def _page(self, query: ContextQuery, cursor: str | None) -> ContextPage:
        fields = {name: field for name, field in msgspec.structs.asdict(query).items() if field}
        if any(query.parts()):
            return await self._store.records.find(**fields, limit=LARGEST_PAGE, cursor=cursor)
        return await self._store.list_contexts(**fields, limit=LARGEST_PAGE, cursor=cursor)


def _csv_rows(contexts: Iterable[RecordSummary]) -> bytes:
    return _csv([_cell(getattr(context, column)) for column in _COLUMNS] for context in contexts)


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, int) else moment_text(value)
