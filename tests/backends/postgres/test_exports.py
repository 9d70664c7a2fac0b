"""History and events are exported completely, each row once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.backends.postgres import exports, history_sql
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.core.clock import to_micros
from headwater.core.partitioning import bucket_of
from headwater.errors import BackendUnavailableError
from tests.backends.postgres.outbox import MemoryOutbox
from tests.backends.postgres.story import START, after, change, until

INSERT = """
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
VALUES ('clicks', 'User', 'u1', 'int', '7', now(), now(), 'test')
"""


def read(file: Path, columns: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as duck:
        return duck.execute(f"SELECT {columns} FROM '{file}'").fetchall()


async def test_the_columns_of_exported_history_are_those_of_a_segment(
    past: PostgresEnvironment, tmp_path: Path
) -> None:
    await past.offline.append(
        [
            change(1, 1),
            change(2.5, 2, kind="float"),
            change(b"true", 3, kind="bool"),
            change('a "b"\n', 4, kind="text", entity_id="ü\x1f\x1e"),
            change(START, 5, kind="time"),
            change([1, "\0"], 6, kind="json"),
            change(None, 7),
        ]
    )
    file = tmp_path / "history.parquet"
    last = await past.offline.export_history(file, after=0)
    columns = "seq, entity_id, bucket, epoch_us(as_of), value_int, value_float, value_bool,"
    found = read(file, columns + " value_text, epoch_us(value_time), value_json")
    expected = [
        (1, None, None, None, None, None),
        (None, 2.5, None, None, None, None),
        (None, None, True, None, None, None),
        (None, None, None, 'a "b"\n', None, None),
        (None, None, None, None, to_micros(START), None),
        (None, None, None, None, None, '[1,"\\u0000"]'),
        (None, None, None, None, None, None),
    ]
    assert {row[0]: row[3:] for row in found} == {
        number: (to_micros(after(number)), *values) for number, values in enumerate(expected, 1)
    }
    assert {row[1:3] for row in found} == {(each, bucket_of(each)) for each in ("u1", "ü\x1f\x1e")}
    assert [row[2] for row in found] == sorted(row[2] for row in found)
    assert last == 7


async def test_an_exported_negative_zero_keeps_its_sign_in_its_text(
    past: PostgresEnvironment, tmp_path: Path
) -> None:
    file = tmp_path / "history.parquet"
    zeros = [-0.0, 0.0, 0.0, -0.0]
    await past.offline.append([change(zero, n, kind="float") for n, zero in enumerate(zeros)])
    await past.offline.export_history(file, after=0)
    found = read(file, "value_float, value_json")
    assert found == [(0.0, "-0.0"), (0.0, None), (0.0, None), (0.0, "-0.0")]


async def test_an_export_continues_after_the_last_one(
    past: PostgresEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "ROWS_AT_ONCE", 3)
    last, counts = 0, []
    for number in range(3):
        await past.offline.append([change(n, n + 10 * number) for n in range(7)])
        file = tmp_path / f"{number}.parquet"
        last = await past.offline.export_history(file, after=last)
        counts.append(len(read(file, "seq")))
    assert counts == [7, 7, 7]
    assert await past.offline.export_history(tmp_path / "none.parquet", after=last) == last
    assert sorted(os.listdir(tmp_path)) == ["0.parquet", "1.parquet", "2.parquet"]


async def test_an_export_waits_for_rows_with_lower_numbers(
    past: PostgresEnvironment,
    database: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    polls = 0
    find_writers = history_sql.find_writers

    async def count_polls(connection: Connection) -> set[str]:
        nonlocal polls
        polls += 1
        return await find_writers(connection)

    monkeypatch.setattr(history_sql, "find_writers", count_polls)
    transaction = database.transaction()
    await transaction.start()
    await database.execute(INSERT)
    await past.offline.append([change(1)])
    file = tmp_path / "history.parquet"
    exporting = asyncio.create_task(past.offline.export_history(file, after=0))

    async def is_waiting() -> bool:
        return polls > 1

    await until(is_waiting)
    assert not exporting.done()
    # A writer that begins later gets a higher number and is not waited for.
    await past.offline.append([change(2)])
    await transaction.commit()
    assert await exporting == 2
    assert sorted(read(file, "seq, value_int")) == [(1, 7), (2, 1)]


async def test_an_export_does_not_wait_for_a_writer_without_end(
    past: PostgresEnvironment,
    database: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_sql, "WRITERS_SECONDS", 0.0)
    await past.offline.append([change(1)])
    async with database.transaction():
        await database.execute(INSERT)
        with pytest.raises(BackendUnavailableError, match="pg_stat_activity"):
            await past.offline.export_history(tmp_path / "history.parquet", after=0)


def put_event(outbox: MemoryOutbox, position: str, number: int, **given: Any) -> None:
    partition, event_type = given.get("partition", 0), given.get("event_type", "click")
    at = to_micros(after(number))
    outbox.put(
        (position, at + 1, event_type, f"u{number}", f"e{number}", at, {"number": number}),
        kind="events",
        partition=partition,
    )


async def test_events_are_exported_up_to_a_position_of_each_partition(
    past: PostgresEnvironment,
    outbox: MemoryOutbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_sql, "PAGES_AT_ONCE", 1)
    positions = ["9-0", "9-2", "9-10", "10-0", "10-1", "100-0"]
    for number, position in enumerate(positions):
        put_event(outbox, position, number)
        put_event(outbox, position, number + 10, partition=1)
        put_event(outbox, position, number + 20, partition=2)
        put_event(outbox, position, number + 30, event_type="view")
    for number in range(40, 1_000):
        put_event(outbox, f"200-{number}", number, partition=3)
    upto = {0: "10-0", 1: "9-2", 3: "200-999", 4: "0-0"}
    files = await past.offline.export_events(tmp_path, {"click"}, upto, files=4)
    assert [file.name for file in files] == [
        f"events-{first:04}-{first + 255:04}.parquet" for first in range(0, 1024, 256)
    ]
    assert sorted(os.listdir(tmp_path)) == [file.name for file in files]
    rows = [read(file, "bucket, n, position, event_id, entity_id, payload") for file in files]
    for number, each in enumerate(rows):
        assert each == sorted(each)
        assert all(row[0] == bucket_of(row[4]) and row[0] // 256 == number for row in each)
    flat = sorted((row for each in rows for row in each), key=lambda row: row[1])
    expected = [*range(4), 10, 11, *range(40, 1_000)]
    assert sorted(int(row[3][1:]) for row in flat) == expected
    assert [row[2] for row in flat if int(row[3][1:]) < 4] == positions[:4]
    assert [int(row[3][1:]) for row in flat if int(row[3][1:]) >= 40] == [*range(40, 1_000)]
    assert {row[5] for row in flat if row[3] == "e11"} == {'{"number":11}'}


async def test_events_are_exported_from_a_moment_on(
    past: PostgresEnvironment, outbox: MemoryOutbox, tmp_path: Path
) -> None:
    for number in range(5):
        put_event(outbox, f"{number}-0", number)
    [file] = await past.offline.export_events(
        tmp_path, ["click", "it's"], {0: "99-0"}, since=after(3), files=1
    )
    times = 'n, event_type, "timestamp", received_at'
    assert read(file, times) == [
        (n, "click", to_micros(after(n + 2)), to_micros(after(n + 2)) + 1) for n in (1, 2)
    ]
    [empty] = await past.offline.export_events(tmp_path, [], {}, files=1)
    assert read(empty, "*") == []
