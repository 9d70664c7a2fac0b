"""The verbs of the client have the names and the arguments of the store's."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.client import AsyncClient, Client
from headwater.http.app import create_app
from headwater.settings.schema import Settings

# Verbs that only a process with the features file has.
LOCAL = {
    "": {
        *("open", "drain", "source", "event", "entity", "feature", "retriever", "context"),
        *("template_feature", "sql_feature", "stored_feature", "index_retriever"),
        *("test_feature", "backup"),
    },
}
# Verbs of the client alone.
REMOTE = {
    "": {"declarations", "iter_contexts", "me", "publisher"},
    "bus": {"send"},
    "records": {"iter"},
    "admin": {"is_alive", "readiness", "doctor", "overview", "series"},
}
# Arguments that cannot be sent.
OMITTED = {
    "run": {"source", "runner", "files"},
}


def verbs_of(group: object) -> dict[str, inspect.Signature]:
    """Return the public methods of an object with their signatures."""
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(type(group), inspect.isfunction)
        if not name.startswith("_")
    }


def groups_of(client: AsyncClient) -> Iterator[tuple[str, object]]:
    """Yield the client and its groups of verbs."""
    yield "", client
    for name, group in vars(client).items():
        if not name.startswith("_") and type(group).__module__.startswith("headwater.client"):
            yield name, group


@pytest.fixture
def remote() -> AsyncClient:
    return AsyncClient("http://localhost", settings=Settings())


def test_every_verb_of_the_client_is_a_verb_of_the_store(remote: AsyncClient) -> None:
    store = FeatureStore(settings=Settings())
    for group, calls in groups_of(remote):
        stored = verbs_of(getattr(store, group) if group else store)
        for name, signature in verbs_of(calls).items():
            if name in REMOTE.get(group, ()):
                continue
            expected = dict(stored[name].parameters)
            for omitted in OMITTED.get(name, ()):
                del expected[omitted]
            given = {p: (q.kind, q.default) for p, q in signature.parameters.items()}
            assert given == {p: (q.kind, q.default) for p, q in expected.items()}, name


def test_every_verb_of_the_client_has_a_blocking_form(remote: AsyncClient) -> None:
    blocking = Client("http://localhost", settings=Settings())
    for group, calls in groups_of(remote):
        twin = verbs_of(getattr(blocking, group) if group else blocking)
        for name, signature in verbs_of(calls).items():
            if (group, name) in {("", "publisher"), ("bus", "send")}:
                continue
            assert twin[name].parameters.keys() == signature.parameters.keys(), name


def test_the_client_has_the_verbs_that_applications_call(remote: AsyncClient) -> None:
    store = FeatureStore(settings=Settings())
    missing = verbs_of(store).keys() - verbs_of(remote).keys() - LOCAL[""]
    # Values are set where they are made.
    assert missing <= {"set_feature", "audited"}


def test_every_verb_has_an_example(remote: AsyncClient) -> None:
    for group, calls in groups_of(remote):
        for name, method in inspect.getmembers(type(calls), inspect.isfunction):
            if not name.startswith("_") and name not in {"send", "url"}:
                assert ">>> " in (method.__doc__ or ""), f"{group}.{name}"


def test_every_path_of_the_client_is_a_path_of_the_api() -> None:
    app = create_app(FeatureStore(settings=Settings()))
    routes = {re.sub(r"{\w+}", "{}", route.path) for route in app.typed_routes}
    sources = Path(inspect.getfile(AsyncClient)).parent.glob("*.py")
    trees = [ast.parse(source.read_text()) for source in sources]
    used = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and re.match(r"/(v1|api)/", str(node.value))
    }
    assert used
    assert used - routes == set()
