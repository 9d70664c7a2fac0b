"""A Redis that was restored from an older copy serves no value that Postgres has a newer one of."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import redis as redis_py

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.backends import connect
from headwater.backends.postgres import outbox_consumer
from headwater.backends.redis.client import Redis
from headwater.backends.redis.keys import Keys
from headwater.core.partitioning import partition_of
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.errors import BackendUnavailableError, StoreLostError
from headwater.features import store_loss
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from tests.backends.redis.older_copies import copied, restored
from tests.engine.support import backlog, past, query, records, until
from tests.servers import valkey_machine

Shop = Callable[..., Awaitable[FeatureStore]]
OTHER = "u2"
"""A user of another partition than u1."""


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    yield client
    await client.close()


@pytest.fixture
def keys(settings: Settings) -> Keys:
    assert partition_of("u1", settings.partitions) != partition_of(OTHER, settings.partitions)
    return Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[Shop]:
    """Open the store as another process would."""
    async with AsyncExitStack() as opened:

        async def open_one(**changes: object) -> FeatureStore:
            store = FeatureStore(settings=settings.replace(**changes))

            @entity(store)
            class User:
                user_id: str

            @feature(entity=User, trigger="buy", default=0, max_retries=0)
            async def total(user_id: str, event: ServiceEvent) -> int:
                before = await store.get_feature("total", user_id)
                return int(before + event.payload["amount"])

            @feature(entity=User, trigger="order", window="1h", aggregate=["sum", "count"])
            def orders(user_id: str, event: ServiceEvent) -> int:
                return int(event.payload["amount"])

            @feature(entity=User, trigger="gift", default=0, max_retries=0)
            async def received(user_id: str, event: ServiceEvent) -> int:
                return int(await store.get_feature("total", event.payload["giver"]))

            @context(store)
            async def greeting(user_id: str) -> str:
                return f"{await store.get_feature('total', user_id)} spent"

            return await opened.enter_async_context(store)

        yield open_one


async def buy(store: FeatureStore, amount: int, user_id: str = "u1") -> None:
    """Let a user buy something, and copy it to Postgres."""
    await store.publish("buy", user_id, {"amount": amount})
    await store.drain()
    await (await runtime_of(store).open()).backends.offline.maintain()


@asynccontextmanager
async def working(store: FeatureStore) -> AsyncIterator[None]:
    """Let a worker run meanwhile."""
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await running


async def has_total(store: FeatureStore, total: int, user_id: str = "u1") -> bool:
    return bool(await store.get_feature("total", user_id) == total)


async def has_orders(store: FeatureStore, count: int) -> bool:
    return bool(await store.get_feature("orders_count_1h", OTHER) == count)


async def is_refused(store: FeatureStore, user_id: str = "u1") -> bool:
    try:
        await store.get_feature("total", user_id)
    except StoreLostError:
        return True
    return False


async def test_a_process_that_opens_a_restored_store_refuses_its_reads_contexts_and_work(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await store.close()
    await restored(redis, keys, copy)
    again = await shop()
    assert await is_refused(again)
    with pytest.raises(StoreLostError, match="`headwater rebuild --adopt` restores them"):
        await again.assemble("greeting", {"user_id": "u1"})
    await again.publish("buy", "u1", {"amount": 10})
    with pytest.raises(StoreLostError, match="their workers wait and new events are kept"):
        await again.drain()
    (in_redis, in_postgres) = await again.admin.health()
    assert "restored from an older copy" in in_redis.detail
    assert "headwater rebuild --adopt" in in_postgres.detail
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(again)), base_url="http://localhost"
    ) as client:
        read = await client.get("/v1/features/total?entity_id=u1")
        assert (read.status_code, read.json()["type"]) == (503, "urn:headwater:problem:store-lost")
        ready = (await client.get("/readyz")).json()
    # A cluster of which only one server was restored serves the entities of the others.
    assert ready["status"] == ("degraded" if redis.clustered else "not ready")
    await again.admin.rebuild(adopt=True)
    assert await again.get_feature("total", "u1") == 7
    await again.drain()
    assert await again.get_feature("total", "u1") == 17
    assert (await again.assemble("greeting", {"user_id": "u1"})).freshness_status == "guaranteed"
    assert [part.ok for part in await again.admin.health()] == [True, True]


@pytest.mark.parametrize("settings", ["cluster"], indirect=True)
async def test_of_a_restored_partition_alone_reads_are_refused_and_workers_stop(
    shop: Shop, redis: Redis, keys: Keys, capfd: pytest.CaptureFixture[str]
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await buy(store, 3, OTHER)
    await restored(redis, keys, copy, partition_of("u1", keys.partitions))
    again = await shop()
    assert await is_refused(again)
    assert await again.get_feature("total", OTHER) == 3
    async with working(again):
        await again.publish("buy", OTHER, {"amount": 1})
        await again.publish("buy", "u1", {"amount": 10})
        await until(lambda: has_total(again, 4, OTHER))
        # The handler of an event of another partition gets no old value either.
        await again.publish("gift", OTHER, {"giver": "u1"})
        await until(lambda: bool(records(capfd.readouterr().err, "commit failed; retrying")))
        assert await backlog(again) == 2
        await again.admin.rebuild(adopt=True)
        await until(lambda: has_total(again, 17))
    await again.drain()
    assert await again.get_feature("received", OTHER) in (7, 17)
    assert await again.dead_letters.list() == []
    assert (await again.admin.audit()).differences == []


async def test_a_worker_whose_lease_is_in_the_copy_stops_when_the_restore_is_noticed(
    shop: Shop, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_PROOF_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(outbox_consumer, "FRESH_SECONDS", 0.0)
    store, server = await shop(), await shop()
    async with working(store):
        await store.publish("buy", "u1", {"amount": 5})
        await until(lambda: has_total(store, 5))
        await (await runtime_of(store).open()).backends.offline.maintain()
        copy = await copied(redis, keys)
        await store.publish("buy", "u1", {"amount": 2})
        await until(lambda: has_total(store, 7))
        await (await runtime_of(store).open()).backends.offline.maintain()
        await restored(redis, keys, copy)
        # Reads compare both servers in the background, also where no worker runs.
        await until(lambda: is_refused(server))
        assert await is_refused(store)
        await server.publish("buy", "u1", {"amount": 10})
        await server.admin.rebuild(adopt=True)
        await until(lambda: has_total(store, 17))
    assert (await server.admin.audit()).differences == []


async def test_those_who_prefer_defaults_get_no_old_value_and_no_guarantee(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await restored(redis, keys, copy)
    again = await shop(lost_store="defaults")
    (row,) = await again.get_feature_values(["total"], ["u1"])
    assert (row["total"].value, row["total"].source) == (0, "default")
    assert await again.get_feature("total", "u1") == 0
    made = await again.assemble("greeting", {"user_id": "u1"})
    assert made.freshness_status == "degraded"
    assert [(broken.kind, broken.reason) for broken in made.freshness_violations] == [
        ("store", "lost")
    ]


async def test_a_copy_that_was_exchanged_for_the_newest_one_is_served_again(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    older = await copied(redis, keys)
    await buy(store, 2)
    newest = await copied(redis, keys)
    partition = partition_of("u1", keys.partitions)
    await restored(redis, keys, older, partition)
    again = await shop()
    assert await is_refused(again)
    await restored(redis, keys, newest, partition)
    await again.admin.health()
    assert await again.get_feature("total", "u1") == 7
    await buy(again, 1)
    assert await again.get_feature("total", "u1") == 8


async def test_an_entity_that_was_forgotten_after_the_copy_does_not_come_back(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await store.publish("buy", "u1", {"amount": "a secret"})
    await store.drain()
    assert len(await store.dead_letters.list()) == 1
    copy = await copied(redis, keys)
    await store.admin.forget("User", "u1", reason="asked for it")
    await restored(redis, keys, copy)
    again = await shop()
    assert await is_refused(again)
    await again.admin.rebuild(adopt=True)
    assert await again.get_feature("total", "u1") == 0
    assert await again.dead_letters.list() == []
    await again.drain()
    assert await again.dead_letters.list() == []
    assert await again.get_feature("total", "u1") == 0
    assert (await again.admin.audit()).differences == []


async def test_values_that_were_restored_from_history_after_the_copy_are_missed(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    backends = (await runtime_of(store).open()).backends
    await backends.online.forget("User", "u1")
    copy = await copied(redis, keys)
    await store.admin.rebuild()
    await backends.offline.maintain()
    await restored(redis, keys, copy)
    again = await shop()
    assert await is_refused(again)
    await again.admin.rebuild(adopt=True)
    assert await again.get_feature("total", "u1") == 5


async def test_a_copy_from_before_a_switch_of_versions_is_refused_and_gets_the_catalog_back(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store, running = await shop(), await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await store.catalog.rename("total", "spent")
    await running.admin.lag()
    await (await runtime_of(running).open()).catalog.follow()
    await restored(redis, keys, copy)
    again = await shop()
    (in_redis, in_postgres) = await again.admin.health()
    assert "versions of features that Redis lacks" in in_redis.detail
    assert "the catalog of features in Redis has the revision" in in_postgres.detail
    assert await is_refused(again)
    # A process that knows the newer catalog neither goes back nor writes over it.
    catalog = (await runtime_of(running).open()).backends.catalog
    with pytest.raises(BackendUnavailableError, match="went back from revision"):
        await catalog.load()
    await again.admin.rebuild(adopt=True)
    assert "spent" in {entry.feature for entry in (await catalog.load()).features.values()}


async def test_what_workers_computed_from_old_values_is_computed_again(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await buy(store, 1, OTHER)
    await restored(redis, keys, copy)
    # Nobody has noticed yet: the worker takes 5 for the present total.
    await store.publish("buy", "u1", {"amount": 10})
    await Worker(store).drain()
    again = await shop()
    assert await is_refused(again)
    await again.set_feature("total", "u9", 9)
    await again.admin.rebuild(adopt=True)
    assert await again.get_feature("total", "u1") == 7
    await again.drain()
    totals = [await again.get_feature("total", user) for user in ("u1", OTHER, "u9")]
    assert totals == [17, 1, 9]
    assert await past(again, "total") == [5, 7, 17]
    assert (await again.admin.audit()).differences == []


async def test_contributions_to_windows_that_were_discarded_count_once(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await restored(redis, keys, copy)
    now = store.clock.now()
    for user_id in ("u1", "u3"):
        for minutes in (1, 9):  # the second one is late
            at = now - timedelta(minutes=minutes)
            await store.publish("order", user_id, {"amount": minutes}, timestamp=at)
    await Worker(store).drain()
    again = await shop()
    await again.admin.rebuild(adopt=True)
    await again.drain()
    found = await again.get_features(["orders_sum_1h", "orders_count_1h"], ["u1", "u3"])
    assert [list(values.values()) for values in found.values()] == [[10, 2], [10, 2]]
    assert (await again.admin.audit()).differences == []


async def test_events_that_only_postgres_has_are_handled_once_and_their_ids_are_known(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    copy = await copied(redis, keys)
    handled = await store.publish("buy", "u1", {"amount": 2}, event_id="handled")
    await store.drain()
    waiting = await store.publish("buy", "u1", {"amount": 3}, event_id="waiting")
    await (await runtime_of(store).open()).backends.offline.maintain()
    await restored(redis, keys, copy)
    again = await shop()
    # The sender of the handled event sends it again, because it got no answer.
    await again.bus.publish_many([handled])
    await again.publish("buy", "u1", {"amount": 10}, event_id="new")
    await again.admin.rebuild(adopt=True)
    for event in (handled, waiting):
        (result,) = await again.bus.publish_many([event])
        assert result.duplicate
    await again.drain()
    assert await again.get_feature("total", "u1") == 5 + 2 + 3 + 10
    ids = "SELECT event_id, count(*) FROM events GROUP BY event_id"
    assert {count for _, count in await query(again, ids)} == {1}
    assert (await again.admin.audit()).differences == []


async def test_an_event_that_fails_again_after_a_restore_has_one_dead_letter(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    await buy(store, 5)
    await store.publish("buy", "u1", {"amount": "five"})
    await store.drain()
    copy = await copied(redis, keys)
    await store.publish("buy", "u1", {"amount": 2})
    await (await runtime_of(store).open()).backends.offline.maintain()
    await restored(redis, keys, copy)
    again = await shop()
    await again.admin.rebuild(adopt=True)
    await again.drain()
    assert await again.get_feature("total", "u1") == 7
    letters = await again.dead_letters.list()
    assert [letter.event.payload["amount"] for letter in letters] == ["five"]


@pytest.mark.parametrize("settings", ["server"], indirect=True)
async def test_a_redis_that_is_started_again_with_an_older_copy_is_noticed_with_the_next_question(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connect, "_PROOF_PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(connect, "_PROOF_SECONDS", 60.0)
    monkeypatch.setattr(outbox_consumer, "FRESH_SECONDS", 600.0)
    with valkey_machine() as machine:
        store = await shop(redis={"url": f"redis://127.0.0.1:{machine.port}/0"})
        await buy(store, 5)
        client = redis_py.Redis(port=machine.port)
        client.save()
        dump = Path(str(client.config_get("dir")["dir"])) / "dump.rdb"
        copy = shutil.copy(dump, tmp_path)
        client.close()
        await buy(store, 2)
        assert await has_total(store, 7)
        machine.kill()
        shutil.copy(copy, dump)
        machine.start()
        monkeypatch.setattr(store_loss, "_ASK_SECONDS", 0.0)
        with pytest.raises(BackendUnavailableError):  # the connection was closed
            await store.get_feature("total", "u1")
        await until(lambda: is_refused(store))
        await store.admin.rebuild(adopt=True)
        assert await has_total(store, 7)


@pytest.mark.parametrize("first_handles", ["more", "less", "nothing"])
async def test_each_group_gets_the_events_once_that_it_had_not_handled_before_a_restore(
    shop: Shop,
    settings: Settings,
    redis: Redis,
    keys: Keys,
    first_handles: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first, second = (
        await shop(),
        FeatureStore(settings=settings.replace(worker={"consumer_group": "second"})),
    )

    @entity(second)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0)
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    async def published(amount: int, *groups: FeatureStore) -> None:
        await first.publish("buy", "u1", {"amount": amount})
        for group in groups:
            if group is not first or first_handles != "nothing":
                await group.drain()
        await (await runtime_of(first).open()).backends.offline.maintain()

    async with second:
        await first.drain()  # from now on it is a group
        await published(1, second, first)
        await published(2, first)
        copy = await copied(redis, keys)
        await published(4, second, first)
        await published(8, first if first_handles == "more" else second)
        await published(16)
        await restored(redis, keys, copy)
        again = await shop()
        assert await is_refused(again)
        await again.admin.rebuild(adopt=True)
        await again.drain()
        await second.drain()
        assert await past(again, "total") == [1, 3, 7, 15, 31]
        assert await past(second, "seen") == [1, 2, 4, 8, 16]
        assert await again.get_feature("total", "u1") == 31
    (warned,) = records(capfd.readouterr().err, "features of other files are not restored")
    assert warned["features"] == ["seen"]
    assert len(await query(again, "SELECT event_id FROM events")) == 5


@pytest.mark.parametrize("settings", ["cluster"], indirect=True)
async def test_windows_of_partitions_that_lack_nothing_keep_what_history_does_not_have_yet(
    shop: Shop, redis: Redis, keys: Keys
) -> None:
    store = await shop()
    for user_id in ("u1", OTHER):
        await store.publish("order", user_id, {"amount": 1})
    await buy(store, 5)
    copy = await copied(redis, keys)
    await buy(store, 2)
    await restored(redis, keys, copy, partition_of("u1", keys.partitions))
    again = await shop()
    assert await is_refused(again)
    await again.publish("order", OTHER, {"amount": 2})
    async with working(again):
        await until(lambda: has_orders(again, 2))
        await again.admin.rebuild(adopt=True)
        assert await has_orders(again, 2)
    assert (await again.admin.audit()).differences == []
