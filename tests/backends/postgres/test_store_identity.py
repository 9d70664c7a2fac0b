"""Whose past this is: store and past name each other, or nothing is taken and nothing is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headwater.backends.postgres import store_identity as ownership
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.backends.postgres.migrate import VERSION, migrate
from headwater.backends.postgres.pool import Connection
from headwater.core.clock import SystemClock
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import StoreIdentity
from headwater.settings.schema import Settings
from tests.backends.postgres.outbox import MemoryOutbox, event_row, value_row
from tests.backends.postgres.story import change, until, value_at, values

OpenFor = Callable[[MemoryOutbox], Awaitable[PostgresEnvironment]]


@pytest.fixture
async def opening_for(settings: Settings) -> AsyncIterator[OpenFor]:
    """Opens the test's schema as a process of a store would."""
    opened: list[PostgresEnvironment] = []

    async def open_one(outbox: MemoryOutbox) -> PostgresEnvironment:
        opened.append(await open_postgres(settings, SystemClock(), outbox))
        return opened[-1]

    yield open_one
    for environment in opened:
        await environment.close()


def lost(name: str) -> MemoryOutbox:
    """The outbox of a store that was founded where another was lost."""
    outbox = MemoryOutbox(name=name)
    outbox.now = StoreIdentity("its successor", None, "new")
    return outbox


async def test_a_new_store_and_a_new_past_are_each_others_from_then_on(
    opening_for: OpenFor, database: Connection
) -> None:
    outbox = MemoryOutbox(name="a")
    await opening_for(outbox)
    past_id = await database.fetchval("SELECT id FROM _meta")
    assert outbox.now == StoreIdentity("a", past_id, "known")
    assert await database.fetchval("SELECT store_id || store_name FROM _meta") == "aa"


async def test_of_stores_that_are_new_at_once_all_but_one_are_refused_when_it_has_history(
    opening_for: OpenFor,
) -> None:
    outboxes = [MemoryOutbox(name=name) for name in "abcd"]
    for outbox in outboxes:
        outbox.put(value_row(1))
    pasts = await asyncio.gather(*map(opening_for, outboxes))
    works = (past.offline.maintain() for past in pasts)
    ends = await asyncio.gather(*works, return_exceptions=True)
    assert ends.count(None) == 1
    assert all(isinstance(end, StoreMismatchError) for end in ends if end is not None)
    assert [bool(await outbox.filled()) for outbox in outboxes].count(False) == 1


async def test_a_past_that_has_nothing_yet_is_that_of_the_next_store_in_the_same_place(
    opening_for: OpenFor,
) -> None:
    await opening_for(MemoryOutbox(name="here"))
    outbox = MemoryOutbox(name="here", store_id="the next")
    past = await opening_for(outbox)
    assert outbox.now.state == "known"
    outbox.put(value_row(1))
    assert await values(past) == [1]
    late = MemoryOutbox(name="here", store_id="too late")
    await opening_for(late)
    assert late.now.state == "lost"


async def test_a_past_that_has_nothing_yet_stays_with_the_store_that_it_agreed_to(
    opening_for: OpenFor,
) -> None:
    own, other = MemoryOutbox(name="own"), MemoryOutbox(name="other")
    past = await opening_for(own)
    await opening_for(other)
    assert other.now.state == "lost"
    own.put(value_row(1))
    assert await values(past) == [1]


async def test_a_store_that_moved_is_known_by_its_new_address(opening_for: OpenFor) -> None:
    outbox = MemoryOutbox(name="old address")
    outbox.put(value_row(1))
    assert await values(await opening_for(outbox)) == [1]
    outbox.name = "new address"
    await opening_for(outbox)
    after_a_loss = MemoryOutbox(name="new address", store_id="after a loss")
    past = await opening_for(after_a_loss)
    assert await past.ownership.take_over(adopt=False)


async def test_nothing_of_another_store_is_taken_and_nothing_is_read_for_it(
    opening_for: OpenFor,
) -> None:
    own = MemoryOutbox(name="own")
    own.put(value_row(1))
    assert await values(await opening_for(own)) == [1]
    other = MemoryOutbox(name="other")
    past = await opening_for(other)
    with pytest.raises(StoreMismatchError, match=r"history of another store \(own\)"):
        await value_at(past, 0)
    other.put(value_row(2, 1))
    with pytest.raises(StoreMismatchError, match=r"headwater rebuild --adopt"):
        await past.offline.maintain()
    assert await other.filled() == {0}
    (health,) = await past.health()
    assert (health.ok, health.needed) == (False, False)


async def test_a_store_that_has_another_past_leaves_a_new_one_alone(
    opening_for: OpenFor, database: Connection
) -> None:
    outbox = MemoryOutbox(name="a")
    outbox.now = StoreIdentity("a", "elsewhere", "known")
    outbox.put(value_row(1))
    past = await opening_for(outbox)
    with pytest.raises(StoreMismatchError, match="is in another Postgres database"):
        await past.offline.maintain()
    assert await database.fetchval("SELECT store_id FROM _meta") is None
    assert await outbox.filled() == {0}


async def test_a_store_that_was_lost_reads_what_was_its_own_and_nothing_of_it_is_taken(
    opening_for: OpenFor,
) -> None:
    own = MemoryOutbox(name="a")
    own.put(value_row(1))
    assert await values(await opening_for(own)) == [1]
    successor = lost("a")
    successor.put(value_row(2, 1))
    past = await opening_for(successor)
    assert (await successor.standing()).state == "lost"
    assert await values(past) == [1]
    assert await successor.filled() == {0}
    owned = await past.ownership.take_over(adopt=False)
    await past.ownership.restored(owned)
    assert (await successor.standing()).state == "known"
    assert await values(past) == [1, 2]


async def test_a_past_is_taken_from_another_store_only_if_that_is_wanted(
    opening_for: OpenFor,
) -> None:
    own = MemoryOutbox(name="own")
    own.put(value_row(1))
    theirs = await opening_for(own)
    assert await values(theirs) == [1]
    past = await opening_for(MemoryOutbox(name="other"))
    with pytest.raises(StoreMismatchError):
        await past.ownership.take_over(adopt=False)
    await past.ownership.restored(await past.ownership.take_over(adopt=True))
    assert await values(past) == [1]
    own.put(value_row(2, 1))
    with pytest.raises(StoreMismatchError, match=r"another store \(other\)"):
        await theirs.offline.maintain()


async def test_positions_are_those_of_one_store_and_hold_when_it_is_back(
    opening_for: OpenFor, database: Connection
) -> None:
    own, other = MemoryOutbox(name="own"), MemoryOutbox(name="other")

    async def forget_to_settle() -> None:
        raise BackendError("Redis is down")

    own.on_settle = forget_to_settle
    own.put(*(event_row(number) for number in range(5)), kind="events")
    past = await opening_for(own)
    with pytest.raises(BackendError, match="Redis is down"):
        await past.offline.maintain()
    other.put(event_row(9), kind="events")
    elsewhere = await opening_for(other)
    await elsewhere.ownership.take_over(adopt=True)
    await elsewhere.offline.maintain()
    own.on_settle = None
    await past.ownership.take_over(adopt=True)
    await past.offline.maintain()
    counts = await database.fetchrow("SELECT count(*), count(DISTINCT event_id) FROM _events")
    assert counts is not None
    assert tuple(counts) == (6, 6)


async def test_what_is_taken_meanwhile_is_waited_for_by_who_adopts_and_by_nobody_else(
    opening_for: OpenFor, database: Connection
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    own = MemoryOutbox(name="own")
    own.put(value_row(1))
    own.on_fetch = hold
    past, other = await opening_for(own), await opening_for(MemoryOutbox(name="other"))
    await past.greet()
    taking = asyncio.create_task(past.offline.maintain())
    await reached.wait()
    assert await past.records.index_key()
    adopting = asyncio.create_task(other.ownership.take_over(adopt=True))
    await until(lambda: waits_for_a_lock(database))
    go_on.set()
    await taking
    await adopting
    assert await values(other) == [1]


async def waits_for_a_lock(database: Connection) -> bool:
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'headwater/' || current_schema() AND wait_event_type = 'Lock'"
    )
    return count > 0


async def test_a_store_that_is_no_longer_the_same_was_not_restored(opening_for: OpenFor) -> None:
    outbox = MemoryOutbox(name="a")
    past = await opening_for(outbox)
    owned = await past.ownership.take_over(adopt=False)
    await past.offline.append([change(1)])
    outbox.now = StoreIdentity("its successor", None, "new")
    with pytest.raises(BackendError, match="run `headwater rebuild` once more"):
        await past.ownership.restored(owned)
    assert outbox.now.state == "lost"


async def test_a_past_that_was_taken_away_meanwhile_restored_nothing(opening_for: OpenFor) -> None:
    past = await opening_for(MemoryOutbox(name="own"))
    owned = await past.ownership.take_over(adopt=False)
    await past.offline.append([change(1)])
    await (await opening_for(MemoryOutbox(name="other"))).ownership.take_over(adopt=True)
    with pytest.raises(StoreMismatchError):
        await past.ownership.restored(owned)


async def test_whoever_is_known_is_asked_for_now_and_then(
    opening_for: OpenFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_FRESH_SECONDS", 0.0)
    own = MemoryOutbox(name="own")
    own.put(value_row(1))
    past = await opening_for(own)
    assert await values(past) == [1]
    await (await opening_for(MemoryOutbox(name="other"))).ownership.take_over(adopt=True)
    with pytest.raises(StoreMismatchError):
        await values(past)


async def test_tables_of_the_version_before_keep_their_positions_and_get_an_id(
    settings: Settings, opening_for: OpenFor, database: Connection
) -> None:
    await migrate(settings)
    await database.execute(
        "ALTER TABLE _meta DROP COLUMN id, DROP COLUMN store_name;"
        "ALTER TABLE _outbox DROP COLUMN store_id, ADD PRIMARY KEY (partition);"
        "UPDATE _meta SET version = 4, store_id = 'a';"
        "INSERT INTO _outbox VALUES (0, '1', '')"
    )
    assert await migrate(settings) == list(range(5, VERSION + 1))
    outbox = MemoryOutbox(name="a")
    outbox.put(value_row(1), value_row(2, 1))
    assert await values(await opening_for(outbox)) == [2]
    assert outbox.now.past_id == await database.fetchval("SELECT id FROM _meta")
