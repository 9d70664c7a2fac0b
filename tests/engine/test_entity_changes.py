"""Values belong to an entity: another entity of the same ids never gets them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity
from headwater.declarations.meanings import as_meant
from headwater.declarations.runtime import runtime_of
from headwater.doctor.workload import findings
from headwater.errors import EntityChangedError
from headwater.settings.schema import Settings
from tests.engine.support import records
from tests.http.conftest import KEY, client_of, problem_of

pytestmark = pytest.mark.both_environments

LATER = datetime(2100, 1, 1, tzinfo=UTC)
REMEDIES = (
    "'total' is declared for the entity Customer",
    "belong to User",
    "name='User'",
    "another name",
    "features drop total",
    "backfill total",
)


def declared(settings: Settings, kind: str, stored_as: str | None = None) -> FeatureStore:
    """Return a store with a total of each User, or of each Customer, who may be stored as User."""
    store = FeatureStore(settings=settings)

    class Counted:
        id: str

    Counted.__name__ = kind
    entity(store, name=stored_as)(Counted)

    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id) + event.payload["amount"])

    store.feature(Counted, trigger="buy", default=0)(total)
    return store


async def with_users(settings: Settings) -> None:
    async with declared(settings, "User") as store:
        await store.publish("buy", "u1", {"amount": 5})
        await store.drain()


def rows(entity_id: str = "u1") -> list[dict[str, Any]]:
    return [{"id": entity_id, "timestamp": LATER}]


async def test_values_of_another_entity_are_refused_wherever_they_are_used(
    settings: Settings, tmp_path: Path
) -> None:
    async with declared(settings, "User") as store:
        await store.publish("buy", "u1", {"amount": 5})
        await store.drain()
        await store.history.export(tmp_path / "exported")
    exported = str(tmp_path / "exported")
    (tmp_path / "file.csv").write_text("id,timestamp,total\nu1,2026-01-01T00:00:00Z,3\n")
    async with declared(settings, "Customer") as store:
        uses: list[Callable[[], Awaitable[object]]] = [
            Worker(store).run,
            store.drain,
            lambda: store.get_feature("total", "u1"),
            lambda: store.get_features(["total"], ["u1", "u2"]),
            lambda: store.set_feature("total", "u1", 7),
            lambda: store.get_feature_history("total", "u1"),
            lambda: store.get_historical_features(rows(), ["total"]),
            lambda: store.get_historical_features(rows(), ["total"], known=True),
            lambda: store.get_historical_features(rows(), ["total"], exported=exported),
            lambda: store.history.import_file(tmp_path / "file.csv", ["total"]),
            lambda: store.admin.forget("Customer", "u1", reason="asked"),
            store.admin.audit,
            store.admin.rebuild,
        ]
        for use in uses:
            with pytest.raises(EntityChangedError) as refused:
                await use()
            for part in REMEDIES:
                assert part in str(refused.value)
        (found,) = [each for each in await findings(store, ()) if each.check == "entities"][:1]
        assert "declared for the entity Customer" in found.found
        assert "features drop total" in found.remedy
    async with declared(settings, "User") as store:
        assert await store.get_feature("total", "u1") == 5


async def test_http_names_the_feature_whose_values_belong_to_another_entity(
    settings: Settings,
) -> None:
    settings = settings.replace(api_key=KEY)
    await with_users(settings)
    async with declared(settings, "Customer") as store, client_of(store) as client:
        read, history = "/v1/features/total", "/v1/features/total/history"
        forgotten = {"entity": "Customer", "entity_id": "u1", "reason": "asked"}
        for response in (
            await client.get(read, params={"entity_id": "u1"}),
            await client.get(history, params={"entity_id": "u1"}),
            await client.post("/v1/features", json={"features": ["total"], "entity_ids": ["u1"]}),
        ):
            problem = problem_of(response)
            assert (response.status_code, problem["feature"]) == (409, "total")
            assert problem["type"].endswith(":entity-changed")
            for part in REMEDIES:
                assert part in problem["detail"]
            assert __file__ not in response.text
        response = await client.post("/v1/forget", json=forgotten)
        assert '"urn:headwater:problem:entity-changed"' in response.text


async def test_a_renamed_class_keeps_its_values_under_the_stored_name(settings: Settings) -> None:
    await with_users(settings)
    async with declared(settings, "Customer", stored_as="User") as store:
        await store.publish("buy", "u1", {"amount": 2})
        await store.drain()
        assert await store.get_feature("total", "u1") == 7
        assert (await store.get_historical_features(rows(), ["total"]))[0]["total"] == 7
        assert (await store.admin.forget("User", "u1", reason="asked")).history == 2


async def test_a_backfill_computes_the_values_of_the_other_entity(settings: Settings) -> None:
    await with_users(settings)
    async with declared(settings, "Customer") as store:
        await store.backfills.run("total", switch=True)
        assert await store.get_feature("total", "u1") == 5
        await store.set_feature("total", "u2", 9)
        await store.publish("buy", "u1", {"amount": 2})
        await store.drain()
        assert await store.get_feature("total", "u1") == 7
        found = await store.get_historical_features(rows(), ["total"])
        assert found[0]["total"] == 7
        assert (await store.admin.audit()).differences == []
        old, _ = await store.catalog.versions("total")
        assert (old.online, old.history) == (1, 1)
        state = (await runtime_of(store).open()).catalog.state
        before, after = state.features["total"].meanings
        assert (before.entity, after.entity) == ("User", "Customer")
        # What a Customer had while the values belonged to users: none.
        total = runtime_of(store).registry.feature("total")
        assert as_meant(total, before).series not in {each.series for each in state.versions()}
        assert as_meant(total, after).series == "total@2"


async def test_a_feature_without_values_moves_to_the_declared_entity(settings: Settings) -> None:
    async with declared(settings, "User") as store:
        await store.drain()
    async with declared(settings, "Customer") as store:
        await store.drain()
        await store.publish("buy", "u1", {"amount": 5})
        await store.drain()
        assert await store.get_feature("total", "u1") == 5
        assert (await store.admin.forget("Customer", "u1", reason="asked")).history == 1


async def test_forgetting_says_that_values_of_an_undeclared_entity_stay(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await with_users(settings)
    store = FeatureStore(settings=settings)

    @entity(store)
    class Customer:
        id: str

    async with store:
        await store.admin.forget("Customer", "u1", reason="asked")
        found = [each for each in await findings(store, ()) if each.check == "entities"]
    (told,) = records(capsys.readouterr().err, "values of entities that are not declared stay")
    assert told["entities"] == {"User": ["total"]}
    assert [each.severity for each in found] == ["warning"]
