"""Point-in-time reads of every kind of table: the same kind, rows and order come back."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.testing import ManualClock
from tests.history.frame_features import (
    DAY,
    START,
    TYPES,
    VALUES,
    declare_all_types,
    rows,
    write_all,
)

ALL = [*TYPES, "rating"]
IS_KNOWN = [True, False, True, True, False]


@pytest.fixture
async def types(store: FeatureStore) -> FeatureStore:
    """A store with a value of each type."""
    declare_all_types(store)
    await write_all(store)
    return store


@pytest.fixture
async def totals(store: FeatureStore, user: type) -> FeatureStore:
    """A store in which a total rises by one each day."""

    @feature(entity=user, trigger="bought")
    def total(user_id: str, event: ServiceEvent) -> int:
        return 0

    for day in range(4):
        await store.set_feature("total", "ada", day, as_of=START + day * DAY)
    return store


def at(*moments: Any) -> list[dict[str, Any]]:
    return [{"user_id": "ada", "timestamp": moment} for moment in moments]


async def test_a_list_of_dicts_gets_values_in_their_annotated_types(types: FeatureStore) -> None:
    found = await types.get_historical_features(rows(), ALL)
    expected = VALUES | {"rating": 4.5}
    missing = dict.fromkeys(TYPES) | {"rating": 2.5}
    assert found == [
        {**row, **(expected if is_known else missing)}
        for row, is_known in zip(rows(), IS_KNOWN, strict=True)
    ]
    assert [type(found[0][name]) for name in VALUES] == [type(each) for each in VALUES.values()]


async def test_a_pandas_frame_keeps_its_index_and_types(types: FeatureStore) -> None:
    frame = pd.DataFrame(rows(), index=pd.Index([5, 5, 1, 9, 0], name="key"))
    frame["timestamp"] = frame["timestamp"].astype("datetime64[ns, Europe/Berlin]")
    frame["kind"] = pd.Categorical(["a", "b", "a", "b", "a"])
    given = frame.copy()
    found = await types.get_historical_features(frame, ALL, with_as_of=True)
    pd.testing.assert_frame_equal(frame, given)
    pd.testing.assert_frame_equal(found[list(frame.columns)], given)
    assert list(found.columns[5:]) == [each for n in ALL for each in (n, f"{n}__as_of")]
    assert {name: str(found[name].dtype) for name in ALL} == {
        "count": "Int64",
        "rate": "float64",
        "active": "boolean",
        "name": "str",
        "since": "datetime64[us, UTC]",
        "scores": "object",
        "born": "datetime64[us]",
        "token": "str",
        "color": "str",
        "size": "str",
        "price": "str",
        "place": "str",
        "maybe": "Int64",
        "rating": "float64",
    }
    first = found.iloc[0]
    assert first["count"] == VALUES["count"]
    assert first["scores"] == VALUES["scores"]
    assert first["place"] == '{"city":"Paris","visits":2}'
    assert first["count__as_of"] == START
    for name in TYPES:
        known = [name != "maybe" and is_known for is_known in IS_KNOWN]
        assert found[name].notna().tolist() == known
    assert found["rating"].tolist() == [4.5, 2.5, 4.5, 4.5, 2.5]
    assert found["rating__as_of"].notna().tolist() == IS_KNOWN


async def test_polars_frames_keep_their_types(types: FeatureStore) -> None:
    frame = pl.DataFrame(rows()).with_columns(
        pl.col("timestamp").dt.cast_time_unit("ns"), pl.col("label").cast(pl.Int8)
    )
    found = await types.get_historical_features(frame, ALL, with_as_of=True)
    assert found.select(frame.columns).equals(frame)
    assert found.select(frame.columns).schema == frame.schema
    assert dict(found.select(ALL).schema) == {
        "count": pl.Int64,
        "rate": pl.Float64,
        "active": pl.Boolean,
        "name": pl.String,
        "since": pl.Datetime("us", "UTC"),
        "scores": pl.List(pl.Float64),
        "born": pl.Date,
        "token": pl.String,
        "color": pl.String,
        "size": pl.String,
        "price": pl.String,
        "place": pl.String,
        "maybe": pl.Int64,
        "rating": pl.Float64,
    }
    assert found["count"].to_list() == [VALUES["count"] if each else None for each in IS_KNOWN]
    assert found["count__as_of"].to_list() == [START if each else None for each in IS_KNOWN]
    lazy = await types.get_historical_features(frame.lazy(), ALL, with_as_of=True)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect().equals(found)


async def test_arrow_tables_keep_their_schema(types: FeatureStore) -> None:
    table = pa.Table.from_pylist(rows()).replace_schema_metadata({"made": "here"})
    found = await types.get_historical_features(table, ["count", "scores", "rating"])
    assert found.select(table.column_names).equals(table, check_metadata=True)
    assert found["count"].to_pylist() == [VALUES["count"] if each else None for each in IS_KNOWN]
    assert str(found.schema.field("scores").type.value_type) == "double"
    streamed = await types.get_historical_features(table.to_reader(), ["count", "rating"])
    assert isinstance(streamed, duckdb.DuckDBPyRelation)
    assert streamed.to_arrow_table().equals(found.drop_columns("scores"))


async def test_a_relation_comes_back_on_its_own_connection(types: FeatureStore) -> None:
    connection = duckdb.connect()
    connection.register("given", pd.DataFrame(rows()))
    connection.execute("CREATE TABLE labels AS SELECT unnest([1, 2, 3, 4]) AS label, 'x' AS text")
    relation = connection.sql("SELECT *, 'Red'::ENUM('Red') AS kind FROM given ORDER BY label DESC")
    found = await types.get_historical_features(relation, ["count", "rating"])
    assert found.columns == [*relation.columns, "count", "rating"]
    assert found.types[: len(relation.types)] == relation.types
    assert [row[3:] for row in found.project("* EXCLUDE timestamp").fetchall()] == [
        ("Red", None, 2.5) if label in (2, 4) else ("Red", VALUES["count"], 4.5)
        for label in (4, 3, 3, 2, 1)
    ]
    assert found.join(connection.table("labels"), "label").count("*").fetchall() == [(5,)]
    tables = connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()
    views = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert len(tables) == 2
    assert views == [("given",)]


async def test_a_parquet_file_becomes_another_one(types: FeatureStore, tmp_path: Path) -> None:
    file, calls = tmp_path / "spine.parquet", []
    table = pa.Table.from_pylist(rows())
    pq.write_table(table, file, row_group_size=2)
    found = await types.get_historical_features(
        file, ["count", "rating"], progress=lambda *done: calls.append(done)
    )
    assert found == tmp_path / "spine.features.parquet"
    written = pq.read_table(found)
    assert written.column_names == [*table.column_names, "count", "rating"]
    assert written.select(table.column_names).equals(table)
    assert written["count"].to_pylist() == [VALUES["count"] if each else None for each in IS_KNOWN]
    assert calls[-1] == (5, 5)
    with pytest.raises(InvalidInputError, match=r"spine.features.parquet exists already"):
        await types.get_historical_features(str(file), ["count"])
    other = tmp_path / "other.parquet"
    for _ in range(2):  # an output that was named is replaced
        assert await types.get_historical_features(str(file), ["count"], output=other) == other
    with pytest.raises(InvalidInputError, match="input and output are the same file"):
        await types.get_historical_features(file, ["count"], output=file)
    assert sorted(os.listdir(tmp_path)) == [
        "other.parquet",
        "spine.features.parquet",
        "spine.parquet",
    ]


async def test_a_query_gives_the_rows(totals: FeatureStore) -> None:
    sql = """SELECT entity_id AS user_id, as_of AS "timestamp", cause
             FROM feature_history WHERE feature = 'total' ORDER BY as_of DESC"""
    found = await totals.get_historical_features(sql, ["total"])
    assert found.columns == ["user_id", "timestamp", "cause", "total"]
    assert [row[2:] for row in found.project("user_id, cause, cause, total").fetchall()] == [
        ("set", total) for total in (3, 2, 1, 0)
    ]
    assert found.fetchall()[0] == ("ada", START + 3 * DAY, "set", 3)
    nothing = await totals.get_historical_features(f"{sql} LIMIT 0", ["total"])
    assert nothing.fetchall() == []


async def test_the_case_of_the_columns_of_a_query_does_not_matter(totals: FeatureStore) -> None:
    sql = """SELECT entity_id AS USER_ID, as_of AS "TimeStamp"
             FROM feature_history WHERE feature = 'total' ORDER BY as_of DESC"""
    found = await totals.get_historical_features(sql, ["total"])
    assert found.columns == ["user_id", "timestamp", "total"]
    assert [row[2] for row in found.fetchall()] == [3, 2, 1, 0]


async def test_csv_files_are_read_and_written(totals: FeatureStore, tmp_path: Path) -> None:
    file = tmp_path / "spine.csv"
    file.write_text(
        "user_id,when\nada,2026-01-02T01:00:00+02:00\nada,2026-01-02T00:00:00Z\nbob,2026-01-02T00:00:00Z\n"
    )
    found = await totals.get_historical_features(
        file, ["total"], at="when", output=tmp_path / "out.csv"
    )
    assert [line.rpartition(",")[2] for line in found.read_text().splitlines()] == [
        "total",
        "0",
        "1",
        "",
    ]


async def test_frames_may_be_empty(types: FeatureStore, tmp_path: Path) -> None:
    assert await types.get_historical_features([], ALL) == []
    frame = pd.DataFrame(rows()).iloc[:0]
    found = await types.get_historical_features(frame, ALL)
    assert (len(found), list(found.columns)) == (0, [*frame.columns, *ALL])
    polars = await types.get_historical_features(pl.DataFrame(rows()).clear(), ALL)
    assert polars.schema["scores"] == pl.List(pl.Float64)


async def test_time_zones_and_summer_time_count_as_the_moments_they_are(
    totals: FeatureStore,
) -> None:
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    await totals.set_feature("total", "eve", 1, as_of=moment)
    berlin = ZoneInfo("Europe/Berlin")
    # 02:30 happened twice in this night; fold tells which one is meant.
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=berlin) for fold in (0, 1))
    early = first - timedelta(microseconds=1)
    kathmandu = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    frame = [{"user_id": "eve", "timestamp": each} for each in (early, first, second, kathmandu)]
    found = await totals.get_historical_features(frame, ["total"])
    assert [row["total"] for row in found] == [None, 1, 1, 1]
    table = pd.DataFrame(frame)
    assert table["timestamp"].dtype == object or "Berlin" in str(table["timestamp"].dtype)
    for kind in (table, table.assign(timestamp=table["timestamp"].astype(object))):
        result = await totals.get_historical_features(kind, ["total"])
        assert result["total"].isna().tolist() == [True, False, False, False]


async def test_nanoseconds_count_as_their_microsecond(totals: FeatureStore) -> None:
    await totals.set_feature("total", "old", 1, as_of=datetime(1969, 12, 31, tzinfo=UTC))
    await totals.set_feature("total", "old", 2, as_of=datetime(1970, 1, 1, tzinfo=UTC))
    nanos = [-1, 0, 999]
    pandas = pd.DataFrame(
        {"user_id": "old", "timestamp": pd.to_datetime(nanos, unit="ns", utc=True)}
    )
    assert str(pandas["timestamp"].dtype) == "datetime64[ns, UTC]"
    frames = [pandas, pl.from_pandas(pandas), pa.Table.from_pandas(pandas)]
    for frame in frames:
        found = await totals.get_historical_features(frame, ["total"])
        assert [int(total) for total in found["total"].to_numpy()] == [1, 2, 2]
        kept = pd.Series(found["timestamp"].to_numpy(), dtype="datetime64[ns, UTC]")
        assert kept.astype("int64").tolist() == nanos


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the mistake


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (at(NAIVE), r"row 0: timestamp 2026-01-01T00:00:00 has no time zone; .*tzinfo=UTC"),
        (at(START, None), r"row 1 has no time in timestamp; fill it in, or leave such rows out"),
        (at(1767225600), r"row 0: .* not the number 1767225600; datetime.fromtimestamp\("),
        (pd.DataFrame(at(1767225600)), r"holds integers, not times; .*unit=\"s\", utc=True"),
        (pl.DataFrame(at(1767225600)), r"holds integers, not times; .*pl.from_epoch"),
        (pd.DataFrame(at(START)).set_index("user_id"), r"no column 'user_id' .*reset_index\(\)"),
        (at("2026-01-01T00:00:00Z"), r"row 0: .* not '2026-01-01T00:00:00Z'; parse texts with"),
        (pd.DataFrame(at(NAIVE)), r"'timestamp' have no time zone; df\[\"timestamp\"\].dt.tz_loc"),
        (pd.DataFrame(at("2026")), r"'timestamp' holds text, not times; pd.to_datetime\(df"),
        (pd.DataFrame(at(START, None)), r"row 1 has no time in column 'timestamp'"),
        (pd.DataFrame(at(START, NAIVE), dtype=object), r"row 1: .* has no time zone"),
        (pl.DataFrame(at(NAIVE)), r"have no time zone; .*replace_time_zone\(\"UTC\"\)"),
        (pl.DataFrame(at("2026")), r"holds text, not times; .*str.to_datetime"),
        (pa.Table.from_pylist(at(NAIVE)), r"have no time zone; pyarrow.compute.assume_timezone"),
        (duckdb.sql("SELECT 'a' AS user_id, now()::TIMESTAMP AS timestamp"), r"AT TIME ZONE 'UTC'"),
        (duckdb.sql("SELECT 'a' AS user_id, DATE '2026-01-01' AS timestamp"), r"no time zone"),
        (
            duckdb.sql("SELECT 'a' AS user_id, 5 AS timestamp"),
            r"holds integers, not times; .* to_timestamp",
        ),
        (
            duckdb.sql("SELECT 'a' AS user_id, 'infinity'::TIMESTAMPTZ AS timestamp"),
            r"row 0: infinity in column 'timestamp' is not a time",
        ),
        ([{"user_id": None, "timestamp": START}], r"row 0: user_id must be text \(str\), not the"),
        ([{"user_id": 5, "timestamp": START}], r"row 0: user_id must be text \(str\), not the int"),
        (pl.DataFrame({"user_id": [5], "timestamp": [START]}), r"holds integers, but the ids of U"),
        (
            pl.DataFrame({"user_id": ["a", "b\n", ""], "timestamp": [START] * 3}),
            r"row 1: user_id must be printable text of 1 to 1024 characters, not 'b\\n' \(and 1 mo",
        ),
        (
            [{"userid": "a", "timestamp": START}],
            r"no column 'user_id' with the ids of User; did yo",
        ),
        ([{"user_id": "a", "timstamp": START}], r"no column 'timestamp' .* did you mean 'timstamp"),
        ([{**at(START)[0], "Total": 1}], r"already has a column 'Total'; rename or drop it"),
        ([{**at(START)[0], "total": 1}], r"already has a column 'total'; rename or drop it"),
        (pd.DataFrame(), r"the frame has no column 'user_id' with the ids of User"),
        (pd.DataFrame({0: ["a"]}), r"the frame has no column 'user_id' with the ids of User"),
        (pl.DataFrame(), r"the frame has no column 'user_id' with the ids of User"),
        (pa.table({}), r"the frame has no column 'user_id' with the ids of User"),
        ([{}], r"row 0: user_id must be text"),
        ([5], r"row 0 of the frame must be a dict, not int"),
        (5, r"a frame cannot be of type int; pass a pandas, Polars or Arrow table"),
        ("nothing.parquet", r"there is no file nothing.parquet"),
        ("SELECT", r"the query (cannot be run|returns no rows)"),
    ],
)
async def test_invalid_frames_are_refused_with_the_remedy(
    totals: FeatureStore, frame: Any, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await totals.get_historical_features(frame, ["total"])


async def test_a_refused_relation_leaves_nothing_in_its_connection(totals: FeatureStore) -> None:
    connection = duckdb.connect()
    relation = connection.sql("SELECT 'ada' AS user_id, now()::TIMESTAMP AS timestamp")
    with pytest.raises(InvalidInputError, match="no time zone"):
        await totals.get_historical_features(relation, ["total"])
    assert connection.sql("SHOW TABLES").fetchall() == []


async def test_rows_before_pruned_history_are_refused(
    totals: FeatureStore, clock: ManualClock
) -> None:
    now = clock.now()
    clock.advance("10d")
    await totals.admin.prune(history="5d")
    frame = at(now, clock.now(), now + DAY)
    with pytest.raises(
        InvalidInputError, match=r"row 0 is of .* \(and 1 more\), .* before .* pruned; .* exported="
    ):
        await totals.get_historical_features(frame, ["total"])
    (found,) = await totals.get_historical_features(frame[1:2], ["total"])
    assert found["total"] == 3


async def test_rows_that_are_pruned_just_before_they_are_read_are_refused(
    totals: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    clock.advance("10d")
    offline = (await runtime_of(totals).open()).backends.offline
    read = offline.read_frame

    async def read_after_pruning(*arguments: Any) -> None:
        await totals.admin.prune(history="5d")
        await read(*arguments)

    monkeypatch.setattr(offline, "read_frame", read_after_pruning)
    with pytest.raises(InvalidInputError, match=r"row 1 is of .*, and the history before .*"):
        await totals.get_historical_features(at(clock.now(), now), ["total"])
    monkeypatch.undo()
    (found,) = await totals.get_historical_features(at(clock.now()), ["total"])
    assert found["total"] == 3


async def test_invalid_features_are_refused(totals: FeatureStore, user: type) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'total'"):
        await totals.get_historical_features(at(START), ["totl"])
    with pytest.raises(InvalidInputError, match="named twice"):
        await totals.get_historical_features(at(START), ["total", "total"])
    with pytest.raises(InvalidInputError, match="name at least one feature"):
        await totals.get_historical_features(at(START), [])
    with pytest.raises(InvalidInputError, match="pass a list"):
        await totals.get_historical_features(at(START), "total")
    with pytest.raises(InvalidInputError, match="output= is for frames in files"):
        await totals.get_historical_features(at(START), ["total"], output="out.parquet")


async def test_ids_that_are_numbers_may_be_numbers_or_text(
    store: FeatureStore,
) -> None:
    @entity(store)
    class Shop:
        shop_id: int

    @feature(entity=Shop, trigger="rated")
    def stars(shop_id: int, event: ServiceEvent) -> int:
        return 0

    await store.set_feature(stars, 7, 5, as_of=START)
    valid: list[Any] = [[7], ["7"], pl.Series([7], dtype=pl.UInt8)]
    for ids in valid:
        frame = pl.DataFrame({"shop_id": ids, "timestamp": [START]})
        assert (await store.get_historical_features(frame, [stars]))["stars"].to_list() == [5]
    refused: list[Any] = [(["07"], "row 0: .*such as 7, not '07'"), ([7.0], "holds floats")]
    for ids, problem in refused:
        frame = pl.DataFrame({"shop_id": ids, "timestamp": [START]})
        with pytest.raises(InvalidInputError, match=problem):
            await store.get_historical_features(frame, [stars])


def test_the_blocking_verb_gives_the_same(home: Path) -> None:
    store = FeatureStore(home=home)
    declare_all_types(store)
    for name, value in VALUES.items():
        store.sync.set_feature(name, "ada", value, as_of=START)
    found = store.sync.get_historical_features(rows(), list(TYPES))
    assert [row["count"] for row in found] == [
        VALUES["count"] if each else None for each in IS_KNOWN
    ]
    store.sync.close()


WITHOUT_PYARROW = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_hidden = name.partition(".")[0] == "pyarrow"
        return None if is_hidden else PathFinder.find_spec(name, path, target)

sys.meta_path = [Finder if each is PathFinder else each for each in sys.meta_path]

import duckdb, pandas, polars
from headwater import FeatureStore
from tests.history.frame_features import TYPES, VALUES, declare_all_types, rows

store = FeatureStore(home=sys.argv[1])
declare_all_types(store)
for name, value in VALUES.items():
    store.sync.set_feature(name, "ada", value, as_of=rows()[2]["timestamp"])
names = [*TYPES, "rating"]
read = store.sync.get_historical_features
for frame in (pandas.DataFrame(rows()), polars.DataFrame(rows())):
    found = read(frame, names, with_as_of=True)
    assert found["count"][0] == VALUES["count"], found
    assert len(found.columns) == 4 + 2 * len(names), found
assert read(rows(), names)[0]["place"] == VALUES["place"]
relation = duckdb.sql("SELECT 'ada' AS user_id, now() AS timestamp")
assert read(relation, ["count"]).project("count").fetchall() == [(VALUES["count"],)]
assert "pyarrow" not in sys.modules
store.sync.close()
print("done")
"""


def test_no_table_needs_pyarrow(home: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PYARROW, str(home / "store")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
