"""Caught up means that every accepted event was handled by the feature, not that none waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.declarations.contexts import ContextFunction
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


class Shop:
    """A store with some of the features, and a context that reads the orders."""

    def __init__(
        self,
        settings: Settings,
        clock: ManualClock,
        declared: Sequence[str] = (),
        group: str = "workers",
        triggers: Sequence[str] = ("order",),
    ) -> None:
        settings = settings.replace(worker={"consumer_group": group})
        self.clock = clock
        self.store = store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        if "seen" in declared:

            @feature(entity=User, trigger="order")
            def seen(user_id: str, event: ServiceEvent) -> bool:
                return True

        if "orders" in declared:

            @feature(entity=User, trigger=list(triggers), default=0, freshness="caught_up")
            async def orders(user_id: str, event: ServiceEvent) -> int:
                return int(await store.get_feature("orders", user_id)) + 1

            self.page = self._page(store)

    def _page(self, store: FeatureStore) -> ContextFunction[[str]]:
        @context(store, freshness_sla="5m")
        async def page(user_id: str) -> ContextItem:
            return ContextItem.template("{orders}")

        return page

    async def order(self, user_id: str = "u1", event_type: str = "order") -> None:
        """Publish an event, handle it, and let an hour pass."""
        await self.store.publish(event_type, user_id)
        await self.store.drain()
        self.clock.advance("1h")

    async def told(self, user_id: str = "u1") -> tuple[str, list[str]]:
        """Return the text of the context, and why it is not fresh."""
        await (await runtime_of(self.store).open()).catalog.follow()  # as readers do once a second
        made = await self.page(user_id)
        return made.content, [each.reason for each in made.freshness_violations]


async def test_a_feature_that_no_worker_has_run_is_not_caught_up(
    settings: Settings, clock: ManualClock
) -> None:
    old, new = Shop(settings, clock, ["seen"]), Shop(settings, clock, ["seen", "orders"])
    async with old.store, new.store:
        assert await new.told() == ("0", [])  # there are no events at all
        await old.order()
        assert await new.told() == ("0", ["never_ran"])
        assert await new.told("u2") == ("0", ["never_ran"])


async def test_a_feature_whose_events_were_handled_before_it_was_declared_is_not_caught_up(
    settings: Settings, clock: ManualClock
) -> None:
    old, new = Shop(settings, clock, ["seen"]), Shop(settings, clock, ["seen", "orders"])
    async with old.store, new.store:
        await old.order()
        await new.store.drain()
        assert await new.told() == ("0", ["stale"])
        await new.order()
        assert await new.told() == ("1", ["stale"])
        await new.store.backfills.run("orders", switch=True)
        assert await new.told() == ("2", [])
        await new.order("u2")
        assert await new.told("u2") == ("1", [])


async def test_a_new_feature_whose_events_are_new_is_caught_up(
    settings: Settings, clock: ManualClock
) -> None:
    old = Shop(settings, clock, ["seen"])
    new = Shop(settings, clock, ["seen", "orders"], triggers=["refund"])
    async with old.store, new.store:
        await old.order()
        await new.store.drain()
        assert await new.told() == ("0", [])
        await new.order(event_type="refund")
        assert await new.told() == ("1", [])


async def test_a_feature_that_got_another_trigger_has_missed_its_events(
    settings: Settings, clock: ManualClock
) -> None:
    old = Shop(settings, clock, ["orders"])
    new = Shop(settings, clock, ["orders"], triggers=["order", "refund"])
    async with old.store, new.store:
        await old.order()
        await old.order(event_type="refund")
        assert await old.told() == ("1", [])
        await new.store.drain()
        assert await new.told() == ("1", ["stale"])


async def test_a_feature_that_was_left_out_for_a_while_has_missed_the_events_of_that_time(
    settings: Settings, clock: ManualClock
) -> None:
    full, part = Shop(settings, clock, ["seen", "orders"]), Shop(settings, clock, ["seen"])
    async with full.store, part.store:
        await full.order()
        assert await full.told() == ("1", [])
        await part.order()
        await full.order()
        assert await full.told() == ("2", ["stale"])


async def test_a_feature_that_only_another_consumer_group_runs_is_not_caught_up(
    settings: Settings, clock: ManualClock
) -> None:
    one = Shop(settings, clock, ["seen"], "one")
    two = Shop(settings, clock, ["seen", "orders"], "two")
    reader = Shop(settings, clock, ["seen", "orders"], "one")
    async with one.store, two.store, reader.store:
        await two.store.drain()
        await one.order()
        assert await reader.told() == ("0", ["never_ran"])
        await two.store.drain()
        assert await two.told() == ("1", [])
        assert await reader.told() == ("1", ["stale"])


async def test_a_feature_that_was_dropped_and_declared_again_has_missed_its_events(
    settings: Settings, clock: ManualClock
) -> None:
    shop = Shop(settings, clock, ["seen", "orders"])
    async with shop.store:
        await shop.order()
        await shop.store.catalog.drop("orders")
        assert await shop.told() == ("0", ["never_ran"])
        await shop.store.drain()
        assert await shop.told() == ("0", ["stale"])
