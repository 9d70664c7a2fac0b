"""Lists of recorded contexts as files, sent while they are read."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from headwater.contexts.recorded import ContextQuery
from headwater.model.contexts import LARGEST_PAGE, ContextPage, RecordSummary
from headwater.model.progress import NDJSON
from headwater.records.record import moment_text
from headwater.store.feature_store import FeatureStore

CSV = "text/csv"

_COLUMNS = RecordSummary.__struct_fields__
# Spreadsheets run a cell that begins like this (OWASP, "CSV injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Encode = Callable[[Iterable[RecordSummary]], bytes]


async def export_ndjson(store: FeatureStore, query: ContextQuery) -> Response:
    """Return the contexts of a query, one JSON object in each line."""
    return await _exported(store, query, NDJSON, msgspec.json.Encoder().encode_lines, b"")


async def export_csv(store: FeatureStore, query: ContextQuery) -> Response:
    """Return the contexts of a query as a table with a header."""
    return await _exported(store, query, CSV, _csv_rows, _csv([_COLUMNS]))


async def _exported(
    store: FeatureStore, query: ContextQuery, media_type: str, encode: Encode, head: bytes
) -> Response:
    query.check()
    # The first page is read before the response begins, so that an error has its own status.
    first = await _page(store, query, None)

    async def body() -> AsyncIterator[bytes]:
        page = first
        yield head + encode(page.contexts)
        while page.next_cursor is not None:
            page = await _page(store, query, page.next_cursor)
            yield encode(page.contexts)

    extension = media_type.rpartition("/")[2].removeprefix("x-")
    headers = {
        "content-disposition": f'attachment; filename="contexts.{extension}"',
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(body(), media_type=media_type, headers=headers)


async def _page(store: FeatureStore, query: ContextQuery, cursor: str | None) -> ContextPage:
    fields = {name: field for name, field in msgspec.structs.asdict(query).items() if field}
    if any(query.parts()):
        return await store.records.find(**fields, limit=LARGEST_PAGE, cursor=cursor)
    return await store.list_contexts(**fields, limit=LARGEST_PAGE, cursor=cursor)


def _csv_rows(contexts: Iterable[RecordSummary]) -> bytes:
    return _csv([_cell(getattr(each, column)) for column in _COLUMNS] for each in contexts)


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
