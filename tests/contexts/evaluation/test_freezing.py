"""Freezing the recorded contexts of a store, in both environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, FreshnessSLAError, context, feature
from headwater.contexts.evaluation.cohort import Cohort
from headwater.model.evaluations import CohortEntry, FrozenCohort
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments
Freeze = Callable[..., Any]


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return settings.replace(eval={"folder": str(tmp_path)})


class Desk:
    """A store with a context, and what is frozen of it."""

    def __init__(self, store: FeatureStore, user: type, clock: ManualClock) -> None:
        self.store, self.clock = store, clock

        @feature(entity=user, trigger="purchase")
        def spend(user_id: str, event: Any) -> int:
            return int(event.payload["amount"])

        @context(store)
        async def support(user_id: str, question: str) -> str:
            return f"{user_id}: {question}"

        @context(store, freshness_sla="1m", freshness_strict=True)
        async def strict(user_id: str) -> str:
            return f"{await store.get_feature('spend', user_id)}"

        self.support, self.strict = support, strict

    async def ask(self, *users: str) -> list[str]:
        ids = []
        for user_id in users:
            self.clock.advance("1s")
            ids.append((await self.support(user_id, f"Where is {user_id}?")).context_id)
        return ids

    async def freeze(self, name: str = "october", **choice: Any) -> FrozenCohort:
        return await self.store.evaluations.freeze(name, **choice)

    def entries(self, name: str = "october") -> list[CohortEntry]:
        settings = self.store.settings
        path = Path(settings.eval.folder) / f"{name}.cohort"
        return list(Cohort.open(path, settings).entries())


@pytest.fixture
def desk(store: FeatureStore, user: type, clock: ManualClock) -> Desk:
    return Desk(store, user, clock)


async def test_contexts_are_frozen_from_the_oldest_to_the_newest(desk: Desk) -> None:
    ids = await desk.ask("ada", "bob", "eve")
    frozen = await desk.freeze(context="support")
    assert [entry.context_id for entry in desk.entries()] == ids
    assert (frozen.count, frozen.contexts, frozen.left_out) == (3, {"support": 3}, {})
    entry = desk.entries()[1]
    record = await desk.store.get_record(ids[1])
    assert (entry.record_hash, entry.created_at) == (record.record_hash, record.made_at())
    assert entry.inputs == {"user_id": "bob", "question": "Where is bob?"}
    assert (frozen.start, frozen.end) == (
        desk.entries()[0].created_at,
        desk.entries()[2].created_at,
    )


async def test_more_contexts_than_a_page_are_frozen(desk: Desk) -> None:
    ids = await desk.ask(*(f"u{at}" for at in range(1_100)))
    frozen = await desk.freeze()
    assert frozen.count == 1_100
    assert [entry.context_id for entry in desk.entries()] == ids


async def test_refused_contexts_are_frozen(desk: Desk) -> None:
    await desk.store.set_feature("spend", "ada", 5)
    desk.clock.advance("10m")
    with pytest.raises(FreshnessSLAError):
        await desk.strict("ada")
    assert (await desk.freeze(where={"status": "refused"})).statuses == {"refused": 1}


async def test_texts_from_elsewhere_are_left_out_and_counted(desk: Desk) -> None:
    await desk.ask("ada")
    await desk.store.record_external(name="elsewhere", content="Hello")
    await desk.store.record_external(name="support", content="Hello")
    frozen = await desk.freeze()
    assert (frozen.count, frozen.left_out) == (1, {"not declared": 1, "assembled elsewhere": 1})


async def test_an_erased_record_is_frozen_with_what_is_left_of_it(desk: Desk) -> None:
    one, _ = await desk.ask("ada", "bob")
    await desk.store.records.redact(one, "/inputs/question", reason="asked")
    await desk.freeze()
    assert [sorted(entry.inputs) for entry in desk.entries()] == [
        ["user_id"],
        ["question", "user_id"],
    ]


async def test_a_sample_by_an_input_has_one_of_each_value(desk: Desk) -> None:
    await desk.ask(*["ada"] * 20, "bob", "eve")
    await desk.freeze(sample=4, stratify_by="input.user_id", seed=3)
    assert sorted(entry.inputs["user_id"] for entry in desk.entries()) == [
        "ada",
        "ada",
        "bob",
        "eve",
    ]


async def test_only_what_the_records_disclose_is_frozen(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings.replace(record={"include_content": False}), clock=clock)

    @context(store)
    async def support(question: str) -> str:
        return question

    async with store:
        await support("Where is it?")
        frozen = await store.evaluations.freeze("private")
    entries = list(Cohort.open(Path(frozen.path), settings).entries())
    assert [entry.inputs for entry in entries] == [{}]
