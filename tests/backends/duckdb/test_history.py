"""History in tail and segments: point-in-time reads, and every row once after any crash."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backends.duckdb.segments import due_for_merge
from headwater.backends.sqlite.history_tail import SqliteRecentHistory
from headwater.core.clock import from_micros, to_micros
from headwater.core.codec import Codec
from headwater.core.partitioning import bucket_of
from headwater.core.session_memory import DEFAULT_BYTES, limit_session_memory
from headwater.errors import BackendError, HomeError, InvalidInputError
from headwater.ports import Change, Mark, PastValue, Point, Segment
from tests.backends.duckdb import rolling_process
from tests.backends.duckdb.embedded import (
    GRACE,
    START,
    Embedded,
    SlowReaderTail,
    after,
    change,
    embedded,
    series,
)
from tests.effort import scaled

SEGMENT_ROWS = 5


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as opened:
        yield opened


async def values(parts: Embedded, feature: str = "clicks") -> list[Any]:
    """Return all values of a feature in the order of as_of."""
    rows = await parts.history.query(
        f"SELECT value_int FROM feature_history WHERE feature = '{feature}' ORDER BY as_of", {}
    )
    return [value for (value,) in rows.rows]


async def value_at(parts: Embedded, moment: datetime, feature: str = "clicks") -> bytes | None:
    [[past]] = await parts.history.as_of([feature], [Point("u1", moment)])
    return past.value if past else None


async def test_a_value_is_in_history_as_soon_as_it_is_put(parts: Embedded) -> None:
    await parts.online.put([change(7, as_of=after(1))])
    assert await value_at(parts, after(1)) == b"7"


async def test_a_history_read_never_sees_the_future(parts: Embedded) -> None:
    await parts.online.put([change(1, as_of=after(1)), change(2, as_of=after(2))])
    microsecond = timedelta(microseconds=1)
    assert await value_at(parts, after(1) - microsecond) is None
    assert await value_at(parts, after(2) - microsecond) == b"1"
    assert await value_at(parts, after(2)) == b"2"


async def test_results_are_in_the_order_of_the_points_and_equal_for_equal_points(
    parts: Embedded,
) -> None:
    await parts.online.put(
        [*series(3), change(9, feature="visits"), change(5, entity_id="u2", as_of=after(1))]
    )
    points = [Point("u1", after(2)), Point("unknown", after(2)), Point("u2", after(2))]
    answer = await parts.history.as_of(["visits", "clicks", "visits"], [*points, points[0]])
    texts = [[past and past.value for past in row] for row in answer]
    assert texts == [
        [b"9", b"2", b"9"],
        [None, None, None],
        [None, b"5", None],
        [b"9", b"2", b"9"],
    ]


async def test_an_empty_request_has_an_empty_result(parts: Embedded) -> None:
    assert await parts.history.as_of([], [Point("u1", START)]) == [[]]
    assert await parts.history.as_of(["clicks"], []) == []


async def test_a_moment_without_a_time_zone_is_refused(parts: Embedded) -> None:
    naive = START.replace(tzinfo=None)
    with pytest.raises(InvalidInputError, match="no time zone"):
        await parts.history.as_of(["clicks"], [Point("u1", naive)])


async def test_many_points_of_many_entities_find_their_values(parts: Embedded) -> None:
    ids = [f"u{number}" for number in range(1_200)]
    await parts.online.put([change(n, entity_id=i) for n, i in enumerate(ids)])
    answer = await parts.history.as_of(["clicks"], [Point(i, START) for i in reversed(ids)])
    assert [row[0] and int(row[0].value) for row in answer] == list(reversed(range(1_200)))


TYPED = [
    (int, "int", [0, -(2**63), 2**63 - 1, 2**53 + 1]),
    (float, "float", [0.1, -0.0, 1e300, 5e-324, 1e16, 1 / 3, 1.7976931348623157e308, 2.0]),
    (bool, "bool", [True, False]),
    (str, "text", ["", "plain", 'it\'s "quoted"\\\n\t', "ÅΩ 😀 \u2028", "null", "5"]),
    (
        datetime,
        "time",
        [START, after(0.000001), datetime.min.replace(tzinfo=START.tzinfo), after(-(10**10))],
    ),
    (dict, "json", [{}, {"a": [1, 2.5, None, "x'y"], "b": {"c": True}}]),
    (list, "json", [[], ["x", 1e22, -0.0]]),
    (float | None, "float", [None, 1.5]),
    (type(None), "none", [None]),
]


async def test_a_home_may_be_called_anything(tmp_path: Path) -> None:
    with embedded(tmp_path / "feature=odd" / "it's [a] *?" / "home", SEGMENT_ROWS) as parts:
        await parts.online.put(series(8 * SEGMENT_ROWS + 1))
        await parts.history.maintain()
        await parts.history.append(series(8 * SEGMENT_ROWS + 2))
        assert await values(parts) == list(range(8 * SEGMENT_ROWS + 2))


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize(("annotation", "kind", "given_values"), TYPED)
async def test_a_value_comes_back_exactly_from_tail_and_segment(
    tmp_path: Path, annotation: Any, kind: Any, given_values: list[Any], rolled: bool
) -> None:
    codec = Codec("clicks", annotation)
    assert codec.kind == kind
    with embedded(tmp_path / "home", 1) as parts:
        await parts.online.put(
            [
                change(codec.encode(value), kind=kind, as_of=after(n))
                for n, value in enumerate(given_values)
            ]
        )
        if rolled:
            await parts.history.maintain()
            assert parts.tail_rows() == 0
        points = [Point("u1", after(n)) for n in range(len(given_values))]
        answer = await parts.history.as_of(["clicks"], points)
    back = [codec.decode(row[0].value) if row[0] else ... for row in answer]
    assert [repr(b) if isinstance(b, float) else b for b in back] == [
        repr(v) if isinstance(v, float) else v for v in given_values
    ]


async def test_json_comes_back_verbatim(parts: Embedded) -> None:
    text = b'{"b":1.0,"a":[1e5,"\\u00e9"],"b2":12345678901234567890}'
    await parts.online.put([change(text, kind="json")])
    assert await value_at(parts, START) == text


async def test_a_text_that_does_not_fit_its_kind_is_kept_as_json(parts: Embedded) -> None:
    await parts.online.put(
        [change(b'"twelve"', kind="int"), change(b"5", feature="n", kind="text")]
    )
    assert await value_at(parts, START) == b'"twelve"'
    assert await value_at(parts, START, "n") == b"5"


async def test_a_value_larger_than_the_readers_buffer_comes_back(parts: Embedded) -> None:
    text = "x" * (17 << 20)
    await parts.online.put([change(text, kind="text")])
    past = await value_at(parts, START)
    assert past is not None
    assert len(past) == len(text) + 2


# Rolling and merging


async def test_a_full_tail_becomes_segments_and_a_short_one_stays(parts: Embedded) -> None:
    await parts.online.put(series(2 * SEGMENT_ROWS + 1))
    await parts.history.maintain()
    assert parts.tail_rows() == 1
    assert len(parts.live()) == 2
    assert parts.segment_files() == parts.live()
    assert await values(parts) == list(range(2 * SEGMENT_ROWS + 1))


async def test_rows_that_do_not_fit_into_the_memory_of_a_session_stay_where_they_are(
    parts: Embedded,
) -> None:
    await parts.online.put([change(n, as_of=after(n)) for n in range(SEGMENT_ROWS)])
    limit_session_memory(1 << 20)
    try:
        with pytest.raises(BackendError, match=r"stay where they are.*offline\.max_session_bytes"):
            await parts.history.maintain()
        with pytest.raises(BackendError, match="stay where they are"):
            await parts.history.prune(history=after(1), events=None)
    finally:
        limit_session_memory(DEFAULT_BYTES)
    assert await values(parts) == [*range(SEGMENT_ROWS)]
    assert not parts.live()
    await parts.history.maintain()
    assert await values(parts) == [*range(SEGMENT_ROWS)]
    assert parts.live()


async def test_sequence_numbers_do_not_come_back_after_rolling(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    await parts.history.maintain()
    await parts.online.put([change(99, as_of=after(0))])
    assert await value_at(parts, after(0)) == b"99"


async def test_many_small_segments_become_one_and_the_old_files_go_after_the_grace(
    parts: Embedded,
) -> None:
    count = 8 * SEGMENT_ROWS
    await parts.online.put(series(count))
    await parts.history.maintain()
    [merged] = parts.live()
    assert len(parts.segment_files()) == 9
    assert await values(parts) == list(range(count))
    parts.clock.advance(GRACE - timedelta(seconds=1))
    await parts.history.maintain()
    assert len(parts.segment_files()) == 9
    parts.clock.advance(timedelta(seconds=1))
    await parts.history.maintain()
    assert parts.segment_files() == {merged}
    assert [s.name for s in parts.tail.manifest()] == [merged]
    assert await values(parts) == list(range(count))


def test_only_segments_of_like_size_and_of_the_same_buckets_are_merged() -> None:
    def sized(rows: int, count: int, buckets: tuple[int, int] = (0, 1023)) -> list[Segment]:
        return [Segment(f"{rows}-{n}", "history", rows, buckets) for n in range(count)]

    def due(segments: list[Segment]) -> Sequence[Segment] | None:
        merge = due_for_merge(segments, 100)
        return None if merge is None else merge.segments

    large, small = sized(8 * 100, 7), sized(100, 7)
    assert due(large + small) is None
    assert due(large + small + sized(3, 1)) == small + sized(3, 1)
    part, other = sized(800, 4, (0, 127)), sized(800, 4, (128, 255))
    assert due(part + other) is None
    assert due(part + part + other) == part + part
    assert due(sized(800, 20, (0, 15))) is None


def test_a_segment_that_is_large_at_once_is_divided() -> None:
    large = Segment("large", "history", 8 * 8 * 100)
    merge = due_for_merge([large], 100)
    assert merge is not None
    assert merge.segments == [large]
    assert merge.ranges == [(n * 128, n * 128 + 127) for n in range(8)]
    huge = due_for_merge([Segment("huge", "history", 10**9)], 100)
    assert huge is not None
    assert huge.ranges == [(n * 16, n * 16 + 15) for n in range(64)]


async def test_large_merged_segments_are_divided_by_bucket(parts: Embedded) -> None:
    ids = [f"user-{number}" for number in range(8 * SEGMENT_ROWS)]
    for number in range(8):
        await parts.history.append([change(number, entity_id=each) for each in ids])
    await parts.history.maintain()
    live = [s for s in parts.tail.manifest() if s.kind == "history" and s.retired_at is None]
    assert [s.buckets for s in live] == [(n * 128, n * 128 + 127) for n in range(8)]
    for segment in live:
        first, last = segment.buckets
        assert segment.name.startswith(f"history-{first:04}-{last:04}-")
        own = [each for each in ids if first <= bucket_of(each) <= last]
        assert segment.rows == 8 * len(own)
        with duckdb.connect() as duck:
            rows = duck.execute(
                f"SELECT DISTINCT entity_id, bucket FROM '{parts.home.segments / segment.name}'"
            ).fetchall()
        assert sorted(rows) == sorted((each, bucket_of(each)) for each in own)
    assert sum(segment.rows for segment in live) == 8 * len(ids)


async def test_one_process_writes_segments_at_a_time(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    with (parts.home.segments / "writer.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        await parts.history.maintain()
        assert parts.live() == set()
    await parts.history.maintain()
    assert len(parts.live()) == 1


class DyingTail(SqliteRecentHistory):
    """A tail whose segment writer is killed as it reaches a step."""

    dies_at = ""

    def _reach(self, step: str) -> None:
        if step == self.dies_at:
            raise RuntimeError(f"killed at {step}")

    def add(self, segment: Segment, *, upto: Mark | None = None) -> None:
        self._reach("before add")
        super().add(segment, upto=upto)
        self._reach("after add")

    def replace(self, names: Sequence[str], merged: Sequence[Segment], now: datetime) -> None:
        self._reach("before replace")
        super().replace(names, merged, now)
        self._reach("after replace")

    def forget_segments(self, names: Sequence[str]) -> None:
        self._reach("before forget")
        super().forget_segments(names)


@pytest.mark.parametrize(
    "step", ["before add", "after add", "before replace", "after replace", "before forget"]
)
async def test_a_segment_writer_killed_at_any_step_leaves_every_row_once(
    parts: Embedded, step: str
) -> None:
    count = 8 * SEGMENT_ROWS
    await parts.online.put(series(count))
    dying = DyingTail(parts.home, parts.erasures)
    dying.dies_at = step
    with pytest.raises(RuntimeError, match=step):
        await parts.over(dying).maintain()
    assert await values(parts) == list(range(count))
    await parts.history.maintain()
    assert await values(parts) == list(range(count))
    parts.clock.advance(GRACE)
    await parts.history.maintain()
    assert await values(parts) == list(range(count))
    assert parts.segment_files() == parts.live()


async def test_the_files_of_a_dead_segment_writer_are_removed(parts: Embedded) -> None:
    await parts.online.put(series(3))
    for name in ("history-x.parquet", "history-y.parquet"):
        parts.tail.announce(Segment(name, "history", 0), parts.clock.now())
    (parts.home.segments / "history-x.parquet").write_bytes(b"renamed, not in the manifest")
    (parts.home.segments / "history-y.parquet.unfinished").write_bytes(b"half")
    (parts.home.scratch / "left").mkdir()
    assert await values(parts) == [0, 1, 2]
    parts.clock.advance(GRACE)
    await parts.history.maintain()
    assert parts.segment_files() == set()
    assert parts.tail.manifest() == []
    assert list(parts.home.scratch.iterdir()) == []


@pytest.mark.chaos
@pytest.mark.parametrize("acknowledged_batches", [1, 9])
def test_kill_9_of_a_rolling_process_leaves_every_acknowledged_row_once(
    tmp_path: Path, acknowledged_batches: int
) -> None:
    path, number = tmp_path / "home", 0
    for _ in range(2):
        command = [
            sys.executable,
            "-m",
            "tests.backends.duckdb.rolling_process",
            str(path),
            str(number),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(acknowledged_batches):
                acknowledged = int(process.stdout.readline())
            process.kill()
        with embedded(path, rolling_process.SEGMENT_ROWS) as parts:
            found = asyncio.run(values(parts))
            assert found == list(range(len(found)))
            assert len(found) >= acknowledged
            number = len(found)
    with embedded(path, rolling_process.SEGMENT_ROWS) as parts:
        parts.clock.advance(datetime.now(UTC) + GRACE - parts.clock.now())
        asyncio.run(parts.history.maintain())
        assert asyncio.run(values(parts)) == list(range(number))
        assert parts.segment_files() == {segment.name for segment in parts.tail.manifest()}


async def test_a_reader_whose_segment_was_merged_away_reads_again(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    await parts.history.maintain()
    tail = SlowReaderTail(parts, times=2)
    [[past]] = await parts.over(tail).as_of(["clicks"], [Point("u1", after(9))])
    assert past is not None
    assert past.value == b"4"
    assert tail.snapshots == 3


async def test_a_reader_that_loses_every_race_names_the_missing_file(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    await parts.history.maintain()
    [name] = parts.live()
    (parts.home.segments / name).unlink()
    with pytest.raises(HomeError, match=name):
        await values(parts)


async def test_a_damaged_segment_is_a_clear_error(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    await parts.history.maintain()
    [name] = parts.live()
    (parts.home.segments / name).write_bytes(b"not parquet at all")
    with pytest.raises(BackendError, match=name):
        await value_at(parts, START)


async def test_a_home_without_its_scratch_folder_is_a_clear_error(parts: Embedded) -> None:
    parts.home.scratch.rmdir()
    with pytest.raises(HomeError, match="space and permissions"):
        await value_at(parts, START)


async def test_event_ids_are_removed_after_the_dedup_window(parts: Embedded) -> None:
    now = to_micros(START)
    rows = [(f"old-{n // 3:06}", f"u{n % 3}", now, b"") for n in range(12_000)]
    rows.append(("young", "u1", now + 1, b""))
    await parts.writer.run(lambda db: db.executemany("INSERT INTO seen VALUES (?, ?, ?, ?)", rows))
    await parts.history.maintain()
    assert parts.home.reader.execute("SELECT event_id FROM seen").fetchall() == [("young",)]


# Imports


async def test_appending_again_changes_nothing(parts: Embedded) -> None:
    await parts.history.append(series(3))
    await parts.history.append([])
    await parts.history.append([*series(4), *series(4)])
    await parts.history.append(series(4))
    assert await values(parts) == [0, 1, 2, 3]
    assert len(parts.live()) == 2


async def test_values_already_in_history_are_not_appended(parts: Embedded) -> None:
    await parts.online.put(series(3))
    await parts.history.append(series(3))
    assert await values(parts) == [0, 1, 2]


async def test_appended_values_do_not_change_current_values(parts: Embedded) -> None:
    await parts.history.append(series(3))
    assert await parts.online.get("User", ["u1"]) == [{}]


async def test_among_values_of_one_moment_the_one_written_last_wins(parts: Embedded) -> None:
    await parts.online.put([change(1, cause="a"), change(2, cause="b")])
    assert await value_at(parts, START) == b"2"
    await parts.history.append([change(3, cause="c"), change(4, cause="d")])
    assert await value_at(parts, START) == b"4"
    await parts.online.put([change(5, cause="e")])
    assert await value_at(parts, START) == b"5"
    await parts.history.append([change(6, cause="f", written_at=after(-1))])
    assert await value_at(parts, START) == b"5"


async def test_concurrent_appends_and_rolls_keep_every_row_once(parts: Embedded) -> None:
    await parts.online.put(series(40))
    batches = [series(50)[start : start + 20] for start in range(0, 40, 10)]
    async with asyncio.TaskGroup() as group:
        for batch in batches:
            group.create_task(parts.history.append(batch))
            group.create_task(parts.history.maintain())
    assert await values(parts) == list(range(50))


# The oracle

FEATURES = ["clicks", "visits"]
IDS = ["u1", "u2"]
MOMENTS = range(6)

changes = st.builds(
    lambda feature, entity_id, as_of, written_at, value: change(
        value,
        feature=feature,
        entity_id=entity_id,
        as_of=after(as_of),
        written_at=after(written_at),
    ),
    st.sampled_from(FEATURES),
    st.sampled_from(IDS),
    st.sampled_from(MOMENTS),
    st.sampled_from(MOMENTS),
    st.integers(0, 3),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(changes, min_size=1, max_size=8)),
        st.tuples(st.just("append"), st.lists(changes, min_size=1, max_size=8)),
        st.tuples(st.just("maintain"), st.just([])),
    ),
    max_size=6,
)


class Oracle:
    """History as a list that is searched from end to end."""

    def __init__(self) -> None:
        self.rows: list[Change] = []

    def add(self, step: str, given: Sequence[Change]) -> None:
        for row in given:
            if step == "put" or all(self._key(row) != self._key(old) for old in self.rows):
                self.rows.append(row)

    def _key(self, row: Change) -> tuple[object, ...]:
        return row.feature, row.entity_id, row.cell.as_of, row.cause, bytes(row.cell.value)

    def at(self, feature: str, point: Point, *, known: bool) -> PastValue | None:
        moment = to_micros(point.at)
        visible = [
            (row.cell.as_of, row.cell.written_at, number)
            for number, row in enumerate(self.rows)
            if (row.feature, row.entity_id) == (feature, point.entity_id)
            and (row.cell.written_at if known else row.cell.as_of) <= moment
        ]
        if not visible:
            return None
        as_of, written_at, number = max(visible)
        value = bytes(self.rows[number].cell.value)
        return PastValue(value, from_micros(as_of), from_micros(written_at))


async def compare_with_oracle(
    path: Path, segment_rows: int, plan: list[Any], pruned_before: int
) -> None:
    """Apply a plan to history and to an oracle, prune history alone, and compare what is left."""
    oracle = Oracle()
    moments = [moment for moment in [-1, *MOMENTS] if moment >= pruned_before]
    points = [Point(i, after(moment)) for i in [*IDS, "unknown"] for moment in moments]
    with embedded(path, segment_rows) as parts:
        for step, given_changes in plan:
            oracle.add(step, given_changes)
            if step == "put":
                await parts.online.put(given_changes)
            elif step == "append":
                await parts.history.append(given_changes)
            else:
                await parts.history.maintain()
        pruned = await parts.history.prune(history=after(pruned_before), events=None)
        for known in (False, True):
            answer = await parts.history.as_of(FEATURES, points, known=known)
            assert answer == [
                [oracle.at(feature, point, known=known) for feature in FEATURES] for point in points
            ]
        rows = await parts.history.query("SELECT count(*) FROM feature_history", {})
        assert rows.rows == [(len(oracle.rows) - pruned.history,)]


@settings(max_examples=scaled(12))
@given(st.sampled_from([1, 3, 10]), steps, st.sampled_from([-1, *MOMENTS]))
def test_history_answers_like_a_search_from_end_to_end_also_when_it_was_pruned(
    segment_rows: int, plan: list[Any], pruned_before: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare_with_oracle(Path(folder), segment_rows, plan, pruned_before))
