"""Behaviour that only Redis has: foreign entries, trimming, lost data, other groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.store_identity import create_store
from headwater.core.partitioning import partition_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, ConfigError, StoreLostError
from headwater.settings.schema import Settings
from tests.engine.support import backlog, past, query, until


@pytest.fixture
def keys(settings: Settings) -> Keys:
    group = settings.worker.consumer_group
    return Keys(settings.redis.prefix, settings.partitions, group)


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """A connection for the test."""
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    yield client
    await client.close()


def declare_total(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature("total", user_id) or 0
        return int(before + event.payload["amount"])


@pytest.mark.parametrize(
    "fields",
    [
        ["what", "is this"],
        ["t", "buy", "k", "u1", "e", "{"],
        ["t", "buy", "k", "u1", "e", '{"event_type": "buy", "entity_id": ""}'],
        ["t", "buy", "k", "u1", "e", '{"event_type": "buy", "entity_id": "u2"}'],
        ["t", "buy", "k", b"\xff", "e", b"\xff"],
    ],
)
async def test_a_malformed_entry_becomes_a_dead_letter_and_does_not_block_others(
    store: FeatureStore, user: type, redis: Redis, keys: Keys, fields: list[str]
) -> None:
    declare_total(store, user)
    await store.publish("buy", "u1", {"amount": 1})
    stream = keys.of("u1").events
    await redis.call(command(stream, "XADD", stream, "*", *fields))
    await store.publish("buy", "u1", {"amount": 2})
    await store.drain()
    assert await store.get_feature("total", "u1") == 3
    (letter,) = await store.dead_letters.list()
    assert "malformed entry" in letter.error
    assert len(letter.event.payload["fields"]) == len(fields)
    assert await query(store, "SELECT count(*) FROM events") == [(2,)]


async def test_each_entity_gets_its_own_state_in_a_page_of_odd_entries(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    @entity(store)
    class Basket:
        basket_id: str

    @feature(entity=Basket, trigger="buy")
    async def bought(basket_id: str, event: ServiceEvent) -> int:
        return int((await store.get_feature("bought", basket_id) or 0) + 1)

    declare_total(store, user)
    part = keys.of("u1")
    together = [name for name in map("u{}".format, range(2, 200)) if keys.of(name) is part][:2]
    for name in ("u1", *together):
        await store.publish("buy", name, {"amount": 1})
    await store.drain()
    odd: list[list[str | bytes]] = [
        ["t", "buy", "k", b"\xff", "e", "{"],
        ["t", "buy", "k", b"\xfe", "e", "{"],
        ["t", "buy"],
        ["t", "buy", "k", together[0], "e", "{"],
        ["t", "buy", "k", "u1", "e", "{}", "o", "x/total"],
    ]
    for fields, name in zip(odd, ("u1", *together, "u1", together[0]), strict=True):
        await redis.call(command(part.events, "XADD", part.events, "*", *fields))
        await store.publish("buy", name, {"amount": 10})
    await store.drain()
    values = await store.get_features(["total"], ["u1", *together])
    assert [row["total"] for row in values.values()] == [21, 21, 11]
    values = await store.get_features(["bought"], ["u1", *together])
    assert [row["bought"] for row in values.values()] == [3, 3, 2]
    assert len(await store.dead_letters.list()) == len(odd)


async def test_a_write_to_an_entity_on_any_shard_arrives_once(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="gift")
    async def received(user_id: str, event: ServiceEvent) -> int:
        return 0

    @feature(entity=user, trigger="give")
    async def given(user_id: str, event: ServiceEvent) -> int:
        for number in range(20):
            await store.set_feature("received", f"friend{number}", event.payload["amount"])
        return int(event.payload["amount"])

    for amount in (1, 2, 3):
        await store.publish("give", "u1", {"amount": amount})
        await store.drain()
    friends = [f"friend{number}" for number in range(20)]
    values = await store.get_features(["received"], friends)
    assert {row["received"] for row in values.values()} == {3}
    for friend in friends:
        assert await past(store, "received", friend) == [1, 2, 3]
    assert (await store.admin.audit()).differences == []


async def test_events_are_trimmed_when_they_are_handled_and_copied_and_not_before(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    declare_total(store, user)
    offline = (await runtime_of(store).open()).backends.offline
    stream = keys.of("u1").events

    async def length() -> int:
        count: int = await redis.call(command(stream, "XLEN", stream))
        return count

    for _ in range(3):
        await store.publish("buy", "u1", {"amount": 1})
    await offline.maintain()
    assert await length() == 3
    await store.drain()
    await offline.maintain()
    assert await length() == 0
    assert await query(store, "SELECT count(*) FROM events") == [(3,)]


async def test_events_wait_for_the_slowest_group(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    declare_total(store, user)
    stream = keys.of("u1").events
    await store.publish("buy", "u1", {"amount": 1})
    await redis.call(command(stream, "XGROUP", "CREATE", stream, "auditors", "0"))
    await store.drain()
    offline = (await runtime_of(store).open()).backends.offline
    await offline.maintain()
    assert await redis.call(command(stream, "XLEN", stream)) == 1
    await redis.call(command(stream, "XGROUP", "SETID", stream, "auditors", "$"))
    await store.publish("buy", "u1", {"amount": 1})
    await store.drain()
    await offline.maintain()
    assert await redis.call(command(stream, "XLEN", stream)) == 1


async def test_the_consumer_groups_own_lag_tells_the_truth(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    declare_total(store, user)
    stream = keys.of("u1").events

    async def lag() -> object:
        (group,) = await redis.call(command(stream, "XINFO", "GROUPS", stream))
        known = dict(zip(group[::2], group[1::2], strict=True))
        return known[b"name"], known[b"pending"], known[b"lag"]

    await store.publish("buy", "u1", {"amount": 1})
    await store.drain()
    assert await lag() == (b"headwater_workers", 0, 0)
    for _ in range(3):
        await store.publish("buy", "u1", {"amount": 1})
    assert await lag() == (b"headwater_workers", 0, 3)
    await store.drain()
    assert await lag() == (b"headwater_workers", 0, 0)


async def test_dead_letters_lie_in_one_stream_of_that_name(
    store: FeatureStore, user: type, redis: Redis, keys: Keys, settings: Settings
) -> None:
    declare_total(store, user)
    for number in range(4):
        await store.publish("buy", f"u{number}", {})
    await store.drain()
    assert keys.dead == f"{settings.redis.prefix}:dlq"
    assert await redis.call(command(keys.dead, "XLEN", keys.dead)) == 4
    for own in keys.parts:
        assert await redis.call(command(own.dead, "XLEN", own.dead)) == 0


async def test_the_oldest_event_ids_are_forgotten_when_there_are_too_many(
    store: FeatureStore, settings: Settings, redis: Redis, keys: Keys
) -> None:
    await runtime_of(store).rebind(settings.replace(ingest={"dedup_limit": 4 * 3}), store.clock)
    ids = [f"e{number}" for number in range(5)]
    for event_id in ids:
        await store.bus.publish_many([ServiceEvent("buy", "u1", {}, event_id=event_id)])
    again = [
        (await store.bus.publish_many([ServiceEvent("buy", "u1", {}, event_id=event_id)]))[0]
        for event_id in reversed(ids)
    ]
    assert [answer.duplicate for answer in again] == [True, True, True, False, False]
    own = keys.of("u1")
    assert await redis.call(command(own.seen, "ZCARD", own.seen)) == 3
    assert await redis.call(command(own.accepted, "HLEN", own.accepted)) == 3


async def spend_five(store: FeatureStore, user: type) -> None:
    declare_total(store, user)
    await store.publish("buy", "u1", {"amount": 5})
    await store.drain()


async def lose(store: FeatureStore, redis: Redis, keys: Keys) -> None:
    """Remove the store and its values from Redis, after its history was copied."""
    await (await runtime_of(store).open()).backends.offline.maintain()
    for key in [keys.meta, *(part.entity + "User:u1" for part in keys.parts)]:
        await redis.call(command(key, "DEL", key))


async def test_a_redis_that_lost_its_data_is_reported_until_it_is_rebuilt(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    await spend_five(store, user)
    await lose(store, redis, keys)
    assert "the store is missing from Redis" in (await store.admin.health())[0].detail
    await store.close()
    with pytest.raises(StoreLostError, match="headwater rebuild --adopt"):
        await store.get_feature("total", "u1")
    (redis_health, _) = await store.admin.health()
    assert not redis_health.ok
    assert "headwater rebuild --adopt" in redis_health.detail
    await store.admin.rebuild(adopt=True)
    assert await store.get_feature("total", "u1") == 5
    assert all(health.ok for health in await store.admin.health())


async def test_a_worker_on_a_redis_that_lost_its_data_waits_until_it_is_rebuilt(
    store: FeatureStore, user: type, redis: Redis, keys: Keys, settings: Settings
) -> None:
    declare_total(store, user)
    await runtime_of(store).rebind(settings.replace(worker={"lease_ttl": 2}), store.clock)
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await store.publish("buy", "u1", {"amount": 5})

    async def total() -> bool:
        return bool(await store.get_feature("total", "u1") == 5)

    await until(total)
    await (await runtime_of(store).open()).backends.offline.maintain()
    for part in keys.parts:
        own = (part.events, part.changes, part.outbox, part.group, part.lease, part.idle)
        for key in (*own, part.entity + "User:u1", keys.meta):
            await redis.call(command(key, "DEL", key))
    await store.publish("buy", "u1", {"amount": 2})

    async def unowned() -> bool:
        return all(lag.owner is None for lag in await store.admin.lag())

    await until(unowned)

    async def refused() -> bool:
        # A read asks at most once a second whether the store is lost.
        try:
            await store.get_feature("total", "u1")
        except StoreLostError:
            return True
        return False

    await until(refused)
    state = keys.of("u1").state(("User", "u1"))
    assert await redis.call(command(state, "EXISTS", state)) == 0
    async with FeatureStore(settings=settings) as operator:

        @entity(operator)
        class User:
            user_id: str

        declare_total(operator, User)
        assert await backlog(operator) == 1
        await operator.admin.rebuild(adopt=True)
    await until(lambda: seven(store))
    worker.stop()
    await running


async def seven(store: FeatureStore) -> bool:
    return bool(await store.get_feature("total", "u1") == 7)


async def test_opening_a_store_that_was_lost_gives_no_worker_a_partition_meanwhile(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    await spend_five(store, user)
    backends = (await runtime_of(store).open()).backends
    await redis.call(command(keys.meta, "DEL", keys.meta))
    await create_store(redis, store.settings)
    with pytest.raises(BackendError, match="Postgres has not confirmed"):
        await backends.leases.claim("somebody", [0])


async def test_a_rebuild_in_a_process_that_had_the_store_open_heals_it(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    await spend_five(store, user)
    await lose(store, redis, keys)
    await store.admin.rebuild(adopt=True)
    assert all(health.ok for health in await store.admin.health())
    await store.publish("buy", "u1", {"amount": 2})
    await store.drain()
    assert await store.get_feature("total", "u1") == 7
    assert await past(store, "total") == [5, 7]


async def test_another_postgres_leaves_the_store_in_redis_as_it_is(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    await spend_five(store, user)
    schema = settings.postgres.schema + "_other"
    elsewhere = settings.replace(
        postgres={"schema": schema}, redis={"prefix": settings.redis.prefix + "-other"}
    )
    async with FeatureStore(settings=elsewhere) as other:
        await other.open()
    async with FeatureStore(settings=settings.replace(postgres={"schema": schema})) as mixed:
        await mixed.publish("buy", "u1", {"amount": 1})
        with pytest.raises(BackendError, match="holds the history of store "):
            await (await runtime_of(mixed).open()).backends.offline.maintain()
        assert [health.ok for health in await mixed.admin.health()] == [True, False]
    assert all(health.ok for health in await store.admin.health())
    await store.drain()
    assert await store.get_feature("total", "u1") == 6
    assert await past(store, "total") == [5, 6]


async def test_a_mistyped_prefix_takes_nothing_from_the_store_that_is_well(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    await spend_five(store, user)
    await (await runtime_of(store).open()).backends.offline.maintain()
    mistyped = settings.replace(redis={"prefix": settings.redis.prefix + "-typo"})
    async with FeatureStore(settings=mistyped) as other:
        await other.publish("buy", "u1", {"amount": 100})
        assert await other.dead_letters.list() == []
        assert "redis.prefix" in (await other.admin.health())[0].detail
        with pytest.raises(BackendError, match="holds the history of store "):
            await (await runtime_of(other).open()).backends.offline.maintain()
        with pytest.raises(BackendError, match=r"workers wait .* redis\.prefix"):
            await (await runtime_of(other).open()).backends.leases.claim("somebody", [0])
    async with FeatureStore(settings=settings) as again:
        assert all(health.ok for health in await again.admin.health())
    assert await query(store, "SELECT count(*) FROM events") == [(1,)]


async def test_a_store_made_with_another_number_of_partitions_is_refused(
    store: FeatureStore, settings: Settings
) -> None:
    await store.open()
    other = FeatureStore(settings=settings.replace(partitions=8))
    with pytest.raises(ConfigError, match="HEADWATER_PARTITIONS=4"):
        await other.open()


async def test_a_key_of_another_program_is_named_and_nothing_is_half_written(
    store: FeatureStore, user: type, redis: Redis, keys: Keys
) -> None:
    declare_total(store, user)
    key = keys.of("u1").state(("User", "u1"))
    await redis.call(command(key, "LPUSH", key, "not ours"))
    with pytest.raises(BackendError, match=r"redis\.prefix"):
        await store.set_feature("total", "u1", 1)
    assert await query(store, "SELECT count(*) FROM feature_history") == [(0,)]


async def test_two_workers_without_any_fault_lose_no_update_of_a_hot_entity(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    declare_total(store, user)
    workers = [Worker(store), Worker(store)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    ids = [f"u{number}" for number in range(3)]
    for _ in range(30):
        await store.bus.publish_many(
            [ServiceEvent("buy", entity_id, {"amount": 1}) for entity_id in ids * 10]
        )

    async def done() -> bool:
        return await backlog(store) == 0

    await until(done)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    rows = await store.get_features(["total"], ids)
    assert [row["total"] for row in rows.values()] == [300, 300, 300]


async def test_partitions_move_at_once_when_a_worker_leaves(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    declare_total(store, user)
    await runtime_of(store).rebind(settings.replace(worker={"lease_ttl": 60}), store.clock)
    first, second = Worker(store), Worker(store)
    first.name, second.name = "first", "second"  # by these names, each wants some of the few
    one = asyncio.create_task(first.run())
    bus = (await runtime_of(store).open()).backends.bus

    async def owned_by(count: int) -> bool:
        return len({lag.owner for lag in await bus.lag()} - {None}) == count

    await until(lambda: owned_by(1))
    two = asyncio.create_task(second.run())
    await until(lambda: owned_by(2))
    first.stop()
    await one

    async def all_moved() -> bool:
        return {lag.owner for lag in await bus.lag()} == {second.name}

    await until(all_moved)
    second.stop()
    await two


async def test_partition_of_matches_the_keys(keys: Keys) -> None:
    for number in range(50):
        entity_id = f"u{number}"
        partition = partition_of(entity_id, keys.partitions)
        assert keys.of(entity_id).events.endswith(f"{{p{partition:02d}}}:events")
