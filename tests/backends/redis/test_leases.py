"""Leases in Redis after another failure."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater import FeatureStore
from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.keys import Keys
from headwater.declarations.runtime import runtime_of
from headwater.errors import ConfigError
from headwater.settings.schema import Settings

HOUR = 3_600_000
LEASE_TTL = 60


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    opened = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def keys(settings: Settings) -> Keys:
    return Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)


async def milliseconds(client: Redis, keys: Keys) -> int:
    """Return the time of the server that has the list of workers."""
    seconds, micros = await client.call(command(keys.workers, "TIME"))
    return int(seconds) * 1_000 + int(micros) // 1_000


async def test_a_worker_that_died_before_the_clock_was_set_back_is_given_up(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    lease = keys.parts[1].lease
    async with FeatureStore(settings=settings.replace(worker={"lease_ttl": LEASE_TTL})) as store:
        backends = (await runtime_of(store).open()).backends
        await backends.leases.register("dead")
        assert await backends.leases.claim("dead", [1])
        (dead,) = await client.call(command(keys.workers, "ZRANGE", keys.workers, 0, -1))
        ahead = await milliseconds(client, keys) + HOUR
        await client.call(command(keys.workers, "ZADD", keys.workers, ahead, dead))
        await client.call(command(lease, "PEXPIRE", lease, HOUR))
        await backends.leases.register("w1")
        assert await backends.leases.claim("w1", [1]) == []
        # Both now end by the clock as it is.
        beat = int(await client.call(command(keys.workers, "ZSCORE", keys.workers, dead)))
        assert beat <= await milliseconds(client, keys)
        assert await client.call(command(lease, "PTTL", lease)) <= LEASE_TTL * 1_000
        over = beat - LEASE_TTL * 1_000
        await client.call(command(keys.workers, "ZADD", keys.workers, over, dead))
        await client.call(command(lease, "DEL", lease))
        assert await backends.leases.heartbeat("w1", []) == ["w1"]
        (claimed,) = await backends.leases.claim("w1", [1])
        assert claimed.suspect


async def test_a_partition_that_cannot_be_claimed_keeps_no_other_from_it(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    async with FeatureStore(settings=settings) as store:
        backends = (await runtime_of(store).open()).backends
        await client.call(command(keys.parts[0].events, "SET", keys.parts[0].events, "something"))
        await backends.leases.register("w1")
        leases = await backends.leases.claim("w1", range(settings.partitions + 1))
        assert [lease.partition for lease in leases] == [1, 2, 3, 4]
        await client.call(command(keys.parts[0].events, "DEL", keys.parts[0].events))
        (lease,) = await backends.leases.claim("w1", [0])
        assert lease.partition == 0


async def test_the_first_worker_of_a_group_keeps_the_events_of_all_partitions_for_it(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    async with FeatureStore(settings=settings) as store:
        leases = (await runtime_of(store).open()).backends.leases
        await leases.register("w1")
        await leases.claim("w1", [0])
        for part in keys.parts:
            groups = await client.call(command(part.events, "XINFO", "GROUPS", part.events))
            assert len(groups) == 1


async def test_a_bad_connection_keeps_no_dead_worker_alive(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    async def beat(worker: str, cut_off: int) -> list[bytes]:
        call = script_call(
            "heartbeat",
            [keys.workers, keys.declared],
            *(worker, HOUR, keys.wake, cut_off, "one", "[]", "code"),
        )
        living: list[bytes] = (await client.call(call))[0]
        return living

    seconds, _ = await client.call(command(keys.workers, "TIME"))
    long_ago = int(seconds) * 1_000 - 2 * HOUR
    for well, heard in ((False, [b"dead", b"flaky"]), (True, [b"flaky", b"well"])):
        await client.call(command(keys.workers, "ZADD", keys.workers, long_ago, "onedead"))
        if well:
            await beat("well", 0)
            await client.call(command(keys.workers, "ZADD", keys.workers, long_ago, "onedead"))
        assert sorted(await beat("flaky", 2 * HOUR)) == heard
        await client.call(command(keys.workers, "DEL", keys.workers))


async def test_generations_go_on_when_the_declared_sets_were_lost(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    async with FeatureStore(settings=settings) as store:
        leases = (await runtime_of(store).open()).backends.leases
        await leases.register("w1", ["a"])
        await leases.claim("w1", [0])
        await client.call(command(keys.declared, "DEL", keys.declared))
        await leases.heartbeat("w1", [])
        assert len(await leases.claim("w1", [0, 1])) == 2


async def test_old_sets_of_features_are_forgotten(
    settings: Settings, client: Redis, keys: Keys
) -> None:
    async with FeatureStore(settings=settings) as store:
        leases = (await runtime_of(store).open()).backends.leases
        await leases.register("stays", ["first"])
        for number in range(40):
            await leases.register("deployed", [f"version {number}"])
            await leases.deregister("deployed")
        await leases.heartbeat("stays", [])
        assert await client.call(command(keys.declared, "HLEN", keys.declared)) <= 24
        assert await leases.current_set("stays") == {"first"}


@pytest.mark.parametrize(
    "section", [{"redis": {"prefix": "a{b}"}}, {"worker": {"consumer_group": "a{b}"}}]
)
async def test_a_name_that_would_choose_the_slot_of_its_keys_is_refused(
    settings: Settings, section: dict[str, dict[str, str]]
) -> None:
    store = FeatureStore(settings=settings.replace(**section))
    with pytest.raises(ConfigError, match="may have letters, digits"):
        await store.open()
