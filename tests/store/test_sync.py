"""``store.sync``: every verb of the store in a blocking form with the same signature."""

from __future__ import annotations

import builtins
import inspect
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings

GROUPS = ("bus", "records", "dead_letters", "admin")


def verbs_of(kind: type) -> dict[str, inspect.Signature]:
    """Return the public functions of a class that give a coroutine, with their signatures."""
    return {
        name: inspect.signature(verb)
        for name, verb in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(verb) or "Coroutine" in str(verb.__annotations__))
    }


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_every_async_verb_has_a_blocking_form_with_the_same_signature(group: str) -> None:
    store = FeatureStore(settings=Settings())
    verbs, twin = (
        (getattr(store, group), getattr(store.sync, group)) if group else (store, store.sync)
    )
    signatures = verbs_of(type(verbs))
    assert signatures
    for name, signature in signatures.items():
        blocking = getattr(type(twin), name)
        assert inspect.signature(blocking).parameters == signature.parameters, name
        assert not inspect.iscoroutinefunction(blocking)


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    store = FeatureStore(settings=Settings(), home=tmp_path)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase")
    def purchases(user_id: str, event: ServiceEvent) -> int:
        count: int = store.sync.get_feature("purchases", user_id) or 0
        return count + int(event.payload["count"])

    return store


def test_a_script_publishes_drains_and_reads_without_awaiting(store: FeatureStore) -> None:
    sync = store.sync
    try:
        sync.publish("purchase", "u1", {"count": 2})
        sync.bus.publish_many([ServiceEvent("purchase", "u1", {"count": 3})])
        sync.bus.publish(ServiceEvent("purchase", "u2", {"count": "no number"}))
        sync.drain()
        assert sync.get_features(["purchases"], ["u1"]) == {"u1": {"purchases": 5}}
        (letter,) = sync.dead_letters.list()
        sync.dead_letters.discard(letter.id)
        assert sync.dead_letters.list() == []
        assert all(part.ok for part in sync.admin.health())
        recorded = sync.record_external(name="answer", content="Hello")
        assert sync.records.verify(recorded.context_id).ok
    finally:
        sync.close()


async def test_a_blocking_verb_is_refused_where_an_event_loop_runs(store: FeatureStore) -> None:
    with pytest.raises(InvalidInputError, match="in async code; await the verb"):
        store.sync.records.get("12345678")


async def test_a_blocking_verb_works_in_a_notebook_whose_kernel_runs_a_loop(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    try:
        store.sync.publish("purchase", "ada", {"count": 2})
        store.sync.drain()
        assert store.sync.get_feature("purchases", "ada") == 2
        assert await store.get_feature("purchases", "ada") == 2
    finally:
        store.sync.close()
