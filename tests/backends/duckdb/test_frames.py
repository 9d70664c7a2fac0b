"""Frames over segments and tail: divided by buckets, and while segments are merged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from headwater.backends.duckdb import frame_plan
from headwater.backends.duckdb.frame_plan import group_count
from headwater.core.clock import to_micros
from headwater.errors import BackendError, HomeError
from headwater.ports import FrameColumn, FrameQuery
from tests.backends.duckdb.embedded import (
    GRACE,
    START,
    Embedded,
    SlowReaderTail,
    after,
    change,
    embedded,
)

SEGMENT_ROWS = 5
COLUMNS = [FrameColumn("clicks", "int"), FrameColumn("name", "text", GRACE)]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as opened:
        yield opened


def points(folder: Path, count: int) -> Path:
    """Return a file with points of thirty entities, one second after the other."""
    file = folder / "points.parquet"
    duckdb.sql(
        f"COPY (SELECT range AS \"row\", 'u' || range % 30 AS entity_id,"
        f' {to_micros(START)} + range * 1000000 AS "at" FROM range({count}) ORDER BY hash(range))'
        f" TO '{file}' (FORMAT parquet)"
    )
    return file


async def write(parts: Embedded) -> None:
    """Write values of thirty entities, most of them into a segment."""
    numbers = [change(n, entity_id=f"u{n % 30}", as_of=after(n)) for n in range(90)]
    names = [change(f"é{n}", feature="name", kind="text", entity_id=f"u{n}") for n in range(9)]
    await parts.history.append([*numbers, *names])
    await parts.online.put([change(99, entity_id="u3", as_of=after(50))])


def rows(file: Path) -> list[tuple[object, ...]]:
    return duckdb.sql(f"FROM '{file}'").fetchall()


async def test_a_frame_divided_by_buckets_has_the_same_answer(
    parts: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(parts)
    query = FrameQuery(points(tmp_path, 100), COLUMNS)
    whole, divided = tmp_path / "whole.parquet", tmp_path / "divided.parquet"
    await parts.history.read_frame(query, whole)
    monkeypatch.setattr(frame_plan, "MAX_POINTS", 25)
    progress: list[int] = []
    await parts.history.read_frame(query, divided, progress.append)
    assert rows(divided) == rows(whole)
    assert len(progress) == 4
    assert progress == sorted(progress)
    assert progress[-1] == 100
    assert [each for each in parts.home.scratch.iterdir() if each.is_dir()] == []


def test_a_frame_is_divided_into_as_many_groups_as_its_size_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_plan, "MAX_POINTS", 100)
    monkeypatch.setattr(frame_plan, "MAX_ROWS", 1_000)
    assert group_count(0, 0) == 1
    assert group_count(100, 1_000) == 1
    assert group_count(101, 0) == 2
    assert group_count(100, 5_000) == 8
    assert group_count(10**9, 10**9) == 1024


async def test_a_frame_whose_segments_were_merged_meanwhile_is_read_again(
    parts: Embedded, tmp_path: Path
) -> None:
    await parts.history.append([change(7, entity_id="u0")])
    query = FrameQuery(points(tmp_path, 1), COLUMNS[:1])
    tail = SlowReaderTail(parts, times=1)
    await parts.over(tail).read_frame(query, tmp_path / "answer.parquet")
    assert rows(tmp_path / "answer.parquet") == [(0, 7, to_micros(START))]


async def test_a_frame_whose_segment_is_lost_says_so(parts: Embedded, tmp_path: Path) -> None:
    await parts.history.append([change(7, entity_id="u0")])
    (segment,) = parts.segment_files()
    (parts.home.segments / segment).unlink()
    query = FrameQuery(points(tmp_path, 1), COLUMNS[:1])
    with pytest.raises(HomeError, match=segment):
        await parts.history.read_frame(query, tmp_path / "answer.parquet")


async def test_a_frame_with_unreadable_points_says_so(parts: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "points.parquet"
    file.write_text("no Parquet")
    with pytest.raises(BackendError, match=r"points\.parquet"):
        await parts.history.read_frame(FrameQuery(file, COLUMNS), tmp_path / "answer.parquet")
