"""Which features of a variant are replayed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.contexts.evaluation.variants import Changes, Code
from headwater.declarations.runtime import runtime_of


def keep(store: FeatureStore, user: type) -> None:
    """Declare a handler that sets a feature."""

    @feature(entity=user, trigger="order")
    async def rank(user_id: str, event: ServiceEvent) -> None:
        await store.set_feature("tier", user_id, "gold")


def stop(store: FeatureStore, user: type) -> None:
    """Declare the handler without its write."""

    @feature(entity=user, trigger="order")
    async def rank(user_id: str, event: ServiceEvent) -> None:
        pass


def remove(store: FeatureStore, user: type) -> None:
    """Declare nothing."""


def code(declare_rank: Callable[[FeatureStore, type], None]) -> Code:
    """Return code in which several handlers set one feature, and another one reads it."""
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    store.stored_feature("tier", str, entity=User, default="none")
    declare_rank(store, User)

    @feature(entity=User, trigger="leave")
    async def reset(user_id: str, event: ServiceEvent) -> None:
        await store.set_feature("tier", user_id, "none")

    @feature(entity=User, trigger="visit")
    async def greeted(user_id: str, event: ServiceEvent) -> str:
        return str(await store.get_feature("tier", user_id))

    @feature(entity=User, trigger="visit")
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    return Code.of(runtime_of(store).registry)


@pytest.mark.parametrize(("edit", "own"), [(stop, {"rank"}), (remove, set())])
def test_what_a_changed_handler_sets_no_more_is_replayed_with_all_that_set_it(
    edit: Callable[[FeatureStore, type], None], own: set[str]
) -> None:
    for before, after in ((keep, edit), (edit, keep)):
        variant = Changes(code(before), code(after), {}).variant(frozenset())
        names = {one.name for one in variant.replayed}
        expected = own if after is edit else {"rank"}
        assert names == {"tier", "reset", "greeted", *expected}
        assert "visits" not in variant.affected


def test_an_unchanged_handler_is_not_replayed() -> None:
    assert Changes(code(keep), code(keep), {}).variant(frozenset()).replayed == ()
