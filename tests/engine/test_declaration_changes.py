"""A worker names the features whose type or query has changed since the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import datetime
from types import GenericAlias
from typing import Any

import msgspec
import pydantic
import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.settings.schema import Settings
from tests.engine.support import records

pytestmark = pytest.mark.both_environments

ONES = "SELECT 'u1' AS user_id, 1 AS value"


async def start_worker(settings: Settings, annotation: object, sql: str) -> None:
    """Run a worker of a features file with this type and this query until it has started."""
    async with FeatureStore(settings=settings) as store:

        @store.entity
        class User:
            user_id: str

        async def total(user_id: str, event: ServiceEvent) -> object:
            raise AssertionError("nothing is published")

        def orders(user_id: str) -> int: ...  # type: ignore[empty-body]

        total.__annotations__["return"] = annotation
        feature(entity=User, trigger="purchase")(total)
        feature(entity=User, refresh="1h", materialize=True, sql=sql)(orders)
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        worker.stop()
        await running


async def test_a_changed_return_type_and_a_changed_query_are_named_at_start(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    ones, twos = ONES, ONES.replace("1 AS value", "2 AS value")
    await start_worker(settings, int, ones)
    await start_worker(settings, int, ones.replace(" ", "\n  "))
    assert "feature has another" not in capsys.readouterr().err
    await start_worker(settings, str, twos)
    logged = capsys.readouterr().err
    (changed,) = records(logged, "feature has another type")
    assert (changed["feature"], changed["before"], changed["now"]) == ("total", "int", "str")
    (changed,) = records(logged, "feature has another query")
    assert changed["feature"] == "orders"
    await start_worker(settings, str, twos)
    assert "feature has another" not in capsys.readouterr().err


async def test_changes_are_noticed_in_a_store_without_content(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    private = settings.replace(record={"include_content": False})
    for annotation in (int, str):
        await start_worker(private, annotation, ONES)
    assert records(capsys.readouterr().err, "feature has another type")


def list_of(item: object) -> GenericAlias:
    return GenericAlias(list, (item,))


def dataclass_of(module: str, field: type) -> type:
    fields = [("a", field), ("b", int)]
    return make_dataclass("P", fields, namespace={"__module__": module})


def struct_of(module: str, field: type) -> type:
    return msgspec.defstruct("P", [("a", field), ("b", int)], module=module)


def model_of(module: str, field: Any) -> type:
    return pydantic.create_model("P", __module__=module, a=(field, ...), b=(int, ...))


@pytest.mark.parametrize("made", [dataclass_of, struct_of, model_of])
async def test_another_type_of_a_field_is_noticed_and_another_module_is_not(
    settings: Settings, capsys: pytest.CaptureFixture[str], made: Callable[[str, type], type]
) -> None:
    await start_worker(settings, list_of(made("w1", str)), ONES)
    await start_worker(settings, list_of(made("w2", str)), ONES)
    assert "feature has another" not in capsys.readouterr().err
    await start_worker(settings, list_of(made("w2", datetime)), ONES)
    (changed,) = records(capsys.readouterr().err, "feature has another type")
    assert (changed["before"], changed["now"]) == ("list[P]", "list[P] with other fields")


async def test_white_space_in_a_literal_of_a_query_counts(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await start_worker(settings, int, "SELECT 'a b' AS user_id, 1 AS value")
    await start_worker(settings, int, "SELECT 'a  b' AS user_id, 1 AS value")
    assert records(capsys.readouterr().err, "feature has another query")
