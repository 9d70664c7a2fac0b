"""Annotations of features: stored and returned in their type, or refused at declaration."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field

from headwater import ContextItem, FeatureStore, ServiceEvent, context, feature, retriever
from headwater.errors import DeclarationError
from headwater.settings.schema import Settings
from tests.http.conftest import client_of


class Tier(enum.Enum):
    GOLD = "gold"
    SILVER = "silver"


class Priority(enum.IntEnum):
    HIGH = 3


class Mixed(enum.Enum):
    PAIR = (1, 2)


class Profile(TypedDict):
    born: date
    tier: Tier


class Position(NamedTuple):
    latitude: float
    longitude: float


@dataclass
class Visit:
    id: UUID
    opens: time


class Address(BaseModel):
    model_config = ConfigDict(strict=True)

    street: str
    since: date
    tier: Tier = Field(alias="customerTier")


class Node(msgspec.Struct):
    children: list[Node] = []


class Connection:
    """A class that has no JSON form."""


DICTS: list[Any] = [
    *(dict[tuple[int, int], int], dict[bool, int], dict[None, int], dict[int | str, int]),
    *(dict[str | None, int], dict[Position, int], dict[Connection, int]),
]
ID = UUID("0195d1e0-0000-7000-8000-000000000001")
HOME = Address(street="St James's Square", since=date(1835, 7, 8), customerTier=Tier.GOLD)
VALUES: list[tuple[Any, object]] = [
    (Tier, Tier.GOLD),
    (Priority, Priority.HIGH),
    (ID.__class__, ID),
    (Decimal, Decimal("12.50")),
    (date, date(1815, 12, 10)),
    (time, time(9, 30)),
    (timedelta, timedelta(minutes=90)),
    (Profile, {"born": date(1815, 12, 10), "tier": Tier.SILVER}),
    (Position, Position(51.5, -0.1)),
    (Visit, Visit(ID, time(9, 30))),
    (Address, HOME),
    (Address | None, HOME),
    (list[Address], [HOME]),
    (dict[Tier, Address], {Tier.GOLD: HOME}),
    (dict[UUID, int], {ID: 1}),
    (dict[object, int], {"a": 1}),
    (dict[date, int], {date(1815, 12, 10): 1}),
    (dict[int | float, int], {1: 1, 2.5: 2}),
    (Iterable[int], [1, 2]),
]


def returns(annotation: object, value: object) -> Callable[[str, ServiceEvent], Any]:
    """Return a handler with this annotation that returns the value."""

    def last(user_id: str, event: ServiceEvent) -> Any:
        return value

    last.__annotations__["return"] = annotation
    return last


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=str)
async def test_a_value_is_stored_and_returned_in_its_annotated_type(
    store: FeatureStore, user: type, annotation: object, value: object
) -> None:
    last = feature(entity=user, trigger="seen")(returns(annotation, value))

    @feature(entity=user, template="last: {last}")
    def text(user_id: str) -> str: ...  # type: ignore[empty-body]

    @context(store)
    async def support(user_id: str) -> list[ContextItem]:
        await last.get(user_id)
        return [ContextItem.template("{last}")]

    await store.publish("seen", "ada")
    await store.drain()
    assert await store.dead_letters.list() == []
    read = await store.get_features([last], ["ada"])
    assert read == {"ada": {"last": value}}
    assert type(read["ada"]["last"]) is type(value)
    assert await last.get("ada") == value
    assert str(await store.get_feature("text", "ada")).startswith("last: ")
    made = await support("ada")
    assert (await store.replay(made.context_id, "as_of")).matches
    assert (await store.records.verify(made.context_id)).ok
    assert (await store.admin.audit()).differences == []


async def test_a_pydantic_model_is_served_as_json(store: FeatureStore, user: type) -> None:
    last = feature(entity=user, trigger="seen")(returns(Address, HOME))
    await last.set("ada", HOME)
    async with client_of(store, key=None) as client:
        response = await client.get("/v1/features/last", params={"entity_id": "ada"})
    assert response.json()["value"] == {
        "street": "St James's Square",
        "since": "1835-07-08",
        "customerTier": "gold",
    }


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (Connection, "Connection has no JSON form; annotate a dataclass, a TypedDict"),
        (list[Connection | None], "Connection has no JSON form"),
        (complex, "complex has no JSON form"),
        (np.float64, "float64 has no JSON form; annotate float, int or list[float]"),
        (type("Name", (str,), {}), "Name has no JSON form; annotate str"),
        (BaseModel, "BaseModel has no JSON form; annotate a dataclass"),
        (Mixed, "Mixed has no JSON form; give its members only str values or only int values"),
        (date | str, "datetime.date | str has no JSON form; annotate one of its types"),
        (Address | int, f"{__name__}.Address | int has no JSON form; annotate one of its types"),
        (list[date | datetime], "datetime.date | datetime.datetime has no JSON form"),
        (Literal[1.5], "typing.Literal[1.5] has no JSON form; use only str, int, bool and None"),
        (NamedTuple, "NamedTuple has no JSON form; annotate a class of yours"),
        *((keys, "the keys of a dict have a JSON form if") for keys in DICTS),
        (list[dict[bool, int]], "the keys of a dict have a JSON form if"),
    ],
)
def test_an_annotation_that_cannot_be_stored_is_refused_at_declaration(
    user: type, annotation: object, problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        feature(entity=user, trigger="seen")(returns(annotation, None))
    assert str(caught.value).startswith(f"{__file__}:")
    assert f"feature 'last': its return annotation cannot be used: {problem}" in str(caught.value)


def test_containers_of_any_type_and_annotated_types_are_accepted(user: type) -> None:
    accepted = [object, Any, dict, list[Any], Annotated[int, "count"], Node]
    for number, annotation in enumerate(accepted):
        feature(entity=user, name=f"f{number}", trigger="x")(returns(annotation, None))


@pytest.mark.parametrize(
    ("annotation", "remedy"),
    [
        (Tier, "take the value of its member, annotated as a Literal"),
        (list[Tier], "take the value of its member, annotated as a Literal"),
        (time | None, "take a text such as '09:30', or a datetime"),
        (Position, "take a plain tuple or a dataclass"),
        (Address, r"take a dataclass, or the dict that its model_dump() returns"),
    ],
    ids=str,
)
def test_a_parameter_that_records_do_not_support_is_refused_at_declaration(
    annotation: object, remedy: str
) -> None:
    store = FeatureStore(settings=Settings())

    def search(wanted: Any) -> list[str]:
        return [str(wanted)]

    search.__annotations__["wanted"] = annotation
    for decorator in (context(store), retriever(store)):
        with pytest.raises(DeclarationError) as caught:
            decorator(search)
        assert "which records do not support" in str(caught.value)
        assert remedy in str(caught.value)
