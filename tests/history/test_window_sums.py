"""Windows by SQL: the same bits as the kernel, and the kernel where SQL would not be exact."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.declarations.window_options import WindowOptions, declared_windows
from headwater.errors import FeatureValueError
from headwater.history import window_frames
from headwater.history.window_frames import WindowColumn, WindowPart, WindowReading
from tests.history.frame_features import START

_SECOND = 1_000_000
_ORIGIN = int(START.timestamp()) * _SECOND
_number = itertools.count()

_ids = st.sampled_from(["a", "b", "ü"])
# Around the bounds of hops and windows, and within them.
_times = st.integers(-90, 90).flatmap(
    lambda second: st.sampled_from([second * _SECOND, second * _SECOND + 1, second * _SECOND - 1])
)


class Contributed(NamedTuple):
    entity_id: str
    at: int
    value: Any


def read(
    folder: Path,
    contributions: list[Contributed],
    points: list[tuple[str, int]],
    kind: type = int,
    origin: int = _ORIGIN,
) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the answer of a task, and whether SQL gave it."""
    windows, features = declared_windows(
        "spend",
        kind,
        WindowOptions(["10s", "1m"], ["count", "sum", "avg", "rate"] if kind is int else "count"),
    )
    own = folder / str(next(_number))
    own.mkdir()
    with duckdb.connect() as duck:
        duck.execute(
            "CREATE TABLE rows (entity_id VARCHAR, visible_from BIGINT, as_of BIGINT,"
            " written_at BIGINT, value VARCHAR)"
        )
        duck.execute('CREATE TABLE points ("row" BIGINT, entity_id VARCHAR, "at" BIGINT)')
        for entity_id, at, value in contributions:
            moment = origin + at
            duck.execute(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?)",
                [entity_id, moment, moment, moment, str(value)],
            )
        for row, (entity_id, at) in enumerate(points):
            duck.execute("INSERT INTO points VALUES (?, ?, ?)", [row, entity_id, origin + at])
        order = "ORDER BY entity_id, visible_from"
        duck.execute(f"COPY (FROM rows {order}) TO '{own / 'rows.parquet'}' (FORMAT parquet)")
        duck.execute(f"COPY points TO '{own / 'points.parquet'}' (FORMAT parquet)")
    columns = [
        WindowColumn(name, codec.kind, member.member) for name, (member, codec) in features.items()
    ]
    places = range(len(columns))
    reading = WindowReading("spend", windows, columns, places, known=False)
    part = WindowPart(reading, own / "rows.parquet", own / "points.parquet", own / "answer.parquet")
    with patch.object(WindowPart, "fold", autospec=True, side_effect=WindowPart.fold) as folding:
        assert part.run() == len(points)
    return duckdb.sql(f"FROM '{own / 'answer.parquet'}'").fetchall(), not folding.called


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    contributions=st.lists(
        st.builds(Contributed, _ids, _times, st.integers(-(10**14), 10**14)), max_size=20
    ),
    points=st.lists(st.tuples(_ids, _times), min_size=1, max_size=12),
    origin=st.sampled_from([_ORIGIN, 7 * _SECOND]),
)
def test_sql_has_the_same_bits_as_the_kernel(
    tmp_path: Path, contributions: list[Contributed], points: list[tuple[str, int]], origin: int
) -> None:
    by_sql, is_sql = read(tmp_path, contributions, points, origin=origin)
    with patch.object(window_frames, "is_summable", return_value=False):
        by_kernel, _ = read(tmp_path, contributions, points, origin=origin)
    assert is_sql
    assert repr(by_sql) == repr(by_kernel)


def test_a_sum_that_a_float_cannot_hold_is_left_to_the_kernel(tmp_path: Path) -> None:
    contributions = [Contributed("a", at, 2**53 // 3 + at) for at in range(5)]
    ((*values,),), is_sql = read(tmp_path, contributions, [("a", 4)])
    assert not is_sql
    total = sum(value for _, _, value in contributions)
    assert (values[3], values[5]) == (total, total / 5)


def test_counts_of_any_contributions_are_answered_by_sql(tmp_path: Path) -> None:
    contributions = [Contributed("a", at, '"text"') for at in range(5)]
    rows, is_sql = read(tmp_path, contributions, [("a", 2)], kind=str)
    assert is_sql
    assert rows[0][1] == 3


def test_a_contribution_of_another_type_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FeatureValueError, match=r"cannot be read as a contribution.*\"x\" of 'a'"):
        read(tmp_path, [Contributed("a", 0, '"x"')], [("a", 0)])


def test_a_sum_beyond_64_bits_is_an_error(tmp_path: Path) -> None:
    contributions = [Contributed("a", 0, 2**62)] * 2
    with pytest.raises(FeatureValueError, match=r"spend_sum_10s.* integers of 64 bits"):
        read(tmp_path, contributions, [("a", 0)])
