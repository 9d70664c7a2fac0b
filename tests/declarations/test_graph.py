"""The dependency graph: made by references, checked when the store is used, drawn for people."""

from __future__ import annotations

import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.errors import CycleError, DeclarationError, UnknownReferenceError


def declare_text(user: type, name: str, template: str) -> None:
    def text(user_id: str) -> str: ...  # type: ignore[empty-body]

    feature(entity=user, name=name, template=template)(text)


def test_a_reference_may_point_forward(store: FeatureStore, user: type) -> None:
    declare_text(user, "greeting", "Dear {name}")
    declare_text(user, "name", "Ada")
    assert [(edge.source, edge.target) for edge in store.graph().edges] == [
        ("feature:name", "feature:greeting")
    ]


def test_a_reference_to_nothing_names_the_nearest_with_file_and_line(
    store: FeatureStore, user: type
) -> None:
    declare_text(user, "greeting", "Dear {nmae}")
    declare_text(user, "name", "Ada")
    with pytest.raises(UnknownReferenceError) as caught:
        store.graph()
    problem = str(caught.value)
    assert "feature 'greeting' refers to unknown feature 'nmae'; did you mean 'name'?" in problem
    assert problem.startswith(f"{__file__}:")


async def test_a_reference_to_nothing_fails_the_first_use_of_the_store(
    store: FeatureStore, user: type
) -> None:
    declare_text(user, "greeting", "Dear {nmae}")
    with pytest.raises(UnknownReferenceError):
        await store.get_feature("greeting", "u1")


def test_a_template_that_refers_to_a_feature_of_another_entity_is_told_so(
    store: FeatureStore, user: type
) -> None:
    @entity(store)
    class Team:
        team_id: str

    declare_text(Team, "motto", "Onward")
    declare_text(user, "greeting", "{motto}, friend")
    problem = "feature 'greeting' of entity 'User' refers to 'motto', a feature of entity 'Team'"
    with pytest.raises(DeclarationError, match=f"{problem}; .* combine features .* in a context"):
        store.graph()


def test_a_cycle_is_printed(store: FeatureStore, user: type) -> None:
    declare_text(user, "entry", "{one}")
    declare_text(user, "one", "{two}")
    declare_text(user, "two", "{three}")
    declare_text(user, "three", "{one}")
    with pytest.raises(CycleError, match="one → two → three → one") as caught:
        store.graph()
    assert caught.value.cycle == ("one", "two", "three", "one")
    assert str(caught.value).startswith(f"{__file__}:")


def test_a_feature_that_needs_itself_is_a_cycle(store: FeatureStore, user: type) -> None:
    declare_text(user, "echo", "{echo}")
    with pytest.raises(CycleError, match="echo → echo"):
        store.graph()


def test_the_graph_has_features_events_and_sources(store: FeatureStore, user: type) -> None:
    store.source("orders", "orders.parquet")

    @feature(entity=user, trigger=["purchase", "refund"])
    async def total(user_id: str, event: ServiceEvent) -> float:
        return 1.0

    @feature(entity=user, refresh="5m", sql="SELECT user_id, count(*) AS value FROM orders")
    def order_count(user_id: str) -> int: ...  # type: ignore[empty-body]

    declare_text(user, "blurb", "{total} in {order_count}")
    drawn = store.graph()
    assert {(node.id, node.kind, node.entity) for node in drawn.nodes} == {
        ("event:purchase", "event", None),
        ("event:refund", "event", None),
        ("source:orders", "source", None),
        ("feature:total", "triggered", "User"),
        ("feature:order_count", "scheduled", "User"),
        ("feature:blurb", "template", "User"),
    }
    assert {(edge.source, edge.target) for edge in drawn.edges} == {
        ("event:purchase", "feature:total"),
        ("event:refund", "feature:total"),
        ("source:orders", "feature:order_count"),
        ("feature:total", "feature:blurb"),
        ("feature:order_count", "feature:blurb"),
    }


def test_the_graph_is_drawn_as_mermaid(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger='say "hi"')
    async def heard(user_id: str, event: ServiceEvent) -> bool:
        return True

    declare_text(user, "line", "{heard}")
    text = store.graph().to_mermaid()
    assert text.splitlines()[0] == "flowchart LR"
    assert "say 'hi'" in text
    assert text.count(" --> ") == 2


def edges_of(store: FeatureStore, found_in: str) -> set[tuple[str, str]]:
    edges = store.graph().edges
    return {(edge.source, edge.target) for edge in edges if edge.found_in == found_in}


def declare_visits(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        before: int = await store.get_feature("visits", user_id)
        await store.set_feature("last_page", user_id, event.payload["country"])
        await store.index("pages", "home", "text")
        return before + 1

    declare_text(user, "last_page", "home")
    declare_text(user, "country", "nowhere")


def test_the_graph_has_what_code_reads_and_writes(store: FeatureStore, user: type) -> None:
    pages = Index(store, "pages", embedder="lexical")
    declare_visits(store, user)

    @feature(entity=user)
    async def busy(user_id: str) -> bool:
        rows = await store.get_features(["visits", "missing"], [user_id])
        return bool(rows)

    @retriever(store)
    async def read(query: str) -> list[str]:
        return [chunk.text for chunk in await store.search(pages, query)]

    @context(store)
    async def support(user_id: str, query: str) -> list[ContextItem]:
        first, *_ = await read(query)
        await busy.set(user_id, bool(first))
        return [ContextItem.template("{visits} {country}"), ContextItem(first.text)]

    @context(store)
    async def inner(user_id: str) -> str:
        return f"{await busy.get(user_id)} {await store.assemble('support', {})}"

    assert edges_of(store, "code") == {
        ("feature:visits", "feature:last_page"),
        ("feature:visits", "index:pages"),
        ("feature:visits", "feature:busy"),
        ("index:pages", "retriever:read"),
        ("retriever:read", "context:support"),
        ("feature:visits", "context:support"),
        ("feature:country", "context:support"),
        ("context:support", "feature:busy"),
        ("feature:busy", "context:inner"),
        ("context:support", "context:inner"),
    }
    assert {(node.id, node.kind) for node in store.graph().nodes} >= {
        ("index:pages", "index"),
        ("retriever:read", "retriever"),
        ("context:support", "context"),
    }
    assert store.graph().to_mermaid().count(" -.-> ") == 10


def test_a_declared_search_needs_its_index_and_features(store: FeatureStore, user: type) -> None:
    declare_text(user, "topic", "parcels")

    @retriever(store, index="help", query="{question} {topic}")
    async def manuals(user_id: str, question: str) -> None: ...

    assert edges_of(store, "declaration") == {
        ("index:help", "retriever:manuals"),
        ("feature:topic", "retriever:manuals"),
    }


def test_functions_without_source_have_no_dependencies(store: FeatureStore, user: type) -> None:
    namespace: dict[str, object] = {"store": store}
    code = "async def hidden(user_id: str) -> int: return await store.get_feature('name', user_id)"
    exec(code, namespace)
    declare_text(user, "name", "Ada")
    feature(entity=user)(namespace["hidden"])  # type: ignore[call-overload]
    assert edges_of(store, "code") == set()
