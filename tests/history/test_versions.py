"""Changes of the catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headwater import FeatureStore, ServiceEvent
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.history import versions
from headwater.ports import BackfillState, CatalogState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
BACKFILL = BackfillState(id="b1", group="backfill-b1", like="workers")


def declared(*names: str) -> Registry:
    """Return the declarations of a store with triggered features of these names."""
    store = FeatureStore()

    @store.entity
    class User:
        user_id: str

    for name in names:

        def handler(user_id: str, event: ServiceEvent) -> int:
            return 1

        store.feature(User, name=name, trigger="purchase")(handler)
    registry: Registry = runtime_of(store).registry
    return registry


def total() -> FeatureDef:
    return declared("total").feature("total")


def entered(*names: str) -> CatalogState:
    return versions.enter(CatalogState(), declared(*names).features.values(), NOW)


def ready() -> CatalogState:
    """Return a catalog with a second version of ``total`` that is ready."""
    state = versions.add_version(entered("total"), total(), NOW, BACKFILL)
    return versions.mark_ready(versions.begin_joining(state, "total"), "total")


def states(state: CatalogState, name: str = "total") -> list[tuple[int, str, str]]:
    return [(each.number, each.series, each.state) for each in state.features[name].versions]


def series_run(registry: Registry, state: CatalogState, now: datetime = NOW) -> list[str]:
    registry.serve(state)
    return [each.series for each in registry.running(now)["total"]]


def test_a_feature_is_entered_once_with_one_version_under_its_name() -> None:
    state = entered("total", "count")
    assert states(state) == [(1, "total", "active")]
    assert versions.enter(state, [total()], LATER) is state


def test_a_new_version_is_built_joins_becomes_ready_and_is_served() -> None:
    registry = declared("total")
    state = versions.add_version(entered("total"), total(), NOW, BACKFILL)
    assert states(state) == [(1, "total", "active"), (2, "total@2", "building")]
    assert series_run(registry, state) == ["total"]
    state = versions.begin_joining(state, "total")
    assert series_run(registry, state) == ["total", "total@2"]
    state = versions.join(state, "total", 0, "7")
    assert versions.join(state, "total", 0, "9") == state
    backfill = versions.pending_version(state, "total").backfill
    assert backfill is not None
    assert backfill.joined == {0: "7"}
    state = versions.activate(versions.mark_ready(state, "total"), "total", LATER)
    assert states(state) == [(1, "total", "retired"), (2, "total@2", "active")]
    assert registry.feature("total").series == "total"
    assert series_run(registry, state, LATER + timedelta(seconds=9)) == ["total@2", "total"]
    assert registry.feature("total").series == "total@2"
    assert series_run(registry, state, LATER + timedelta(seconds=10)) == ["total@2"]


def test_only_a_version_that_is_ready_is_served() -> None:
    state = versions.add_version(entered("total"), total(), NOW, BACKFILL)
    with pytest.raises(InvalidInputError, match=r"version 2 .* is building, not ready"):
        versions.activate(state, "total", NOW)
    with pytest.raises(InvalidInputError, match="no backfill; start one with"):
        versions.activate(entered("total"), "total", NOW)
    with pytest.raises(UnknownNameError, match="did you mean 'total'"):
        versions.activate(state, "totl", NOW)


def test_a_feature_has_one_backfill_at_a_time() -> None:
    with pytest.raises(InvalidInputError, match=r"version 2, which is ready; .* switch .* cancel"):
        versions.add_version(ready(), total(), NOW, BACKFILL)
    cancelled = versions.cancel(ready(), "total")
    assert states(cancelled) == [(1, "total", "active")]


def test_the_next_series_is_one_that_no_version_has() -> None:
    state = versions.activate(ready(), "total", NOW)
    state = versions.add_version(state, total(), NOW, BACKFILL)
    assert states(state)[-1] == (3, "total@3", "building")


def test_a_renamed_feature_keeps_its_series_and_its_old_name_until_it_is_declared_again() -> None:
    state = versions.rename(entered("total"), "total", "spend")
    for names, expected in (
        (("spend",), {"spend": "total"}),
        (("total",), {"total": "total"}),
        (("spend", "total"), {"spend": "total", "total": "total@2"}),
    ):
        registry = declared(*names)
        registry.serve(state)
        assert {name: each.series for name, each in registry.features.items()} == expected
    assert versions.enter(state, [total()], NOW) == state
    both = versions.enter(state, declared("spend", "total").features.values(), NOW)
    assert states(both) == [(1, "total@2", "active")]
    assert states(both, "spend") == [(1, "total", "active")]


def test_a_feature_that_is_renamed_and_renamed_back_has_its_old_values() -> None:
    state = versions.rename(entered("total"), "total", "spend")
    state = versions.rename(state, "spend", "total")
    registry = declared("total")
    registry.serve(state)
    assert registry.feature("total").series == "total"


def test_a_name_that_the_catalog_has_is_not_given_to_another_feature() -> None:
    state = entered("total", "spend")
    with pytest.raises(InvalidInputError, match="already has a feature 'spend'"):
        versions.rename(state, "total", "spend")
    with pytest.raises(InvalidInputError, match="not an identifier"):
        versions.rename(state, "total", "total spend")


def test_a_dropped_name_begins_again_and_the_served_version_is_not_dropped_alone() -> None:
    assert versions.drop(entered("total"), "total").features == {}
    with pytest.raises(InvalidInputError, match=r"version 1 .* is served"):
        versions.drop(ready(), "total", 1)
    with pytest.raises(InvalidInputError, match="no version 7; its versions: 1, 2"):
        versions.drop(ready(), "total", 7)
    assert states(versions.drop(ready(), "total", 2)) == [(1, "total", "active")]


def test_horizons_never_go_back() -> None:
    state = versions.prune(CatalogState(), history=LATER)
    assert versions.prune(state, history=NOW, events=NOW).pruned.history == LATER
    assert versions.prune(state, events=NOW).pruned.events == NOW
