"""Tables of past values: what one request may send, and how much of the server it may use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.history.frames.files import TableSize
from headwater.model.history import CSV, PARQUET
from tests.http.conftest import MakeStore, client_of, problem_of

ROW = "SELECT 'ada' AS user_id, TIMESTAMPTZ '2026-05-01 00:00:00+00' AS timestamp"
LIMITS = {"max_table_rows": 100, "max_table_columns": 5}


@pytest.fixture
async def limited(make_store: MakeStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_store(http=LIMITS)) as client:
        yield client


def parquet(tmp_path: Path, rows: str, options: str = "COMPRESSION zstd") -> bytes:
    file = tmp_path / "sent.parquet"
    duckdb.connect().execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet, {options})")
    return file.read_bytes()


async def read(
    client: httpx.AsyncClient, content: bytes | str, kind: str = PARQUET, **query: Any
) -> httpx.Response:
    return await client.post(
        f"/v1/history/{query.pop('action', 'read')}",
        content=content,
        params={"features": "visits", **query},
        headers={"content-type": kind},
    )


def _lines(header: str, rows: int) -> str:
    return f"{header}\n" + "ada,2026-05-01T00:00:00Z,1\n" * rows


@pytest.mark.parametrize("action", ["read", "import"])
async def test_a_table_with_too_many_rows_is_refused_with_its_own_status(
    limited: httpx.AsyncClient, tmp_path: Path, action: str
) -> None:
    for content, kind in (
        (parquet(tmp_path, f"{ROW} FROM range(101)", "ROW_GROUP_SIZE 50"), PARQUET),
        (_lines("user_id,timestamp,visits", 101), CSV),
    ):
        refused = await read(limited, content, kind, action=action)
        problem = problem_of(refused)
        assert (refused.status_code, problem["limit"]) == (413, 100)
        assert problem["type"].endswith(":table-too-large")
        assert "101 rows" in problem["detail"]
        assert "raise http.max_table_rows" in problem["detail"]
    allowed = await read(limited, _lines("user_id,timestamp,visits", 100), CSV, action="import")
    assert '"result"' in allowed.text


async def test_the_values_of_lists_count_as_rows(
    limited: httpx.AsyncClient, tmp_path: Path
) -> None:
    refused = await read(limited, parquet(tmp_path, f"{ROW}, range(101) AS values"))
    assert (refused.status_code, problem_of(refused)["limit"]) == (413, 100)


@pytest.mark.parametrize("action", ["read", "import"])
async def test_a_table_with_too_many_columns_is_refused_with_its_own_status(
    limited: httpx.AsyncClient, tmp_path: Path, action: str
) -> None:
    extra = ", ".join(f"{number} AS x{number}" for number in range(4))
    for content, kind in (
        (parquet(tmp_path, f"{ROW}, {extra}"), PARQUET),
        (parquet(tmp_path, f"{ROW}, {{a: 1, b: 2, c: 3, d: 4}} AS nested"), PARQUET),
        ("user_id;timestamp;a;b;c;d\nada;2026-05-01T00:00:00Z;1;2;3;4\n", CSV),
        ("user_id,timestamp\nada,2026-05-01T00:00:00Z,1,2,3,4\n", CSV),
    ):
        refused = await read(limited, content, kind, action=action)
        assert refused.status_code == 413
        assert "6 columns" in problem_of(refused)["detail"]
        assert "raise http.max_table_columns" in problem_of(refused)["detail"]


@pytest.mark.parametrize(
    ("content", "kind", "query", "status"),
    [
        (ROW, PARQUET, {"features": "vsits"}, 404),
        (ROW, PARQUET, {"at": "moment"}, 422),
        (ROW, PARQUET, {"features": "shout"}, 422),
        (f"{ROW} UNION ALL SELECT NULL, now()", PARQUET, {}, 422),
        (b"no Parquet at all", PARQUET, {}, 422),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", PARQUET, {}, 422),
        (b"", PARQUET, {}, 422),
        (b"", CSV, {}, 422),
        ("user_id,timestamp\nada,yesterday\n", CSV, {}, 422),
    ],
)
async def test_a_table_that_cannot_be_read_is_refused_with_its_own_status(
    store: FeatureStore,
    tmp_path: Path,
    content: str | bytes,
    kind: str,
    query: dict[str, str],
    status: int,
) -> None:
    if isinstance(content, str) and kind == PARQUET:
        content = parquet(tmp_path, content)
    async with client_of(store) as client:
        refused = await read(client, content, kind, **query)
    assert refused.status_code == status
    assert "/tmp" not in problem_of(refused)["detail"]


class Held:
    """The check of a table, which waits until a test lets it go on."""

    def __init__(self, store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.was_cancelled = asyncio.Event(), asyncio.Event(), False
        tables = runtime_of(store).tables
        self._size = tables.size
        monkeypatch.setattr(tables, "size", self._hold)

    async def _hold(self, file: Path, most_columns: int) -> TableSize:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return await self._size(file, most_columns)


async def test_no_more_tables_are_read_at_the_same_time_than_one_process_may(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(http={"max_tables": 1})
    held = Held(store, monkeypatch)
    async with client_of(store) as client:
        content = parquet(tmp_path, ROW)
        first = asyncio.create_task(read(client, content))
        await held.begun.wait()
        for refused in (
            await read(client, content),
            await read(client, content, action="import"),
            await client.post("/v1/history/export", json={}),
        ):
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert problem_of(refused)["type"].endswith(":too-many-calls")
            assert "raise http.max_tables" in problem_of(refused)["detail"]
        held.go_on.set()
        assert (await first).status_code == 200
        assert (await client.post("/v1/history/export", json={})).status_code == 200


async def test_a_table_that_takes_too_long_is_ended(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(http={"table_timeout": 0.05})
    held = Held(store, monkeypatch)
    async with client_of(store) as client:
        refused = await read(client, parquet(tmp_path, ROW))
    assert (refused.status_code, problem_of(refused)["seconds"]) == (504, 0.05)
    assert "raise http.table_timeout" in problem_of(refused)["detail"]
    assert held.was_cancelled


async def test_a_file_may_have_columns_with_any_names(store: FeatureStore, tmp_path: Path) -> None:
    async with client_of(store) as client:
        answer = await read(client, parquet(tmp_path, f"{ROW}, 7 AS c0, 8 AS row, 9 AS result"))
    assert '"result"' in answer.text


async def test_a_large_table_of_a_caller_in_the_process_is_not_limited(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(http=LIMITS)
    file = tmp_path / "own.parquet"
    file.write_bytes(parquet(tmp_path, f"{ROW} FROM range(101)"))
    written = await store.get_historical_features(file, ["visits"])
    assert duckdb.sql(f"SELECT count(visits) FROM '{written}'").fetchone() == (101,)


async def test_a_footer_with_more_parts_than_that_of_any_table_is_refused(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.history.frames.parquet_footer._MOST_BYTES", 100)
    footer = b"\x19\xf9\xc8\x01" + b"\x05" * 200  # a list of 200 empty lists
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    async with client_of(store) as client:
        problem = problem_of(await read(client, content))
    assert (problem["status"], "has too many parts" in problem["detail"]) == (422, True)


async def test_a_footer_that_claims_more_than_it_has_is_refused_before_it_is_read(
    limited: httpx.AsyncClient,
) -> None:
    footer = b"\x15\x02\x19\xfc\xa0\x8d\x06"  # a version, and a schema of 100,000 elements
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    problem = problem_of(await read(limited, content))
    assert (problem["status"], "its footer is damaged" in problem["detail"]) == (422, True)


@pytest.mark.parametrize(("levels", "status"), [(90, 200), (101, 422)])
async def test_a_table_may_be_nested_as_deep_as_the_stack_of_a_thread_allows(
    limited: httpx.AsyncClient, tmp_path: Path, levels: int, status: int
) -> None:
    nested = "{'a': " * levels + "1" + "}" * levels
    answer = await read(limited, parquet(tmp_path, f"{ROW}, {nested} AS nested"))
    assert (answer.status_code, "nested more than 100" in answer.text) == (status, status == 422)
