"""Rows of JSONL, CSV and Parquet files, which may be compressed and larger than memory."""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeAlias

import duckdb
import msgspec

from headwater.core.duckdb_session import connect, headline, identifier
from headwater.core.exact_columns import exact, is_inexact

LARGEST_LINE = 256 * 1024 * 1024
"""Most bytes of a line; longer ones would not fit into memory."""

COMPRESSED: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""The ends of the names of compressed files, and what opens them."""

BROKEN_ARCHIVE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""What reading a file raises whose compressed content is damaged."""

_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?", re.ASCII)
_PAGE_BYTES = 32 * 1024 * 1024
_MAX_PAGE = 16_384
_PARQUET_SIZE = """
SELECT num_rows, (SELECT sum(total_uncompressed_size) FROM parquet_metadata($1))
FROM parquet_file_metadata($1)
"""
# JSON, because times, decimals and nested values would have types that JSON does not support.
_PARQUET_PAGE = """
SELECT to_json(headwater_row), {} FROM (
    SELECT * EXCLUDE (file_row_number) FROM read_parquet($1, file_row_number = true)
    WHERE file_row_number >= $2 AND file_row_number < $3
) AS headwater_row
"""


class TableRow(NamedTuple):
    """A row of a file, as its bytes and as its values; or the problem for which it has none.

    ``position`` is how many bytes of the file were read for it. ``texts`` has the texts of the
    values that a CSV file may mean as text, but were taken for numbers, true or false; and the
    values of Parquet with decimals or blobs, which have texts in place of these, blobs in base64.
    """

    position: int
    where: str
    raw: bytes
    values: dict[str, Any]
    problem: str = ""
    texts: Mapping[str, Any] = MappingProxyType({})


TableRows: TypeAlias = Iterator[TableRow]


@contextmanager
def _opened(file: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file; yield it as it is on disk, and with its content uncompressed."""
    with file.open("rb") as raw:
        uncompress = COMPRESSED.get(file.suffix.lower())
        if uncompress is None:
            yield raw, raw
        else:
            with uncompress(raw) as content:
                yield raw, content


def json_rows(file: Path) -> TableRows:
    """Yield the rows of a file with one JSON object in each line."""
    with _opened(file) as (raw, lines):
        number = 0
        while line := lines.readline(LARGEST_LINE):
            number += 1
            where = f"{file}:{number}"
            if len(line) == LARGEST_LINE and not line.endswith(b"\n"):
                problem = f"longer than {LARGEST_LINE} bytes; the rest of the file was not read"
                yield TableRow(raw.tell(), where, b"", {}, problem)
                return
            line = line.removeprefix(_BOM).strip(b" \t\r\n")
            if line:
                yield TableRow(raw.tell(), where, line, *_from_json(line))


def _from_json(line: bytes) -> tuple[dict[str, Any], str]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return {}, f"not JSON: {error}"
    return (
        (row, "") if isinstance(row, dict) else ({}, "not a JSON object with the fields of one row")
    )


def csv_rows(file: Path, verbatim: Collection[str], encoding: str = "utf-8-sig") -> TableRows:
    """Yield the rows of a file of comma-, semicolon- or tab-separated values.

    Numbers, true and false are such, except in the columns ``verbatim``, which are texts. A value
    that is empty is left out there, and so is the column.
    """
    csv.field_size_limit(LARGEST_LINE)
    with _opened(file) as (raw, content):
        text = io.TextIOWrapper(content, encoding, newline="")
        first = text.readline(LARGEST_LINE)
        text.seek(0)
        rows = csv.reader(text, delimiter=max(",;\t", key=first.count), strict=True)
        names: list[str] | None = None
        header = ""
        while True:
            where = f"{file}:{rows.line_num + 1}"
            try:
                values = next(rows, None)
            except csv.Error as error:
                yield TableRow(raw.tell(), where, b"", {}, f"not CSV: {error}")
                continue
            if values is None:
                return
            if names is None:
                names, header = values, "\0".join(values) + "\n"
            elif values:
                # The same values mean other rows under another header.
                row = (header + "\0".join(values)).encode()
                header = ""
                yield TableRow(raw.tell(), where, row, *_from_csv(names, values, verbatim))


def _from_csv(
    names: list[str], texts: list[str], verbatim: Collection[str]
) -> tuple[dict[str, Any], str, dict[str, str]]:
    if len(texts) != len(names):
        problem = (
            f"{len(texts)} values, but the header has {len(names)}; put values with commas or "
            "line ends into quotes"
        )
        return {}, problem, {}
    given = {name: t for name, t in zip(names, texts, strict=True) if t or name in verbatim}
    values = {name: t if name in verbatim else _scalar(t) for name, t in given.items()}
    return values, "", {name: t for name, t in given.items() if values[name] is not t}


def _scalar(text: str) -> Any:
    """Return numbers, true and false as such; a number with leading zeros is text."""
    if text in ("true", "false") or _NUMBER.fullmatch(text):
        return msgspec.json.decode(text)
    return text


def parquet_rows(file: Path) -> TableRows:
    """Yield the rows of a Parquet file, of which only some are in memory at a time.

    A value that is missing, or is not a number, is left out.
    """
    size = file.stat().st_size
    name = glob.escape(str(file))  # DuckDB would take wildcards for a pattern
    try:
        with connect(threads=1) as connection:
            rows, uncompressed = connection.execute(_PARQUET_SIZE, [name]).fetchall()[0]
            page = max(1, min(_MAX_PAGE, _PAGE_BYTES * rows // max(1, int(uncompressed or 0))))
            sql = _PARQUET_PAGE.format(_exact_columns(connection, name))
            for start in range(0, rows, page):
                page_rows = connection.execute(sql, [name, start, start + page]).fetchall()
                for number, (row, texts) in enumerate(page_rows, start + 1):
                    values = _from_duckdb(row).items()
                    present = {name: v for name, v in values if v is not None and v == v}
                    position = size * number // rows
                    where, exact_texts = f"{file}, row {number}", _from_duckdb(texts)
                    yield TableRow(position, where, row.encode(), present, texts=exact_texts)
    except duckdb.Error as error:
        yield TableRow(size, str(file), b"", {}, f"not a Parquet file: {headline(error)}")


def _exact_columns(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the SQL of a JSON object with the columns whose values JSON would change."""
    file = connection.sql("SELECT * FROM read_parquet($1)", params=[name])
    fields = (
        f"{identifier(column)} := {exact(identifier(column), kind)}"
        for column, kind in zip(file.columns, file.types, strict=True)
        if is_inexact(kind)
    )
    packed = ", ".join(fields)
    return f"to_json(struct_pack({packed}))" if packed else "'{}'"


def _from_duckdb(row: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(row, type=dict[str, Any])
    except msgspec.DecodeError:
        # Missing numbers may be NaN, unequal to itself, which only Python's own parser reads.
        return dict(json.loads(row))
