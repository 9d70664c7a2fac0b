"""A feature can carry a description, an owner, tags and a unit, which do not change what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError
from headwater.http.routing.openapi import document
from headwater.model.callers import Caller, CallerLimits
from headwater.model.declarations import Node
from headwater.store.listings import declarations_of

ABOUT = {"owner": "risk", "tags": ["money", "fraud"], "unit": "EUR"}
WINDOWS = {"window": ["1h", "7d"], "aggregate": ["sum", "count", "distinct", "p95", "rate"]}


def declared(**options: Any) -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class Customer:
        """A person
        with an account."""

        customer_id: str

    @feature(entity=Customer, trigger="purchase", **options)
    async def spend(customer_id: str, event: ServiceEvent) -> float:
        """What a customer pays."""
        return float(event.payload["amount"])

    return store


def features_of(store: FeatureStore) -> dict[str, FeatureDef]:
    return dict(runtime_of(store).registry.features)


def test_a_feature_lists_its_description_owner_tags_and_unit() -> None:
    (listed,) = declarations_of(declared(**ABOUT)).features
    assert (listed.owner, tuple(listed.tags), listed.unit) == ("risk", ("money", "fraud"), "EUR")
    assert listed.description == "What a customer pays."
    (listed,) = declarations_of(declared(description="In words.", tags="one")).features
    assert (listed.description, tuple(listed.tags), listed.owner) == ("In words.", ("one",), "")


def test_the_graph_shows_description_owner_tags_and_unit() -> None:
    nodes = {node.name: node for node in declared(**ABOUT).graph().nodes}
    assert nodes["spend"] == Node(
        "feature:spend",
        "spend",
        "triggered",
        "Customer",
        "What a customer pays.",
        "risk",
        ("money", "fraud"),
        "EUR",
    )
    assert nodes["purchase"] == Node("event:purchase", "purchase", "event")


def test_texts_of_users_cannot_break_out_of_the_labels_of_the_picture() -> None:
    picture = declared(owner='the "#1" <team>').graph().to_mermaid()
    assert """["spend<br/>triggered, the '#35;1' #lt;team>"]""" in picture


@pytest.mark.parametrize("options", [{}, WINDOWS])
def test_another_description_owner_tag_or_unit_is_no_other_feature(options: Any) -> None:
    plain = features_of(declared(**options))
    described = features_of(declared(**options, **ABOUT, description="Something else."))
    for name, feature_ in plain.items():
        other = described[name]
        assert definition_of(other) == definition_of(feature_)
        assert (other.series, other.windows) == (feature_.series, feature_.windows)


def test_a_window_has_the_owner_and_tags_of_its_family_and_a_unit_that_fits_it() -> None:
    features = features_of(declared(**ABOUT, **WINDOWS))
    assert {name: f.unit for name, f in features.items() if not name.endswith("_1h")} == {
        "spend": "EUR",
        "spend_sum_7d": "EUR",
        "spend_count_7d": "",
        "spend_distinct_7d": "",
        "spend_p95_7d": "EUR",
        "spend_rate_7d": "1/s",
    }
    week = features["spend_sum_7d"]
    assert (week.owner, week.tags) == ("risk", ("money", "fraud"))
    assert week.description == "sum of spend over 7d: What a customer pays."


def test_a_graph_is_folded_to_one_node_for_each_family() -> None:
    folded = declared(**WINDOWS).graph().folded()
    assert [(node.name, node.kind) for node in folded.nodes] == [
        ("spend", "window"),
        ("purchase", "event"),
    ]
    assert [(edge.source, edge.target) for edge in folded.edges] == [
        ("event:purchase", "feature:spend")
    ]


def test_the_docstring_of_an_entity_is_its_description() -> None:
    store = declared()

    @store.entity
    @dataclass
    class Account:
        account_id: str

    described = {each.name: each.description for each in declarations_of(store).entities}
    assert described == {"Customer": "A person\nwith an account.", "Account": ""}


def test_a_limited_key_sees_only_what_is_said_about_its_own_features() -> None:
    store = declared(**ABOUT)

    @store.entity
    class Secret:
        secret_id: str

    @store.feature(Secret, trigger="leak", owner="hidden-owner", tags=["hidden"], unit="HID")
    def leaks(secret_id: str, event: ServiceEvent) -> int:
        """Says hidden things."""
        return 1

    limits = CallerLimits(entities=frozenset({"Customer"}))
    caller = Caller(name="app", scopes=frozenset({"read"}), limits=limits)
    listed = declarations_of(store, caller)
    assert [each.owner for each in listed.features] == ["risk"]
    assert "hidden" not in str(listed).lower()


def test_openapi_describes_the_features_of_the_store() -> None:
    described = document([], features=list(features_of(declared(**ABOUT)).values()))
    spend = described["components"]["schemas"]["FeatureValues"]["properties"]["spend"]
    assert spend["description"] == "What a customer pays."
    assert (spend["x-owner"], spend["x-tags"], spend["x-unit"]) == (
        "risk",
        ("money", "fraud"),
        "EUR",
    )


@pytest.mark.parametrize("option", [{"owner": 7}, {"tags": [""]}, {"unit": None}])
def test_what_is_no_text_is_refused_where_it_is_declared(option: Any) -> None:
    (name,) = option
    with pytest.raises(DeclarationError, match=rf"feature 'spend': {name} must be"):
        declared(**option)
