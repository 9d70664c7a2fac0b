"""History in Postgres: the same answers as the embedded store, by index, at any size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.backends.postgres import store
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.core.codec import Kind
from headwater.engine.event_log import EventQuery, sql_of
from headwater.errors import InvalidInputError
from headwater.ports import Change, OfflineStore, Point
from tests.backends.duckdb.embedded import Embedded, embedded
from tests.backends.postgres.outbox import MemoryOutbox, value_row
from tests.backends.postgres.story import START, Open, after, change, rows, value_at, values

END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_INDEXES_AHEAD = """
SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = '_history_ahead'::regclass
"""


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Embedded]:
    """The embedded store, as the reference."""
    with embedded(tmp_path / "home", 50) as opened:
        yield opened


def story(seed: int, count: int = 400) -> list[Change]:
    """Values of a few features and entities, many of one moment, some late or repeated."""
    dice = random.Random(seed)
    told = [
        change(
            number,
            dice.randrange(30),
            feature=dice.choice("fgh"),
            entity=dice.choice(["User", "User", "Page"]),
            entity_id=dice.choice(["u1", "u2", "ü", "u"]),
            written=dice.choice([None, dice.randrange(60)]),
            cause=dice.choice("ab"),
        )
        for number in range(count)
    ]
    return told + dice.sample(told, 50)


async def all_answers(history: OfflineStore, points: list[Point]) -> list[Any]:
    pages, after_id = [], ""
    while page := await history.latest("User", after=after_id, limit=1):
        pages += page
        after_id = page[-1][0]
    return [
        await history.as_of(["f", "nothing", "h", "f"], points),
        await history.as_of(["f", "g", "h"], points, known=True),
        pages,
    ]


async def test_the_answers_are_those_of_the_embedded_store(
    past: PostgresEnvironment, twin: Embedded
) -> None:
    told, dice = story(seed=0), random.Random(0)
    while told:
        count = dice.randrange(1, 150)
        portion, told = told[:count], told[count:]
        await twin.history.append(portion)
        await past.offline.append(portion)
    await twin.history.maintain()
    points = [
        Point(entity_id, after(second) + shift)
        for entity_id in ("u1", "u2", "ü", "u", "?")
        for second in range(-1, 62)
        for shift in (timedelta(), timedelta(microseconds=-1))
    ]
    points.append(Point("u1", END_OF_TIME))
    assert await all_answers(past.offline, points) == await all_answers(twin.history, points)
    sql = "SELECT count(*), count(DISTINCT value_int) FROM feature_history"
    expected = (await twin.history.query(sql, {})).rows
    assert await rows(past, sql) == expected


# Views


SHOWN: list[tuple[Kind, str]] = [
    ("int", "1"),
    ("int", "-9223372036854775808"),
    ("int", "9223372036854775807"),
    ("int", "9223372036854775808"),
    ("int", "-9223372036854775809"),
    ("int", "null"),
    ("int", '"one"'),
    ("float", "2.5"),
    ("float", "3"),
    ("float", "-0.0"),
    ("float", "1.7976931348623157e308"),
    ("float", "-1.7976931348623157e308"),
    ("float", "5e-324"),
    ("float", "2.2250738585072014e-308"),
    ("float", "1e+16"),
    ("float", "[1]"),
    ("bool", "true"),
    ("bool", "false"),
    ("text", '"x"'),
    ("text", '""'),
    ("text", r'"a \"b\" \\u0000 \u00e9 🦆"'),
    ("text", "7"),
    ("time", '"2026-01-01T00:00:01Z"'),
    ("time", '"2024-02-29T23:59:59.000001+01:00"'),
    ("time", '"2000-02-29T00:00:00Z"'),
    ("time", '"0001-01-01T00:00:00Z"'),
    ("time", '"2026-12-31T00:00:00.5-11:30"'),
    ("time", '"yesterday"'),
    ("time", '"2026-02-29T00:00:00Z"'),
    ("time", '"1900-02-29T00:00:00Z"'),
    ("time", '"2026-04-31T00:00:00Z"'),
    ("time", "5"),
    ("json", '{"a" : [1, 2.50]}'),
    ("json", '"text"'),
    ("none", "null"),
]

COLUMNS = "value_int, value_float, value_bool, value_text, value_time, value_json"


async def test_a_value_is_shown_in_the_column_that_can_hold_it_as_in_the_embedded_store(
    past: PostgresEnvironment, twin: Embedded
) -> None:
    told = [change(text.encode(), second, kind=kind) for second, (kind, text) in enumerate(SHOWN)]
    await past.offline.append(told)
    await twin.history.append(told)
    sql = (
        f"SELECT feature, entity, entity_id, as_of, written_at, cause, kind, {COLUMNS}"
        " FROM feature_history ORDER BY as_of"
    )
    ours, theirs = await past.offline.query(sql, {}), await twin.history.query(sql, {})
    assert list(zip(SHOWN, ours.rows, strict=True)) == list(zip(SHOWN, theirs.rows, strict=True))
    found = await rows(past, "SELECT value FROM feature_history ORDER BY as_of")
    assert [text for (text,) in found] == [text for _, text in SHOWN]


UNHELD: list[tuple[Kind, str]] = [
    ("bool", "1"),
    ("text", r'"a\u0000b"'),
    ("text", r'"\ud800"'),
    ("float", "1e999"),
    ("float", "1e-400"),
    ("float", "1e9999999999"),
    ("time", '"2026-01-01T00:00:00+23:00"'),
    ("time", '"0000-01-01T00:00:00Z"'),
]


async def test_values_that_no_postgres_type_fits_stay_json(past: PostgresEnvironment) -> None:
    await past.offline.append(
        [change(text.encode(), second, kind=kind) for second, (kind, text) in enumerate(UNHELD)]
    )
    found = await rows(past, f"SELECT {COLUMNS} FROM feature_history ORDER BY as_of")
    assert found == [(None, None, None, None, None, text) for _, text in UNHELD]


async def test_no_row_makes_a_query_over_json_fail(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    await past.offline.append([change({"a": "x\0y", "b\0": 1}, kind="json")])
    assert await rows(past, "SELECT value ->> 'a' FROM feature_history") == [("x\ufffdy",)]


async def test_the_views_have_the_columns_of_the_embedded_ones(
    past: PostgresEnvironment, twin: Embedded
) -> None:
    for view in ("events", "feature_history"):
        sql = f"SELECT * FROM {view}"
        ours, theirs = await past.offline.query(sql, {}), await twin.history.query(sql, {})
        assert list(ours.columns) == list(theirs.columns)


# Appending


async def test_imports_at_once_add_each_value_once(opening: Open) -> None:
    processes = [await opening() for _ in range(3)]
    told = [change(number, number) for number in range(200)]
    await asyncio.gather(*(process.offline.append(told) for process in processes))
    assert await values(processes[0]) == list(range(200))


async def test_a_value_that_was_committed_is_not_added_again(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1), value_row(2, 1))
    await past.offline.append([change(2, 1), change(1), change(3, 1)])
    assert await values(past, "as_of, value_int") == [1, 2, 3]
    assert await value_at(past, 1) == 3


async def test_many_changes_are_added_in_portions(
    past: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.CHANGES_AT_ONCE > 7
    monkeypatch.setattr(store, "CHANGES_AT_ONCE", 7)
    told = [change(number, number) for number in range(40)]
    await past.offline.append([*told, *told[:20]])
    await past.offline.append([])
    assert await values(past) == list(range(40))


async def test_a_change_that_postgres_cannot_hold_is_refused(past: PostgresEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="Postgres cannot store the value"):
        await past.offline.append([change(1, entity_id="a\0b")])
    assert await values(past) == []


# Points


async def test_many_points_are_answered_in_portions(
    past: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "VALUES_AT_ONCE", 10)
    await past.offline.append([change(number, number) for number in range(50)])
    points = [Point("u1", after(second)) for second in range(-1, 50)]
    answers = await past.offline.as_of(["clicks", "nothing"], points)
    found = [None if first is None else int(first.value) for first, _ in answers]
    assert found == [None, *range(50)]


async def test_no_points_and_no_features_give_no_answers(past: PostgresEnvironment) -> None:
    assert await past.offline.as_of(["clicks"], []) == []
    assert await past.offline.as_of([], [Point("u1", START)] * 2) == [[], []]


async def test_an_id_that_cannot_be_in_history_is_refused(past: PostgresEnvironment) -> None:
    for entity_id in ("a\0b", "\ud800"):
        with pytest.raises(InvalidInputError):
            await past.offline.as_of(["clicks"], [Point(entity_id, START)])


@pytest.mark.parametrize("sql", [store.LAST_TRUE, store.LAST_KNOWN])
async def test_a_point_is_one_probe_of_an_index_from_the_newest_month_back(
    past: PostgresEnvironment, database: Connection, sql: str
) -> None:
    # Late enough in its month that both this one and the one before have many rows.
    now = datetime.now(UTC).replace(day=20)
    told = [
        change(n, (now - START).total_seconds() - n * 600, entity_id=f"u{n % 97}")
        for n in range(5_000)
    ]
    await past.offline.append(told)
    await database.execute("ANALYZE _history")
    points = [f"u{n}" for n in range(97)], [now] * 97
    plan = await database.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", *points, ["clicks"])
    lines = [line for (line,) in plan]
    assert not any("Seq Scan" in line for line in lines), lines
    # Rows ahead of the writer's clock are merged with the rest; months are never merged.
    merged = [line for line in lines if "Merge Append" in line]
    assert len(merged) == (sql == store.LAST_KNOWN), lines
    assert any("->  Append" in line for line in lines), lines
    ahead = {name for (name,) in await database.fetch(_INDEXES_AHEAD)}
    searched = [line for line in lines if "Index Scan" in line and "loops=97" in line]
    of_all = [line for line in searched if not any(f" {name} " in line for name in ahead)]
    assert len(of_all) == 1, lines


async def test_the_last_values_are_found_by_index(
    past: PostgresEnvironment, database: Connection
) -> None:
    await past.offline.append([change(n, n, entity_id=f"u{n % 997}") for n in range(5_000)])
    await database.execute("ANALYZE _history; ANALYZE _series")
    plan = await database.fetch(f"EXPLAIN {store.LATEST}", "User", "u500", 10)
    assert not any("Seq Scan" in line for (line,) in plan), plan


@pytest.mark.parametrize(
    "query", [EventQuery(), EventQuery(event_type="t3"), EventQuery(since=START, before=START)]
)
@pytest.mark.usefixtures("past")
async def test_the_newest_events_are_found_by_index(
    database: Connection, query: EventQuery
) -> None:
    await database.execute(
        """
        INSERT INTO _events
        SELECT n % 16, moment, moment, n || '-0', 't' || n % 7, 'u', 'e' || n, '{}', NULL
        FROM generate_series(1, 5000) AS n,
             LATERAL (SELECT '2026-01-01'::timestamptz + n * interval '1 second' AS moment)
        """
    )
    await database.execute("ANALYZE _events")
    plan = await database.fetch(f"EXPLAIN {sql_of(query)}")
    assert not any("Seq Scan" in line for (line,) in plan), plan
