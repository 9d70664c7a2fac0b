"""Feature handles, and the decorators as methods of the store."""

from __future__ import annotations

import inspect
from enum import Enum
from pathlib import Path

import pytest

from headwater import Chunk, Context, ContextItem, FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import temporary

store = FeatureStore(settings=Settings())


@store.entity
class Customer:
    customer_id: str


@store.entity(name="Store")
class Branch:
    branch_id: int


@store.feature(Customer, trigger="purchase")
async def total_spend(customer_id: str, event: ServiceEvent) -> float:
    """The sum of all purchases."""
    before = await total_spend.get(customer_id) or 0.0
    return before + float(event.payload["amount"])


@store.feature(Customer)
def greeting(customer_id: str) -> str:
    return f"Hello {customer_id}"


@feature(entity=Customer, template="{greeting}: {total_spend}")
def summary(customer_id: str) -> str: ...  # type: ignore[empty-body]


@store.feature(
    Branch,
    refresh="1h",
    sql="SELECT entity_id AS branch_id, count(*) AS value FROM feature_history GROUP BY 1",
)
def rows(branch_id: int) -> int: ...  # type: ignore[empty-body]


@store.retriever(top_k=1)
def search(query: str) -> list[str]:
    return [query.upper(), query]


@store.context(max_tokens=100)
async def support(customer_id: str) -> list[ContextItem]:
    (found,) = await search(customer_id)
    return [ContextItem(found.text), ContextItem.template("{summary}")]


async def test_a_handle_reads_and_sets_the_values_of_its_feature() -> None:
    async with temporary(store):
        assert await total_spend.get("ada") is None
        await store.publish("purchase", "ada", {"amount": 25})
        await store.drain()
        assert await total_spend.get("ada") == 25.0
        assert await total_spend.get_many(["ada", "bob"]) == {"ada": 25.0, "bob": None}
        await total_spend.set("bob", 3.0)
        assert await total_spend.get("bob") == 3.0
        assert await summary.get("bob") == "Hello bob: 3.0"
        assert await rows.get(7) is None


async def test_verbs_take_handles_where_they_take_names() -> None:
    async with temporary(store):
        await store.set_feature(total_spend, "ada", 1.0)
        assert await store.get_feature(total_spend, "ada") == 1.0
        values = {"greeting": "Hello ada", "total_spend": 1.0}
        assert await store.get_features([greeting, "total_spend"], ["ada"]) == {"ada": values}
        (row,) = await store.get_feature_values([total_spend], ["ada"])
        assert row["total_spend"].value == 1.0
        made = await support("ada")
        page = await store.records.find(feature=total_spend)
        assert [summary.context_id for summary in page.contexts] == [made.context_id]
        await store.publish("purchase", "ada", {})
        await store.drain()
        (letter,) = await store.dead_letters.list(feature=total_spend)
        assert letter.feature == "total_spend"
        assert await store.dead_letters.list(feature=greeting) == []


async def test_a_handle_calls_its_function_and_stores_nothing() -> None:
    async with temporary(store):
        assert greeting("ada") == "Hello ada"
        assert await total_spend("ada", ServiceEvent("purchase", "ada", {"amount": 2})) == 2.0
        assert await total_spend.get("ada") is None


def test_a_handle_keeps_name_docstring_and_signature_of_its_function() -> None:
    assert total_spend.__name__ == total_spend.name == "total_spend"
    assert inspect.getdoc(total_spend) == "The sum of all purchases."
    assert list(inspect.signature(total_spend).parameters) == ["customer_id", "event"]
    line = inspect.getsourcelines(total_spend.function)[1]
    assert repr(total_spend) == f"<feature 'total_spend' at {__file__}:{line}>"


def test_one_function_may_be_declared_as_two_features() -> None:
    other = FeatureStore(settings=Settings())

    @other.entity
    class User:
        user_id: str

    @other.feature(User, name="second")
    @other.feature(User)
    def first(user_id: str) -> str:
        return user_id

    declared = runtime_of(other).registry.features
    assert declared["first"].function is declared["second"].function is first.function


async def test_contexts_and_retrievers_are_declared_on_the_store() -> None:
    async with temporary(store):
        assert await search("shoes") == [Chunk(text="SHOES", score=None)]
        context: Context = await support("ada")
        assert "ADA" in context.content
    assert list(runtime_of(store).registry.entities) == ["Customer", "Store"]


def test_errors_of_the_stores_decorators_name_the_callers_line(tmp_path: Path) -> None:
    other = FeatureStore(settings=Settings())
    with pytest.raises(DeclarationError) as caught:

        @other.feature(Customer)
        def name(customer_id: str) -> str:
            return customer_id

    assert f"{__file__}:" in str(caught.value)
    assert "entity 'Customer' belongs to another store" in str(caught.value)
    with pytest.raises(DeclarationError) as caught:

        @other.entity
        class Nothing:
            pass

    assert str(caught.value).startswith(f"{__file__}:")
    with pytest.raises(DeclarationError, match="unknown option 'triger'; did you mean 'trigger'"):
        store.feature(Customer, triger="purchase")(lambda customer_id: 1)  # type: ignore[arg-type]


async def test_a_string_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="is a string; pass a list"):
        await total_spend.get_many("ada")


def test_local_names_in_annotations_are_found_through_the_stores_decorators() -> None:
    class Size(Enum):
        SMALL = "small"

    other = FeatureStore(settings=Settings())

    @entity(other)
    class User:
        user_id: str

    @other.feature(User)
    def size(user_id: str) -> Size:
        return Size.SMALL

    assert runtime_of(other).registry.features["size"].codec.annotation is Size
