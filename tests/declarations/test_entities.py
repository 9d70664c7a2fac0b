"""Entities: a class, and the one field that tells one of it from another."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

import pytest

from headwater import FeatureStore, entity
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DuplicateNameError


def test_an_entity_is_its_class_unchanged(store: FeatureStore) -> None:
    @entity(store)
    @dataclass
    class User:
        user_id: str

    assert User("u1").user_id == "u1"
    assert runtime_of(store).registry.entities["User"].id_field == "user_id"


def test_among_several_fields_the_one_that_ends_in_id_is_the_id(store: FeatureStore) -> None:
    @entity(store)
    class Order:
        note: str
        order_id: int

    assert runtime_of(store).registry.entities["Order"].id_field == "order_id"


def test_an_entity_may_have_a_name_of_its_own(store: FeatureStore) -> None:
    @entity(store, name="Customer")
    class User:
        user_id: str

    assert list(runtime_of(store).registry.entities) == ["Customer"]


@pytest.mark.parametrize("name", ["A:b", "", "two words", "a-b", "a" * 1_000, "A\0"])
def test_an_entity_whose_name_is_not_an_identifier_is_refused(
    store: FeatureStore, name: str
) -> None:
    message = f"entity name {name!r} is not an identifier"
    with pytest.raises(DeclarationError, match=re.escape(message)):

        @store.entity(name=name)
        class User:
            user_id: str

    with pytest.raises(DeclarationError, match="'A:b' is not an identifier"):
        store.entity(type("A:b", (), {"__annotations__": {"user_id": str}}))


def test_an_entity_without_an_id_field_is_refused_with_file_and_line(store: FeatureStore) -> None:
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(DeclarationError) as caught:

        @entity(store)
        class User:
            pass

    assert str(caught.value) == (
        f"{__file__}:{line + 3}: entity User needs one id field; annotate it, "
        "for example `user_id: str`"
    )


def test_an_entity_with_two_possible_id_fields_is_refused(store: FeatureStore) -> None:
    with pytest.raises(DeclarationError, match="needs one id field"):

        @entity(store)
        class Membership:
            user_id: str
            team_id: str


def test_an_id_that_is_neither_text_nor_number_is_refused(store: FeatureStore) -> None:
    with pytest.raises(DeclarationError, match="'user_id' must be str or int"):

        @entity(store)
        class User:
            user_id: float


def test_two_entities_of_one_name_are_refused_and_both_places_named(store: FeatureStore) -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]

    @entity(store)
    class User:
        user_id: str

    with pytest.raises(DuplicateNameError) as caught:
        entity(store)(type("User", (), {"__annotations__": {"user_id": str}}))
    assert f"entity 'User' is already declared at {__file__}:{line}" in str(caught.value)


def test_two_stores_may_each_have_an_entity_of_one_name(store: FeatureStore) -> None:
    other = FeatureStore(settings=store.settings)
    for each in (store, other):

        @entity(each)
        class User:
            user_id: str

    assert (
        list(runtime_of(store).registry.entities)
        == list(runtime_of(other).registry.entities)
        == ["User"]
    )


def test_a_decorator_without_its_store_is_refused() -> None:
    class User:
        user_id: str

    with pytest.raises(DeclarationError, match=r"@entity needs the store; write @entity\(store\)"):
        entity(User)  # type: ignore[call-overload]
