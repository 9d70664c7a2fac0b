"""Online values can be restored from history, and compared with it, also while workers run."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import asyncpg
import msgspec
import pytest
import redis.asyncio

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.backends.redis.keys import Keys
from headwater.declarations.runtime import runtime_of
from headwater.features import reconcile
from headwater.features.cells import make_cell, make_change
from headwater.model.admin import Difference
from headwater.model.values import Cell
from headwater.ports import Change, OfflineStore
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.effort import scaled
from tests.engine.support import backlog, query, until

pytestmark = pytest.mark.both_environments


class Address(msgspec.Struct):
    """A value with fields."""

    city: str
    since: datetime


def declare(store: FeatureStore) -> None:
    """Features of every kind of value and of life."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def spend(user_id: str, event: ServiceEvent) -> float:
        before: float = await store.get_feature("spend", user_id) or 0.0
        return before + float(event.payload.get("amount", 1.0))

    @feature(entity=User, trigger="buy")
    def bought_at(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @feature(entity=User, trigger="buy")
    def address(user_id: str, event: ServiceEvent) -> Address | None:
        city = event.payload.get("city")
        return Address(str(city), event.timestamp) if city else None

    @feature(entity=User, trigger="buy", ttl="1m")
    def basket(user_id: str, event: ServiceEvent) -> list[str]:
        return ["lamp", user_id]

    @feature(entity=User, ttl="1m")
    def cached(user_id: str) -> str:
        return user_id.upper()

    @feature(entity=User)
    def shout(user_id: str) -> str:
        return user_id.upper()


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    declare(store)


async def buy(store: FeatureStore, *user_ids: str) -> None:
    for user_id in user_ids:
        await store.publish("buy", user_id, {"city": "Turin"} if user_id == "u1" else {})
    await store.drain()


def run_sqlite(store: FeatureStore, sql: str) -> None:
    """Change the files of the embedded store directly."""
    with closing(sqlite3.connect(Path(store.settings.home) / "headwater.db")) as db, db:
        db.execute(sql)


async def lose_online(store: FeatureStore, *user_ids: str) -> None:
    """Loses the present values of some users."""
    url = store.settings.redis.url
    if not url:
        run_sqlite(store, f"DELETE FROM entities WHERE entity_id IN ({_quoted(user_ids)})")
        return
    keys = Keys(store.settings.redis.prefix, store.settings.partitions, "any")
    async with redis.asyncio.Redis.from_url(url) as client:
        for user_id in user_ids:
            part = keys.of(user_id)
            assert await client.delete(part.state(("User", user_id))) == 1
            assert await client.zrem(f"{part.ids}User", user_id) == 1


async def lose_history(store: FeatureStore, condition: str) -> None:
    """Loses some rows of history."""
    postgres = store.settings.postgres
    if not postgres.url:
        run_sqlite(store, f"DELETE FROM history WHERE {condition}")
        return
    # Rows still in the outbox arrive before the loss.
    await query(store, "SELECT count(*) FROM feature_history")
    database = await asyncpg.connect(postgres.url)
    await database.execute(f"SET search_path TO {postgres.schema}")
    await database.execute(f"DELETE FROM _history WHERE {condition}")
    await database.execute(
        "DELETE FROM _series s WHERE NOT EXISTS (SELECT FROM _history h WHERE h.entity = s.entity"
        " AND h.entity_id = s.entity_id AND h.feature = s.feature)"
    )
    await database.close()


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


async def differences(store: FeatureStore) -> list[Difference]:
    audit = await store.admin.audit()
    assert audit.complete
    return list(audit.differences)


async def cell_of(store: FeatureStore, name: str, user_id: str = "u1") -> Cell | None:
    (cells,) = await (await runtime_of(store).open()).backends.online.get("User", [user_id])
    return cells.get(name)


async def test_online_values_and_history_agree_after_events(store: FeatureStore) -> None:
    await buy(store, "u1", "u2", "u1")
    await store.get_feature_values(["cached"], ["u1"])
    audit = await store.admin.audit()
    assert (audit.entity_ids, audit.values, audit.differences) == (2, 8, [])
    assert audit.not_compared == ["cached"]


@pytest.mark.parametrize("settings", ["embedded"], indirect=True)
async def test_they_agree_when_history_has_been_rolled_into_segments(
    settings: Settings, clock: ManualClock
) -> None:
    settings = settings.replace(offline={"segment_rows": 1})
    async with FeatureStore(settings=settings, clock=clock) as store:
        declare(store)
        await buy(store, "u1", "u2", "u1")
        await (await runtime_of(store).open()).backends.offline.maintain()
        assert await query(store, "SELECT count(*) FROM feature_history") == [(12,)]
        run_sqlite(store, "DELETE FROM history")
        assert await differences(store) == []
        await lose_online(store, "u1", "u2")
        await store.admin.rebuild()
        assert await differences(store) == []
        address = await store.get_feature("address", "u1")
        assert address == Address("Turin", address.since)


async def test_a_lost_online_store_is_restored_from_history(store: FeatureStore) -> None:
    await buy(store, "u1", "u2", "u1")
    names = ["spend", "bought_at", "address", "basket"]
    before = await store.get_feature_values(names, ["u1", "u2"])
    cell = await cell_of(store, "basket")
    await lose_online(store, "u1", "u2")
    assert await store.get_feature("spend", "u1") is None
    rebuilt = await store.admin.rebuild()
    assert (rebuilt.entity_ids, rebuilt.values) == (2, 8)
    assert await store.get_feature_values(names, ["u1", "u2"]) == before
    assert await cell_of(store, "basket") == cell
    assert await differences(store) == []


async def test_times_with_an_offset_survive_a_rebuild_as_the_same_value(
    store: FeatureStore,
) -> None:
    local = datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))
    await store.set_feature("bought_at", "u1", local)
    await store.set_feature("address", "u1", Address("Turin", local))
    await lose_online(store, "u1")
    await store.admin.rebuild()
    address = await store.get_feature("address", "u1")
    for restored in (await store.get_feature("bought_at", "u1"), address.since):
        assert restored.isoformat() == local.isoformat()
    assert await differences(store) == []
    # SQL sees the moment.
    sql = "SELECT value_time, value_json FROM feature_history WHERE feature = 'bought_at'"
    assert await query(store, sql) == [(local.astimezone(UTC), None)]


@pytest.mark.parametrize("settings", ["embedded"], indirect=True)
async def test_missing_and_different_values_are_reported_with_both_sides(
    store: FeatureStore,
) -> None:
    await buy(store, "u1", "u2")
    run_sqlite(store, "UPDATE entities SET state = json_set(state, '$.spend[0]', 9.5)")
    run_sqlite(
        store,
        "UPDATE entities SET state = json_remove(state, '$.bought_at') WHERE entity_id = 'u1'",
    )
    await lose_history(store, "entity_id = 'u2' AND feature = 'address'")
    found = {(d.entity_id, d.feature): d for d in await differences(store)}
    assert found.keys() == {
        ("u1", "spend"),
        ("u2", "spend"),
        ("u1", "bought_at"),
        ("u2", "address"),
    }
    spend = found["u1", "spend"]
    assert spend.online
    assert spend.history
    assert (bytes(spend.online.value), bytes(spend.history.value)) == (b"9.5", b"1.0")
    assert spend.online.as_of == spend.history.as_of
    assert found["u1", "bought_at"].online is None
    assert found["u2", "address"].history is None


async def test_an_expired_value_is_not_a_difference(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy(store, "u1")
    clock.advance("2m")
    assert await differences(store) == []
    await lose_online(store, "u1")
    assert {d.feature for d in await differences(store)} == {"spend", "bought_at", "address"}
    await store.admin.rebuild()
    assert await cell_of(store, "basket") is None
    assert await differences(store) == []


async def test_a_value_set_after_an_expired_one_is_not_a_difference_and_stays(
    store: FeatureStore, clock: ManualClock
) -> None:
    await store.set_feature("basket", "u1", ["first"])
    early = clock.now() - timedelta(hours=1)
    clock.advance("2m")
    await store.set_feature("basket", "u1", ["second"], as_of=early)
    assert await store.get_feature("basket", "u1") == ["second"]
    assert await differences(store) == []
    await store.admin.rebuild()
    assert await store.get_feature("basket", "u1") == ["second"]


async def test_a_rebuild_leaves_values_that_history_does_not_have_yet(
    store: FeatureStore, clock: ManualClock
) -> None:
    moment = clock.now()
    await store.set_feature("spend", "u1", 1.0, as_of=moment)
    clock.advance("1s")
    await store.set_feature("spend", "u1", 2.0, as_of=moment)
    await lose_history(store, "CAST(value AS text) = '2.0'")
    await store.admin.rebuild()
    assert await store.get_feature("spend", "u1") == 2.0


class LaggingHistory(ManualClock):
    """A clock with which history receives its changes in the first pause."""

    def __init__(self, offline: OfflineStore) -> None:
        super().__init__()
        self._offline = offline
        self.changes: list[Change] = []

    async def sleep(self, seconds: float) -> None:
        if seconds:
            await self._offline.append(self.changes)
            self.changes = []
        await super().sleep(seconds)


async def test_history_that_lags_a_moment_is_not_a_difference(store: FeatureStore) -> None:
    backends = (await runtime_of(store).open()).backends
    clock = LaggingHistory(backends.offline)
    definition = runtime_of(store).registry.feature("spend")
    now = clock.micros()
    change = make_change(definition, "u1", make_cell(definition, 3.0, now, now), "late")
    await backends.online.restore("User", {"u1": {"spend": change.cell}})
    clock.changes.append(change)
    async with FeatureStore(settings=store.settings, clock=clock) as lagging:
        declare(lagging)
        assert await differences(lagging) == []
    assert clock.changes == []


async def test_a_value_that_only_one_side_has_is_found_on_any_page(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "_PAGE", 5)
    monkeypatch.setattr(reconcile, "_BATCH", 2)
    users = [f"u{number:02}" for number in range(40)]
    await buy(store, *users)
    forgotten = {*users[3:17], users[-1]}
    unrecorded = {users[0], *users[20:33], users[38]}
    await lose_online(store, *forgotten)
    await lose_history(store, f"entity_id IN ({_quoted(unrecorded)})")
    seen: list[tuple[int, int]] = []
    audit = await store.admin.audit(
        limit=1_000, progress=lambda done, total: seen.append((done, total))
    )
    found = [d for d in audit.differences if d.feature == "spend"]
    assert {d.entity_id for d in found if d.online is None} == forgotten
    assert {d.entity_id for d in found if d.history is None} == unrecorded
    assert audit.entity_ids == len(users)
    assert seen[0] == (2, 25)
    assert seen[-1] == (40, 40)
    await store.admin.rebuild()
    assert {d.entity_id for d in await differences(store)} == unrecorded


async def test_an_audit_stops_at_its_limit_and_says_so(store: FeatureStore) -> None:
    await buy(store, "u1", "u2")
    await lose_online(store, "u1", "u2")
    audit = await store.admin.audit(limit=3)
    assert (len(audit.differences), audit.complete) == (3, False)
    audit = await store.admin.audit(limit=8)
    assert (len(audit.differences), audit.complete) == (8, True)


async def test_features_that_are_no_longer_declared_are_ignored(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    await buy(store, "u1")
    await lose_online(store, "u1")
    await store.close()
    async with FeatureStore(settings=settings, clock=clock) as smaller:

        @entity(smaller)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy")
        def spend(user_id: str, event: ServiceEvent) -> str:
            return "its type has changed"

        assert (await smaller.admin.rebuild()).values == 1
        audit = await smaller.admin.audit()
        assert (audit.values, audit.differences) == (1, [])


@asynccontextmanager
async def busy(settings: Settings) -> AsyncIterator[FeatureStore]:
    """A store whose worker handles events, many of them late, from the first moment to the last."""
    late = datetime.now(UTC) - timedelta(hours=1)
    async with FeatureStore(settings=settings) as store:
        declare(store)
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        stopping = asyncio.Event()

        async def publish() -> None:
            number = 0
            while not stopping.is_set():
                number += 1
                at = late if number % 2 else datetime.now(UTC)
                user_ids = [f"u{user}" for user in range(20)]
                await store.bus.publish_many(
                    [ServiceEvent("buy", user_id, {}, at) for user_id in user_ids]
                )
                await until(few_wait)

        async def few_wait() -> bool:
            return await backlog(store) < 100

        publishing = asyncio.create_task(publish())
        spent = 0.0

        async def something_happened() -> bool:
            nonlocal spent
            before, spent = spent, await store.get_feature("spend", "u1") or 0.0
            return spent > before > 0

        await until(something_happened)
        yield store
        await until(something_happened)
        stopping.set()
        await publishing
        worker.stop()
        await working


async def test_an_audit_raises_no_false_alarm_while_workers_run(settings: Settings) -> None:
    async with busy(settings) as store:
        for _ in range(scaled(5)):
            assert await differences(store) == []


async def test_a_rebuild_takes_nothing_from_workers_that_run(settings: Settings) -> None:
    async with busy(settings) as store:
        for _ in range(scaled(5)):
            await store.admin.rebuild()
    async with FeatureStore(settings=settings) as store:
        declare(store)
        await store.drain()
        assert await backlog(store) == 0
        assert await differences(store) == []
        count = await (await runtime_of(store).open()).backends.offline.query(
            "SELECT count(*) FROM events WHERE entity_id = 'u1'", {}
        )
        assert await store.get_feature("spend", "u1") == count.rows[0][0]
