"""The decorator ``event``: what it takes, what it makes, and what it refuses."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from headwater import Event, FeatureStore, ServiceEvent, entity, event, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DuplicateNameError, EventError
from headwater.store.loader import load_store


@pytest.fixture
def store() -> FeatureStore:
    return FeatureStore()


@pytest.fixture
def user(store: FeatureStore) -> type:
    @entity(store)
    class User:
        user_id: str

    return User


def check(store: FeatureStore, payload: dict[str, Any]) -> None:
    runtime_of(store).registry.events["purchase"].check(msgspec.json.encode(payload))


def test_a_plain_class_becomes_a_frozen_dataclass_with_fields_by_name(store: FeatureStore) -> None:
    @event(store, "purchase")
    class Purchase:
        """Something was bought."""

        amount: float
        note: str = ""

    made = Purchase(amount=5.0)
    assert repr(made).endswith("Purchase(amount=5.0, note='')")
    with pytest.raises(FrozenInstanceError):
        made.amount = 6.0  # type: ignore[misc]
    assert runtime_of(store).registry.events["purchase"].description == "Something was bought."


class TypedPurchase(TypedDict):
    amount: float
    note: NotRequired[str]


@dataclass
class DataPurchase:
    amount: float
    note: str = ""


class StructPurchase(msgspec.Struct):
    amount: float
    note: str = ""


class ModelPurchase(BaseModel):
    amount: float
    note: str = ""


@pytest.mark.parametrize("kind", [TypedPurchase, DataPurchase, StructPurchase, ModelPurchase])
def test_other_classes_of_values_stay_as_they_are(
    store: FeatureStore, user: type, kind: Any
) -> None:
    assert store.event("purchase")(kind) is kind
    check(store, {"amount": 5, "more": 1})
    for payload in ({}, {"amount": "much"}):
        with pytest.raises(EventError) as got:
            check(store, payload)
        assert got.value.field == "payload.amount"
    sent = ServiceEvent("purchase", "ada", {"amount": 5})
    typed = runtime_of(store).registry.events["purchase"].typed(sent)
    expected = {"amount": 5} if kind is TypedPurchase else kind(amount=5.0)
    assert typed.payload == expected
    assert (typed.event_id, typed.timestamp) == (sent.event_id, sent.timestamp)


def test_a_class_may_have_rules_of_its_own(store: FeatureStore) -> None:
    @event(store, "purchase")
    class Purchase:
        amount: Annotated[float, msgspec.Meta(le=1_000)]
        parts: tuple[Purchase, ...] = ()

        def __post_init__(self) -> None:
            if self.amount == 13:
                raise ValueError("13 brings bad luck")

    check(store, {"amount": 12, "parts": [{"amount": 1}]})
    with pytest.raises(EventError, match="13 brings bad luck") as got:
        check(store, {"amount": 12, "parts": [{"amount": 13}]})
    assert got.value.field == "payload.parts[0]"
    with pytest.raises(EventError, match="<= 1000"):
        check(store, {"amount": 1_001})


def test_a_type_is_declared_once_in_each_store(store: FeatureStore) -> None:
    other = FeatureStore()
    for each in (store, other):
        event(each, "purchase")(DataPurchase)
    with pytest.raises(DuplicateNameError, match=r"event 'purchase'.*test_event_declarations.py"):
        event(store, "purchase")(StructPurchase)


def test_a_declared_type_that_triggers_nothing_is_no_misspelling(store: FeatureStore) -> None:
    event(store, "purchase")(DataPurchase)
    hint = runtime_of(store).registry.event_hint
    assert hint("purchase") is None
    assert hint("purchas") == "no feature is triggered by 'purchas'; did you mean 'purchase'?"


undecorated: Any = event


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda _: undecorated("purchase", DataPurchase), "needs the store and the type"),
        (lambda s: undecorated(s, DataPurchase), "needs the store and the type"),
        (lambda s: undecorated(s, ""), "event_type"),
        (lambda s: undecorated(s, "headwater.tick"), "reserved"),
        (lambda s: undecorated(s, "purchase")(lambda: None), "decorate a class"),
        (lambda s: undecorated(s, "purchase")(int), "a payload is a JSON object"),
        (
            lambda s: undecorated(s, "purchase")(namedtuple("Pair", "a b")),
            "a payload is a JSON object",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(
    store: FeatureStore, declare: Any, problem: str
) -> None:
    with pytest.raises(DeclarationError, match=problem):
        declare(store)


def test_fields_without_a_json_form_are_refused(store: FeatureStore) -> None:
    class Unsupported:
        amount: complex

    with pytest.raises(DeclarationError, match=r"annotations cannot be used: .*no JSON form"):
        event(store, "purchase")(Unsupported)

    class Mutable:
        lines: list[str] = []  # noqa: RUF012 - the mistake

    with pytest.raises(DeclarationError, match="mutable default"):
        event(store, "purchase")(Mutable)


def test_a_handler_names_the_classes_of_all_its_triggers(store: FeatureStore, user: type) -> None:
    event(store, "purchase")(DataPurchase)
    event(store, "refund")(StructPurchase)

    @feature(entity=user, trigger=["purchase", "visit"])
    def one(user_id: str, event: Event[DataPurchase | dict[str, Any]]) -> int:
        return 1

    @feature(entity=user, trigger=["purchase", "refund"])
    def both(user_id: str, event: Event[DataPurchase] | Event[StructPurchase]) -> int:
        return 1

    @feature(entity=user, trigger=["purchase", "visit"])
    def free(user_id: str, event: ServiceEvent) -> int:
        return 1

    features = runtime_of(store).registry.features
    typed = {name: sorted(features[name].typed_events) for name in ("one", "both", "free")}
    assert typed == {"one": ["purchase"], "both": ["purchase", "refund"], "free": []}

    def wrong(user_id: str, event: Event[DataPurchase]) -> int:
        return 1

    with pytest.raises(DeclarationError, match="payload of 'refund' is StructPurchase; name that"):
        feature(entity=user, trigger=["purchase", "refund"])(wrong)
    with pytest.raises(DeclarationError, match=r"not declared; write @event\(store, 'visit'\)"):
        feature(entity=user, trigger="visit")(wrong)


FILE = """
from __future__ import annotations
from headwater import Event, FeatureStore, entity, event, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@event(store, "purchase")
class Purchase:
    amount: {kind}
    lines: tuple[Line, ...] = ()

class Line: ...

@feature(entity=User, trigger="purchase")
def spend(user_id: str, event: Event[Purchase]) -> float:
    return event.payload.amount
"""


def test_a_features_file_is_loaded_again_with_another_class(tmp_path: Path) -> None:
    file = tmp_path / "features.py"
    for kind, amount in (("float", 5.0), ("str", "5")):
        text = FILE.replace("class Line: ...\n", "").replace(
            "    lines: tuple[Line, ...] = ()\n", ""
        )
        file.write_text(text.format(kind=kind))
        check(load_store(file), {"amount": amount})
    file.write_text(FILE.format(kind="float"))
    with pytest.raises(DeclarationError, match=r"'purchase': its annotations .* 'Line' is not"):
        load_store(file)
