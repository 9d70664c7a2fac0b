"""Frames are read in portions, from one snapshot of history."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest

from headwater.backends.postgres import copying, frames
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.core.clock import to_micros
from headwater.ports import FrameColumn, FrameQuery
from headwater.settings.schema import Settings
from tests.backends.postgres.story import START, change


def points(folder: Path, count: int, entity_id: str = "'u' || range % 7") -> Path:
    """Write points, one a second from the start on, the last row first."""
    file = folder / "points.parquet"
    with duckdb.connect() as duck:
        duck.execute(
            f"COPY (SELECT range AS row, {entity_id} AS entity_id,"
            f' {to_micros(START)} + 1000000 * range AS "at" FROM range({count}) ORDER BY row DESC)'
            f" TO '{file}' (FORMAT parquet)"
        )
    return file


def column(answer: Path, name: str = "v0") -> list[Any]:
    with duckdb.connect() as duck:
        rows = duck.execute(f"SELECT {name} FROM '{answer}'").fetchall()
    return [value for (value,) in rows]


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "IDS_AT_ONCE", 2)
    monkeypatch.setattr(frames, "VALUES_AT_ONCE", 30)
    monkeypatch.setattr(copying, "BYTES_AT_ONCE", 1)


@pytest.mark.usefixtures("small_portions")
async def test_portions_of_a_frame_are_answered_in_the_order_of_its_rows(
    past: PostgresEnvironment, tmp_path: Path
) -> None:
    await past.offline.append([change(n, n, entity_id=f"u{n % 7}") for n in range(200)])
    answer, progress = tmp_path / "answer.parquet", list[int]()
    query = FrameQuery(points(tmp_path, 250), [FrameColumn("clicks", "int")])
    await past.offline.read_frame(query, answer, progress.append)
    assert column(answer) == [*range(200), *(193 + (n - 193) % 7 for n in range(200, 250))]
    assert progress == [30, 60, 90, 120, 150, 180, 210, 240, 250]
    assert sorted(os.listdir(tmp_path)) == ["answer.parquet", "points.parquet"]


@pytest.mark.usefixtures("small_portions")
async def test_many_columns_are_read_in_groups(
    past: PostgresEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "COLUMNS_AT_ONCE", 2)
    names = [f"f{number}" for number in range(5)]
    await past.offline.append([change(n, feature=name) for n, name in enumerate(names)])
    answer = tmp_path / "answer.parquet"
    query = FrameQuery(points(tmp_path, 40, "'u1'"), [FrameColumn(name, "int") for name in names])
    await past.offline.read_frame(query, answer)
    for number in range(5):
        assert column(answer, f"v{number}") == [number] * 40
    assert column(answer, "row") == [*range(40)]


@pytest.mark.usefixtures("small_portions")
async def test_all_rows_of_a_frame_are_of_one_moment(
    past: PostgresEnvironment, settings: Settings, tmp_path: Path
) -> None:
    await past.offline.append([change(0, -1)])

    async def overwrite() -> None:
        connection = await asyncpg.connect(settings.postgres.url)
        await connection.execute(f"UPDATE {settings.postgres.schema}._history SET value = '1'")
        await connection.close()

    def report(_: int) -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, overwrite()).result()

    answer = tmp_path / "answer.parquet"
    query = FrameQuery(points(tmp_path, 250, "'u1'"), [FrameColumn("clicks", "int")])
    await past.offline.read_frame(query, answer, report)
    assert column(answer) == [0] * 250
    await past.offline.read_frame(query, answer)
    assert column(answer) == [1] * 250


async def test_a_value_of_some_megabytes_is_read(past: PostgresEnvironment, tmp_path: Path) -> None:
    long = "ä\n\x1e\x1f" * 1_000_000
    await past.offline.append([change(long, kind="text"), change("short", 1, kind="text")])
    answer = tmp_path / "answer.parquet"
    query = FrameQuery(points(tmp_path, 3, "'u1'"), [FrameColumn("clicks", "text")])
    await past.offline.read_frame(query, answer)
    assert column(answer) == [long, "short", "short"]


async def test_ids_and_times_of_any_kind_are_asked_for(
    past: PostgresEnvironment, tmp_path: Path
) -> None:
    ids = ['a "quoted" id', "a,b", "\\.", "", "line\nbreak\r", "ü\x1e\x1f", "NULL"]
    await past.offline.append([change(n, entity_id=each) for n, each in enumerate(ids)])
    literals = ", ".join("'" + each.replace("'", "''") + "'" for each in [*ids, "a\ufffdb"])
    file = points(tmp_path, 9, f"[{literals}, 'a' || chr(0) || 'b'][range + 1]")
    answer = tmp_path / "answer.parquet"
    ttl = timedelta.max
    await past.offline.read_frame(FrameQuery(file, [FrameColumn("clicks", "int", ttl)]), answer)
    assert column(answer) == [*range(len(ids)), None, None]
    with duckdb.connect() as duck:
        duck.execute(
            f"COPY (SELECT range AS row, 'a,b' AS entity_id,"
            f' [-9223372036854775808, 9223372036854775807][range + 1]::BIGINT AS "at"'
            f" FROM range(2)) TO '{file}' (FORMAT parquet)"
        )
    await past.offline.read_frame(FrameQuery(file, [FrameColumn("clicks", "int", ttl)]), answer)
    assert column(answer) == [None, 1]
