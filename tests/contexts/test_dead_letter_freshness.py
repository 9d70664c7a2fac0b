"""An event that became a dead letter of a feature is not handled by it: its value is not fresh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.support import recorded

pytestmark = pytest.mark.both_environments

FAILED = ("1", [("orders", "dead_letter")])


class Shop:
    """A store that counts orders and fails for broken ones until it is mended."""

    def __init__(
        self,
        settings: Settings,
        clock: ManualClock,
        *,
        name: str = "orders",
        is_mended: bool = False,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self.clock, self.name, self.is_mended = clock, name, is_mended
        self.store = store = FeatureStore(settings=settings, clock=clock)
        number: Callable[[Any], Any] = float if convert else int

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="order", default=0, freshness="caught_up")
        async def seen(user_id: str, event: ServiceEvent) -> int:
            return int(await store.get_feature("seen", user_id)) + 1

        async def orders(user_id: str, event: ServiceEvent) -> Any:
            if event.payload.get("broken") and not self.is_mended:
                raise ValueError("broken")
            return number(await store.get_feature(name, user_id)) + number(1)

        orders.__annotations__["return"] = number
        feature(
            entity=User,
            name=name,
            trigger="order",
            default=number(0),
            freshness="caught_up",
            max_retries=0,
            convert=convert,
        )(orders)

        @context(store, freshness_sla="1h")
        async def page(user_id: str) -> ContextItem:
            return ContextItem.template(f"{{{name}}}")

        self.page = page

    async def order(self, user_id: str = "u1", **payload: Any) -> None:
        """Publish an event and handle it."""
        await self.store.publish("order", user_id, payload)
        await self.store.drain()

    async def told(self, user_id: str = "u1") -> tuple[str, list[tuple[str, str]]]:
        """Return the text of the context, and why it is not fresh."""
        await (await runtime_of(self.store).open()).catalog.follow()  # as readers do once a second
        made = await self.page(user_id)
        return made.content, [(each.name, each.reason) for each in made.freshness_violations]

    async def letters(self) -> list[str]:
        return [letter.id for letter in await self.store.dead_letters.list()]


@pytest.fixture
async def shop(settings: Settings, clock: ManualClock) -> Any:
    """A shop in which an order was handled, and the next one became a dead letter."""
    shop = Shop(settings, clock)
    async with shop.store:
        await shop.order()
        await shop.order(broken=True)
        yield shop


async def test_a_value_is_not_fresh_while_there_is_a_dead_letter_of_its_feature_and_entity(
    shop: Shop,
) -> None:
    assert await shop.told() == FAILED
    await shop.order()
    assert await shop.told() == ("2", [("orders", "dead_letter")])
    made = await shop.page("u1")
    (violation,) = made.freshness_violations
    assert (made.freshness_status, violation.age_ms) == ("degraded", None)
    (read,) = made.lineage.features
    assert (read.rule, read.fresh, read.age_ms) == ("dead_letter", False, None)


async def test_a_strict_context_is_refused_and_its_error_names_the_dead_letter(shop: Shop) -> None:
    @context(shop.store, freshness_sla="1h", freshness_strict=True)
    async def strict(user_id: str) -> ContextItem:
        return ContextItem.template("{orders}")

    with pytest.raises(FreshnessSLAError, match=r"'orders' has a dead letter, .*: redrive or"):
        await strict("u1")
    assert (await strict("u2")).is_fresh


async def test_a_default_is_not_fresh_either(shop: Shop) -> None:
    await shop.order("new", broken=True)
    assert await shop.told("new") == ("0", [("orders", "dead_letter")])


async def test_other_features_of_the_event_and_other_entities_are_fresh(shop: Shop) -> None:
    @context(shop.store, freshness_sla="1h", freshness_strict=True)
    async def other(user_id: str) -> ContextItem:
        return ContextItem.template("{seen}")

    assert (await other("u1")).content == "2"
    assert [await shop.told(each) for each in ("u", "u10", "u2")] == [("0", [])] * 3


async def test_a_value_is_fresh_again_when_all_letters_are_redriven_with_success(
    shop: Shop,
) -> None:
    await shop.order(broken=True)
    first, second = await shop.letters()
    await shop.store.dead_letters.redrive(first)
    assert await shop.told() == FAILED  # it waits
    await shop.store.drain()
    assert await shop.told() == FAILED  # it failed again
    shop.is_mended = True
    await shop.store.dead_letters.redrive(second)
    await shop.store.drain()
    assert await shop.told() == ("2", [("orders", "dead_letter")])
    await shop.store.dead_letters.redrive(*await shop.letters())
    assert await shop.told() == ("2", [("orders", "dead_letter")])
    await shop.store.drain()
    assert await shop.told() == ("3", [])


async def test_a_value_is_fresh_again_when_the_letter_is_discarded(shop: Shop) -> None:
    await shop.store.dead_letters.discard(*await shop.letters())
    assert await shop.told() == ("1", [])


async def test_a_letter_of_a_forgotten_entity_does_not_count(shop: Shop) -> None:
    shop.clock.advance("1s")
    await shop.store.admin.forget("User", "u1", reason="a test", allow_return=True)
    assert await shop.told() == ("0", [])
    shop.clock.advance("1s")
    await shop.order()
    assert await shop.told() == ("1", [])


async def test_a_letter_counts_under_the_new_name_of_its_feature(
    shop: Shop, settings: Settings
) -> None:
    await shop.store.catalog.rename("orders", "purchases")
    renamed = Shop(settings, shop.clock, name="purchases", is_mended=True)
    async with renamed.store:
        assert await renamed.told() == ("1", [("purchases", "dead_letter")])
        await renamed.store.dead_letters.redrive(*await renamed.letters())
        await renamed.store.drain()
        assert await renamed.told() == ("2", [])


async def test_a_version_that_has_handled_the_event_is_fresh_and_its_own_letters_count(
    shop: Shop,
) -> None:
    shop.is_mended = True
    await shop.store.backfills.run("orders", switch=False)
    assert await shop.told() == FAILED
    shop.is_mended = False
    await shop.order("u2", broken=True)  # a dead letter of both versions
    await shop.store.backfills.switch("orders")
    assert await shop.told() == ("2", [])
    assert await shop.told("u2") == ("0", [("orders", "dead_letter")])
    earlier, served = [each.id for each in await shop.store.dead_letters.list(entity_id="u2")]
    await shop.store.dead_letters.discard(earlier)
    assert await shop.told("u2") == ("0", [("orders", "dead_letter")])
    await shop.store.dead_letters.discard(served)
    assert await shop.told("u2") == ("0", [])


async def test_a_letter_counts_for_the_version_that_converts_the_values(
    shop: Shop, settings: Settings
) -> None:
    converted = Shop(settings, shop.clock, is_mended=True, convert=float)
    async with converted.store:
        await converted.store.drain()
        assert await converted.told() == ("1.0", [("orders", "dead_letter")])
        await converted.store.dead_letters.redrive(*await converted.letters())
        await converted.store.drain()
        assert await converted.told() == ("2.0", [])


async def test_what_was_computed_from_such_a_value_is_not_fresh(shop: Shop) -> None:
    store = shop.store

    @retriever(store)
    async def search(user_id: str) -> list[str]:
        return [str(await store.get_feature("orders", user_id))]

    @context(store)
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{orders}")

    @context(store, freshness_sla="1h")
    async def outer(user_id: str) -> list[ContextItem]:
        found = [ContextItem(chunk.text, source=chunk) for chunk in await search(user_id)]
        return [*found, ContextItem(str(await inner(user_id)))]

    made = await outer("u1")
    assert {(each.kind, each.reason) for each in made.freshness_violations} == {
        ("context", "missing"),
        ("feature", "dead_letter"),
        ("retrieval", "missing"),
    }


async def test_a_replay_judges_the_value_as_it_was_when_it_was_recorded(shop: Shop) -> None:
    made = await shop.page("u1")
    shop.is_mended = True
    await shop.store.dead_letters.redrive(*await shop.letters())
    await shop.store.drain()
    assert await shop.told() == ("2", [])
    again = await shop.store.replay(made.context_id, "as_of")
    assert (again.content, again.matches) == ("1", True)
    assert again.context is not None
    assert [each.reason for each in again.context.freshness_violations] == ["dead_letter"]
    assert (await recorded(shop.store, made)).features[0].rule == "dead_letter"
    assert (await shop.store.records.verify(made.context_id)).ok
