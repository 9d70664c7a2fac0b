"""Changes of the catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import (
    declared_as,
    meaning_at,
    meanings_during,
    named_at,
)
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.declarations.series import shape_of
from headwater.errors import InvalidInputError
from headwater.history import versions
from headwater.history.backfill import steps
from headwater.model.catalog import BackfillState, CatalogState, Horizons

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = NOW + 5 * SECOND
BACKFILL = BackfillState(id="b1", group="backfill-b1", main_group="workers")


def declared(*names: str, annotation: type = int) -> Registry:
    """Return the declarations of a store with triggered features of these names."""
    store = FeatureStore()

    @store.entity
    class User:
        user_id: str

    for name in names:

        def handler(user_id: str, event: ServiceEvent) -> object:
            return 1

        handler.__annotations__["return"] = annotation
        store.feature(User, name=name, trigger="purchase")(handler)
    registry: Registry = runtime_of(store).registry
    return registry


def total(annotation: type = int) -> FeatureDef:
    return declared("total", annotation=annotation).feature("total")


def entered(*names: str) -> CatalogState:
    return versions.enter(CatalogState(), declared(*names).features.values(), NOW)


def with_second(state: str = "ready") -> CatalogState:
    """Return a catalog with a second version of ``total``."""
    added = versions.add_version(entered("total"), total(), {"total"}, NOW, BACKFILL)
    entry = added.features["total"]
    first, second = entry.versions
    second = replace(second, state=state)
    return versions.with_entry(added, replace(entry, versions=[first, second]))


def states(state: CatalogState, name: str = "total") -> list[tuple[int, str, str]]:
    return [(each.number, each.series, each.state) for each in state.features[name].versions]


def series_run(registry: Registry, state: CatalogState) -> list[str]:
    registry.serve(state)
    return [each.series for each in registry.running("workers")["total"]]


def test_a_feature_is_entered_once_with_one_version_under_its_name() -> None:
    state = entered("total", "count")
    assert states(state) == [(1, "total", "active")]
    assert versions.enter(state, [total()], LATER) is state


def test_workers_run_the_version_that_is_served_and_the_ones_kept_fresh_next_to_it() -> None:
    registry = declared("total")
    assert states(with_second("building")) == [(1, "total", "active"), (2, "total@2", "building")]
    assert series_run(registry, with_second("building")) == ["total"]
    assert series_run(registry, with_second("joining")) == ["total", "total@2"]
    switched = steps.switched(with_second(), "total", {"total"}, None, LATER)
    assert series_run(registry, switched) == ["total@2", "total"]
    assert registry.feature("total").series == "total@2"
    retired = steps.retired_when_due(switched, LATER + steps.KEPT_FRESH)
    assert series_run(registry, retired) == ["total@2"]


def test_workers_run_no_version_with_values_of_another_type() -> None:
    changed = declared("total", annotation=str)
    assert series_run(changed, entered("total")) == ["total"]  # checked when a worker starts
    added = versions.add_version(entered("total"), total(str), {"total"}, NOW, BACKFILL)
    assert series_run(changed, added) == []
    entry = added.features["total"]
    joining = [entry.versions[0], steps.joining(entry.versions[1])]
    added = versions.with_entry(added, replace(entry, versions=joining))
    assert series_run(changed, added) == ["total@2"]
    assert series_run(declared("total"), added) == ["total"]


def test_a_feature_has_one_backfill_at_a_time() -> None:
    with pytest.raises(InvalidInputError, match=r"version 2, which is ready; .* switch .* cancel"):
        versions.add_version(with_second(), total(), {"total"}, NOW, BACKFILL)


def test_the_next_series_is_one_that_no_version_has() -> None:
    state = steps.switched(with_second(), "total", {"total"}, None, NOW)
    state = versions.add_version(state, total(), {"total"}, NOW, BACKFILL)
    assert states(state)[-1] == (3, "total@3", "building")


def test_a_converted_version_has_a_series_of_its_own_and_names_the_earlier_ones() -> None:
    state = versions.convert(entered("total"), "total", total(str), LATER)
    assert states(state) == [(1, "total", "retired"), (2, "total@2", "active")]
    assert state.features["total"].versions[1].type == "str"
    assert versions.convert(state, "total", total(str), LATER) is state
    assert series_run(declared("total", annotation=str), state) == ["total@2"]
    state = versions.convert(state, "total", total(float), LATER)
    assert state.features["total"].versions[2].converts == ["total@2", "total"]
    with pytest.raises(InvalidInputError, match="a later version converts its values"):
        versions.drop(state, "total", 1, now=LATER)


def test_a_converted_version_is_served_with_its_own_default_from_its_first_moment() -> None:
    state = versions.declare(
        entered("total"), [replace(total(), default=700)], {"total"}, NOW + SECOND
    )
    state = versions.convert(state, "total", replace(total(str), default="none"), LATER)
    assert [(each.series, each.default) for each in state.features["total"].meanings] == [
        ("total", None),
        ("total", "700"),
        ("total@2", '"none"'),
    ]


def test_a_type_that_all_values_fit_changes_the_version_that_is_served() -> None:
    state = versions.change_type(entered("total"), "total", shape_of(total(float)))
    assert states(state) == [(1, "total", "active")]
    assert state.features["total"].versions[0].type == "float"


def test_a_renamed_feature_keeps_its_series_and_its_old_name_until_it_is_declared_again() -> None:
    state = versions.rename(entered("total"), "total", "spend", LATER)
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


def test_a_process_with_the_former_name_runs_and_makes_versions_of_the_renamed_feature() -> None:
    registry, names = declared("total"), {"total"}
    state = versions.rename(with_second("joining"), "total", "spend", LATER)
    assert series_run(registry, state) == ["total", "total@2"]
    (entry,) = state.features.values()
    assert versions.unfinished(entry) == entry.versions[1]
    state = versions.change_version(state, "total@2", lambda each: replace(each, state="ready"))
    state = steps.switched(state, "total", names, None, LATER)
    assert states(state, "spend") == [(1, "total", "ready"), (2, "total@2", "active")]
    state = versions.add_version(state, total(), names, LATER, BACKFILL)
    assert states(state, "spend")[2] == (3, "spend@3", "building")


def test_a_former_name_that_is_declared_again_is_a_feature_of_its_own() -> None:
    state = versions.rename(with_second("ready"), "total", "spend", LATER)
    both = {"total", "spend"}
    with pytest.raises(InvalidInputError, match="'total' has no backfill"):
        steps.switched(state, "total", both, None, LATER)
    state = versions.add_version(state, total(), both, LATER, BACKFILL)
    assert states(state) == [(1, "total@3", "active"), (2, "total@2@2", "building")]


def test_a_feature_that_is_renamed_and_renamed_back_has_its_old_values() -> None:
    state = versions.rename(entered("total"), "total", "spend", LATER)
    state = versions.rename(state, "spend", "total", LATER)
    registry = declared("total")
    registry.serve(state)
    assert registry.feature("total").series == "total"


def test_a_name_that_the_catalog_has_is_not_given_to_another_feature() -> None:
    state = entered("total", "spend")
    with pytest.raises(InvalidInputError, match="already has a feature 'spend'"):
        versions.rename(state, "total", "spend", LATER)
    with pytest.raises(InvalidInputError, match="not an identifier"):
        versions.rename(state, "total", "total spend", LATER)


def test_a_dropped_name_begins_again_and_the_served_version_is_not_dropped_alone() -> None:
    assert versions.drop(entered("total"), "total", now=LATER).features == {}
    with pytest.raises(InvalidInputError, match=r"version 1 .* is served"):
        versions.drop(with_second(), "total", 1, now=LATER)
    with pytest.raises(InvalidInputError, match="no version 7; its versions: 1, 2"):
        versions.drop(with_second(), "total", 7, now=LATER)
    assert states(versions.drop(with_second(), "total", 2, now=LATER)) == [(1, "total", "active")]


def test_horizons_never_go_back() -> None:
    state = versions.prune(CatalogState(), Horizons(history=LATER))
    state = versions.prune(state, Horizons(history=NOW, events=NOW))
    assert state.pruned == Horizons(history=LATER, events=NOW)
    state = versions.prune(state, Horizons(records=NOW))
    assert state.pruned == Horizons(LATER, NOW, NOW)


def spans(state: CatalogState, name: str = "total") -> list[tuple[datetime, str, str | None]]:
    return [(each.since, each.name, each.series) for each in state.features[name].meanings]


def test_an_entry_keeps_what_it_meant_over_time_through_switches_and_renames() -> None:
    state = steps.switched(with_second(), "total", {"total"}, None, LATER)
    back = steps.switched(state, "total", {"total"}, 1, LATER + SECOND)
    renamed = versions.rename(back, "total", "spend", LATER + 2 * SECOND)
    assert spans(renamed, "spend") == [
        (NOW, "total", "total"),
        (LATER, "total", "total@2"),
        (LATER + SECOND, "total", "total"),
        (LATER + 2 * SECOND, "spend", "total"),
    ]
    meanings = renamed.features["spend"].meanings
    for seconds, series in ((-9, "total"), (0, "total@2"), (0.5, "total@2"), (1, "total")):
        meaning = meaning_at(meanings, LATER + seconds * SECOND)
        assert meaning is not None
        assert meaning.series == series
    during = meanings_during(meanings, NOW, LATER)
    assert [each.series for each in during] == ["total", "total@2"]
    assert meanings_during(meanings, NOW - SECOND, NOW - SECOND) == [meanings[0]]


def test_a_default_is_recorded_when_it_changes_and_only_then() -> None:
    def declaring(default: int | None, state: CatalogState, now: datetime) -> CatalogState:
        feature = replace(total(), default=default)
        return versions.declare(state, [feature], {"total"}, now)

    state = declaring(0, entered("total"), LATER)
    assert declaring(0, state, LATER + SECOND) is state
    state = declaring(None, declaring(9, state, LATER + SECOND), LATER + 2 * SECOND)
    assert [each.default for each in state.features["total"].meanings] == [None, "0", "9", None]


def test_a_name_at_a_moment_means_the_feature_that_had_it_then() -> None:
    state = versions.rename(entered("total"), "total", "spend", LATER)
    both = declared("spend", "total").features.values()
    state = versions.enter(state, both, LATER + SECOND)
    first, second = state.features["spend"], state.features["total"]
    for seconds, owner in ((-9, first), (0, first), (0.5, first), (1, second)):
        assert named_at(state, "total", LATER + seconds * SECOND) is owner
    assert named_at(state, "spend", NOW) is first
    assert named_at(state, "other", NOW) is None
    assert declared_as(state, first, {"spend", "total"}) == "spend"
    assert declared_as(state, first, {"total"}) is None
    assert declared_as(state, second, {"total"}) == "total"


def test_a_dropped_feature_is_never_taken_for_the_next_one_of_its_name() -> None:
    state = versions.drop(entered("total"), "total", now=LATER)
    state = versions.enter(state, [total()], LATER + SECOND)
    (gone,) = state.dropped
    assert named_at(state, "total", NOW) is gone
    assert declared_as(state, gone, {"total"}) is None
    for seconds in (0, 0.5, 1):
        moment = LATER + seconds * SECOND
        assert named_at(state, "total", moment) is state.features["total"]


def test_the_number_of_a_version_that_was_served_and_dropped_is_not_used_again() -> None:
    state = steps.switched(with_second(), "total", {"total"}, None, LATER)
    state = steps.switched(state, "total", {"total"}, 1, LATER)
    state = versions.drop(state, "total", 2, now=LATER)
    state = versions.add_version(state, total(), {"total"}, LATER, BACKFILL)
    assert states(state)[-1] == (3, "total@3", "building")


def test_a_feature_is_recorded_as_run_when_a_worker_runs_it() -> None:
    state = entered("total")
    assert state.features["total"].run_since is None
    state = versions.run(state, [total()], LATER)
    assert state.features["total"].run_since == LATER
    assert versions.run(state, [total()], LATER + SECOND) is state
