"""SQL over sources, the event log and history."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest

from headwater.backends.sqlite.bus import insert_event
from headwater.core.clock import to_micros
from headwater.core.source_views import _READERS
from headwater.core.sql_sources import KINDS as ALLOWED
from headwater.errors import BackendError, InvalidInputError
from headwater.model.values import ServiceEvent
from headwater.ports import Rows
from tests.backends.duckdb.embedded import PARTITIONS, START, Embedded, after, change, embedded

SEGMENT_ROWS = 4


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as opened:
        yield opened


async def publish(
    parts: Embedded,
    number: int,
    *,
    partition: int = 0,
    kind: str = "click",
    only: str | None = None,
) -> None:
    event = ServiceEvent(kind, "u1", {"n": number, "q": "it's"}, after(number), f"e{number}")
    now = to_micros(START)
    await parts.writer.run(lambda db: insert_event(db, event, partition, now, only=only))


async def move_cursor(parts: Embedded, group: str, partition: int, seq: int) -> None:
    await parts.writer.run(
        lambda db: db.execute(
            "INSERT OR REPLACE INTO cursors (consumer_group, partition, seq) VALUES (?, ?, ?)",
            (group, partition, seq),
        )
    )


async def event_ids(parts: Embedded) -> list[str]:
    answer = await parts.history.query("SELECT event_id FROM events ORDER BY timestamp", {})
    return [event_id for (event_id,) in answer.rows]


# The event log


async def test_the_event_log_can_be_queried(parts: Embedded) -> None:
    await publish(parts, 1)
    answer = await parts.history.query(
        "SELECT *, payload.n::int AS n, payload ->> 'q' AS q FROM events", {}
    )
    assert answer == Rows(
        [
            *("event_id", "event_type", "entity_id", "timestamp", "received_at", "payload"),
            *("traceparent", "n", "q"),
        ],
        [("e1", "click", "u1", after(1), START, '{"n":1,"q":"it\'s"}', None, 1, "it's")],
    )


async def test_internal_and_redriven_events_are_not_shown(parts: Embedded) -> None:
    await publish(parts, 1)
    await publish(parts, 2, kind="headwater.tick")
    await publish(parts, 1, only="total")
    assert await event_ids(parts) == ["e1"]


async def test_events_leave_the_tail_when_every_group_has_committed_them(parts: Embedded) -> None:
    for number in range(1, 9):
        await publish(parts, number, partition=number % 2)
    all_ids = [f"e{number}" for number in range(1, 9)]

    await parts.history.maintain()
    assert parts.tail_rows("events") == 8  # no group has committed anything

    await move_cursor(parts, "a", 0, 8)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 8  # partition 1 has no cursor

    await move_cursor(parts, "a", 1, 5)
    await move_cursor(parts, "b", 0, 4)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 8  # group b has committed nothing of partition 1

    await move_cursor(parts, "b", 1, 8)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 4  # all groups have committed up to 5; a segment takes four
    assert await event_ids(parts) == all_ids

    await move_cursor(parts, "a", 1, 8)
    await move_cursor(parts, "b", 0, 8)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 0
    assert await event_ids(parts) == all_ids


async def test_the_system_partition_holds_events_back_too(parts: Embedded) -> None:
    await publish(parts, 1, partition=PARTITIONS, kind="headwater.tick")
    for number in range(2, 6):
        await publish(parts, number)
    await move_cursor(parts, "a", 0, 5)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 5
    await move_cursor(parts, "a", PARTITIONS, 1)
    await parts.history.maintain()
    assert parts.tail_rows("events") == 1


# History


async def test_history_has_a_column_for_each_kind(parts: Embedded) -> None:
    await parts.online.put(
        [
            change(1, feature="a", kind="int"),
            change(2.5, feature="b", kind="float"),
            change(b"true", feature="c", kind="bool"),
            change("x", feature="d", kind="text"),
            change(after(1), feature="e", kind="time"),
            change([1], feature="f", kind="json"),
            change(None, feature="g", kind="int"),
        ]
    )
    await parts.history.maintain()
    answer = await parts.history.query(
        "SELECT value_int, value_float, value_bool, value_text, value_time, value_json,"
        " value FROM feature_history ORDER BY feature",
        {},
    )
    assert answer.rows == [
        (1, None, None, None, None, None, "1"),
        (None, 2.5, None, None, None, None, "2.5"),
        (None, None, True, None, None, None, "true"),
        (None, None, None, "x", None, None, '"x"'),
        (None, None, None, None, after(1), None, '"2026-01-01T00:00:01.000000Z"'),
        (None, None, None, None, None, "[1]", "[1]"),
        (None, None, None, None, None, None, "null"),
    ]


async def test_events_and_history_can_be_joined(parts: Embedded) -> None:
    await publish(parts, 1)
    await parts.online.put([change(7, cause="e1")])
    answer = await parts.history.query(
        "SELECT event_id, value_int FROM events JOIN feature_history ON cause = event_id",
        {},
    )
    assert answer.rows == [("e1", 7)]


# Sources

ORDERS = "(SELECT * FROM (VALUES ('u1', 3.5, 1), ('u2', 4.0, 2)) AS t (user_id, amount, n))"


def write_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE base (user_id TEXT, amount REAL, n INTEGER);"
            "INSERT INTO base VALUES ('u1', 3.5, 1), ('u2', 4, 2);"
            "CREATE VIEW orders AS SELECT user_id, amount, n + 0 AS n FROM base"
        )


def write_source(path: Path) -> None:
    suffix = path.suffix
    if suffix in (".sqlite", ".sqlite3", ".db"):
        write_sqlite(path)
    elif suffix == ".duckdb":
        with duckdb.connect(str(path)) as db:
            db.execute(f"CREATE TABLE orders AS {ORDERS}")
    elif suffix in (".ndjson", ".jsonl"):
        path.write_text(
            '{"user_id":"u1","amount":3.5,"n":1}\n{"user_id":"u2","amount":4.0,"n":2}\n'
        )
    elif suffix == ".json":
        path.write_text('[{"user_id":"u1","amount":3.5,"n":1},{"user_id":"u2","amount":4.0,"n":2}]')
    elif suffix == ".gz":
        path.write_bytes(gzip.compress(b"user_id,amount,n\nu1,3.5,1\nu2,4.0,2\n"))
    elif suffix == ".csv":
        path.write_text("user_id,amount,n\nu1,3.5,1\nu2,4.0,2\n")
    else:
        quoted = str(path).replace("'", "''")
        with duckdb.connect(":memory:") as db:
            db.execute(f"COPY {ORDERS} TO '{quoted}' (FORMAT parquet)")


KINDS = [
    "orders.parquet",
    "orders.csv",
    "orders.csv.gz",
    "orders.json",
    "orders.ndjson",
    "orders.jsonl",
    "orders.duckdb",
    "orders.sqlite",
    "orders.sqlite3",
    "orders.db",
    "it's [odd] *? ö.parquet",
    "it's odd ö.sqlite",
    "v1.2 orders.PARQUET",
]


@pytest.mark.parametrize("file", KINDS)
async def test_a_file_of_every_kind_is_a_source(parts: Embedded, tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    write_source(path)
    answer = await parts.history.query(
        "SELECT user_id, sum(amount * n) AS value FROM orders GROUP BY user_id ORDER BY user_id",
        {"orders": str(path), "unused": "/nowhere.parquet"},
    )
    assert answer == Rows(["user_id", "value"], [("u1", 3.5), ("u2", 8.0)])


async def test_a_pattern_names_many_files(parts: Embedded, tmp_path: Path) -> None:
    for number in range(3):
        write_source(tmp_path / f"orders-{number}.parquet")
    sources = {"orders": str(tmp_path / "orders-*.parquet")}
    assert (await parts.history.query("SELECT count(*) FROM orders", sources)).rows == [(6,)]


@pytest.mark.parametrize("name", ["shop.v1.duckdb", "Headwater.duckdb", "main.duckdb", ".x.duckdb"])
async def test_a_view_of_a_duckdb_file_may_name_the_database_of_its_tables(
    parts: Embedded, tmp_path: Path, name: str
) -> None:
    files = [tmp_path / folder / name for folder in ("a", "b")]
    for number, file in enumerate(files):
        file.parent.mkdir()
        with duckdb.connect(str(file)) as db:
            own = "" if name != "shop.v1.duckdb" else "shop.main."
            db.execute(f"CREATE TABLE orders AS SELECT {number} AS n")
            db.execute(f"CREATE VIEW bought AS SELECT * FROM {own}orders")
    sources = {"bought": str(files[0]), "orders": str(files[1])}
    rows = await parts.history.query("SELECT bought.n, orders.n FROM bought, orders", sources)
    assert list(map(tuple, rows.rows)) == [(0, 1)]
    assert (await parts.history.query("SELECT count(*) FROM feature_history", sources)).rows


async def test_two_sources_may_lie_in_one_duckdb_file(parts: Embedded, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE orders AS SELECT 1 AS n; CREATE TABLE returns AS SELECT 2 AS m")
    sources = {"orders": str(path), "returns": str(path)}
    answer = await parts.history.query("SELECT n, m FROM orders, returns", sources)
    assert answer.rows == [(1, 2)]


async def test_columns_of_a_sqlite_source_have_types(parts: Embedded, tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE orders (a BIGINT, b VARCHAR(9), c NUMERIC, d BOOLEAN, e DATETIME,"
            " f DATE, g BLOB, h);"
            "INSERT INTO orders VALUES (1, 'x', 1.5, 1, '2026-01-01 10:00:00', '2026-01-02',"
            " x'00ff', 'free'), (NULL, NULL, NULL, 0, NULL, NULL, NULL, 7)"
        )
    answer = await parts.history.query("SELECT * FROM orders", {"orders": str(path)})
    moment = datetime(2026, 1, 1, 10, tzinfo=UTC).replace(tzinfo=None)
    assert answer.rows == [
        (1, "x", 1.5, True, moment, date(2026, 1, 2), "00FF", "free"),
        (None, None, None, False, None, None, None, "7"),
    ]


async def test_aware_times_come_back_aware_at_any_depth(parts: Embedded) -> None:
    answer = await parts.history.query(
        "SELECT t AS a, [t] AS b, {'x': t} AS c, 1 AS a"
        " FROM (SELECT TIMESTAMPTZ '2026-01-01 01:00:00+01' AS t)",
        {},
    )
    assert answer == Rows(["a", "b", "c", "a"], [(START, [START], {"x": START}, 1)])


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/nowhere/orders.parquet", "source 'orders' has no file at '/nowhere/orders.parquet'"),
        ("/nowhere/*.csv", "source 'orders' has no file"),
        ("orders.xlsx", "source 'orders' has the suffix '.xlsx', which is not that of a supported"),
        ("orders", "not that of a supported file; use one of .parquet"),
    ],
)
async def test_a_source_that_cannot_be_found_is_named(
    parts: Embedded, location: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await parts.history.query("SELECT * FROM orders", {"orders": location})
    assert problem in str(raised.value)


@pytest.mark.parametrize("suffix", ["parquet", "duckdb", "sqlite"])
async def test_a_source_that_is_something_else_is_named(
    parts: Embedded, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"orders.{suffix}"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(InvalidInputError, match=r"source 'orders' .* cannot be read"):
        await parts.history.query("SELECT * FROM orders", {"orders": str(path)})


async def test_a_sqlite_source_without_the_table_is_named(parts: Embedded, tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    write_sqlite(path)
    with pytest.raises(InvalidInputError, match="no table or view 'refunds'"):
        await parts.history.query("SELECT * FROM refunds", {"refunds": str(path)})


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing", "nothing"),
        ("SELECT * FROM missing", "missing"),
        ("SELECT 'x'::INT", "convert"),
        ("CREATE TABLE t (a INT)", "returns no rows"),
        ("COPY (SELECT 1) TO '/nowhere/file.csv'", "returns no rows"),
        ("", "returns no rows"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("CREATE TABLE t (a INT); SELECT 1", "several statements"),
        ("PIVOT events ON event_type; PIVOT events ON event_type", "several statements"),
        ("SELECT ?", "parameters"),
    ],
)
async def test_a_query_that_cannot_run_says_why_in_one_line(
    parts: Embedded, sql: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await parts.history.query(sql, {})
    assert problem.lower() in str(raised.value).lower()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'a;b' AS value; -- the end;",
        "WITH a AS (SELECT 1 AS value) FROM a",
        "PIVOT events ON event_type USING count(*)",
        "SELECT * FROM (PIVOT events ON event_type USING count(*))",
    ],
)
async def test_one_statement_in_any_form_is_a_query(parts: Embedded, sql: str) -> None:
    await publish(parts, 1, kind="value")
    assert "value" in await parts.history.prepare(sql, {})
    assert len((await parts.history.query(sql, {})).rows) == 1


@pytest.mark.parametrize("reader", ["read_parquet", "read_csv"])
async def test_a_file_that_only_the_query_names_is_a_failure_of_the_query(
    parts: Embedded, reader: str
) -> None:
    with pytest.raises(InvalidInputError, match="the query cannot be run: IO Error"):
        await parts.history.query(f"SELECT * FROM {reader}('/nowhere/a.file')", {})


async def test_a_failure_outside_the_query_is_a_backend_error(parts: Embedded) -> None:
    own = parts.home.scratch / "lost.parquet"
    with pytest.raises(BackendError, match="IO Error"):
        await parts.history.query(f"SELECT * FROM read_parquet('{own}')", {})


async def test_a_query_leaves_nothing_behind(parts: Embedded) -> None:
    await parts.history.query("SELECT * FROM events", {})
    with pytest.raises(InvalidInputError):
        await parts.history.query("SELECT * FROM missing", {})
    assert list(parts.home.scratch.iterdir()) == []


def test_every_kind_of_file_that_settings_allow_has_a_reader() -> None:
    assert tuple(_READERS)[: len(ALLOWED)] == ALLOWED
