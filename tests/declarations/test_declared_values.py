"""Features and retrievers without a function: the same declarations, with a place and a type."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater import Chunk, FeatureStore, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DuplicateNameError
from headwater.settings.schema import Settings


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[FeatureStore]:
    async with FeatureStore(settings=settings) as store:
        yield store


def test_a_template_needs_no_function(store: FeatureStore, user: type) -> None:
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    blurb = store.template_feature("blurb", entity=user, template="hello", owner="growth", tags="a")
    declared = runtime_of(store).registry.feature("blurb")
    assert (declared.mode, declared.codec.annotation) == ("template", str)
    assert (declared.owner, declared.tags, declared.description) == ("growth", ("a",), "")
    assert (declared.location.file, declared.location.line) == (__file__, line)
    assert repr(blurb) == f"<feature 'blurb' at {__file__}:{line}>"


def test_a_query_needs_no_function(store: FeatureStore, user: type) -> None:
    sql = "SELECT user_id, 1 AS value FROM orders"
    store.sql_feature("orders", int, entity=user, sql=sql, refresh="1h", default=0)
    declared = runtime_of(store).registry.feature("orders")
    assert (declared.mode, declared.sql, declared.default) == ("scheduled", sql, 0)


async def test_a_stored_value_needs_no_function(store: FeatureStore, user: type) -> None:
    open_tickets = store.stored_feature("open_tickets", int, entity=user, default=0)
    assert await open_tickets.get("u1") == 0
    await open_tickets.set("u1", 3)
    assert await store.get_feature(open_tickets, "u1") == 3


async def test_a_search_needs_no_function(store: FeatureStore) -> None:
    find = store.index_retriever("find", index="notes", top_k=1)
    await store.index("notes", "n1", "Parcels take two days.")
    assert [chunk.text for chunk in await find("parcels")] == ["Parcels take two days."]
    assert list(inspect.signature(find.function).parameters) == ["query"]


async def test_a_body_that_raises_notimplementederror_is_empty(store: FeatureStore) -> None:
    @retriever(store, index="notes", filters={"kind": "{kind}"})
    def find(query: str, kind: str) -> list[Chunk]:
        """Find a note of a kind."""
        raise NotImplementedError

    await store.index("notes", "n1", "Parcels take two days.", metadata={"kind": "post"})
    assert [chunk.text for chunk in await find("parcels", "post")] == ["Parcels take two days."]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"default": "none"}, "default: "),
        ({"ttl": "soon"}, "ttl: "),
        ({"tags": [""]}, "tags must be "),
        ({"owner": 7}, "owner must be text"),
        ({"trigger": "purchase"}, "cannot be combined"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_the_place(
    store: FeatureStore, user: type, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError, match=problem) as refused:
        store.stored_feature("open_tickets", int, entity=user, **options)
    assert __file__ in str(refused.value)


def test_two_declarations_of_one_name_are_refused(store: FeatureStore, user: type) -> None:
    store.stored_feature("open_tickets", int, entity=user)
    with pytest.raises(DuplicateNameError, match="open_tickets"):
        store.stored_feature("open_tickets", int, entity=user)


def test_an_entity_of_another_store_is_refused(store: FeatureStore, user: type) -> None:
    with pytest.raises(DeclarationError, match="belongs to another store"):
        FeatureStore().template_feature("blurb", entity=user, template="hello")
