"""Families of windows and their features in listings and in the graph."""

from typing import TypedDict

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.store.listings import declarations_of


class Sale(TypedDict):
    amount: float
    category: str


@pytest.fixture
def store() -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", window=["1h", "7d"], aggregate=["sum", "distinct"])
    async def spend(user_id: str, event: ServiceEvent) -> int:
        """What a user spends."""
        return int(event.payload["amount"])

    @feature(
        entity=User,
        trigger="purchase",
        window="1d",
        aggregate=["count", "p95"],
        hop="2h",
        value="amount",
        by="category",
        where={"amount": {"$gt": 0}},
    )
    async def sales(user_id: str, event: ServiceEvent) -> Sale:
        return Sale(amount=event.payload["amount"], category=event.payload["category"])

    return store


def test_a_family_lists_its_features_its_windows_and_what_counts_in_them(
    store: FeatureStore,
) -> None:
    listed = {each.name: each for each in declarations_of(store).features}
    family = listed["sales"].windows
    assert family is not None
    assert (listed["sales"].mode, listed["sales"].window) == ("triggered", None)
    assert list(family.members) == ["sales_count_1d", "sales_p95_1d"]
    assert [(each.window, each.covers) for each in family.windows] == [
        ("1d", "between 1d and 1d 2h")
    ]
    assert list(family.aggregates) == ["count", "p95"]
    assert (family.value, family.by, family.max_keys) == ("amount", "category", 32)
    assert family.where == {"amount": {"$gt": 0}}


def test_a_feature_of_a_family_lists_its_window_its_hop_and_its_error(store: FeatureStore) -> None:
    listed = {each.name: each for each in declarations_of(store).features}
    member = listed["spend_distinct_7d"].window
    assert member is not None
    assert (listed["spend_distinct_7d"].mode, listed["spend_distinct_7d"].type) == ("window", "int")
    assert list(listed["spend_distinct_7d"].needs) == ["spend"]
    assert (member.family, member.aggregate, member.window) == ("spend", "distinct", "7d")
    assert member.covers == "between 7d and 7d 6h"
    assert (member.span_us, member.hop_us) == (7 * 86_400_000_000, 6 * 3_600_000_000)
    assert "4.6 %" in str(member.error)
    assert "1 %" in str(listed["sales_p95_1d"].window and listed["sales_p95_1d"].window.error)
    exact = listed["spend_sum_1h"].window
    assert exact is not None
    assert exact.error is None
    assert exact.covers == "between 1h and 1h 1m"


def test_the_graph_leads_from_the_event_to_the_family_to_its_features(store: FeatureStore) -> None:
    graph = store.graph()
    kinds = {node.id: node.kind for node in graph.nodes}
    assert (kinds["feature:spend"], kinds["feature:spend_sum_1h"]) == ("triggered", "window")
    edges = {(edge.source, edge.target) for edge in graph.edges}
    assert ("event:purchase", "feature:spend") in edges
    assert ("feature:spend", "feature:spend_sum_1h") in edges
    assert ("event:purchase", "feature:spend_sum_1h") not in edges
    assert '[/"spend_sum_1h<br/>window"/]' in graph.to_mermaid()
