"""An erased id stays erased, whichever way it could come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, Worker, context, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine.backfill.run import BackfillRun
from headwater.errors import ErasedEntityError, EventConflictError
from headwater.model.admin import ForgetReport
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past, query, until

pytestmark = pytest.mark.both_environments

ADA = "ada-canary"
SECOND = timedelta(seconds=1)
_SQL = f"SELECT user_id, value FROM (VALUES ('{ADA}', 5), ('bob', 6)) AS t (user_id, value)"
_TIMED_SQL = f"SELECT *, TIMESTAMPTZ '2025-12-01 00:00:00+00' AS timestamp FROM ({_SQL}) AS t"

Open = Callable[..., FeatureStore]


@pytest.fixture
async def opened(settings: Settings, clock: ManualClock) -> AsyncIterator[Open]:
    """Yield a function that opens the store, as another process does, for a consumer group."""
    async with AsyncExitStack() as stores:

        def opening(group: str = "workers", **how: Any) -> FeatureStore:
            own = settings.replace(worker={"consumer_group": group})
            store = FeatureStore(settings=own, clock=clock)
            stores.push_async_callback(store.close)
            _declare(store, **how)
            return store

        yield opening


def _declare(
    store: FeatureStore, *, is_new: bool = False, meanwhile: Meanwhile | None = None
) -> None:
    """Declare features and a context; the new function counts otherwise, and all wait meanwhile."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0, max_retries=0)
    async def bought(user_id: str, event: ServiceEvent) -> int:
        if event.payload.get("fails"):
            raise ValueError(f"no {user_id}")
        if meanwhile is not None:
            await meanwhile.wait()
        return int(await store.get_feature("bought", user_id)) + (10 if is_new else 1)

    @feature(entity=User, ttl="1h")
    async def greeting(user_id: str) -> str:
        return f"{await store.get_feature('bought', user_id)} thanks"

    @feature(entity=User, refresh="1h", materialize=True, sql=_SQL)
    def ranked(user_id: str) -> int: ...  # type: ignore[empty-body]

    @context(store, max_tokens=100)
    async def support(user_id: str) -> list[ContextItem]:
        bought = await store.get_feature("bought", user_id)
        if meanwhile is not None:
            await meanwhile.wait()
        return [ContextItem(f"{user_id} bought {bought}")]


class Meanwhile:
    """A point at which functions wait until the test lets them go on."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def wait(self) -> None:
        self.begun.set()
        await self.goes_on.wait()


@pytest.fixture
def shop(opened: Open) -> FeatureStore:
    return opened()


async def _forget(store: FeatureStore, **options: Any) -> ForgetReport:
    """Forget the entity, at a later time than everything before."""
    _clock(store).advance(SECOND)
    report = await store.admin.forget("User", ADA, reason="request 12", **options)
    _clock(store).advance(SECOND)
    return report


def _clock(store: FeatureStore) -> ManualClock:
    clock = runtime_of(store).clock
    assert isinstance(clock, ManualClock)
    return clock


async def _is_gone(
    store: FeatureStore, *, features: tuple[str, ...] = ("bought", "ranked")
) -> bool:
    """Return whether no place of the store has anything of the entity."""
    engine = await runtime_of(store).open()
    (cells,) = await engine.backends.online.get("User", [ADA])
    rows = f"FROM feature_history WHERE entity_id = '{ADA}'"
    found: Mapping[str, Any] = {
        "online": cells,
        "ids": ADA in await engine.backends.online.entity_ids("User", after="", limit=100),
        "history": await query(store, f"SELECT feature, value {rows}"),
        "events": await store.bus.list(entity_id=ADA),
        "letters": [x for x in await store.dead_letters.list() if x.event.entity_id == ADA],
    }
    assert not {place: data for place, data in found.items() if data}
    return True


async def test_an_erased_id_does_not_return_with_the_next_refresh(shop: FeatureStore) -> None:
    await shop.admin.refresh("ranked")
    await shop.drain()
    assert await shop.get_feature("ranked", ADA) == 5
    counted = await shop.admin.forget("User", ADA, reason="request 12", dry_run=True)
    assert (counted.sources, counted.unchecked_sources) == (("ranked",), ())
    assert (await _forget(shop)).sources == ("ranked",)
    await shop.admin.refresh("ranked")
    await shop.drain()
    assert await _is_gone(shop)
    assert await shop.get_feature("ranked", "bob") == 6


async def test_an_erased_id_does_not_return_in_frames_of_a_query_with_times(
    shop: FeatureStore, tmp_path: Path
) -> None:
    @entity(shop)
    class Guest:
        user_id: str

    @feature(entity=Guest, refresh="1h", materialize=True, sql=_TIMED_SQL)
    def placed(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=Guest, template="place {placed}", default="no place")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    async def frame(**options: Any) -> list[tuple[Any, ...]]:
        rows = [{"user_id": each, "timestamp": moment} for each in (ADA, "bob")]
        found = await shop.get_historical_features(rows, ["placed", "line"], **options)
        return [(row["placed"], row["line"]) for row in found]

    moment = shop.clock.now()
    await shop.history.export(tmp_path / "export")
    assert await frame() == [(5, "place 5"), (6, "place 6")]
    await shop.admin.forget("Guest", ADA, reason="request 12")
    for options in ({}, {"exported": tmp_path / "export"}):
        assert await frame(**options) == [(None, "no place"), (6, "place 6")]


async def test_a_query_that_no_longer_returns_the_id_is_no_source_of_it(
    shop: FeatureStore,
) -> None:
    report = await shop.admin.forget("User", "eve", reason="request 12", dry_run=True)
    assert (report.sources, report.unchecked_sources) == ((), ())


async def test_rows_of_a_refresh_return_after_a_new_event_that_is_allowed(
    shop: FeatureStore,
) -> None:
    await _forget(shop, allow_return=True)
    await shop.admin.refresh("ranked")
    await shop.drain()
    assert await _is_gone(shop)
    await shop.publish("buy", ADA)
    await shop.drain()
    _clock(shop).advance(SECOND)
    await shop.admin.refresh("ranked")
    await shop.drain()
    assert (await shop.get_feature("bought", ADA), await shop.get_feature("ranked", ADA)) == (1, 5)


async def test_a_new_event_of_an_erased_id_is_refused_with_the_rule_and_the_remedy(
    shop: FeatureStore,
) -> None:
    await shop.publish("buy", ADA)
    await _forget(shop)
    for event_type in ("buy", "unheard_of"):
        with pytest.raises(EventConflictError, match=r"was erased.*again with allow_return"):
            await shop.publish(event_type, ADA)
    events = [ServiceEvent("buy", "bob", {}), ServiceEvent("buy", ADA, {})]
    with pytest.raises(EventConflictError, match="1 of 2 events") as refused:
        await shop.bus.publish_many(events, dedup=False)
    assert [each.index for each in refused.value.conflicts] == [1]
    with pytest.raises(ErasedEntityError, match=r"User 'ada-canary' was erased.*allow_return"):
        await shop.set_feature("bought", ADA, 3)
    await shop.drain()
    assert await _is_gone(shop)
    assert await shop.get_feature("bought", "bob") == 1


async def test_an_erased_id_begins_anew_when_its_return_is_allowed(shop: FeatureStore) -> None:
    await shop.publish("buy", ADA)
    await shop.drain()
    await _forget(shop)
    await _forget(shop, allow_return=True)
    late = shop.clock.now() - 3 * SECOND
    with pytest.raises(EventConflictError, match="erased"):
        await shop.publish("buy", ADA, timestamp=late)
    await shop.publish("buy", ADA)
    await shop.drain()
    assert await past(shop, "bought", ADA) == [1]
    await shop.set_feature("bought", ADA, 7)
    await shop.admin.rebuild()
    assert await shop.get_feature("bought", ADA) == 7
    assert not (await shop.admin.audit()).differences


async def test_a_value_that_was_computed_from_a_default_is_stored_again_after_the_return(
    shop: FeatureStore, clock: ManualClock
) -> None:
    await _forget(shop, allow_return=True)
    clock.advance("1s")
    assert await shop.get_feature("greeting", ADA) == "0 thanks"
    assert await past(shop, "greeting", ADA) == []
    await shop.set_feature("ranked", ADA, 1)
    assert await shop.get_feature("greeting", ADA) == "0 thanks"
    assert await past(shop, "greeting", ADA) == ["0 thanks"]


async def test_events_that_wait_have_no_effect_after_the_erasure(shop: FeatureStore) -> None:
    await shop.publish("buy", ADA)
    await shop.publish("buy", ADA, {"fails": True})
    ahead = shop.clock.now() + 10 * SECOND
    await shop.publish("buy", ADA, timestamp=ahead)
    report = await _forget(shop, allow_return=True)
    assert report.waiting == 3
    await shop.drain()
    assert await _is_gone(shop)


async def test_a_group_that_lags_counts_and_brings_nothing_back(opened: Open) -> None:
    shop, lagging = opened(), opened("lagging")
    await lagging.drain()
    await shop.publish("buy", ADA, {"fails": True})
    await shop.publish("buy", ADA)
    await shop.drain()
    report = await _forget(shop)
    assert report.waiting == 2
    await lagging.drain()
    assert await _is_gone(shop)


async def test_a_batch_in_flight_writes_nothing_of_an_erased_id(opened: Open) -> None:
    meanwhile = Meanwhile()
    shop = opened(meanwhile=meanwhile)
    worker = Worker(shop)
    running = asyncio.create_task(worker.run())
    await shop.publish("buy", ADA)
    await meanwhile.begun.wait()
    await _forget(opened())
    meanwhile.goes_on.set()
    await shop.publish("buy", "bob")
    await until(lambda: shop.get_feature("bought", "bob"))
    worker.stop()
    await running
    assert await _is_gone(shop)


async def test_a_dead_letter_that_is_redriven_brings_nothing_back(shop: FeatureStore) -> None:
    await shop.publish("buy", ADA, {"fails": True})
    await shop.drain()
    (letter,) = await shop.dead_letters.list()
    await shop.dead_letters.redrive(letter.id)
    await _forget(shop)
    await shop.drain()
    assert await _is_gone(shop)


async def test_a_rebuild_restores_nothing_that_was_erased_meanwhile(
    shop: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.publish("buy", ADA)
    await shop.drain()
    online = (await runtime_of(shop).open()).backends.online
    restore = online.restore

    async def forget_first(*read: Any) -> None:
        await _forget(shop, allow_return=True)
        await restore(*read)

    monkeypatch.setattr(online, "restore", forget_first)
    await shop.admin.rebuild()
    assert await _is_gone(shop)


@pytest.mark.parametrize("allow_return", [False, True])
async def test_an_import_leaves_out_the_rows_of_an_erased_id(
    shop: FeatureStore, tmp_path: Path, *, allow_return: bool
) -> None:
    await shop.publish("buy", "bob")
    await shop.drain()
    await _forget(shop, allow_return=allow_return)
    now = shop.clock.now()
    file = tmp_path / "rows.parquet"
    rows = {
        "user_id": [ADA, ADA, "bob"],
        "timestamp": [now, now - 5 * SECOND, now],
        "bought": [7, 8, 9],
    }
    pd.DataFrame(rows).to_parquet(file)
    report = await shop.history.import_file(file, ["bought"])
    assert (report.rows, report.added, report.erased) == (3, 1, 2)
    await shop.admin.rebuild()
    assert await _is_gone(shop)
    if allow_return:
        await shop.publish("buy", ADA)
        await shop.drain()
        report = await shop.history.import_file(file, ["bought"])
        assert (report.added, report.erased) == (1, 1)
        assert 8 not in await past(shop, "bought", ADA)


async def test_a_backfill_brings_nothing_of_an_erased_id_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened()
    await old.publish("buy", ADA)
    await old.publish("buy", "bob")
    await old.drain()
    shop = opened(is_new=True)
    replayed = BackfillRun._run_handlers  # noqa: SLF001

    async def forget_after(run: BackfillRun, *job: Any) -> None:
        await replayed(run, *job)
        await _forget(shop)

    monkeypatch.setattr(BackfillRun, "_run_handlers", forget_after)
    await shop.backfills.run("bought", switch=True)
    assert await shop.get_feature("bought", "bob") == 10
    assert await _is_gone(shop)


async def test_the_folder_of_an_interrupted_backfill_keeps_nothing_of_an_erased_id(
    opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await _failing_shop(opened)
    with monkeypatch.context() as patched:
        patched.setattr(BackfillRun, "_add_history", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            await shop.backfills.run("bought")
    assert await _exported(home) == {ADA, "bob"}
    await _forget(shop)
    assert (await shop.backfills.status("bought")).failures == []
    assert await _exported(home) == set()
    report = await shop.backfills.run("bought", switch=True)
    assert (report.replayed and report.replayed.events, report.failures) == (1, [])
    assert await shop.get_feature("bought", "bob") == 10
    assert await _is_gone(shop)
    assert not await asyncio.to_thread(_files_with, home / "backfills", ADA.encode())


async def test_an_unswitched_backfill_shows_no_failure_of_an_erased_id(
    opened: Open, home: Path
) -> None:
    shop = await _failing_shop(opened)
    failures = (await shop.backfills.run("bought")).failures
    assert [each.event.entity_id for each in failures] == [ADA]
    assert await _exported(home) == set()
    await _forget(shop)
    assert not await asyncio.to_thread(_files_with, home / "backfills", ADA.encode())
    await shop.backfills.switch("bought")
    assert await _is_gone(shop)


async def test_a_backfill_that_runs_removes_the_events_of_an_erased_id_at_its_end(
    opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await _failing_shop(opened)
    replayed = BackfillRun._run_handlers  # noqa: SLF001

    async def forget_first(run: BackfillRun, *job: Any) -> None:
        await _forget(shop)
        await replayed(run, *job)

    monkeypatch.setattr(BackfillRun, "_run_handlers", forget_first)
    assert (await shop.backfills.run("bought", switch=True)).failures == []
    assert not await asyncio.to_thread(_files_with, home / "backfills", ADA.encode())
    assert await _is_gone(shop)


async def _failing_shop(opened: Open) -> FeatureStore:
    """Return a store with a new function, after an event of each user, of which one fails."""
    old = opened()
    await old.publish("buy", ADA)
    await old.publish("buy", ADA, {"fails": True})
    await old.publish("buy", "bob")
    await old.drain()
    return opened(is_new=True)


async def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


async def _exported(home: Path) -> set[str]:
    """Return the ids of the events that are in folders of backfills."""
    files = await asyncio.to_thread(lambda: [*home.glob("backfills/*/events/*.parquet")])
    frames = [pd.read_parquet(file) for file in files if file.stat().st_size]
    return {entity_id for frame in frames for entity_id in frame["entity_id"]}


async def test_a_context_in_flight_is_recorded_without_what_it_read(opened: Open) -> None:
    meanwhile, other = Meanwhile(), opened()
    shop = opened(meanwhile=meanwhile)
    await other.publish("buy", ADA)
    await other.drain()
    assembling = asyncio.create_task(shop.assemble("support", {"user_id": ADA}))
    await meanwhile.begun.wait()
    await _forget(other)
    meanwhile.goes_on.set()
    made = await assembling
    record = await shop.get_record(made.context_id or "")
    assert (record.disclosures, bool(record.redactions)) == ((), True)
    assert (await shop.records.verify(made.context_id or "")).ok
    after = await shop.assemble("support", {"user_id": "bob"})
    assert (await shop.get_record(after.context_id or "")).disclosures


async def test_an_erasure_outlives_the_process(opened: Open) -> None:
    first = opened()
    await first.publish("buy", ADA)
    await _forget(first)
    await first.close()
    second = opened()
    with pytest.raises(EventConflictError, match="erased"):
        await second.publish("buy", ADA)
    await second.admin.refresh("ranked")
    await second.drain()
    assert await _is_gone(second)


async def test_the_ledger_does_not_keep_the_id(
    shop: FeatureStore, settings: Settings, home: Path
) -> None:
    await shop.publish("buy", ADA)
    await shop.drain()
    await _forget(shop)
    ledger = (await runtime_of(shop).open()).backends.erasures.ledger
    assert ledger.find("User", ADA) is not None
    assert ledger.find("User", "bob") is None
    await shop.close()
    if not settings.redis.url:
        assert not await asyncio.to_thread(_files_with, home, ADA.encode())


def _files_with(folder: Path, text: bytes) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text in file.read_bytes()]
