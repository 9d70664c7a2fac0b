"""The contexts that lists of other programs name: lines of ids, tables, datasets of Langfuse."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpx
import msgspec

from headwater.contexts.recorded.imports import (
    context_spelled,
    named_context,
    numbered,
    objects_in,
)
from headwater.errors import ConfigError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.settings.groups import EvalSettings
from headwater.telemetry.attributes import CONTEXT_ID

_ITEMS_OF_A_PAGE = 100
_TIMEOUT_SECONDS = 30.0


class _Item(msgspec.Struct, rename="camel"):
    """An item of a dataset of Langfuse."""

    id: str = ""
    metadata: Any = None
    source_trace_id: str | None = None
    status: str | None = None


class _Pages(msgspec.Struct, frozen=True, rename="camel"):
    total_pages: int = 1


class _ItemPage(msgspec.Struct):
    data: list[_Item]
    meta: _Pages = _Pages()


def ids_of_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the ids of lines; empty lines and lines that begin with ``#`` have none."""
    for line in lines:
        if (text := line.strip()) and not text.startswith("#"):
            yield context_spelled(text)


def ids_of_table(lines: Iterable[str], column: str) -> Iterator[str]:
    """Yield the ids in a column of a table in CSV, whose first line has the names of columns."""
    rows = csv.DictReader(lines, strict=True)
    try:
        names = [name.strip().removeprefix("\ufeff") for name in rows.fieldnames or ()]
        if column not in names:
            raise InvalidInputError(
                f"the table has no column {column!r}; {nearest(column, names)}: pass --column NAME"
            )
        rows.fieldnames = names
        for row in rows:
            if text := (row[column] or "").strip():
                yield context_spelled(text)
    except csv.Error as error:
        raise InvalidInputError(f"line {rows.line_num} of the table: {error}") from error


def ids_of_export(text: str) -> Iterator[str]:
    """Yield the ids of the items of an exported dataset: a JSON document, or one in each line."""
    for number, raw in numbered(text, objects_in):
        try:
            item = msgspec.json.decode(raw, type=_Item)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(
                f"entry {number} is not an item of Langfuse: {error}"
            ) from error
        yield from _named(item, f"entry {number}")


async def ids_of_dataset(name: str, settings: EvalSettings) -> AsyncIterator[str]:
    """Yield the ids of the items of a dataset, which are read from Langfuse page by page."""
    keys = (settings.langfuse_public_key, settings.langfuse_secret_key)
    if not all(keys):
        raise ConfigError(
            "reading a dataset of Langfuse needs the keys of its project; set LANGFUSE_PUBLIC_KEY "
            "and LANGFUSE_SECRET_KEY, and LANGFUSE_HOST unless it is on Langfuse Cloud"
        )
    url, host = f"{settings.langfuse_host.rstrip('/')}/api/public/dataset-items", "Langfuse"
    page = pages = 1
    async with httpx.AsyncClient(auth=keys, timeout=_TIMEOUT_SECONDS) as client:
        while page <= pages:
            sought: dict[str, str | int] = {
                "datasetName": name,
                "page": page,
                "limit": _ITEMS_OF_A_PAGE,
            }
            try:
                response = await client.get(url, params=sought)
                response.raise_for_status()
                answer = msgspec.json.decode(response.content, type=_ItemPage)
            except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError) as error:
                raise InvalidInputError(
                    f"{host} did not return the items of dataset {name!r}: {error}; check its "
                    "name, LANGFUSE_HOST and the keys, or pass the file of an export"
                ) from error
            if not answer.data and page == 1:
                raise InvalidInputError(f"dataset {name!r} of {host} has no items")
            for item in answer.data:
                for context_id in _named(item, f"item {item.id}"):
                    yield context_id
            page, pages = page + 1, answer.meta.total_pages


def _named(item: _Item, which: str) -> Iterator[str]:
    if item.status == "ARCHIVED":
        return
    context_id = named_context(item.metadata, item.source_trace_id)
    if context_id is None:
        raise InvalidInputError(
            f"{which} of the dataset names no context; put the context's id into "
            f"metadata[{CONTEXT_ID!r}], or create the item from a trace"
        )
    yield context_spelled(context_id)
