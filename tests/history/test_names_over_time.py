"""What was served at a moment is known for it, also after switches, renames and new defaults."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from headwater import ContextItem, FeatureStore, ServiceEvent
from headwater.contexts.recorded.served_audit import DROPPED
from headwater.declarations.runtime import runtime_of
from headwater.errors import HeadwaterError, InvalidInputError
from headwater.history import versions
from headwater.model.catalog import CatalogState
from headwater.settings.schema import Settings


class Served(NamedTuple):
    """What readers were served at a moment, and the record of a context of that moment."""

    moment: datetime
    values: dict[str, Any]
    context_id: str
    text: str


def declared(
    settings: Settings,
    name: str = "total",
    *,
    factor: int = 1,
    default: int | None = 0,
    other: int | None = None,
) -> FeatureStore:
    """Return a store with a feature, and others that are computed from it.

    ``other`` is the default of another feature that is now called ``total``.
    """
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, name=name, trigger="buy", default=default)
    async def total(user_id: str, event: ServiceEvent) -> int:
        before = await store.get_feature(name, user_id) or 0
        return int(before) + factor * int(event.payload["amount"])

    async def another(user_id: str, event: ServiceEvent) -> int:
        return 100 + int(await store.get_feature("total", user_id))

    if other is not None:
        store.feature(User, name="total", trigger="buy", default=other)(another)

    @store.feature(User, name="tier", derived=True)
    async def tier(user_id: str) -> str:
        return f"tier {await store.get_feature(name, user_id)}"

    @store.feature(User, name="line", template=f"line {{{name}}}", default=f"none {default}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @store.context(name="page")
    async def page(user_id: str) -> list[ContextItem]:
        row = (await store.get_features([name, "tier", "line"], [user_id]))[user_id]
        return [ContextItem(" | ".join(str(value) for value in row.values()))]

    declare_cached(store, User, name)
    return store


def declare_cached(store: FeatureStore, user: type, name: str) -> None:
    """Declare a cached feature that reads another one, and a context that reads it."""

    @store.feature(user, name="summary", ttl="1h")
    async def summary(user_id: str) -> str:
        return f"sum {await store.get_feature(name, user_id)}"

    @store.context(name="brief")
    async def brief(user_id: str) -> list[ContextItem]:
        return [ContextItem(str(await store.get_feature("summary", user_id)))]


async def buy(store: FeatureStore, amount: int, user_id: str = "u1") -> None:
    await store.publish("buy", user_id, {"amount": amount})
    await store.drain()


async def serve(store: FeatureStore, name: str = "total", user_id: str = "u1") -> Served:
    """Read the present values, and record a context that reads them."""
    values = (await store.get_features([name, "tier", "line"], [user_id]))[user_id]
    context = await store.assemble("page", {"user_id": user_id})
    return Served(store.clock.now(), values, context.context_id, context.content)


async def known(
    store: FeatureStore, served: Sequence[Served], name: str = "total", **options: Any
) -> list[dict[str, Any]]:
    """Return the values that history knows of the moments."""
    rows = [{"user_id": "u1", "timestamp": each.moment} for each in served]
    names = [name, "tier", "line"]
    found = await store.get_historical_features(rows, names, known=True, **options)
    return [{each: row[each] for each in names} for row in found]


async def check(store: FeatureStore, *served: Served, name: str = "total") -> None:
    """Check that frames, replays and the audit give what was served."""
    expected = [each.values for each in served]
    renamed = [{name: next(iter(row.values())), **row} for row in expected]
    assert await known(store, served, name) == [
        {each: row[each] for each in (name, "tier", "line")} for row in renamed
    ]
    for each in served:
        replay = await store.records.replay(each.context_id, "as_of")
        assert (replay.content, replay.matches) == (each.text, True)
    report = (await store.admin.audit()).served
    assert report is not None
    assert report.differences == []
    assert report.equal >= 3 * len(served)


async def test_the_version_that_was_served_is_known_before_and_after_a_switch(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 1)
        await buy(store, 2)
        first = await serve(store)
    assert first.values == {"total": 3, "tier": "tier 3", "line": "line 3"}
    async with declared(settings, factor=10) as store:
        await store.backfills.run("total")
        built = await serve(store)
        assert built.values["total"] == 3
        await store.backfills.switch("total")
        switched = await serve(store)
        assert switched.values["total"] == 30
        await store.backfills.switch("total", version=1)
        back = await serve(store)
        assert back.values["total"] == 3
        await check(store, first, built, switched, back)


async def test_true_values_of_the_past_are_those_of_the_version_that_is_served_now(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 1)
        first = await serve(store)
    async with declared(settings, factor=10, default=9) as store:
        await store.backfills.run("total", switch=True)
        rows = [{"user_id": user, "timestamp": first.moment} for user in ("u1", "u2")]
        found = await store.get_historical_features(rows, ["total"])
        assert [row["total"] for row in found] == [19, 9]


async def test_the_default_that_was_served_is_known_after_it_has_changed(
    settings: Settings,
) -> None:
    async with declared(settings, default=0) as store:
        await store.drain()
        first = await serve(store)
    async with declared(settings, default=9) as store:
        second = await serve(store)
    async with declared(settings, default=None) as store:
        third = await serve(store)
        assert [each.values["total"] for each in (first, second, third)] == [0, 9, None]
        assert third.values["line"] == "none None"
        await check(store, first, second, third)


async def test_a_default_that_no_worker_has_recorded_is_known_too(settings: Settings) -> None:
    async with declared(settings, default=0) as store:
        first = await serve(store)
    async with declared(settings, default=9) as store:
        second = await serve(store)
        await check(store, first, second)


async def test_a_renamed_feature_keeps_what_it_was_before(settings: Settings) -> None:
    async with declared(settings, default=0) as store:
        before = await serve(store)
        await buy(store, 5)
        first = await serve(store)
        await store.catalog.rename("total", "spend")
    async with declared(settings, "spend", default=7) as store:
        second = await serve(store, "spend")
        assert second.values["spend"] == 5
        await check(store, before, first, second, name="spend")
        causes = await store.records.causes(first.context_id)
        assert causes.is_complete
        assert [each.event.event_type for each in causes.causes if each.event] == ["buy"] * 3


async def test_a_name_that_is_used_again_does_not_answer_for_the_feature_of_before(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        first = await serve(store)
        await store.catalog.rename("total", "spend")
    async with declared(settings, "spend", other=8) as store:
        await buy(store, 1)
        second = await serve(store, "spend")
        assert (second.values["spend"], await store.get_feature("total", "u1")) == (6, 108)
        await check(store, first, second, name="spend")
        rows = [{"user_id": "u1", "timestamp": first.moment}]
        (row,) = await store.get_historical_features(rows, ["total", "spend"], known=True)
        assert (row["total"], row["spend"]) == (8, 5)
        (cause,) = {each.cause for each in (await store.records.causes(first.context_id)).causes}
        assert [each.cause for each in await store.get_feature_history("spend", "u1")][-1] == cause


async def test_a_cached_value_does_not_name_the_next_feature_of_the_name_as_its_input(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        assert await summarized(store) == ("sum 5", [("total", 5)])
        await store.catalog.rename("total", "spend")
    async with declared(settings, "spend", other=8) as store:
        assert await summarized(store) == ("sum 5", [("spend", 5)])
        await buy(store, 1)
        assert await store.get_feature("total", "u1") == 108
        assert await summarized(store) == ("sum 5", [("spend", 5)])
        report = (await store.admin.audit()).served
        assert report is not None
        assert report.differences == []


async def test_a_cached_value_is_computed_again_after_a_switch_of_its_input(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        assert await summarized(store) == ("sum 5", [("total", 5)])
    async with declared(settings, factor=10) as store:
        await store.backfills.run("total")
        assert await summarized(store) == ("sum 5", [("total", 5)])
        await store.backfills.switch("total")
        assert await summarized(store) == ("sum 50", [("total", 50)])


async def summarized(store: FeatureStore) -> tuple[str, list[tuple[str, Any]]]:
    """Return a context with a cached value, and the inputs of that value in the record."""
    context = await store.assemble("brief", {"user_id": "u1"})
    (read,) = (await store.records.explain(context.context_id)).features
    return context.content, [(each.feature, each.value) for each in read.inputs]


async def test_what_was_dropped_is_not_answered_by_the_next_feature_of_the_name(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        first = await serve(store)
        await store.catalog.drop("total")
    async with declared(settings, default=8) as store:
        await buy(store, 1)
        second = await serve(store)
        assert second.values["total"] == 9
        assert (await known(store, [first]))[0]["total"] == 8
        causes = await store.records.causes(first.context_id)
        assert (list(causes.causes), causes.is_complete) == ([], False)
        replay = await store.records.replay(first.context_id, "as_of")
        assert not replay.matches
        assert "but not the recorded values of total" in replay.fidelity
        report = (await store.admin.audit()).served
        assert report is not None
        assert report.differences == []
        assert report.not_compared[DROPPED] >= 1


async def test_a_version_that_was_dropped_is_not_answered_with_a_default(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        first = await serve(store)
    async with declared(settings, factor=10) as store:
        await store.backfills.run("total", switch=True)
        second = await serve(store)
        await store.catalog.drop("total", version=1)
        for names in (["total"], ["line"]):
            with pytest.raises(InvalidInputError, match=r"version 1 of feature 'total'.* dropped"):
                await store.get_historical_features(
                    [{"user_id": "u1", "timestamp": first.moment}], names, known=True
                )
        assert await known(store, [second]) == [second.values]
        with pytest.raises(HeadwaterError, match=r"version 1 of feature 'total'.* dropped"):
            await store.records.replay(first.context_id, "as_of")
        report = (await store.admin.audit()).served
        assert report is not None
        assert report.differences == []


async def test_an_export_knows_the_versions_and_defaults_that_were_served(
    settings: Settings, tmp_path: Path
) -> None:
    async with declared(settings) as store:
        before = await serve(store)
        await buy(store, 3)
        first = await serve(store)
    async with declared(settings, factor=10, default=None) as store:
        await store.backfills.run("total", switch=True)
        second = await serve(store)
        await store.history.export(tmp_path / "export")
        served = [before, first, second]
        assert [each.values["total"] for each in served] == [0, 3, 30]
        found = await known(store, served, exported=tmp_path / "export")
        assert found == [each.values for each in served]
    closed = declared(settings, factor=10, default=9)
    rows = [{"user_id": "u1", "timestamp": each.moment} for each in served]
    options: dict[str, Any] = {"known": True, "exported": tmp_path / "export"}
    found = await closed.get_historical_features(rows, ["total"], **options)
    assert [row["total"] for row in found] == [0, 3, 30]
    with pytest.raises(InvalidInputError, match=r"has no feature 'spend'.* export .* again"):
        await declared(settings, "spend").get_historical_features(rows, ["spend"], **options)


async def test_an_export_is_read_under_the_names_of_now(settings: Settings, tmp_path: Path) -> None:
    async with declared(settings) as store:
        await buy(store, 5)
        first = await serve(store)
        await store.history.export(tmp_path / "export")
        await store.catalog.rename("total", "spend")
    rows = [{"user_id": "u1", "timestamp": first.moment}]
    async with declared(settings, "spend", other=8) as store:
        await buy(store, 1)
        for is_known in (False, True):
            options: dict[str, Any] = {"known": is_known, "exported": tmp_path / "export"}
            (row,) = await store.get_historical_features(rows, ["spend"], **options)
            assert row["spend"] == 5
            with pytest.raises(InvalidInputError, match="has no feature 'total'"):
                await store.get_historical_features(rows, ["total"], **options)


KNOWN_IN_SQL = """
SELECT value_int FROM feature_history AS history
JOIN feature_names AS names ON names.series = history.feature AND names.entity = history.entity
WHERE names.feature = 'total' AND names.since <= {at} AND coalesce(names.until > {at}, true)
AND history.entity_id = 'u1' AND history.written_at <= {at}
ORDER BY history.as_of DESC, history.written_at DESC LIMIT 1
"""


async def test_a_query_finds_the_value_that_was_served_by_the_names_of_that_moment(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 3)
        first = await serve(store)
    async with declared(settings, factor=10) as store:
        await store.backfills.run("total")
        built = await serve(store)
        await store.backfills.switch("total")
        second = await serve(store)
        offline = (await runtime_of(store).open()).backends.offline
        for each in (first, built, second):
            at = f"TIMESTAMPTZ '{each.moment.isoformat()}'"
            found = await offline.query(KNOWN_IN_SQL.format(at=at), {})
            assert [row[0] for row in found.rows] == [each.values["total"]]


async def test_an_audit_allows_for_processes_that_have_not_heard_of_a_switch(
    settings: Settings,
) -> None:
    async with declared(settings) as store:
        await buy(store, 3)
    async with declared(settings, factor=10) as store, declared(settings, factor=10) as other:
        await store.backfills.run("total")
        await serve(other)
        await store.backfills.switch("total")
        await serve(other)  # for up to a second it serves the version of before
        report = (await store.admin.audit()).served
        assert report is not None
        assert (report.records, report.differences) == (2, [])
        assert report.equal >= 4


async def test_an_audit_finds_a_default_that_is_not_the_one_of_its_moment(
    settings: Settings,
) -> None:
    async with declared(settings, default=0) as store:
        await serve(store)
        engine = await runtime_of(store).open()

        def forge(state: CatalogState) -> CatalogState:
            entry = state.features["total"]
            meanings = [replace(each, default="9") for each in entry.meanings]
            return versions.with_entry(state, replace(entry, meanings=meanings))

        await engine.catalog.change(forge)
        report = (await store.admin.audit()).served
        assert report is not None
        found = {each.feature: (each.recorded, each.history) for each in report.differences}
        assert found["total"] == (0, 9)
