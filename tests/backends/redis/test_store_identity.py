"""Neither a wrong address nor a loss of data nor an older copy mixes the history of two stores."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import asyncpg
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.environment import open_redis
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.store_identity import create_store
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.errors import BackendError, StoreLostError, StoreMismatchError
from headwater.model.values import Cells
from headwater.ports import Point
from headwater.settings.schema import Settings
from tests.backends.redis.older_copies import copied
from tests.engine.support import past, query, until
from tests.servers import restartable_postgres

Shop = Callable[..., Awaitable[FeatureStore]]
LOST = "Redis lost its data"


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """A connection for the test."""
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    yield client
    await client.close()


@pytest.fixture
def keys(settings: Settings) -> Keys:
    return Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[Shop]:
    """Open the store as another process would, with changed settings."""
    async with AsyncExitStack() as opened:

        async def open_one(**changes: object) -> FeatureStore:
            store = FeatureStore(settings=settings.replace(**changes))

            @entity(store)
            class User:
                user_id: str

            @feature(entity=User, trigger="buy", max_retries=0)
            async def total(user_id: str, event: ServiceEvent) -> int:
                before = await store.get_feature("total", user_id) or 0
                return int(before + event.payload["amount"])

            return await opened.enter_async_context(store)

        yield open_one


async def buy(store: FeatureStore, amount: int, user_id: str = "u1") -> None:
    """Let a user buy something, and copy it to Postgres."""
    await store.publish("buy", user_id, {"amount": amount})
    await store.drain()
    await maintain(store)


async def maintain(store: FeatureStore) -> None:
    await (await runtime_of(store).open()).backends.offline.maintain()


async def lose(redis: Redis, keys: Keys) -> None:
    """Remove the store and its values from Redis."""
    for key in [keys.meta, *(part.entity + "User:u1" for part in keys.parts)]:
        await redis.call(command(key, "DEL", key))


async def meta(redis: Redis, keys: Keys) -> dict[bytes, bytes]:
    found = iter(await redis.call(command(keys.meta, "HGETALL", keys.meta)))
    return dict(zip(found, found, strict=True))


async def well(store: FeatureStore) -> list[bool]:
    return [health.ok for health in await store.admin.health()]


# Losing the store


async def test_postgres_that_is_back_says_that_the_store_was_lost_meanwhile(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    with restartable_postgres() as (url, machine):
        await buy(await shop(postgres={"url": url}), 100)
        machine.kill()
        worker = await shop(postgres={"url": url})
        await lose(redis, keys)
        await create_store(redis, worker.settings)
        machine.start()
        await until(lambda: is_refused(worker))
        assert (await worker.admin.health())[0].ok is False
        with pytest.raises(StoreMismatchError, match=LOST):
            await worker.admin.rebuild()
        await worker.admin.rebuild(adopt=True)
        assert await worker.get_feature("total", "u1") == 100


async def is_refused(store: FeatureStore) -> bool:
    """Return whether Postgres was reached and holds the history of another store."""
    try:
        await maintain(store)
    except StoreMismatchError:
        return True
    except BackendError:
        return False
    return False


async def test_a_process_that_has_been_running_says_that_the_store_was_lost(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await lose(redis, keys)
    await create_store(redis, store.settings)
    in_redis, in_postgres = await store.admin.health()
    assert "Postgres has not confirmed" in in_redis.detail
    assert "headwater rebuild --adopt" in in_redis.detail
    assert LOST in in_postgres.detail


async def test_a_rebuild_during_which_redis_loses_its_data_again_has_not_rebuilt_anything(
    shop: Shop, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buy(await shop(), 5)
    await lose(redis, keys)
    store = await shop()
    online = (await runtime_of(store).open()).backends.online
    restore = online.restore

    async def restore_and_lose(entity: str, values: Mapping[str, Cells]) -> None:
        await restore(entity, values)
        await lose(redis, keys)

    with monkeypatch.context() as patch:
        patch.setattr(online, "restore", restore_and_lose)
        with pytest.raises(BackendError, match="run `headwater rebuild --adopt` again"):
            await store.admin.rebuild(adopt=True)
    assert await well(store) == [False, False]
    await store.admin.rebuild(adopt=True)
    assert await store.get_feature("total", "u1") == 5
    assert await well(store) == [True, True]


async def test_a_process_that_lived_through_a_loss_and_a_rebuild_is_well(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    server = await shop()
    await buy(server, 5)
    await lose(redis, keys)
    await (await shop()).admin.rebuild(adopt=True)
    assert await well(server) == [True, True]
    await buy(server, 2)
    assert await past(server, "total") == [5, 7]


async def test_a_drain_of_a_store_that_was_lost_says_so(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await lose(redis, keys)
    await store.publish("buy", "u1", {"amount": 1})
    with pytest.raises(StoreMismatchError, match="Redis has no store"):
        await store.drain()
    with pytest.raises(StoreMismatchError, match=LOST):
        await (await shop()).drain()


async def test_a_store_that_is_gone_is_not_confirmed(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    opened = await open_redis(settings, SystemClock())
    before = await meta(redis, keys)
    assert not await opened.outbox.confirm("another", "a new id")
    assert await meta(redis, keys) == before
    await opened.close()


async def test_a_process_with_the_partitions_of_before_is_not_well_and_takes_nothing(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    server = await shop()
    await buy(server, 5)
    await lose(redis, keys)
    await (await shop(partitions=2)).admin.rebuild(adopt=True)
    assert "restart it with HEADWATER_PARTITIONS=2" in (await server.admin.health())[0].detail
    with pytest.raises(BackendError, match="created again with 2 partitions"):
        await maintain(server)
    with pytest.raises(BackendError, match="created again with 2 partitions"):
        await (await runtime_of(server).open()).backends.leases.claim("somebody", [0])


# Slips in addresses


async def test_a_mistyped_schema_neither_writes_nor_reads(shop: Shop, settings: Settings) -> None:
    store = await shop()
    await buy(store, 5)
    await store.publish("buy", "u1", {"amount": 1})
    await store.drain()
    mistyped = await shop(postgres={"schema": settings.postgres.schema + "_typo"})
    for verb in (mistyped.admin.audit, mistyped.admin.rebuild):
        with pytest.raises(StoreMismatchError, match="history is in another Postgres"):
            await verb()
    assert await well(mistyped) == [True, False]
    assert await past(store, "total") == [5, 6]
    assert (await store.admin.audit()).differences == []


async def test_after_adopting_another_postgres_the_previous_one_is_refused(
    shop: Shop, settings: Settings
) -> None:
    await buy(await shop(), 5)
    moved = await shop(postgres={"schema": settings.postgres.schema + "_new"})
    await moved.admin.rebuild(adopt=True)
    await buy(moved, 1)
    assert await past(moved, "total") == [6]
    with pytest.raises(StoreMismatchError, match="history is in another Postgres"):
        await maintain(await shop())


async def test_the_schema_of_another_store_is_not_read_and_not_merged(
    shop: Shop, settings: Settings
) -> None:
    other_place = {
        "redis": {"prefix": settings.redis.prefix + "-b"},
        "postgres": {"schema": settings.postgres.schema + "_b"},
    }
    store, other = await shop(), await shop(**other_place)
    await buy(store, 5)
    await buy(other, 1000)
    await buy(other, 7, "u2")
    mixed = await shop(postgres=other_place["postgres"])
    offline = (await runtime_of(mixed).open()).backends.offline
    with pytest.raises(StoreMismatchError, match=f"history of store {settings.redis.prefix}-b-"):
        await offline.as_of(["total"], [Point("u1", datetime.now(UTC))])
    with pytest.raises(StoreMismatchError):
        await mixed.admin.rebuild()
    assert await store.get_feature("total", "u1") == 5
    assert await store.get_feature("total", "u2") is None
    await buy(other, 1, "u2")
    assert await past(other, "total", "u2") == [7, 8]


async def test_a_rebuild_with_a_mistyped_prefix_changes_nothing_without_adopt(
    shop: Shop, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    for _ in range(3):
        await store.publish("buy", "u2", {"amount": 1})
    await maintain(store)
    mistyped = await shop(redis={"prefix": settings.redis.prefix + "-typo"})
    with pytest.raises(StoreMismatchError, match="headwater rebuild --adopt"):
        await mistyped.admin.rebuild()
    with pytest.raises(StoreLostError, match="headwater rebuild --adopt"):
        await mistyped.get_feature("total", "u1")
    assert await query(store, "SELECT count(*) FROM events") == [(4,)]
    await mistyped.admin.rebuild(adopt=True)
    assert await mistyped.get_feature("total", "u1") == 5
    assert await well(mistyped) == [True, True]

    again = await shop()
    assert await well(again) == [True, False]
    await again.publish("buy", "u1", {"amount": 1})
    await again.drain()
    with pytest.raises(StoreMismatchError, match=f"history of store {settings.redis.prefix}-typo-"):
        await again.admin.rebuild()
    await again.admin.rebuild(adopt=True)
    assert await well(again) == [True, True]
    counts = "SELECT count(*), count(DISTINCT event_id) FROM events"
    assert await query(again, counts) == [(5, 5)]
    assert await past(again, "total") == [5, 6]
    assert (await again.admin.audit()).differences == []


async def test_new_tables_that_were_first_opened_with_a_mistyped_prefix_can_be_adopted(
    shop: Shop, settings: Settings
) -> None:
    mistyped = await shop(redis={"prefix": settings.redis.prefix + "-typo"})
    await mistyped.admin.lag()
    store = await shop()
    with pytest.raises(StoreMismatchError, match="--adopt"):
        await store.admin.rebuild()
    await store.admin.rebuild(adopt=True)
    await buy(store, 5)
    assert await past(store, "total") == [5]
    assert await well(await shop()) == [True, True]


async def test_the_records_of_another_store_are_neither_read_nor_added_to(
    shop: Shop, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    made = await store.record_external(name="note", content="a secret")
    other = await shop(redis={"prefix": settings.redis.prefix + "-other"})
    for asked in (
        other.get_context_at(made.context_id),
        other.list_contexts(),
        other.records.find(feature="total"),
        other.records.redact(made.context_id, "/output/content", reason="a slip"),
    ):
        with pytest.raises(StoreMismatchError):
            await asked
    assert not (await other.record_external(name="note", content="of another")).meta["recorded"]
    assert len((await store.list_contexts()).contexts) == 1


async def test_a_new_store_that_was_shown_anothers_tables_is_well_with_its_own(
    shop: Shop, settings: Settings
) -> None:
    await buy(await shop(), 5)
    green = {"prefix": settings.redis.prefix + "-green"}
    assert await well(await shop(redis=green)) == [False, False]
    own = {"schema": settings.postgres.schema + "_green"}
    store = await shop(redis=green, postgres=own)
    await buy(store, 7)
    assert await past(store, "total") == [7]
    assert await well(store) == [True, True]


# Older copies


async def restored(redis: Redis, copy: dict[str, bytes]) -> None:
    for name, dump in copy.items():
        await redis.call(command(name, "RESTORE", name, 0, dump, "REPLACE"))


async def test_a_redis_restored_from_an_older_snapshot_is_refused_until_it_is_adopted(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await restored(redis, copy)
    await store.publish("buy", "u1", {"amount": 10})
    with pytest.raises(StoreMismatchError, match="does not continue the history in Postgres"):
        await maintain(store)
    again = await shop()
    with pytest.raises(StoreMismatchError, match="restored from an older copy"):
        await again.admin.rebuild()
    (in_redis, in_postgres) = await again.admin.health()
    assert "restored from an older copy" in in_redis.detail
    assert "headwater rebuild --adopt" in in_postgres.detail
    await again.admin.rebuild(adopt=True)
    assert await again.get_feature("total", "u1") == 7
    await again.drain()
    assert await past(again, "total") == [5, 7, 17]
    assert await query(again, "SELECT count(DISTINCT event_id), count(*) FROM events") == [(3, 3)]
    assert await well(again) == [True, True]


async def test_a_copy_of_redis_takes_nothing_into_the_history_of_the_original(
    shop: Shop, redis: Redis, keys: Keys, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    prefix = settings.redis.prefix
    copy = await copied(redis, keys)
    await buy(store, 2)
    await restored(redis, {name.replace(prefix, prefix + "-copy"): copy[name] for name in copy})
    clone = await shop(redis={"prefix": prefix + "-copy"})
    await clone.publish("buy", "u1", {"amount": 100})
    with pytest.raises(StoreLostError, match="restored from an older copy"):
        await clone.drain()
    with pytest.raises(StoreMismatchError, match="this Redis is a copy of another"):
        await maintain(clone)
    assert await past(store, "total") == [5, 7]
    await clone.admin.rebuild(adopt=True)
    await clone.drain()
    assert await past(clone, "total") == [5, 7, 107]
    with pytest.raises(StoreMismatchError, match=f"history of store {prefix}-copy-"):
        await buy(store, 1)


async def clone_of(
    shop: Shop, redis: Redis, settings: Settings, copy: dict[str, bytes]
) -> FeatureStore:
    """Open a store on a snapshot, with the same Postgres: staging on production's history."""
    prefix = settings.redis.prefix
    await restored(redis, {name.replace(prefix, prefix + "-copy"): copy[name] for name in copy})
    return await shop(redis={"prefix": prefix + "-copy"})


async def test_a_copy_of_redis_takes_nothing_in_partitions_that_were_quiet_since_the_copy(
    shop: Shop, redis: Redis, keys: Keys, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    clone = await clone_of(shop, redis, settings, copy)
    for number in range(2, 20):
        await clone.publish("buy", f"u{number}", {"amount": 100})
    with pytest.raises(StoreMismatchError, match="this Redis is a copy of another"):
        await maintain(clone)
    assert await query(store, "SELECT DISTINCT entity_id FROM feature_history") == [("u1",)]
    assert await query(store, "SELECT DISTINCT entity_id FROM events") == [("u1",)]


async def test_of_two_copies_that_go_on_in_parallel_only_one_adds_to_history(
    shop: Shop, redis: Redis, keys: Keys, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    clone = await clone_of(shop, redis, settings, await copied(redis, keys))
    await clone.publish("buy", "u2", {"amount": 100})
    await clone.drain()
    await maintain(clone)
    # The first one that goes on is the one that Postgres knows; the other is refused as a whole.
    await store.publish("buy", "u1", {"amount": 2})
    await store.drain()
    with pytest.raises(StoreMismatchError, match="this Redis is a copy of another"):
        await maintain(store)
    assert await past(clone, "total") == [5]
    await store.admin.rebuild(adopt=True)
    await store.drain()
    assert await past(store, "total") == [5, 7]
    await clone.publish("buy", "u3", {"amount": 100})
    with pytest.raises(StoreMismatchError, match="holds the history of store"):
        await maintain(clone)


async def test_an_event_is_handled_although_another_copy_has_gone_past_its_position(
    shop: Shop, redis: Redis, keys: Keys, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    clone = await clone_of(shop, redis, settings, await copied(redis, keys))
    await store.publish("buy", "u1", {"amount": 2})
    await buy(clone, 100)
    await Worker(store).drain()
    assert await store.get_feature("total", "u1") == 7
    with pytest.raises(StoreMismatchError, match="this Redis is a copy of another"):
        await maintain(store)
    await store.admin.rebuild(adopt=True)
    await store.drain()
    assert await store.get_feature("total", "u1") == 107
    assert await query(store, "SELECT count(DISTINCT event_id), count(*) FROM events") == [(3, 3)]
    assert (await store.admin.audit()).differences == []


async def test_an_entry_of_a_copy_with_the_same_id_is_not_the_last_one_taken(
    shop: Shop, redis: Redis, keys: Keys, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    clone = await clone_of(shop, redis, settings, copy)
    original = keys.of("u1")
    taken = await redis.call(command(original.outbox, "HGET", original.outbox, "history"))
    prefix = settings.redis.prefix
    name = original.changes.replace(prefix, prefix + "-copy")
    await redis.call(command(name, "XADD", name, taken.decode().partition("/")[0], "c", "[]"))
    with pytest.raises(StoreMismatchError, match="this Redis is a copy of another"):
        await maintain(clone)
    assert await past(store, "total") == [5, 7]


async def test_a_postgres_restored_from_an_older_backup_is_refused_until_it_is_adopted(
    shop: Shop, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    database = await asyncpg.connect(
        settings.postgres.url, server_settings={"search_path": settings.postgres.schema}
    )
    await database.execute("CREATE TABLE backup AS SELECT * FROM _outbox")
    await buy(store, 2)
    await database.execute(
        "DELETE FROM _history WHERE value::text = '7'; DELETE FROM _outbox;"
        "INSERT INTO _outbox SELECT * FROM backup"
    )
    await database.close()
    await store.publish("buy", "u1", {"amount": 10})
    await store.drain()
    with pytest.raises(StoreMismatchError, match="restored from an older copy"):
        await maintain(store)
    assert "headwater rebuild --adopt" in (await store.admin.health())[1].detail
    await store.admin.rebuild(adopt=True)
    assert await past(store, "total") == [5, 17]
    assert await store.get_feature("total", "u1") == 17
    assert await well(store) == [True, True]


# Formats


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (3, "newer version of Headwater .* upgrade Headwater here"),
        (0, "older version of Headwater .* `headwater rebuild --adopt`"),
    ],
)
async def test_a_store_of_another_format_is_refused_by_new_and_by_running_processes(
    shop: Shop, redis: Redis, keys: Keys, version: int, remedy: str
) -> None:
    running = await shop()
    await running.admin.lag()
    await redis.call(command(keys.meta, "HSET", keys.meta, "format", version))
    before = await meta(redis, keys)
    with pytest.raises(BackendError, match=remedy):
        await (await shop()).admin.lag()
    with pytest.raises(BackendError, match=remedy):
        await running.get_feature("total", "u1")
    assert re.search(remedy, (await running.admin.health())[0].detail)
    assert await meta(redis, keys) == before


async def test_a_store_of_the_format_before_is_of_the_present_one_once_it_is_opened(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    part = keys.of("u1")
    position = await redis.call(command(part.outbox, "HGET", part.outbox, "history"))
    # Positions had no cursors.
    earlier = b"/".join(position.split(b"/")[:2])
    await redis.call(command(part.outbox, "HSET", part.outbox, "history", earlier))
    await redis.call(command(keys.meta, "HSET", keys.meta, "format", 1))
    database = await asyncpg.connect(
        store.settings.postgres.url,
        server_settings={"search_path": store.settings.postgres.schema},
    )
    await database.execute(
        "UPDATE _outbox SET history = $1 WHERE history = $2", earlier.decode(), position.decode()
    )
    await database.close()
    again = await shop()
    await buy(again, 2)
    assert (await meta(redis, keys))[b"format"] == b"2"
    assert await past(again, "total") == [5, 7]
    assert await well(again) == [True, True]
