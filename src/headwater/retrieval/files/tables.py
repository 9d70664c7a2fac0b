"""Documents in the rows of JSONL, CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from headwater.core.table_rows import TableRows, csv_rows, json_rows, parquet_rows
from headwater.errors.hints import nearest
from headwater.model.indexes import Document
from headwater.retrieval.files.entries import FileEntries, FileEntry, Skipped, encoding_of


class Fields(msgspec.Struct, frozen=True):
    """The names of the fields of a row that are the id and the text; all others are metadata."""

    id: str = "id"
    text: str = "text"


def read_jsonl(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a file with one JSON object in each line."""
    return _entries(json_rows(file), fields)


def read_csv(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a file of comma-, semicolon- or tab-separated values."""
    encoding = encoding_of(file)
    if encoding is None:
        yield FileEntry(file.stat().st_size, str(file), Skipped(str(file), "not a text file"))
        return
    yield from _entries(csv_rows(file, {fields.id, fields.text}, encoding), fields)


def read_parquet(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a Parquet file."""
    return _entries(parquet_rows(file), fields)


def _entries(rows: TableRows, fields: Fields) -> FileEntries:
    for row in rows:
        content: Document | Skipped
        if row.problem:
            content = Skipped(row.where, row.problem)
        else:
            content = _document(row.values, row.where, fields)
        yield FileEntry(row.position, row.where, content)


def _document(row: Mapping[str, Any], where: str, fields: Fields) -> Document | Skipped:
    for field, option in ((fields.id, "--id-field"), (fields.text, "--text-field")):
        if row.get(field) is None:
            hint = nearest(field, [str(name) for name in islice(row, 20)])
            hint += "" if hint.endswith("?") else "."
            return Skipped(where, f"no field {field!r}; {hint} Name it with {option}")
    metadata = {name: row[name] for name in row if name not in (fields.id, fields.text)}
    inner = metadata.get("metadata")
    if isinstance(inner, dict):
        metadata = {**{k: v for k, v in metadata.items() if k != "metadata"}, **inner}
    return Document(row[fields.id], row[fields.text], metadata)
