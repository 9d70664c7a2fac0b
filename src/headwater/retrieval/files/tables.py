"""Documents in the rows of JSONL, CSV and Parquet files."""

from __future__ import annotations

import csv
import glob
import io
import json
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from headwater.core.duckdb_session import connect, headline
from headwater.errors.hints import nearest
from headwater.model.indexes import Document
from headwater.retrieval.files.entries import (
    LARGEST_FILE,
    FileEntries,
    FileEntry,
    Skipped,
    encoding_of,
)

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?", re.ASCII)
_PAGE_BYTES = 32 * 1024 * 1024
_MAX_PAGE = 16_384
_PARQUET_SIZE = """
SELECT num_rows, (SELECT sum(total_uncompressed_size) FROM parquet_metadata($1))
FROM parquet_file_metadata($1)
"""
# JSON, because times, decimals and nested values would have types that metadata does not support.
_PARQUET_PAGE = """
SELECT to_json(headwater_row) FROM (
    SELECT * EXCLUDE (file_row_number) FROM read_parquet($1, file_row_number = true)
    WHERE file_row_number >= $2 AND file_row_number < $3
) AS headwater_row
"""


class Fields(msgspec.Struct, frozen=True):
    """The names of the fields of a row that are the id and the text; all others are metadata."""

    id: str = "id"
    text: str = "text"


def read_jsonl(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a file with one JSON object in each line."""
    with file.open("rb") as lines:
        position, number = 0, 0
        while line := lines.readline(LARGEST_FILE):
            number += 1
            position += len(line)
            where = f"{file}:{number}"
            if len(line) == LARGEST_FILE and not line.endswith(b"\n"):
                problem = f"longer than {LARGEST_FILE} bytes; the rest of the file was not read"
                yield FileEntry(position, where, Skipped(where, problem))
                return
            if line.strip(b" \t\r\n\xef\xbb\xbf"):
                content = _from_json(line.removeprefix(b"\xef\xbb\xbf"), where, fields)
                yield FileEntry(position, where, content)


def _from_json(line: bytes | str, where: str, fields: Fields) -> Document | Skipped:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Skipped(where, f"not JSON: {error}")
    if not isinstance(row, dict):
        return Skipped(where, "not a JSON object with the fields of one document")
    return _document(row, where, fields)


def read_csv(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a file of comma-, semicolon- or tab-separated values."""
    encoding = encoding_of(file)
    if encoding is None:
        yield FileEntry(file.stat().st_size, str(file), Skipped(str(file), "not a text file"))
        return
    csv.field_size_limit(LARGEST_FILE)
    with file.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding, newline="")
        first = text.readline()
        text.seek(0)
        rows = csv.reader(text, delimiter=max(",;\t", key=first.count), strict=True)
        names: list[str] | None = None
        while True:
            line = rows.line_num + 1
            where = f"{file}:{line}"
            try:
                values = next(rows, None)
            except csv.Error as error:
                yield FileEntry(raw.tell(), where, Skipped(where, f"not CSV: {error}"))
                continue
            if values is None:
                return
            if names is None:
                names = values
            elif values:
                yield FileEntry(raw.tell(), where, _from_csv(names, values, where, fields))


def _from_csv(
    names: list[str], values: list[str], where: str, fields: Fields
) -> Document | Skipped:
    if len(values) != len(names):
        return Skipped(
            where,
            f"{len(values)} values, but the header has {len(names)}; put values with commas or "
            "line ends into quotes",
        )
    verbatim = {fields.id, fields.text}
    row = {
        name: value if name in verbatim else _scalar(value)
        for name, value in zip(names, values, strict=True)
        if value or name in verbatim
    }
    return _document(row, where, fields)


def _scalar(text: str) -> Any:
    """Return numbers, true and false as such; a number with leading zeros is text."""
    if text in ("true", "false") or _NUMBER.fullmatch(text):
        return msgspec.json.decode(text)
    return text


def read_parquet(file: Path, fields: Fields) -> FileEntries:
    """Yield the documents of a Parquet file, of which only some rows are in memory at a time."""
    size = file.stat().st_size
    name = glob.escape(str(file))  # DuckDB would take wildcards for a pattern
    try:
        with connect(threads=1) as connection:
            rows, uncompressed = connection.execute(_PARQUET_SIZE, [name]).fetchall()[0]
            page = max(1, min(_MAX_PAGE, _PAGE_BYTES * rows // max(1, int(uncompressed or 0))))
            for start in range(0, rows, page):
                page_rows = connection.execute(
                    _PARQUET_PAGE, [name, start, start + page]
                ).fetchall()
                for number, (row,) in enumerate(page_rows, start + 1):
                    where = f"{file}, row {number}"
                    # Python's own parser, because missing numbers may be NaN, unequal to itself.
                    values = json.loads(row).items()
                    present = {name: v for name, v in values if v is not None and v == v}
                    content = _document(present, where, fields)
                    yield FileEntry(size * number // rows, where, content)
    except duckdb.Error as error:
        problem = f"not a Parquet file: {headline(error)}"
        yield FileEntry(size, str(file), Skipped(str(file), problem))


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
