"""Store and past name each other: no slip in an address, and no loss at any moment, mixes two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, asking
from headwater.backends.redis.environment import _found, open_redis
from headwater.backends.redis.keys import Keys
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, StoreMismatchError
from headwater.ports import IdentityChange, Point
from headwater.settings.schema import Settings
from tests.engine.support import past, query, until
from tests.servers import mortal_postgres

Shop = Callable[..., Awaitable[FeatureStore]]
LOST = "it lost its data"


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """A connection of the test's own."""
    client = Redis(settings.redis.url, timeout=5, connect_timeout=5)
    await client.open()
    yield client
    await client.close()


@pytest.fixture
def keys(settings: Settings) -> Keys:
    return Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[Shop]:
    """Opens the store as another process would, with settings of its own."""
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
    """Lets a user buy something; Postgres has it, too."""
    await store.publish("buy", user_id, {"amount": amount})
    await store.drain()
    await maintain(store)


async def maintain(store: FeatureStore) -> None:
    await (await runtime_of(store).open()).backends.offline.maintain()


async def lose(redis: Redis, keys: Keys) -> None:
    """Removes the store and its values from Redis."""
    for key in [keys.meta, *(part.entity + "User:u1" for part in keys.parts)]:
        await redis.call(asking(key, "DEL", key))


async def meta(redis: Redis, keys: Keys) -> dict[bytes, bytes]:
    found = iter(await redis.call(asking(keys.meta, "HGETALL", keys.meta)))
    return dict(zip(found, found, strict=True))


async def well(store: FeatureStore) -> list[bool]:
    return [health.ok for health in await store.admin.health()]


# Losing the store


async def test_a_past_that_is_back_says_nothing_of_a_store_that_it_was_not_asked_about(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    with mortal_postgres() as (url, machine):
        await buy(await shop(postgres={"url": url}), 100)
        machine.kill()
        worker = await shop(postgres={"url": url})
        await lose(redis, keys)
        await _found(redis, worker.settings)
        assert (await meta(redis, keys))[b"lost"] == b"new"
        machine.start()
        await until(lambda: told(worker))
        assert (await meta(redis, keys))[b"lost"] == b"other"
        await worker.admin.rebuild()
        assert await worker.get_feature("total", "u1") == 100


async def told(store: FeatureStore) -> bool:
    """Whether Postgres could be asked."""
    try:
        await maintain(store)
    except BackendError:
        return False
    return True


async def test_a_store_that_is_new_is_asked_about_by_processes_that_have_been_running(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await lose(redis, keys)
    await _found(redis, store.settings)
    assert LOST in (await store.admin.health())[0].detail
    assert (await meta(redis, keys))[b"lost"] == b"other"


async def test_a_loss_that_an_older_version_noted_is_over_only_when_it_is_rebuilt(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    await buy(await shop(), 5)
    key = keys.of("u1").entity + "User:u1"
    await redis.call(asking(key, "DEL", key))
    await redis.call(asking(keys.meta, "HDEL", keys.meta, "past"))
    await redis.call(asking(keys.meta, "HSET", keys.meta, "lost", "1"))
    store = await shop()
    assert LOST in (await store.admin.health())[0].detail
    await store.admin.rebuild()
    assert await well(store) == [True, True]
    await buy(store, 2)
    assert await store.get_feature("total", "u1") == 7


async def test_a_store_of_an_older_version_learns_which_past_is_its_own(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    await buy(await shop(), 5)
    before = await meta(redis, keys)
    await redis.call(asking(keys.meta, "HDEL", keys.meta, "past"))
    assert await well(await shop()) == [True, True]
    assert await meta(redis, keys) == before


async def test_a_rebuild_during_which_redis_loses_its_data_again_has_not_rebuilt_anything(
    shop: Shop, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buy(await shop(), 5)
    await lose(redis, keys)
    store = await shop()
    online = (await runtime_of(store).open()).backends.online
    restore = type(online).restore

    async def restore_and_lose(*arguments: object) -> None:
        await restore(*arguments)  # type: ignore[arg-type]
        await lose(redis, keys)

    with monkeypatch.context() as patch:
        patch.setattr(type(online), "restore", restore_and_lose)
        with pytest.raises(BackendError, match="run `headwater rebuild` once more"):
            await store.admin.rebuild()
    assert LOST in (await store.admin.health())[0].detail
    await store.admin.rebuild()
    assert await store.get_feature("total", "u1") == 5
    assert await well(store) == [True, True]


async def test_a_process_that_lived_through_a_loss_and_a_rebuild_is_well(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    server = await shop()
    await buy(server, 5)
    await lose(redis, keys)
    await (await shop()).admin.rebuild()
    assert await well(server) == [True, True]


async def test_a_drain_of_a_store_that_was_lost_says_so(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await lose(redis, keys)
    await store.publish("buy", "u1", {"amount": 1})
    with pytest.raises(BackendError, match=LOST):
        await store.drain()
    with pytest.raises(BackendError, match=LOST):
        await (await shop()).drain()


@pytest.mark.parametrize("news", ["agreed", "lost", "adopted", "restored"])
async def test_news_of_a_store_that_is_gone_changes_nothing(
    settings: Settings, redis: Redis, keys: Keys, news: IdentityChange
) -> None:
    opened = await open_redis(settings, SystemClock())
    before = await meta(redis, keys)
    assert not await opened.outbox.note("another", "a past", news)
    assert await meta(redis, keys) == before
    await opened.close()


async def test_a_loss_that_is_told_of_too_late_is_none(
    settings: Settings, redis: Redis, keys: Keys
) -> None:
    opened = await open_redis(settings, SystemClock())
    store_id = (await opened.outbox.standing()).store_id
    assert store_id is not None
    assert await opened.outbox.note(store_id, "a past", "restored")
    assert await opened.outbox.note(store_id, "a past", "lost")
    assert (await opened.outbox.standing()).state == "known"
    assert not await opened.outbox.note(store_id, "another past", "agreed")
    assert (await meta(redis, keys))[b"past"] == b"a past"
    await opened.close()


async def test_a_process_with_the_partitions_of_before_is_not_well_and_takes_nothing(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    server = await shop()
    await buy(server, 5)
    await lose(redis, keys)
    await (await shop(partitions=2)).admin.rebuild()
    assert "restart it with HEADWATER_PARTITIONS=2" in (await server.admin.health())[0].detail
    with pytest.raises(BackendError, match="made anew with 2 partitions"):
        await maintain(server)
    with pytest.raises(BackendError, match="made anew with 2 partitions"):
        await (await runtime_of(server).open()).backends.leases.claim("somebody", [0])


# Slips in addresses


async def test_a_mistyped_schema_takes_nothing_of_the_store_and_reads_nothing(
    shop: Shop, settings: Settings
) -> None:
    store = await shop()
    await buy(store, 5)
    await store.publish("buy", "u1", {"amount": 1})
    await store.drain()
    mistyped = await shop(postgres={"schema": settings.postgres.schema + "_typo"})
    for verb in (mistyped.admin.audit, mistyped.admin.rebuild):
        with pytest.raises(StoreMismatchError, match="is in another Postgres database"):
            await verb()
    assert await well(mistyped) == [True, False]
    assert await past(store, "total") == [5, 6]
    assert (await store.admin.audit()).differences == []


async def test_a_store_that_went_on_with_another_past_is_done_with_the_one_before(
    shop: Shop, settings: Settings
) -> None:
    await buy(await shop(), 5)
    moved = await shop(postgres={"schema": settings.postgres.schema + "_new"})
    await moved.admin.rebuild(adopt=True)
    await buy(moved, 1)
    assert await past(moved, "total") == [6]
    with pytest.raises(StoreMismatchError, match="is in another Postgres database"):
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
    with pytest.raises(StoreMismatchError, match=f"{settings.redis.prefix}-b (at|in) "):
        await offline.as_of(["total"], [Point("u1", datetime.now(UTC))])
    with pytest.raises(StoreMismatchError):
        await mixed.admin.rebuild()
    assert await store.get_feature("total", "u1") == 5
    assert await store.get_feature("total", "u2") is None
    await buy(other, 1, "u2")
    assert await past(other, "total", "u2") == [7, 8]


async def test_a_rebuild_with_a_mistyped_prefix_takes_nothing_unless_it_is_told_to_adopt(
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
    assert await mistyped.get_feature("total", "u1") is None
    assert await query(store, "SELECT count(*) FROM events") == [(4,)]
    await mistyped.admin.rebuild(adopt=True)
    assert await mistyped.get_feature("total", "u1") == 5
    assert await well(mistyped) == [True, True]

    again = await shop()
    assert await well(again) == [True, False]
    await again.publish("buy", "u1", {"amount": 1})
    await again.drain()
    with pytest.raises(StoreMismatchError, match=f"{settings.redis.prefix}-typo (at|in) "):
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
    await store.admin.rebuild()
    await buy(store, 7)
    assert await past(store, "total") == [7]
    assert await well(store) == [True, True]
