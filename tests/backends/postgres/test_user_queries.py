"""Queries of users in Postgres: one statement that reads; others are refused clearly."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.errors import BackendError, BackendUnavailableError, InvalidInputError
from headwater.ports import Rows
from tests.backends.postgres.outbox import MemoryOutbox, event_row
from tests.backends.postgres.story import START, Open, after, change, rows, until, values


@pytest.fixture
async def orders(past: PostgresEnvironment, database: Connection) -> str:
    """A table of the user in the schema of Headwater."""
    await database.execute(
        "CREATE TABLE orders AS SELECT * FROM"
        " (VALUES ('u1', 3.50, 1::bigint), ('u2', 4, 2)) AS t (user_id, amount, n)"
    )
    return "orders"


async def test_the_event_log_can_be_queried(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(event_row(1, {"n": 1, "q": "it's"}), kind="events")
    answer = await past.offline.query("SELECT *, payload ->> 'q' AS q FROM events", {})
    received_at = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert answer == Rows(
        [
            *("event_id", "event_type", "entity_id", "timestamp", "received_at", "payload"),
            *("traceparent", "q"),
        ],
        [("e1", "click", "u1", after(1), received_at, '{"n":1,"q":"it\'s"}', None, "it's")],
    )


async def test_events_of_our_own_are_not_shown(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(event_row(1), event_row(2, event_type="headwater.tick"), kind="events")
    assert await rows(past, "SELECT event_id FROM events") == [("e1",)]


async def test_a_payload_with_a_zero_character_does_not_make_the_others_unreadable(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(event_row(1, {"q": "x\0y"}), event_row(2, {"q": r"\u0000"}), kind="events")
    found = await rows(past, "SELECT payload ->> 'q' FROM events ORDER BY event_id")
    assert found == [("x\ufffdy",), (r"\u0000",)]


async def test_a_source_is_a_table_of_its_name(past: PostgresEnvironment, orders: str) -> None:
    answer = await past.offline.query(
        "SELECT user_id, sum(n) AS value FROM orders GROUP BY user_id ORDER BY user_id",
        {orders: "data/orders.parquet", "unused": "data/unused.parquet"},
    )
    assert answer == Rows(["user_id", "value"], [("u1", 1), ("u2", 2)])


async def test_a_source_that_was_not_loaded_is_named(past: PostgresEnvironment) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await past.offline.query(
            "SELECT * FROM refunds JOIN events USING (event_id)",
            {"refunds": "data/refunds.csv", "other": "x.csv"},
        )
    assert str(raised.value) == (
        "source 'refunds' is not a table or view in Postgres; run `headwater sources load "
        "refunds`, which makes one from data/refunds.csv, or create it in the schema of Headwater "
        "or in public"
    )


async def test_values_come_back_as_the_embedded_store_gives_them(
    past: PostgresEnvironment,
) -> None:
    answer = await past.offline.query(
        """
        SELECT 1::smallint AS a, sum(x) AS b, 2.50::numeric(9, 2) AS c, 0.5::real AS d,
               '2026-01-01 01:00:00+01'::timestamptz AS e, '2026-01-02'::date AS f,
               ARRAY['x', NULL] AS g, true AS h, NULL AS i, '{"a": 1}'::json AS j, 'x'::text AS a,
               '2026-01-01 00:00:00'::timestamp AS k, '\\x00ff'::bytea AS l
        FROM unnest(ARRAY[3, -3000000000]::bigint[]) AS t (x)
        """,
        {},
    )
    assert list(answer.columns) == list("abcdefghijakl")
    plain = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert answer.rows == [
        (
            *(1, -2_999_999_997, Decimal("2.50"), 0.5, START, date(2026, 1, 2), ["x", None]),
            *(True, None, '{"a": 1}', "x", plain, b"\x00\xff"),
        )
    ]
    assert type(answer.rows[0][1]) is int


async def test_times_are_in_utc(past: PostgresEnvironment) -> None:
    found = await rows(past, "SELECT extract(hour FROM '2026-01-01 00:00:00+05'::timestamptz)")
    assert found == [(19,)]


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT nothing", 'column "nothing" does not exist'),
        ("SELECT * FROM missing", 'relation "missing" does not exist'),
        ("SELECT 'x'::int", "invalid input syntax"),
        ("SELECT 1 / 0", "division by zero"),
        ("SELECT (SELECT 1 UNION SELECT 2)", "more than one row"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT 1; DROP TABLE orders", "several statements"),
        ("", "the query returns no rows"),
        ("CREATE TABLE t (a int)", "the query returns no rows"),
        ("COPY (SELECT 1) TO '/tmp/headwater-should-not-exist'", "the query returns no rows"),
        ("COMMIT", "the query returns no rows"),
        ("SET TRANSACTION READ WRITE", "the query returns no rows"),
        ("DELETE FROM orders RETURNING user_id", "read-only transaction"),
        ("INSERT INTO orders VALUES ('u3', 1, 1) RETURNING n", "read-only transaction"),
        ("WITH x AS (DELETE FROM orders RETURNING n) SELECT * FROM x", "read-only transaction"),
        ("SELECT nextval('_history_seq')", "read-only transaction"),
        ("SELECT set_config('transaction_read_only', 'off', true)", "read-write mode"),
        ("SELECT * FROM orders WHERE user_id = $1", "the query has parameters"),
        ("SELECT a\0b", "U+0000"),
    ],
)
async def test_a_query_that_cannot_run_says_why_in_one_line(
    past: PostgresEnvironment, orders: str, sql: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(problem)) as raised:
        await past.offline.query(sql, {})
    assert "\n" not in str(raised.value)
    assert await rows(past, f"SELECT count(*) FROM {orders}") == [(2,)]


async def test_a_query_leaves_nothing_behind(past: PostgresEnvironment) -> None:
    found = await rows(past, "SELECT set_config('search_path', 'public', false)")
    assert found == [("public",)]
    await past.offline.append([change(1)])
    assert await values(past) == [1]


async def test_a_query_that_takes_too_long_is_given_up(opening: Open) -> None:
    await opening()  # the tables are made without a hurry
    past = await opening(postgres={"timeout": 0.2, "pool_size": 1})
    too_late = r"cancelled a statement.*HEADWATER_POSTGRES_TIMEOUT"

    async def is_given_up() -> bool:
        # A server on an overloaded machine may be late for any statement.
        with pytest.raises(BackendError) as raised:
            await past.offline.query("SELECT pg_sleep(600)", {})
        return bool(re.search(too_late, str(raised.value)))

    async def is_usable() -> bool:
        with suppress(BackendUnavailableError):
            return await rows(past, "SELECT 1") == [(1,)]
        return False

    await until(is_given_up)
    await until(is_usable)


@pytest.mark.parametrize("ending", ["", " FROM nowhere", ", 1 / 0"])
async def test_session_changes_of_a_query_end_with_it(
    past: PostgresEnvironment, database: Connection, ending: str
) -> None:
    changing = "SELECT pg_advisory_lock(7), set_config('timezone', 'Asia/Tokyo', false)"
    if ending:
        with pytest.raises(InvalidInputError):
            await past.offline.query(changing + ending, {})
    else:
        await past.offline.query(changing, {})
    assert await rows(past, "SELECT current_setting('timezone')") == [("UTC",)]
    assert (
        await database.fetchval(
            "SELECT count(*) FROM pg_locks WHERE objid = 7 AND locktype = 'advisory'"
        )
        == 0
    )
