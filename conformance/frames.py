"""Conformance tests of the ``FrameReader`` port, next to a plain model of history."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.frame_model import (
    ORIGIN,
    At,
    FrameRead,
    Group,
    Row,
    found,
    needed,
    read_series,
    write,
    write_extra,
)
from conformance.suite import START, Opened, Suite
from headwater.core.clock import MICROSECOND
from headwater.core.codec import Kind
from headwater.errors import FeatureValueError
from headwater.ports import FrameColumn, FrameReader, SeriesQuery

_IDS = ["a", "b", "ü \"'"]
_KINDS: Mapping[Kind, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "text": st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5),
    "time": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    "json": st.lists(st.integers(-9, 9), max_size=2),
}
# Every engine runs the same test, and each example uses other names in one store.
_SUPPRESSED = [
    HealthCheck.differing_executors,
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
]
_number = count()

Reading = Callable[[Opened], Awaitable[FrameReader]]


_times = st.integers(0, 12)
_entity_ids = st.sampled_from(_IDS)
_points = st.lists(st.builds(At, st.sampled_from([*_IDS, "unknown"]), st.integers(-1, 16)))
_ttls = st.none() | st.integers(1, 8).map(lambda size: size * MICROSECOND)


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Kind, list[Group], list[Row]]:
    """Return the rows of two series of one kind, and rows that are not in history."""
    kind = draw(st.sampled_from([*_KINDS]))
    name = f"frame_{next(_number)}"
    row = st.builds(
        Row, st.sampled_from([f"{name}_a", f"{name}_b"]), _entity_ids,
        st.none() | _KINDS[kind], _times, _times,
    )  # fmt: skip
    group = st.builds(Group, st.lists(row, max_size=9), st.booleans(), st.booleans())
    groups = draw(st.lists(group, max_size=4))
    latest = st.just(2**40)
    extra = st.builds(
        Row, st.just(f"{name}_a"), _entity_ids, st.none() | _KINDS[kind], _times, latest
    )
    return kind, groups, draw(st.lists(extra, max_size=5))


class FramesConformance(Suite):
    """Point-in-time reads of many rows."""

    @pytest.fixture
    def reading(self) -> Reading:
        """Return a function that gives the reader of everything that a store has committed."""

        async def offline(store: Opened) -> FrameReader:
            return store.offline

        return offline

    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=_SUPPRESSED,
    )
    @given(
        history=_histories(),
        points=_points,
        ttls=st.tuples(_ttls, _ttls, _ttls),
        earlier=st.lists(st.tuples(_times, _ttls), max_size=2),
        known=st.booleans(),
    )
    async def test_every_row_has_the_values_that_a_plain_model_of_history_finds(
        self,
        store: Opened,
        reading: Reading,
        tmp_path: Path,
        history: tuple[Kind, list[Group], list[Row]],
        points: list[At],
        ttls: tuple[timedelta | None, ...],
        earlier: list[tuple[int, timedelta | None]],
        *,
        known: bool,
    ) -> None:
        kind, groups, extra = history
        await write(store, kind, groups)
        rows = [row for group in groups for row in group.rows]
        series = sorted({row.series for row in [*rows, *extra]}) or ["never_written"]
        before = [(ORIGIN + until, ttl) for until, ttl in sorted(earlier, key=itemgetter(0))]
        columns = [
            FrameColumn(name, kind, ttl, before if known else ()) for name in series for ttl in ttls
        ]
        files = {extra[0].series: write_extra(tmp_path, extra)} if extra else {}
        frame = FrameRead(tmp_path, points, columns, known=known, extra=files)
        model = rows if known else [*rows, *extra]
        assert await frame.read(await reading(store)) == [
            [found(model, point, column, known=known) for column in columns] for point in points
        ]

    @settings(
        max_examples=6,
        deadline=None,
        suppress_health_check=_SUPPRESSED,
    )
    @given(
        history=_histories(),
        points=_points,
        reach=st.integers(0, 8),
        most_rows=st.sampled_from([2, 1_000]),
        known=st.booleans(),
    )
    async def test_the_rows_of_a_series_that_points_need_are_written_in_order(
        self,
        store: Opened,
        reading: Reading,
        tmp_path: Path,
        history: tuple[Kind, list[Group], list[Row]],
        points: list[At],
        reach: int,
        most_rows: int,
        *,
        known: bool,
    ) -> None:
        kind, groups, _ = history
        await write(store, kind, groups)
        rows = [row for group in groups for row in group.rows]
        series = rows[0].series if rows else "never_written"
        query = SeriesQuery(tmp_path, series, reach, known, most_rows)
        files = await read_series(await reading(store), tmp_path, points, query)
        model = needed([row for row in rows if row.series == series], points, reach, known=known)
        plain = [row._replace(value=_plain(row.value)) for row in model]
        # Files have whole entities, each in one of them.
        assert sorted([row for file in files for row in file], key=itemgetter(1)) == plain
        assert len(files) > 1 or len(points) + len(plain) <= most_rows

    @settings(
        max_examples=4,
        deadline=None,
        suppress_health_check=_SUPPRESSED,
    )
    @given(history=_histories(), points=_points, moment=st.integers(0, 12), known=st.booleans())
    async def test_values_of_the_future_change_no_row(
        self,
        store: Opened,
        reading: Reading,
        tmp_path: Path,
        history: tuple[Kind, list[Group], list[Row]],
        points: list[At],
        moment: int,
        *,
        known: bool,
    ) -> None:
        kind, groups, _ = history
        other_future = [_with_other_future(group, moment, known=known) for group in groups]
        await write(store, kind, groups)
        await write(store, kind, other_future)
        reader = await reading(store)
        past = [point for point in points if point.at <= moment]
        series = sorted({row.series for group in groups for row in group.rows})
        answers = [
            await FrameRead(
                tmp_path, past, [FrameColumn(name + end, kind) for name in series], known=known
            ).read(reader)
            for end in ("", "_other")
        ]
        assert answers[0] == answers[1]

    async def test_the_answer_is_in_the_order_of_row_and_duplicate_points_stay(
        self, store: Opened, reading: Reading, tmp_path: Path
    ) -> None:
        rows = [Row("f", f"u{number % 7}", number, number, number) for number in range(50)]
        await write(store, "int", [Group(rows, is_import=True, is_maintained=True)])
        points = [At(f"u{number % 9}", 50 - number % 5) for number in range(500)]
        frame = FrameRead(tmp_path, points, [FrameColumn("f", "int")])
        progress: list[int] = []
        answer = await frame.read(await reading(store), progress.append)
        assert answer == [[found(rows, point, frame.columns[0], known=False)] for point in points]
        assert progress == sorted(progress)
        assert progress[-1] == 500

    async def test_an_answer_without_rows_or_without_columns_has_the_others(
        self, store: Opened, reading: Reading, tmp_path: Path
    ) -> None:
        await write(store, "int", [Group([Row("f", "a", 1, 1, 1)])])
        reader = await reading(store)
        no_points = FrameRead(tmp_path, [], [FrameColumn("f", "int"), FrameColumn("g", "text")])
        assert await no_points.read(reader) == []
        assert no_points.types == ["BIGINT", "BIGINT", "BIGINT", "VARCHAR", "BIGINT"]
        no_columns = FrameRead(tmp_path, [At("a", 1), At("b", 2)], [])
        assert await no_columns.read(reader) == [[], []]

    @pytest.mark.parametrize(
        ("kind", "values", "type_name"),
        [
            ("int", [-(2**63), 2**63 - 1, 0], "BIGINT"),
            ("float", [1.5e300, -0.1, 5e-324, 3], "DOUBLE"),
            ("bool", [True, False], "BOOLEAN"),
            ("text", ["", "null", "1", 'a "quoted" line\n', "\U0001d51e", "x" * 5_000], "VARCHAR"),
            (
                "time",
                [START, datetime.fromisoformat("2026-03-29T02:30:00.000001+02:00")],
                "TIMESTAMP WITH TIME ZONE",
            ),
            ("json", [{"a": [1, None]}, "text", 1.5, [], True], "VARCHAR"),
        ],
    )
    async def test_a_value_has_the_type_of_its_kind(
        self,
        store: Opened,
        reading: Reading,
        tmp_path: Path,
        kind: Kind,
        values: list[Any],
        type_name: str,
    ) -> None:
        rows = [Row("f", "a", value, time, time) for time, value in enumerate([*values, None])]
        await write(store, kind, [Group(rows)])
        points = [At("a", row.as_of) for row in rows]
        frame = FrameRead(tmp_path, points, [FrameColumn("f", kind)])
        answer = await frame.read(await reading(store))
        assert answer == [[(row.value, row.as_of)] for row in rows]
        assert frame.types == ["BIGINT", type_name, "BIGINT"]

    async def test_a_number_without_a_fraction_is_a_float_too(
        self, store: Opened, reading: Reading, tmp_path: Path
    ) -> None:
        await write(store, "int", [Group([Row("f", "a", 3, 0, 0)])])
        frame = FrameRead(
            tmp_path, [At("a", 0)], [FrameColumn("f", "float"), FrameColumn("f", "json")]
        )
        [[number, text]] = await frame.read(await reading(store))
        assert (number, text) == ((3.0, 0), (3, 0))
        assert frame.types[1] == "DOUBLE"

    @pytest.mark.parametrize(
        ("stored", "value", "kind"),
        [
            ("text", "two", "int"),
            ("float", 2.5, "int"),
            ("bool", True, "int"),
            ("json", [2], "float"),
            ("int", 1, "bool"),
            ("int", 2, "text"),
            ("text", "2026-01-01T00:00:00", "time"),
            ("json", 2.5, "int"),
        ],
    )
    async def test_a_value_that_does_not_fit_its_columns_kind_is_an_error(
        self,
        store: Opened,
        reading: Reading,
        tmp_path: Path,
        stored: Kind,
        value: Any,
        kind: Kind,
    ) -> None:
        rows = [Row("f", "a", value, 5, 5), Row("f", "a", None, 7, 7)]
        await write(store, stored, [Group(rows, is_maintained=True)])
        reader = await reading(store)
        column = FrameColumn("f", kind)
        # The value is not found at other moments.
        assert await FrameRead(tmp_path, [At("a", 4), At("a", 7)], [column]).read(reader) == [
            [None],
            [(None, 7)],
        ]
        with pytest.raises(FeatureValueError) as raised:
            await FrameRead(tmp_path, [At("a", 5), At("a", 6), At("a", 7)], [column]).read(reader)
        assert raised.value.feature == "f"
        for part in ("2 values", kind, "'a'", json.dumps(value)[:5]):
            assert part in str(raised.value)


def _plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def _with_other_future(group: Group, moment: int, *, known: bool) -> Group:
    """Return the rows under other names, those after the moment with other values and times."""

    def other(row: Row) -> Row:
        row = row._replace(series=f"{row.series}_other")
        if (row.written_at if known else row.as_of) <= moment:
            return row
        row = row._replace(value=None)
        return row._replace(written_at=moment + 1) if known else row._replace(as_of=moment + 1)

    return group._replace(rows=[other(row) for row in group.rows])
