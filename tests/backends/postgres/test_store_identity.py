"""Only the store that history belongs to may read it and add to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headwater.backends.postgres import outbox_consumer, store_identity
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.core.clock import SystemClock
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import Positions, StoreIdentity
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox, event_row, value_row
from tests.backends.postgres.story import change, until, value_at, values

OpenFor = Callable[[MemoryOutbox], Awaitable[PostgresEnvironment]]


@pytest.fixture
async def opening_for(settings: Settings) -> AsyncIterator[OpenFor]:
    """Open the schema of the test as a process of a store would."""
    opened: list[PostgresEnvironment] = []

    async def open_one(outbox: MemoryOutbox) -> PostgresEnvironment:
        opened.append(await open_postgres(settings, SystemClock(), outbox))
        return opened[-1]

    yield open_one
    for environment in opened:
        await environment.close()


async def adopt(past: PostgresEnvironment) -> None:
    async with past.store_check.restoring(adopt=True):
        pass


async def owner(database: Connection) -> str | None:
    found: str | None = await database.fetchval("SELECT store_id FROM _meta")
    return found


async def test_a_new_store_is_bound_to_new_tables_and_confirmed(
    opening_for: OpenFor, database: Connection
) -> None:
    outbox = MemoryOutbox(store_id="a")
    await opening_for(outbox)
    assert outbox.store == StoreIdentity("a", is_confirmed=True)
    assert await owner(database) == "a"


async def test_a_store_that_died_before_it_was_confirmed_is_confirmed_at_the_next_opening(
    opening_for: OpenFor,
) -> None:
    await opening_for(MemoryOutbox(store_id="a"))
    outbox = MemoryOutbox(store_id="a")
    await opening_for(outbox)
    assert outbox.store.is_confirmed


async def test_of_stores_that_are_new_at_once_all_but_one_are_refused(opening_for: OpenFor) -> None:
    outboxes = [MemoryOutbox(store_id=store_id) for store_id in "abcd"]
    for outbox in outboxes:
        outbox.put(value_row(1))
    pasts = await asyncio.gather(*map(opening_for, outboxes))
    works = (past.offline.maintain() for past in pasts)
    ends = await asyncio.gather(*works, return_exceptions=True)
    assert ends.count(None) == 1
    assert all(isinstance(end, StoreMismatchError) for end in ends if end is not None)
    assert [bool(outbox.pending()) for outbox in outboxes].count(False) == 1
    assert [outbox.store.is_confirmed for outbox in outboxes].count(True) == 1


async def test_tables_without_history_stay_with_the_store_that_they_were_bound_to(
    opening_for: OpenFor,
) -> None:
    own, other = MemoryOutbox(store_id="own"), MemoryOutbox(store_id="other")
    past = await opening_for(own)
    await opening_for(other)
    assert not other.store.is_confirmed
    own.put(value_row(1))
    assert await values(past) == [1]


async def test_rows_of_another_store_are_neither_taken_nor_read(
    opening_for: OpenFor, settings: Settings
) -> None:
    own = MemoryOutbox(store_id="own")
    own.put(value_row(1))
    assert await values(await opening_for(own)) == [1]
    other = MemoryOutbox(store_id="other")
    past = await opening_for(other)
    both = f"Redis has store other, and the Postgres schema '{settings.postgres.schema}' holds the "
    with pytest.raises(StoreMismatchError, match=both + "history of store own"):
        await value_at(past, 0)
    other.put(value_row(2, 1))
    with pytest.raises(StoreMismatchError, match=r"headwater rebuild --adopt"):
        await past.offline.maintain()
    assert other.pending() == {0}
    health = await past.health()
    assert (health.ok, health.needed) == (False, False)
    with pytest.raises(StoreMismatchError):
        await past.records.get("a context")


async def test_a_store_with_history_elsewhere_is_not_bound_to_new_tables(
    opening_for: OpenFor, database: Connection
) -> None:
    outbox = MemoryOutbox()
    outbox.store = StoreIdentity("a", is_confirmed=True)
    outbox.put(value_row(1))
    past = await opening_for(outbox)
    with pytest.raises(StoreMismatchError, match="history is in another Postgres"):
        await past.offline.maintain()
    assert await owner(database) is None
    assert outbox.pending() == {0}


async def test_a_lost_store_is_refused_until_its_successor_adopts_the_history(
    opening_for: OpenFor,
) -> None:
    own = MemoryOutbox(store_id="a")
    own.put(value_row(1))
    assert await values(await opening_for(own)) == [1]
    own.store = StoreIdentity(None)
    with pytest.raises(StoreMismatchError, match="Redis has no store, and the Postgres schema"):
        await (await opening_for(own)).offline.maintain()
    successor = MemoryOutbox(store_id="its successor")
    successor.put(value_row(2, 1))
    past = await opening_for(successor)
    with pytest.raises(StoreMismatchError):
        await values(past)
    async with past.store_check.restoring(adopt=True):
        assert await values(past) == [1]
        assert successor.pending() == {0}
        assert not successor.store.is_confirmed
    assert successor.store.is_confirmed
    assert await values(past) == [1, 2]


async def test_history_is_taken_from_another_store_only_by_adoption(opening_for: OpenFor) -> None:
    own = MemoryOutbox(store_id="own")
    own.put(value_row(1))
    theirs = await opening_for(own)
    assert await values(theirs) == [1]
    past = await opening_for(MemoryOutbox(store_id="other"))
    with pytest.raises(StoreMismatchError):
        async with past.store_check.restoring(adopt=False):
            pass
    await adopt(past)
    assert await values(past) == [1]
    own.put(value_row(2, 1))
    with pytest.raises(StoreMismatchError, match="history of store other-adopted"):
        await theirs.offline.maintain()


async def test_a_failed_restoration_adopts_nothing(
    opening_for: OpenFor, database: Connection
) -> None:
    await opening_for(MemoryOutbox(store_id="own"))
    other = MemoryOutbox(store_id="other")
    past = await opening_for(other)
    with pytest.raises(BackendError, match="Redis is down"):
        async with past.store_check.restoring(adopt=True):
            raise BackendError("Redis is down")
    assert await owner(database) == "own"
    assert not other.store.is_confirmed
    with pytest.raises(StoreMismatchError):
        await values(past)


async def test_positions_belong_to_one_store_and_hold_after_its_return(
    opening_for: OpenFor, database: Connection
) -> None:
    own, other = MemoryOutbox(store_id="own"), MemoryOutbox(store_id="other")

    async def fail() -> None:
        raise BackendError("Redis is down")

    own.on_settle = fail
    own.put(*(event_row(number) for number in range(5)), kind="events")
    past = await opening_for(own)
    with pytest.raises(BackendError, match="Redis is down"):
        await past.offline.maintain()
    other.put(event_row(9), kind="events")
    elsewhere = await opening_for(other)
    await adopt(elsewhere)
    await elsewhere.offline.maintain()
    own.on_settle = None
    await adopt(past)
    await past.offline.maintain()
    counts = await database.fetchrow("SELECT count(*), count(DISTINCT event_id) FROM _events")
    assert counts is not None
    assert tuple(counts) == (6, 6)


async def test_adoption_waits_for_rows_that_are_being_taken_and_other_changes_do_not(
    opening_for: OpenFor, database: Connection
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    own = MemoryOutbox(store_id="own")
    own.put(value_row(1))
    own.on_fetch = hold
    past, other = await opening_for(own), await opening_for(MemoryOutbox(store_id="other"))
    taking = asyncio.create_task(past.offline.maintain())
    await reached.wait()
    assert await past.records.index_key()
    adopting = asyncio.create_task(adopt(other))
    await until(lambda: waits_for_a_lock(database))
    go_on.set()
    await taking
    await adopting
    assert await values(other) == [1]


async def waits_for_a_lock(database: Connection) -> bool:
    # In a transaction, the first answer would be repeated.
    await database.execute("SELECT pg_stat_clear_snapshot()")
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'headwater/' || current_schema() AND wait_event_type = 'Lock'"
    )
    return count > 0


@pytest.mark.parametrize("adopting", [False, True])
async def test_a_store_that_is_lost_during_a_restoration_was_not_restored(
    opening_for: OpenFor, *, adopting: bool
) -> None:
    outbox = MemoryOutbox(store_id="a")
    past = await opening_for(outbox)
    await past.offline.append([change(1)])
    with pytest.raises(BackendError, match="run `headwater rebuild --adopt` again"):
        async with past.store_check.restoring(adopt=adopting):
            outbox.store = StoreIdentity("its successor")
    assert not outbox.store.is_confirmed
    with pytest.raises(StoreMismatchError):
        await values(past)


async def test_history_that_was_adopted_by_another_store_meanwhile_restored_nothing(
    opening_for: OpenFor,
) -> None:
    past = await opening_for(MemoryOutbox(store_id="own"))
    await past.offline.append([change(1)])
    other = await opening_for(MemoryOutbox(store_id="other"))
    with pytest.raises(StoreMismatchError):
        async with past.store_check.restoring(adopt=False):
            await adopt(other)


async def test_a_reader_notices_that_history_was_adopted_by_another_store(
    opening_for: OpenFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_identity, "FRESH_SECONDS", 0.0)
    own = MemoryOutbox(store_id="own")
    own.put(value_row(1))
    past = await opening_for(own)
    assert await values(past) == [1]
    await adopt(await opening_for(MemoryOutbox(store_id="other")))
    with pytest.raises(StoreMismatchError):
        await values(past)


# Copies


async def test_an_outbox_restored_from_an_older_copy_is_refused_until_it_is_adopted(
    opening_for: OpenFor,
) -> None:
    outbox = MemoryOutbox()
    past = await opening_for(outbox)
    outbox.put(value_row(1))
    assert await values(past) == [1]
    older = dict(outbox.settled)
    outbox.put(value_row(2, 1), value_row(3, 2))
    assert await values(past) == [1, 2, 3]
    outbox.settled.update(older)
    outbox.put(value_row(4, 3))
    with pytest.raises(StoreMismatchError, match="taken up to 3, settled up to 1"):
        await past.offline.maintain()
    health = await past.health()
    assert "headwater rebuild --adopt" in health.detail
    assert outbox.pending() == {0}
    await adopt(past)
    assert await values(past) == [1, 2, 3, 4]
    assert (await past.health()).ok


async def test_tables_restored_from_an_older_backup_are_refused_until_they_are_adopted(
    opening_for: OpenFor, database: Connection
) -> None:
    outbox = MemoryOutbox()
    past = await opening_for(outbox)
    outbox.put(value_row(1))
    assert await values(past) == [1]
    outbox.put(value_row(2, 1))
    assert await values(past) == [1, 2]
    await database.execute(
        "DELETE FROM _history WHERE value::text = '2'; UPDATE _outbox SET history = '1'"
    )
    outbox.put(value_row(3, 2))
    with pytest.raises(StoreMismatchError, match="taken up to 1, settled up to 2"):
        await values(past)
    await adopt(past)
    assert await values(past) == [1, 3]


@pytest.mark.parametrize("refused", range(4))
async def test_an_outbox_that_is_refused_in_one_partition_is_refused_as_a_whole(
    opening_for: OpenFor, refused: int
) -> None:
    outbox = MemoryOutbox()
    outbox.settled[refused] = Positions("7", "")
    for partition in range(4):
        outbox.put(value_row(partition), partition=partition)
    with pytest.raises(StoreMismatchError):
        await (await opening_for(outbox)).offline.maintain()
    assert outbox.pending() == {0, 1, 2, 3}


async def test_an_outbox_restored_from_an_older_copy_is_refused_before_it_has_new_rows(
    opening_for: OpenFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_consumer, "FRESH_SECONDS", 0.0)
    outbox = MemoryOutbox()
    past = await opening_for(outbox)
    outbox.put(value_row(1))
    assert await values(past) == [1]
    older = dict(outbox.settled)
    outbox.put(value_row(2, 1))
    assert await values(past) == [1, 2]
    outbox.settled.update(older)
    with pytest.raises(StoreMismatchError, match="taken up to 2, settled up to 1"):
        await values(past)


async def test_rows_that_another_consumer_takes_during_the_check_are_not_a_mismatch(
    opening_for: OpenFor,
) -> None:
    outbox = MemoryOutbox()
    past, other = await opening_for(outbox), await opening_for(outbox)
    outbox.put(value_row(1))
    assert await values(past) == [1]

    async def take_more() -> None:
        outbox.on_mismatch = None
        outbox.put(value_row(3, 2))
        await other.offline.maintain()

    # The other consumer has taken the row and not settled it yet, so that this one checks it.
    settled = dict(outbox.settled)
    outbox.put(value_row(2, 1))
    rows = list(outbox.rows["history", 0])
    await other.offline.maintain()
    outbox.settled.update(settled)
    outbox.rows["history", 0] = rows
    outbox.on_mismatch = take_more
    assert await values(past) == [1, 2, 3]
    assert outbox.on_mismatch is None
