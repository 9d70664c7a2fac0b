"""Documents in the rows of JSONL, CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headwater.core import table_rows
from headwater.model.indexes import Document
from headwater.retrieval.files.entries import Skipped
from headwater.retrieval.files.reading import DocumentFiles
from headwater.retrieval.files.tables import Fields
from headwater.settings.groups import IndexSettings


def _read(file: Path, fields: Fields | None = None) -> list[Document | Skipped]:
    files = DocumentFiles([file], fields or Fields(), IndexSettings())
    found = list(files)
    assert files.read_bytes == files.total_bytes == file.stat().st_size
    return found


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / str(request.param)


JSONL = pytest.mark.parametrize("file", ["a.jsonl", "a.ndjson"], indirect=True)
CSV = pytest.mark.parametrize("file", ["a.csv"], indirect=True)
PARQUET = pytest.mark.parametrize("file", ["a[1]*.parquet"], indirect=True)


@JSONL
def test_lines_of_json_are_documents(file: Path) -> None:
    file.write_bytes(
        b'\xef\xbb\xbf{"id": "a", "text": "one", "lang": "en", "tags": ["x"]}\r\n\n'
        b'{"id": 7, "text": "two", "metadata": {"lang": "de"}, "year": 2024}'
    )

    assert _read(file) == [
        Document("a", "one", {"lang": "en", "tags": ["x"]}),
        Document(7, "two", {"year": 2024, "lang": "de"}),
    ]


@JSONL
def test_invalid_lines_are_named(file: Path) -> None:
    file.write_bytes(b'{"id": 1, "text": "a"\n[1]\n{"id": 2, "txt": "b"}\n"\xff"\n{"text": "c"}\n')

    problems = [str(found) for found in _read(file)]

    assert problems[0].startswith(f"{file}:1: not JSON: Input data was truncated")
    assert problems[1:3] == [
        f"{file}:2: not a JSON object with the fields of one row",
        f"{file}:3: no field 'text'; did you mean 'txt'? Name it with --text-field",
    ]
    assert problems[3].startswith(f"{file}:4: not JSON: ")
    assert problems[4] == f"{file}:5: no field 'id'; choose one of text. Name it with --id-field"


@JSONL
def test_the_fields_of_id_and_text_can_be_named(file: Path) -> None:
    file.write_text('{"key": "a", "body": "one", "id": 3}')

    assert _read(file, Fields("key", "body")) == [Document("a", "one", {"id": 3})]


@JSONL
def test_a_line_that_is_too_long_ends_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "LARGEST_LINE", 20)
    file.write_text('{"id": 1, "text": "much longer than that"}')

    (found,) = list(DocumentFiles([file], Fields(), IndexSettings()))

    assert str(found) == f"{file}:1: longer than 20 bytes; the rest of the file was not read"


@CSV
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_of_csv_are_documents(file: Path, separator: str) -> None:
    rows = ["id,text,year,zip,price,new,empty", '007,"two\nlines ""quoted""",2024,01234,1.50,true,']
    file.write_text("\r\n".join(row.replace(",", separator) for row in rows), newline="")

    assert _read(file) == [
        Document(
            "007",
            'two\nlines "quoted"',
            {"year": 2024, "zip": "01234", "price": 1.5, "new": True},
        )
    ]


@CSV
def test_csv_in_other_encodings_is_read(file: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16", "latin-1"):
        file.write_bytes("id,text\n1,Größe\n".encode(encoding))

        assert list(DocumentFiles([file], Fields(), IndexSettings())) == [Document("1", "Größe")]


@CSV
def test_invalid_rows_are_named_and_others_read(file: Path) -> None:
    file.write_text('id,text\n1,a,b\n2,"x" y\n3,c\n')

    found = _read(file)

    assert [str(each) for each in found[:-1]] == [
        f"{file}:2: 3 values, but the header has 2; put values with commas or line ends into "
        "quotes",
        f"{file}:3: not CSV: ',' expected after '\"'",
    ]
    assert found[-1] == Document("3", "c")


@PARQUET
def test_rows_of_parquet_are_documents(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of few rows give the same documents in the same order."""
    monkeypatch.setattr(table_rows, "_MAX_PAGE", 7)
    with duckdb.connect(":memory:") as connection:
        connection.sql("""
            SELECT i AS id, 'text ' || i AS text, i / 2 AS half, [i] AS list, NULL AS nothing,
                'nan'::DOUBLE AS missing, 1.5::DECIMAL(9, 2) AS price, DATE '2024-05-01' AS day,
                TIMESTAMPTZ '2024-05-01 12:00:00Z' AS at
            FROM range(20) numbers(i)
        """).write_parquet(str(file))

    found = _read(file)

    assert [each.id for each in found if isinstance(each, Document)] == list(range(20))
    assert isinstance(found[3], Document)
    assert (found[3].text, found[3].metadata["half"], found[3].metadata["list"]) == (
        "text 3",
        1.5,
        [3],
    )
    assert found[3].metadata.keys() == {"half", "list", "price", "day", "at"}
    assert (found[3].metadata["day"], found[3].metadata["price"]) == ("2024-05-01", 1.5)


@PARQUET
def test_rows_without_an_id_are_named(file: Path) -> None:
    with duckdb.connect(":memory:") as connection:
        connection.sql("SELECT NULL::INT AS id, 'x' AS text").write_parquet(str(file))

    (found,) = _read(file)

    assert str(found).startswith(f"{file}, row 1: no field 'id'")


@PARQUET
def test_other_files_are_not_parquet(file: Path) -> None:
    file.write_text("id,text\n1,a\n")

    (found,) = _read(file)

    assert str(found).startswith(f"{file}: not a Parquet file: ")


@JSONL
def test_documents_that_cannot_be_indexed_are_named(file: Path) -> None:
    file.write_text(
        '{"id": 1, "text": 5}\n{"id": "a\\u0000", "text": "b"}\n{"id": 2, "text": "long text"}\n'
        '{"id": 3, "text": "ok", "$x": 1}\n{"id": 4, "text": "ok"}\n{"id": "4", "text": "ok"}\n'
    )

    *found, last = DocumentFiles([file], Fields(), IndexSettings(max_document_bytes=8))

    problems = [str(each) for each in found if isinstance(each, Skipped)]
    assert found[4] == Document(4, "ok")
    assert problems[0].startswith(f"{file}:1: the text of document '1' is a text, not a int")
    assert problems[1].startswith(f"{file}:2: the id of a document is printable text")
    assert problems[2].startswith(f"{file}:3: the text of document '2' has 9 bytes, more than")
    assert problems[3].startswith(f"{file}:4: the metadata of document '3': the key '$x'")
    assert str(last) == f"{file}:6: the document '4' was read before; give each its own id"
