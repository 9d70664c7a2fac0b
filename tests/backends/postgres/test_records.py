"""Records in Postgres: shared commits, lists by index, and outages."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from secrets import token_bytes
from typing import Any

import asyncpg
import pytest

from conformance.outcomes import outcome
from headwater.backends.postgres import pool, shared_commits
from headwater.backends.postgres import records as module
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.backends.sql_lists import NEWEST_FIRST
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ClosedError,
    ImmutableRecordError,
    InvalidInputError,
)
from headwater.ports import RecordQuery, StoredRecord
from tests.backends.postgres.story import Open, until
from tests.servers import restartable_postgres
from tests.stored import START, record


async def transactions(database: Connection) -> int:
    """Return the number of transactions that wrote the records."""
    count: int = await database.fetchval("SELECT count(DISTINCT xmin::text) FROM _records")
    return count


async def append_all(past: PostgresEnvironment, records: list[StoredRecord]) -> list[Any]:
    return await asyncio.gather(
        *(past.records.append(each, [b"key"]) for each in records), return_exceptions=True
    )


async def test_appends_that_wait_at_the_same_time_share_a_commit(
    past: PostgresEnvironment, database: Connection
) -> None:
    assert await append_all(past, [record() for _ in range(200)]) == [None] * 200
    assert await transactions(database) == 1
    assert len(await past.records.find(b"key", limit=1_000)) == 200


async def test_appends_that_come_while_a_commit_is_under_way_share_the_next_one(
    past: PostgresEnvironment, database: Connection
) -> None:
    async with database.transaction():
        await database.execute("LOCK TABLE _records IN SHARE MODE")
        first = asyncio.create_task(past.records.append(record(), []))
        await until_waiting(database)
        later = [asyncio.create_task(past.records.append(record(), [])) for _ in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(first, *later)
    assert await transactions(database) == 2


async def until_waiting(database: Connection) -> None:
    """Wait until a statement waits for a lock on the records."""

    async def waiting() -> bool:
        count: int = await database.fetchval(
            "SELECT count(*) FROM pg_locks WHERE relation = '_records'::regclass AND NOT granted"
        )
        return count > 0

    await until(waiting)


async def test_large_appends_are_written_in_portions(
    past: PostgresEnvironment, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_commits, "ROWS_AT_ONCE", 10)
    assert await append_all(past, [record() for _ in range(25)]) == [None] * 25
    assert await transactions(database) == 3
    monkeypatch.setattr(shared_commits, "BYTES_AT_ONCE", 1_000)
    large = [record(b"x" * 600), record(b"x" * 600), record(b"x" * 2_000), record()]
    assert await append_all(past, large) == [None] * 4
    assert await transactions(database) == 7


async def test_a_record_that_postgres_cannot_keep_takes_no_other_with_it(
    past: PostgresEnvironment,
) -> None:
    kept = record()
    good = [record() for _ in range(5)]
    bad = [record(name="a\0b"), record(name="\ud800")]
    other = record(b"other", context_id=good[0].context_id)
    answers = await append_all(past, [kept, *bad, *good, other])
    assert [type(answer) for answer in answers] == [
        type(None),
        InvalidInputError,
        InvalidInputError,
        *[type(None)] * 5,
        ImmutableRecordError,
    ]
    assert len(await past.records.records(RecordQuery())) == 6
    with pytest.raises(InvalidInputError):
        await past.records.append(bad[0], [])


async def test_a_record_that_only_postgres_refuses_does_not_fail_other_appends(
    past: PostgresEnvironment, database: Connection
) -> None:
    good = [record() for _ in range(40)]
    too_long = token_bytes(9_000)
    answers = await asyncio.gather(
        *(past.records.append(each, [b"key"]) for each in good[:20]),
        past.records.append(record(), [too_long]),
        *(past.records.append(each, [b"key"]) for each in good[20:]),
        return_exceptions=True,
    )
    assert answers[:20] + answers[21:] == [None] * 40
    assert isinstance(answers[20], InvalidInputError)
    assert "index row" in str(answers[20])
    assert len(await past.records.find(b"key")) == 40
    assert len(await past.records.records(RecordQuery())) == 40
    # By halves, and not one by one.
    assert await transactions(database) <= 6


async def test_an_append_cancelled_while_waiting_is_not_stored_and_does_not_stop_others(
    past: PostgresEnvironment,
) -> None:
    records = [record() for _ in range(10)]
    tasks = [asyncio.create_task(past.records.append(each, [])) for each in records]
    await asyncio.sleep(0)
    tasks[0].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [None] * 9
    assert await past.records.get(records[0].context_id) is None
    assert len(await past.records.records(RecordQuery())) == 9


async def append_in_time(past: PostgresEnvironment, each: StoredRecord) -> None:
    """Append a record; if an overloaded machine was too late for a short timeout, again."""

    async def is_stored() -> bool:
        with suppress(BackendUnavailableError):
            await past.records.append(each, [])
            return True
        return False

    await until(is_stored)


async def test_a_commit_that_waits_for_a_lock_is_given_up_and_the_next_one_is_not(
    opening: Open, database: Connection
) -> None:
    past = await opening(record={"timeout": 0.1})
    stuck, later = record(), record()
    async with database.transaction():
        await database.execute("LOCK TABLE _records IN SHARE MODE")
        with pytest.raises(BackendError, match="raise HEADWATER_RECORD_TIMEOUT"):
            await past.records.append(stuck, [])
    await append_in_time(past, later)
    assert await past.records.get(stuck.context_id) is None
    await append_in_time(past, stuck)
    assert len(await past.records.records(RecordQuery())) == 2


@pytest.mark.direct
async def test_a_silent_connection_does_not_block_others_for_long(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_GRACE_SECONDS", 0.1)
    with restartable_postgres() as (url, _):
        past = await opening(postgres={"url": url}, record={"timeout": 2.0})
        before, stuck, later = record(), record(), record()
        await append_in_time(past, before)
        pid = await past.records._writing_pool.run(  # noqa: SLF001
            lambda connection: connection.fetchval("SELECT pg_backend_pid()")
        )
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(BackendUnavailableError, match="did not answer in time"):
                await past.records.append(stuck, [])
            await append_in_time(past, later)
            assert await past.records.get(later.context_id) == later
        finally:
            os.kill(pid, signal.SIGCONT)

        async def come_through() -> bool:
            return await past.records.get(stuck.context_id) is not None

        # It was on its way all the time: kept late and whole, and again means nothing.
        await until(come_through)
        await append_in_time(past, stuck)
        assert len(await past.records.records(RecordQuery())) == 3
        await past.close()


@pytest.mark.direct
async def test_a_cancelled_read_does_not_wait_for_a_silent_connection(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_GRACE_SECONDS", 0.1)
    with restartable_postgres() as (url, _):
        past = await opening(postgres={"url": url, "pool_size": 1})
        pid = await past._postgres.run(  # noqa: SLF001
            lambda connection: connection.fetchval("SELECT pg_backend_pid()")
        )
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(past.records.get("unknown"), 0.2)
                assert await past.records.get("unknown") is None
        finally:
            os.kill(pid, signal.SIGCONT)
        await past.close()


@pytest.mark.parametrize("lost", [asyncpg.InternalClientError, asyncpg.InterfaceError])
async def test_work_on_a_connection_that_closes_is_repeated_on_another(
    past: PostgresEnvironment, lost: type[Exception]
) -> None:
    used: list[Connection] = []

    async def work(connection: Connection) -> int:
        used.append(connection)
        if len(used) == 1:
            raise lost("cannot switch to state 12; another operation (2) is in progress")
        return 7

    assert await past.records._writing_pool.run(work) == 7  # noqa: SLF001
    assert used[0] is not used[1]
    used.clear()
    assert await past._postgres.run(work) == 7  # noqa: SLF001


@pytest.mark.direct
async def test_a_long_idle_connection_is_replaced(
    past: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def backend() -> Any:
        return await past.records._writing_pool.run(  # noqa: SLF001
            lambda connection: connection.fetchval("SELECT pg_backend_pid()")
        )

    first = await backend()
    assert await backend() == first
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.0)
    assert await backend() != first


async def test_two_processes_with_the_same_records_do_not_stop_each_other(opening: Open) -> None:
    processes = [await opening() for _ in range(4)]
    for _ in range(10):
        records = [record() for _ in range(20)]
        orders = [records, records[::-1], records[5:] + records[:5], records]
        answers = await asyncio.gather(
            *(append_all(process, own) for process, own in zip(processes, orders, strict=True))
        )
        assert answers == [[None] * 20] * 4
    assert len(await processes[0].records.find(b"key", limit=1_000)) == 200


async def test_a_connection_that_is_lost_is_not_noticed(
    past: PostgresEnvironment, database: Connection
) -> None:
    await past.records.append(record(), [])
    await database.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE application_name = 'headwater/' || current_schema()"
    )
    await past.records.append(record(), [])
    assert len(await past.records.records(RecordQuery())) == 2


@pytest.mark.direct
async def test_an_outage_of_postgres_is_reported_and_acknowledged_records_survive_it(
    opening: Open,
) -> None:
    with restartable_postgres() as (url, machine):
        past = await opening(postgres={"url": url})
        kept = record()
        await past.records.append(kept, [b"key"])
        machine.kill()

        log = past.records

        async def away() -> bool:
            health = await past.health()
            [answer] = await append_all(past, [record()])
            return not health.ok and answer is not None

        # What serves our connections outlives the server itself by a moment.
        await until(away)
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: log.append(record(), []),
            lambda: log.get(kept.context_id),
            lambda: log.beginning("0"),
            lambda: log.count(RecordQuery(), [START, START], 10),
            lambda: log.count_found(b"key", [START, START], 10),
            lambda: log.records(RecordQuery(before=kept.context_id)),
            lambda: log.find(b"key"),
            lambda: log.redact("a", expected=b"", disclosures=b"", redactions=b""),
        ]
        for use in uses:
            with pytest.raises(BackendUnavailableError, match="Postgres at"):
                await use()
        assert all(
            isinstance(a, BackendUnavailableError) for a in await append_all(past, [record()] * 3)
        )
        machine.start()
        assert await log.get(kept.context_id) == kept
        await log.append(record(), [b"another key"])
        assert len(await log.find(b"another key")) == 1
        await past.close()


async def test_closing_waits_for_running_appends(past: PostgresEnvironment) -> None:
    appends = [asyncio.create_task(past.records.append(record(), [])) for _ in range(10)]
    await asyncio.sleep(0)
    await past.close()
    assert await asyncio.gather(*appends) == [None] * 10
    with pytest.raises(ClosedError):
        await past.records.append(record(), [])
    with pytest.raises(ClosedError):
        await past.records.get("a")


def some(number: int) -> StoredRecord:
    """Return one of many records, a few of which are rare."""
    kind = "rare" if number % 100 == 0 else "common"
    return record(at=START + timedelta(seconds=number), name=kind, freshness_status=kind)


@pytest.fixture
async def many(past: PostgresEnvironment, database: Connection) -> None:
    await append_all(past, [some(number) for number in range(3_000)])
    await database.execute("ANALYZE _records; ANALYZE _record_keys")


async def plan(database: Connection, sql: str, *wanted: Any) -> str:
    """Return the query plan of a list."""
    end = START + timedelta(days=1)
    lines = await database.fetch(f"EXPLAIN {sql}", end, "", START, 10, *wanted)
    return "\n".join(line for (line,) in lines)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("_records_by_time", {}),
        ("_records_by_name", {"name": "rare"}),
        ("_records_by_freshness", {"freshness_status": "rare"}),
    ],
)
async def test_a_list_is_one_range_of_an_index(
    database: Connection, index: str, wanted: dict[str, Any]
) -> None:
    said = await plan(database, module.RECORDS.sql(wanted), *wanted.values())
    assert f"Index Scan Backward using {index} " in said
    assert "Sort" not in said


@pytest.mark.usefixtures("many")
async def test_finding_looks_up_no_more_records_than_it_lists(database: Connection) -> None:
    said = await plan(database, module.records_found(), b"key")
    assert "Backward using _record_keys_pkey" in said
    assert "Index Scan using _records_pkey" in said
    assert "Seq Scan" not in said


async def plan_of_count(database: Connection, sql: str, *wanted: Any) -> str:
    """Return the query plan of a count."""
    edges = [START, START + timedelta(minutes=10)]
    lines = await database.fetch(f"EXPLAIN {sql}", edges[:1], edges[1:], 1_000, *wanted)
    return "\n".join(line for (line,) in lines)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("_records_by_freshness", {"freshness_status": "rare"}),
        ("_records_by_name", {"name": "rare", "freshness_status": "common"}),
    ],
)
async def test_a_count_reads_an_index_alone(
    database: Connection, index: str, wanted: dict[str, Any]
) -> None:
    await database.execute("VACUUM _records")
    said = await plan_of_count(database, module.count_where("_records", wanted), *wanted.values())
    assert f"Index Only Scan using {index} " in said


@pytest.mark.usefixtures("many")
async def test_records_with_a_key_are_counted_by_the_index_of_the_keys(
    database: Connection,
) -> None:
    await database.execute("VACUUM _record_keys")
    said = await plan_of_count(database, module.count_where("_record_keys", ["key"]), b"key")
    assert "Index Only Scan using _record_keys_pkey " in said


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("_outcomes_by_score", {"name": "helpful", "value": 3.0}),
        ("_outcomes_by_label", {"label_key": b"1"}),
        ("_outcomes_by_model", {"model": "gpt-1"}),
        ("_outcomes_by_error", {"error_type": "Error1"}),
    ],
)
async def test_records_with_an_outcome_are_one_range_of_an_index(
    past: PostgresEnvironment, database: Connection, index: str, wanted: dict[str, Any]
) -> None:
    kept = [some(number) for number in range(3_000)]
    await append_all(past, kept)
    scores = (
        outcome(
            *(each, b"%d" % number),
            name="helpful" if number % 2 else "safe",
            value=float(number % 10),
            label_key=b"%d" % (number % 10),
            model=f"gpt-{number % 10}",
            error_type=f"Error{number % 10}",
        )
        for number, each in enumerate(kept)
    )
    await asyncio.gather(*map(past.records.append_outcome, scores))
    await database.execute("ANALYZE _records; ANALYZE _outcomes")
    sql = past.records.having_sql(wanted, NEWEST_FIRST, "<")
    said = await plan(database, sql, *wanted.values())
    assert f"Scan Backward using {index} " in said
    assert "Index Scan using _records_" in said
    assert "Seq Scan" not in said
