"""Windows in contexts: what a record has of them, and replays that give what was served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.errors import InvalidInputError
from headwater.model.lineage import FeatureLineage
from headwater.model.values import WindowRead
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

_MINUTE = timedelta(minutes=1)


class Shop:
    """A store with a family of windows, and a context that reads them."""

    def __init__(
        self, settings: Settings, clock: ManualClock, hop: str | None = None, name: str = "spend"
    ) -> None:
        self.clock, self.failing = clock, False
        self.store = store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        def spend(user_id: str, event: ServiceEvent) -> float:
            if self.failing:
                raise ValueError("refused")
            return float(event.payload["amount"])

        spend.__name__ = name
        declare = feature(
            entity=User,
            trigger="purchase",
            window=["1h", "7d"],
            aggregate=["count", "sum", "p95", "distinct", "max", "last(2)"],
            hop=hop,
            freshness="caught_up",
            default=0.0,
        )
        self.spend = declare(spend)

        @feature(entity=User, template=f"{{{name}_count_1h}} for {{{name}_sum_1h}}")
        def summary(user_id: str) -> str:
            return ""

        def of(template: str) -> str:
            return template.replace("spend", name)

        @context(store, freshness_sla="1m", max_tokens=1_000)
        async def brief(user_id: str) -> list[ContextItem]:
            total = await store.get_feature(f"{name}_sum_7d", user_id)
            return [
                ContextItem(f"total {total}", required=True),
                ContextItem.template(of("{spend_count_1h} {spend_p95_1h} {spend_distinct_1h}")),
                ContextItem.template(of("{spend_max_1h|none} {spend_last2_1h|none} {summary}")),
            ]

        @context(store, freshness_sla="1m")
        async def totals(user_id: str) -> ContextItem:
            return ContextItem.template(of("{spend_sum_7d} {spend_max_1h}"))

        @context(store, freshness_sla="1m")
        async def table(user_id: str) -> str:
            read = await store.get_feature_windows(name, user_id)
            tiles = [tile.values["sum"] for level in read.levels for tile in level.tiles]
            return f"{[each.value for each in read.values]} {tiles} {read.last_fold}"

        self.brief, self.totals, self.table = brief, totals, table

    async def buy(self, amount: float, ago: timedelta = timedelta(0)) -> None:
        moment = self.clock.now() - ago
        await self.store.publish("purchase", "ada", {"amount": amount}, timestamp=moment)
        await self.store.drain()


@pytest.fixture
async def shop(settings: Settings, clock: ManualClock) -> AsyncIterator[Shop]:
    past_the_hour = clock.now() - clock.now().replace(minute=0, second=0, microsecond=0)
    clock.advance(65 * _MINUTE - past_the_hour)
    shop = Shop(settings, clock)
    async with shop.store:
        yield shop


def _read(features: Any, name: str) -> FeatureLineage:
    (found,) = [read for read in features if read.feature == name]
    assert isinstance(found, FeatureLineage)
    return found


def _window(features: Any, name: str) -> WindowRead:
    window = _read(features, name).window
    assert isinstance(window, WindowRead)
    return window


async def test_the_value_of_a_window_has_its_window_hop_and_last_fold(shop: Shop) -> None:
    await shop.buy(10)
    folded = shop.clock.now()
    shop.clock.advance(5 * _MINUTE)
    brief = await shop.brief("ada")
    past = await shop.store.get_context_at(brief.context_id)
    for lineage in (brief.lineage, past.lineage):
        read, window = (
            _read(lineage.features, "spend_sum_7d"),
            _window(lineage.features, "spend_sum_7d"),
        )
        assert (read.value, read.as_of, read.written_at) == (10.0, shop.clock.now(), folded)
        assert (window.family, window.aggregate, window.window) == ("spend", "sum", "7d")
        assert (window.span_us, window.hop_us) == (7 * 86_400_000_000, 21_600_000_000)
        assert (window.read_at, window.last_fold) == (shop.clock.now(), folded)
        assert window.relative_error is None
        assert _window(lineage.features, "spend_p95_1h").relative_error == "0.01"
        assert _window(lineage.features, "spend_distinct_1h").relative_error == "0.046"
        summary = _read(lineage.features, "summary")
        assert summary.window is msgspec.UNSET
        assert [inner.window is msgspec.UNSET for inner in summary.inputs] == [False, False]
    assert (await shop.store.records.verify(brief.context_id)).ok


async def test_an_empty_window_has_its_last_fold_too(shop: Shop) -> None:
    await shop.buy(10)
    folded = shop.clock.now()
    shop.clock.advance(timedelta(hours=3))
    lineage = (await shop.brief("ada")).lineage
    read, window = (
        _read(lineage.features, "spend_last2_1h"),
        _window(lineage.features, "spend_last2_1h"),
    )
    assert (read.value, read.source) == (None, "missing")
    assert (window.read_at, window.last_fold) == (shop.clock.now(), folded)
    assert _read(lineage.features, "spend_count_1h").value == 0
    empty = _read(lineage.features, "spend_max_1h")
    assert (empty.value, empty.source, empty.as_of) == (0.0, "default", shop.clock.now())


async def test_a_replay_gives_what_was_served_after_late_events_and_after_tiles_expired(
    shop: Shop,
) -> None:
    await shop.buy(10, 59 * _MINUTE)
    await shop.buy(4, 2 * _MINUTE)
    brief = await shop.brief("ada")
    shop.clock.advance(_MINUTE)
    await shop.buy(100, 3 * _MINUTE)  # late: it counts at the moment of the record from now on
    assert (await shop.brief("ada")).content != brief.content
    shop.clock.advance(timedelta(days=9))
    await shop.buy(1)
    replay = await shop.store.records.replay(brief.context_id, "as_of")
    assert replay.content == brief.content
    assert replay.context is not None
    before = {read.feature: read for read in brief.lineage.features}
    for read in replay.context.lineage.features:
        assert (read.value, read.window) == (
            before[read.feature].value,
            before[read.feature].window,
        )
    assert replay.matches


async def test_a_replay_gives_what_was_served_by_windows_that_are_declared_differently_now(
    shop: Shop, settings: Settings, clock: ManualClock
) -> None:
    await shop.buy(10, 64 * _MINUTE)
    await shop.buy(4, 2 * _MINUTE)
    brief = await shop.brief("ada")
    other = Shop(settings, clock, hop="10m")
    async with other.store:
        await other.store.drain()
        now = await other.brief("ada")
        assert now.content != brief.content
        replay = await other.store.records.replay(brief.context_id, "as_of")
        assert replay.content == brief.content
        diff = await other.store.records.diff(brief.context_id, now.context_id)
        changes = {each.feature: each.change for each in diff.features}
        assert changes["spend_distinct_1h"] == "changed"
        assert changes["spend_sum_7d"] == "changed"  # the value is the same, its hop is not


async def test_a_table_of_windows_is_judged_and_replayed_as_its_values_are(shop: Shop) -> None:
    await shop.buy(10, 20 * _MINUTE)
    table = await shop.table("ada")
    assert len(table.lineage.features) == 12
    assert table.freshness_status == "guaranteed"
    shop.clock.advance(_MINUTE)
    await shop.buy(3, 10 * _MINUTE)
    replay = await shop.store.records.replay(table.context_id, "as_of")
    assert replay.content == table.content
    await shop.store.publish("purchase", "ada", {"amount": 2})
    shop.clock.advance(2 * _MINUTE)
    assert (await shop.table("ada")).freshness_status == "degraded"


async def test_a_window_is_not_fresh_while_an_event_waits_or_failed(shop: Shop) -> None:
    await shop.buy(10)
    assert (await shop.totals("ada")).freshness_status == "guaranteed"
    shop.clock.advance(timedelta(hours=2))
    assert (await shop.totals("ada")).freshness_status == "guaranteed"
    await shop.store.publish("purchase", "ada", {"amount": 2})
    shop.clock.advance(2 * _MINUTE)
    waiting = await shop.totals("ada")
    assert waiting.freshness_status == "degraded"
    assert {v.reason for v in waiting.freshness_violations} >= {"stale"}
    shop.failing = True
    await shop.store.drain()
    failed = await shop.totals("ada")
    assert {(v.name, v.reason) for v in failed.freshness_violations} >= {
        ("spend_sum_7d", "dead_letter")
    }
    replay = await shop.store.records.replay(failed.context_id, "as_of")
    assert replay.context is not None
    assert replay.context.freshness_status == "degraded"


async def test_a_replay_follows_a_family_that_was_renamed(
    shop: Shop, settings: Settings, clock: ManualClock
) -> None:
    await shop.buy(10)
    brief = await shop.brief("ada")
    clock.advance(_MINUTE)
    await shop.buy(5)
    await shop.store.catalog.rename("spend", "outlay")
    renamed = Shop(settings, clock, name="outlay")
    async with renamed.store:
        assert await renamed.store.get_feature("outlay_sum_1h", "ada") == 15.0
        replay = await renamed.store.records.replay(brief.context_id, "as_of")
        assert replay.content == brief.content


async def test_the_cause_of_a_window_is_the_last_event_that_it_had(shop: Shop) -> None:
    await shop.buy(10)
    event = await shop.store.publish(
        "purchase", "ada", {"amount": 5}, timestamp=shop.clock.now() - 10 * _MINUTE
    )
    await shop.store.drain()
    totals = await shop.totals("ada")
    await shop.buy(1)
    causes = await shop.store.records.causes(totals.context_id)
    assert [(each.cause, each.read) for each in causes.causes] == [
        (event.event_id, 0),
        (event.event_id, 1),
    ]
    assert all(each.event and each.event.event_type == "purchase" for each in causes.causes)
    assert causes.is_complete


async def test_contexts_are_found_by_a_window_and_by_its_family(shop: Shop) -> None:
    await shop.buy(10)
    totals, brief = await shop.totals("ada"), await shop.brief("ada")

    async def found(name: str) -> set[str]:
        page = await shop.store.records.find(feature=name, entity_id="ada")
        return {context.context_id for context in page.contexts}

    assert await found("spend_sum_7d") == {totals.context_id, brief.context_id}
    assert await found("spend_sum_1h") == {brief.context_id}  # read by a template
    assert await found("spend") == {totals.context_id, brief.context_id}


async def test_an_audit_compares_recorded_windows_with_contributions(shop: Shop) -> None:
    await shop.buy(10, 20 * _MINUTE)
    await shop.brief("ada")
    shop.clock.advance(_MINUTE)
    await shop.buy(3, 10 * _MINUTE)
    await shop.brief("ada")
    shop.clock.advance(timedelta(days=8))
    served = (await shop.store.admin.audit()).served
    assert (served.different, dict(served.not_compared)) == (0, {})
    assert served.equal > 10


@pytest.mark.parametrize("name", ["spend", "spend_sum_1h"])
async def test_neither_a_family_nor_its_features_can_be_set(shop: Shop, name: str) -> None:
    with pytest.raises(InvalidInputError, match="publish an event"):
        await shop.store.set_feature(name, "ada", 3.0)


async def test_a_feature_of_a_family_has_no_name_or_versions_of_its_own(shop: Shop) -> None:
    catalog = shop.store.catalog
    for refused in (
        catalog.rename("spend_sum_1h", "total"),
        catalog.drop("spend_max_1h"),
        catalog.versions("spend_max_1h"),
    ):
        with pytest.raises(InvalidInputError, match="use 'spend'"):
            await refused


async def test_a_context_whose_windows_need_pruned_history_is_not_replayed(shop: Shop) -> None:
    await shop.buy(10)
    shop.clock.advance(timedelta(days=4))
    await shop.buy(5)
    brief = await shop.brief("ada")
    shop.clock.advance(timedelta(days=3))
    await shop.store.admin.prune(history="8d")
    assert (await shop.store.records.replay(brief.context_id, "as_of")).matches
    shop.clock.advance(timedelta(days=2))
    await shop.store.admin.prune(history="8d")  # what its windows need, not what came after it
    with pytest.raises(InvalidInputError, match="pruned"):
        await shop.store.records.replay(brief.context_id, "as_of")


async def test_an_erased_entity_leaves_no_window_in_records(shop: Shop) -> None:
    await shop.buy(10.25)
    brief = await shop.brief("ada")
    await shop.store.admin.forget("User", "ada", reason="request")
    past = await shop.store.get_context_at(brief.context_id)
    assert "10.25" not in str(past)
    for read in past.lineage.features:
        assert (read.entity_id, read.value) == (None, None)
    assert (await shop.store.records.verify(brief.context_id)).ok
