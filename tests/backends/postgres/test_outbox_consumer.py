"""The outbox consumer: every row arrives once, in order and unchanged."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import msgspec
import pytest

from headwater.backends.postgres import outbox_consumer as drain
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import LogKind, OutboxBatch, Point
from tests.backends.postgres.outbox import MemoryOutbox, event_row, value_row
from tests.backends.postgres.story import Open, after, rows, until, value_at, values

# Everything that a JSON text may hold and a careless reader changes.
ODD = [
    r'"a\u0000b"',
    r'"\\u0000 \" \\"',
    '"ünïcødé 🦆 ﷽"',
    r'"\u00e9\n\t"',
    "1.10",
    "-0.0",
    "1e-7",
    "12345678901234567890.123456789",
    "9223372036854775807",
    '{"b" : 1, "a":[1.0, 2.50], "b":2, "\\u0000":null}',
    "null",
    '""',
    "[]",
]


class StoppedError(Exception):
    """Raised by a test where a process might die."""


# Each row arrives


async def test_rows_of_the_outbox_are_in_history_at_once(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    for number in range(5):
        outbox.put(value_row(number, number), partition=number % 3)
        assert await value_at(past, number) == number
        page = await past.offline.latest("User", after="", limit=9)
        assert [int(own["clicks"].value) for _, own in page] == [number]
    assert outbox.pending() == set()


async def test_events_and_values_arrive_together(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    for number in range(3):
        outbox.put(event_row(number), kind="events", partition=1)
        outbox.put(value_row(number, number, cause=f"e{number}"), partition=1)
    found = await rows(
        past,
        "SELECT event_id, value_int FROM events JOIN feature_history ON cause = event_id"
        " ORDER BY event_id",
    )
    assert found == [("e0", 0), ("e1", 1), ("e2", 2)]


async def test_ten_thousand_rows_arrive_in_order(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    numbers = list(range(10_000))
    random.Random(1).shuffle(numbers)
    outbox.put(*(value_row(number, number) for number in numbers))
    outbox.put(*(event_row(number) for number in numbers), kind="events")
    await past.offline.maintain()
    found = await database.fetch("SELECT value::text::int AS n FROM _history ORDER BY seq")
    assert [row["n"] for row in found] == numbers
    assert await rows(past, "SELECT count(DISTINCT event_id) FROM events") == [(10_000,)]
    assert outbox.pending() == set()


async def test_of_values_of_one_moment_the_one_that_came_last_wins(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    for number in (3, 1, 2):
        outbox.put(value_row(number))
    assert await value_at(past, 0) == 2
    outbox.put(value_row(0))
    assert await value_at(past, 0, known=True) == 0


async def test_entries_that_are_no_rows_are_passed_by(
    past: PostgresEnvironment, outbox: MemoryOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drain.LIMITS, "events", 2)
    for _ in range(7):
        outbox.put_json(None, kind="events")
    outbox.put(event_row(1), kind="events")
    assert await rows(past, "SELECT event_id FROM events") == [("e1",)]


# Letter for letter


async def test_a_value_keeps_its_text(past: PostgresEnvironment, outbox: MemoryOutbox) -> None:
    for second, text in enumerate(ODD):
        outbox.put(value_row(msgspec.Raw(text.encode()), second, kind="json"))
    points = [Point("u1", after(second)) for second in range(len(ODD))]
    answers = await past.offline.as_of(["clicks"], points)
    assert [found and found.value.decode() for (found,) in answers] == ODD


async def test_a_payload_keeps_its_text(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    for number, text in enumerate(ODD):
        outbox.put(event_row(number, {"x": msgspec.Raw(text.encode())}), kind="events", partition=3)
    await past.offline.maintain()
    kept = "SELECT partition, position, payload FROM _events ORDER BY received_at"
    expected = [(3, f"{number}-0", f'{{"x":{text}}}') for number, text in enumerate(ODD)]
    assert [tuple(row) for row in await database.fetch(kept)] == expected


async def test_times_keep_their_microseconds(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    moments = [-62_135_596_800_000_000, -1, 0, 1_767_225_600_000_001, 253_402_300_799_999_999]
    for micros in moments:
        outbox.put(("clicks", "User", "u1", "int", 1, micros, micros, "test"))
    found = await rows(
        past,
        "SELECT extract(epoch FROM as_of) * 1000000, extract(epoch FROM written_at) * 1000000"
        " FROM feature_history ORDER BY as_of",
    )
    assert [(int(as_of), int(written)) for as_of, written in found] == [(m, m) for m in moments]


async def test_a_huge_value_and_a_huge_payload_arrive(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    text = "🦆x\n" * 400_000
    outbox.put(value_row(text, kind="text"))
    outbox.put(event_row(1, {"text": text}), kind="events")
    assert await value_at(past, 0) == text
    assert await rows(past, "SELECT length(payload ->> 'text') FROM events") == [(len(text),)]


async def test_ids_of_every_length_and_script_arrive(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    dice = random.Random(1)
    ids = ["".join(chr(dice.randrange(0x20000, 0x2A000)) for _ in range(1024)) for _ in range(3)]
    ids += ["é" * 128 + tail for tail in ("", "a", "b", "ü")]
    for number, entity_id in enumerate(ids):
        outbox.put(value_row(number, entity_id=entity_id))
        outbox.put(event_row(number, entity_id=entity_id), kind="events")
    assert [await value_at(past, 0, entity_id=each) for each in ids] == list(range(len(ids)))
    page = await past.offline.latest("User", after="", limit=99)
    assert [entity_id for entity_id, _ in page] == sorted(ids)


async def test_an_id_that_postgres_cannot_store_does_not_block_others(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1, entity_id="a\0b"), value_row(2))
    assert await value_at(past, 0) == 2
    assert await value_at(past, 0, entity_id="a\ufffdb") == 1


async def test_large_rows_are_fetched_once(past: PostgresEnvironment, outbox: MemoryOutbox) -> None:
    text = "x" * 5_000_000
    for number in range(16):
        outbox.put(event_row(number, {"text": text}), kind="events", partition=number % 8)
    assert await rows(past, "SELECT count(*) FROM events") == [(16,)]
    assert outbox.fetched == 16


async def test_a_commit_of_more_rows_than_are_taken_at_once_is_taken_whole(
    past: PostgresEnvironment, outbox: MemoryOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drain.LIMITS, "history", 7)
    outbox.least = 30
    outbox.put(*(value_row(number, number) for number in range(30)))
    assert await values(past) == list(range(30))


# Once


async def test_a_row_arrives_once_if_the_drain_dies_before_it_settles(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    async def die() -> None:
        raise StoppedError

    outbox.put(value_row(1, 1), value_row(2, 2))
    outbox.on_settle = die
    with pytest.raises(StoppedError):
        await past.offline.maintain()
    assert outbox.pending() == {0}

    outbox.on_settle = None
    outbox.put(value_row(3, 3))
    assert await values(past) == [1, 2, 3]
    assert outbox.pending() == set()


async def test_a_row_arrives_once_if_the_drain_dies_in_its_transaction(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1, 1), value_row(2, 2))
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    outbox.on_fetch = hang
    draining = asyncio.create_task(past.offline.maintain())
    await reached.wait()
    draining.cancel()
    with suppress(asyncio.CancelledError):
        await draining

    outbox.on_fetch = None
    assert await values(past) == [1, 2]


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_row_arrives_once_if_the_connection_dies_in_its_transaction(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection, deaths: int
) -> None:
    outbox.put(value_row(1, 1), value_row(2, 2))
    left, one_at_a_time = deaths, asyncio.Lock()

    async def cut() -> None:
        nonlocal left
        async with one_at_a_time:
            if left:
                left -= await database.fetchval(
                    "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
                    " WHERE application_name = 'headwater/' || current_schema()"
                    " AND state = 'idle in transaction'"
                )

    outbox.on_fetch = cut
    if deaths == 1:
        await past.offline.maintain()
    else:
        with pytest.raises(BackendError, match="closed the connection"):
            await past.offline.maintain()
    assert await values(past) == [1, 2]
    assert outbox.pending() == set()


async def test_rows_arrive_once_and_in_order_however_many_drain_at_once(
    opening: Open, outbox: MemoryOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drain.LIMITS, "history", 7)
    processes = [await opening() for _ in range(4)]
    dice = random.Random(3)

    async def give_way() -> None:
        await asyncio.sleep(dice.random() / 1_000)

    outbox.on_fetch = outbox.on_settle = give_way
    count = 400

    async def write() -> None:
        for number in range(count):
            outbox.put(value_row(number, number), partition=number % 4)
            if number % 10 == 0:
                await give_way()

    async def read(process: PostgresEnvironment) -> None:
        while len(await values(process)) < count:
            await process.offline.maintain()

    await asyncio.gather(write(), *map(read, processes))
    assert await values(processes[0]) == list(range(count))
    for partition in range(4):
        sequence = [n for n in await values(processes[0], "cause, as_of") if n % 4 == partition]
        assert sequence == sorted(sequence)
    assert outbox.pending() == set()


async def test_a_drain_that_fails_in_one_partition_takes_the_others(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    outbox.put_json(b'["clicks","User","u1","int",1,"yesterday",0,"test"]', partition=1)
    outbox.put(value_row(1), partition=0)
    outbox.put(value_row(2, 1), partition=2)
    with pytest.raises(BackendError, match="rows of partition 1 cannot be written to Postgres"):
        await past.offline.maintain()
    assert outbox.pending() == {1}
    assert await database.fetchval("SELECT count(*) FROM _history") == 2


async def test_a_failing_partition_of_the_source_does_not_block_the_others(
    past: PostgresEnvironment,
    outbox: MemoryOutbox,
    database: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = outbox.fetch

    async def fetch(kind: LogKind, partition: int, after: str, limit: int) -> OutboxBatch | None:
        if partition == 1:
            raise BackendError("its server is down")
        return await whole(kind, partition, after, limit)

    monkeypatch.setattr(outbox, "fetch", fetch)
    for partition in range(4):
        outbox.put(value_row(partition, partition), partition=partition)
    with pytest.raises(BackendError, match="its server is down"):
        await past.offline.maintain()
    assert outbox.pending() == {1}
    assert await database.fetchval("SELECT count(*) FROM _history") == 3


async def test_partitions_are_taken_in_few_transactions_each_row_in_its_order(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    for number in range(400):
        outbox.put(value_row(number, number), partition=number % 16)
        outbox.put(event_row(number), kind="events", partition=number % 16)
    await past.offline.maintain()
    transactions = await database.fetchval(
        "SELECT count(DISTINCT writer) FROM (SELECT xmin::text AS writer FROM _history"
        " UNION ALL SELECT xmin::text FROM _events) AS rows"
    )
    assert transactions < 8
    found = await database.fetch("SELECT value::text::int AS n FROM _history ORDER BY seq")
    by_partition = [[row["n"] for row in found if row["n"] % 16 == p] for p in range(16)]
    assert by_partition == [list(range(p, 400, 16)) for p in range(16)]
    kept = await database.fetch("SELECT partition, event_id FROM _events")
    assert {(row["partition"], row["event_id"]) for row in kept} == {
        (number % 16, f"e{number}") for number in range(400)
    }


# Who takes, and who waits


async def test_maintenance_skips_a_drain_by_another_process_and_a_reader_waits(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    outbox.put(value_row(1), partition=0)
    outbox.put(value_row(1, entity_id="u2"), partition=1)
    await past.offline.maintain()
    outbox.put(value_row(2, 1), partition=0)
    outbox.put(value_row(2, 1, entity_id="u2"), partition=1)

    transaction = database.transaction()
    await transaction.start()
    await database.execute("SELECT FROM _outbox WHERE partition = 0 FOR UPDATE")
    await past.offline.maintain()
    assert outbox.pending() == {0}

    reading = asyncio.create_task(value_at(past, 1))
    await until(lambda: waits_for_a_lock(database))
    assert not reading.done()
    await transaction.rollback()
    assert await reading == 2


async def waits_for_a_lock(database: Connection) -> bool:
    # In a transaction, the first answer would be repeated.
    await database.execute("SELECT pg_stat_clear_snapshot()")
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'headwater/' || current_schema() AND wait_event_type = 'Lock'"
    )
    return count > 0


async def test_a_partition_whose_position_is_gone_is_refused(
    past: PostgresEnvironment, outbox: MemoryOutbox, database: Connection
) -> None:
    outbox.put(value_row(1))
    await past.offline.maintain()
    await database.execute("DELETE FROM _outbox")
    outbox.put(value_row(2, 1))
    with pytest.raises(StoreMismatchError, match="taken up to none, settled up to 1"):
        await past.offline.maintain()
    assert await database.fetchval("SELECT count(*) FROM _history") == 1


async def test_an_empty_outbox_costs_one_query(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    before = outbox.asked
    await value_at(past, 0)
    assert (outbox.asked - before, outbox.settled) == (1, {})


async def test_readers_at_once_share_a_drain(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1))
    assert await asyncio.gather(*(value_at(past, 0) for _ in range(50))) == [1] * 50
    assert outbox.asked <= 2
    assert outbox.fetched == 1


async def test_a_reader_sees_commits_made_after_the_running_drain_began(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1, 1))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    outbox.on_fetch = hold
    first = asyncio.create_task(values(past))
    await reached.wait()
    outbox.put(value_row(2, 2), partition=1)
    others = [asyncio.create_task(values(past)) for _ in range(3)]
    await asyncio.sleep(0)
    go_on.set()
    assert (await first)[0] == 1
    assert await asyncio.gather(*others) == [[1, 2]] * 3


async def test_a_reader_that_gives_up_does_not_stop_the_others(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    outbox.put(value_row(1))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    outbox.on_fetch = hold
    impatient, patient = (asyncio.create_task(value_at(past, 0)) for _ in range(2))
    await reached.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    go_on.set()
    assert await patient == 1


async def test_a_writer_that_never_pauses_does_not_keep_a_reader_for_ever(
    opening: Open, outbox: MemoryOutbox
) -> None:
    async def write() -> None:
        outbox.put(value_row(2, outbox.asked))

    outbox.put(value_row(1))
    outbox.on_fetch = write
    past = await opening()
    async with asyncio.timeout(30):
        assert 1 in await values(past)


async def test_trouble_at_the_source_is_its_own(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    async def fail() -> None:
        raise BackendError("Redis is down")

    outbox.put(value_row(1))
    outbox.on_fetch = fail
    with pytest.raises(BackendError, match=r"^Redis is down$"):
        await value_at(past, 0)
    outbox.on_fetch = None
    assert await value_at(past, 0) == 1


async def test_one_connection_is_enough(opening: Open, outbox: MemoryOutbox) -> None:
    past = await opening(postgres={"pool_size": 1})
    for number in range(20):
        outbox.put(value_row(number, number), partition=number % 4)
    assert await asyncio.gather(*(value_at(past, n) for n in range(20))) == list(range(20))
