"""Workers that declare different features log a warning, each once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.memory import MemoryCache
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.engine.declaration_check import KEPT, DeclarationCheck, declarations_of
from headwater.ports import Cached
from headwater.testing import ManualClock
from tests.engine.support import records


def declaring(names: Iterable[str]) -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    for name in names:

        @feature(entity=User, name=name, trigger="order")
        def count(user_id: str, event: ServiceEvent) -> int:
            return 1

    @feature(entity=User)
    def on_demand(user_id: str) -> int:
        return len(list(names))

    return store


def worker(name: str, cache: MemoryCache, *features: str) -> DeclarationCheck:
    declared = declarations_of(name, runtime_of(declaring(features)).registry)
    return DeclarationCheck(cache, ManualClock(), "group", declared)


def warnings(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    log.flush()
    return records(capsys.readouterr().err, "workers declare different features")


async def test_each_of_two_workers_with_different_features_warns_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = MemoryCache(ManualClock())
    one, two = worker("one", cache, "a", "b"), worker("two", cache, "b", "c")
    for _ in range(3):
        await one.compare()
        await two.compare()
    told = warnings(capsys)
    assert [(each["worker"], each["other"]) for each in told] == [("two", "one"), ("one", "two")]
    assert (told[0]["only_here"], told[0]["only_there"]) == (["c (order)"], ["a (order)"])


async def test_workers_with_the_same_features_do_not_warn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = MemoryCache(ManualClock())
    one, two = worker("one", cache, "a", "b"), worker("two", cache, "b", "a")
    for _ in range(2):
        await one.compare()
        await two.compare()
    assert warnings(capsys) == []


async def test_unreadable_declarations_of_another_version_are_ignored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = MemoryCache(ManualClock())
    one = worker("one", cache, "a")
    await one.compare()
    for kept in (b"[]", b"\xff"):
        await cache.put("declared:group", Cached(kept, 0), KEPT)
        await one.compare()
    assert warnings(capsys) == []
