"""One master of a cluster fails, hangs or moves: the others continue, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis as peer

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.core.partitioning import partition_of
from headwater.settings.schema import Settings
from tests.engine.support import until

PARTITIONS = 8
PAUSE_SECONDS = 4


class Masters:
    """The masters of a cluster and their slots."""

    def __init__(self, url: str, keys: Keys) -> None:
        self._keys = keys
        with peer.Redis.from_url(url) as seed:
            self._ranges = _ask(seed, "CLUSTER", "SLOTS")
            self._port: int = seed.connection_pool.connection_kwargs["port"]

    def slot(self, key: str) -> int:
        return int(self.ask(self._port, "CLUSTER", "KEYSLOT", key))

    def with_slot(self, slot: int) -> int:
        """Return the port of the master that has a slot."""
        (port,) = [own[1] for first, last, own, *_ in self._ranges if first <= slot <= last]
        return int(port)

    @property
    def channel(self) -> str:
        return self._keys.wake

    def partition(self, entity_id: str) -> int:
        return partition_of(entity_id, self._keys.partitions)

    def with_entity(self, entity_id: str) -> int:
        return self.with_slot(self.slot(self._keys.of(entity_id).events))

    @property
    def ports(self) -> list[int]:
        return [int(own[1]) for _, _, own, *_ in self._ranges]

    def ask(self, port: int, *command: object) -> Any:
        with peer.Redis(port=port) as master:
            return _ask(master, *command)

    def ask_all(self, *command: object) -> None:
        for port in self.ports:
            self.ask(port, *command)

    def is_busy(self, port: int) -> bool:
        """Return whether a master is refusing commands because it runs a script."""
        try:
            self.ask(port, "PING")
        except peer.ResponseError as error:
            return str(error).startswith("BUSY")
        return False


def _ask(master: peer.Redis, *command: object) -> Any:
    return master.execute_command(*command)  # type: ignore[no-untyped-call]


@pytest.fixture
def settings(production: Settings, cluster_url: str) -> Settings:
    return production.replace(
        redis={"url": cluster_url}, partitions=PARTITIONS, worker={"poll_interval": 0.1}
    )


@pytest.fixture(autouse=True)
def patient_masters() -> None:
    """Wait no longer than usual: masters that do not answer are the subject of these tests."""


@pytest.fixture
def masters(settings: Settings) -> Masters:
    keys = Keys(settings.redis.prefix, PARTITIONS, settings.worker.consumer_group)
    return Masters(settings.redis.url, keys)


@pytest.fixture
def apart(masters: Masters) -> tuple[str, str]:
    """Two entities on different masters."""
    first, *others = [f"u{number}" for number in range(100)]
    home = masters.with_entity(first)
    return first, next(other for other in others if masters.with_entity(other) != home)


async def until_seen(store: FeatureStore, name: str, entity_id: str, value: int) -> None:
    async def is_seen() -> bool:
        return bool(await store.get_feature(name, entity_id) == value)

    await until(is_seen)


async def test_writes_to_an_unavailable_master_are_sent_when_it_recovers(
    store: FeatureStore, user: type, masters: Masters, apart: tuple[str, str]
) -> None:
    giver, friend = apart

    @feature(entity=user, trigger="gift")
    async def received(user_id: str, event: ServiceEvent) -> int:
        return 0

    @feature(entity=user, trigger="give")
    async def given(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("received", friend, 7)
        return 1

    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await store.publish("give", giver, {})
    full = masters.with_entity(friend)
    masters.ask(full, "CONFIG", "SET", "maxmemory", 1)
    try:
        await until_seen(store, "given", giver, 1)
        assert await store.get_feature("received", friend) is None
    finally:
        masters.ask(full, "CONFIG", "SET", "maxmemory", 0)
    await until_seen(store, "received", friend, 7)
    worker.stop()
    await running


async def test_a_master_that_stands_still_does_not_keep_the_events_of_the_others_waiting(
    store: FeatureStore, user: type, masters: Masters, apart: tuple[str, str]
) -> None:
    quick, stuck = apart
    amount = 1

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    for entity_id in apart:
        await store.publish("buy", entity_id, {"amount": amount})
        await until_seen(store, "total", entity_id, amount)
    home, paused = masters.with_entity(quick), masters.with_entity(stuck)

    async def is_handled_meanwhile() -> bool:
        nonlocal amount
        amount += 1
        masters.ask(paused, "CLIENT", "PAUSE", PAUSE_SECONDS * 1000, "ALL")
        answering = asyncio.create_task(asyncio.to_thread(masters.ask, paused, "PING"))
        # Pretend that the unreachable server has new events.
        masters.ask(home, "PUBLISH", masters.channel, masters.partition(stuck))
        await store.publish("buy", quick, {"amount": amount})
        await until_seen(store, "total", quick, amount)
        was_paused = not answering.done()
        await answering
        return was_paused

    await until(is_handled_meanwhile)
    await store.publish("buy", stuck, {"amount": amount})
    await until_seen(store, "total", stuck, amount)
    worker.stop()
    await running


async def test_a_busy_master_is_not_the_failure_of_a_handler_that_reads_from_it(
    store: FeatureStore, user: type, masters: Masters, apart: tuple[str, str]
) -> None:
    reader, stuck = apart
    runs = 0

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="look", max_retries=0)
    async def seen(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        return int(await store.get_feature("total", stuck))

    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    for entity_id in apart:
        await store.publish("buy", entity_id, {})
        await until_seen(store, "total", entity_id, 1)
    busy = masters.with_entity(stuck)
    masters.ask(busy, "CONFIG", "SET", "busy-reply-threshold", 1)
    _, script = await asyncio.open_connection("127.0.0.1", busy)
    script.write(b'EVAL "while true do end" 0\r\n')
    try:
        await until(lambda: masters.is_busy(busy))
        await store.publish("look", reader, {})
        await until(lambda: runs >= 3)
    finally:
        masters.ask(busy, "SCRIPT", "KILL")
        masters.ask(busy, "CONFIG", "SET", "busy-reply-threshold", 5000)
        script.close()
    await until_seen(store, "seen", reader, 1)
    assert await store.dead_letters.list() == []
    worker.stop()
    await running


@pytest.mark.parametrize("endpoint", ["ip", "unknown-endpoint"])
async def test_masters_that_send_us_to_one_another_are_given_time_to_agree(
    settings: Settings, masters: Masters, endpoint: str
) -> None:
    masters.ask_all("CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint)
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    slot = masters.slot("moves")
    owner = masters.with_slot(slot)
    other = next(port for port in masters.ports if port != owner)

    def give_to(port: int) -> None:
        node = masters.ask(port, "CLUSTER", "MYID")
        masters.ask(owner, "CLUSTER", "SETSLOT", slot, "NODE", node)

    def redirections() -> int:
        found = [masters.ask(port, "INFO", "errorstats") for port in (owner, other)]
        return sum(each.get("errorstat_MOVED", {}).get("count", 0) for each in found)

    before = redirections()
    give_to(other)
    try:
        calling = asyncio.create_task(client.call(command("moves", "EXISTS", "moves")))
        await until(lambda: redirections() >= before + 3)
    finally:
        give_to(owner)
        masters.ask_all("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
    assert await calling == 0
    await client.close()
