"""A default is a fact only where something shows that there is no value."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Context,
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    ServiceEvent,
    context,
    entity,
    feature,
)
from headwater.declarations.contexts import ContextFunction
from headwater.declarations.runtime import runtime_of
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


def telling(store: FeatureStore, text: str, **options: Any) -> ContextFunction[[str]]:
    @context(store, **{"freshness_sla": "15m", **options})
    async def telling(user_id: str) -> ContextItem:
        return ContextItem.template(text)

    return telling


def violations(ctx: Context) -> list[tuple[str, str]]:
    return [(violation.name, violation.reason) for violation in ctx.freshness_violations]


@pytest.fixture
def known(store: FeatureStore, user: type) -> None:
    """Make entities known by events."""

    @feature(entity=user, trigger="seen")
    def seen(user_id: str, event: ServiceEvent) -> bool:
        return True


async def test_a_default_is_not_guaranteed_while_its_schedule_has_never_succeeded(
    store: FeatureStore, user: type, clock: ManualClock, tmp_path: Path
) -> None:
    table = tmp_path / "scores.csv"
    store.source("scores", table)

    @feature(
        entity=user,
        refresh="10m",
        materialize=True,
        sql="SELECT user_id, score FROM scores",
        default=0,
        freshness="caught_up",
    )
    def score(user_id: str) -> int: ...  # type: ignore[empty-body]

    made = telling(store, "{score}", freshness_strict=True)
    with pytest.raises(FreshnessSLAError, match="'score' never ran"):
        await made("u1")
    clock.advance("10m")
    await store.drain()  # the file is missing
    with pytest.raises(FreshnessSLAError, match="'score' never ran") as refused:
        await made("u1")
    assert [each.reason for each in refused.value.violations] == ["never_ran"]
    again = await store.replay(str(refused.value.context_id), "as_of")
    assert again.context is not None
    assert violations(again.context) == [("score", "never_ran")]


async def test_a_query_whose_own_file_is_missing_has_failed_and_is_not_run_for_ever(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(
        entity=user,
        refresh="10m",
        materialize=True,
        sql="SELECT user_id, score FROM read_csv('/nowhere/scores.csv')",
        default=0,
        freshness="caught_up",
    )
    def score(user_id: str) -> int: ...  # type: ignore[empty-body]

    made = telling(store, "{score}")
    clock.advance("10m")
    async with asyncio.timeout(30):
        await store.drain()
    assert violations(await made("u1")) == [("score", "never_ran")]
    outcomes = RefreshOutcomes((await runtime_of(store).open()).backends.notes, clock)
    (outcome,) = (await outcomes.read(["score"])).values()
    assert "the query cannot be run" in outcome.error


async def test_a_default_is_as_old_as_the_last_run_that_succeeded(
    store: FeatureStore, user: type, known: None, clock: ManualClock
) -> None:
    @feature(
        entity=user,
        refresh="10m",
        materialize=True,
        # It fails while there are three events: a division by zero, or a row without a value.
        sql="SELECT 'u1' AS user_id, 12 / (3 - count(*)) AS score FROM events",
        default=0.0,
        freshness="caught_up",
    )
    def score(user_id: str) -> float: ...  # type: ignore[empty-body]

    made = telling(store, "{score}")

    async def run(events: int = 0) -> list[tuple[str, str]]:
        for _ in range(events):
            await store.publish("seen", "u1")
        clock.advance("10m")
        await store.drain()
        return violations(await made("u2"))

    assert await run(3) == [("score", "never_ran")]
    assert await run(1) == []
    ctx = await made("u2")
    assert (ctx.content, ctx.freshness_status) == ("0.0", "guaranteed")
    (read,) = ctx.lineage.features
    assert (read.rule, read.source, read.current_at) == ("caught_up", "default", clock.now())
    clock.advance("1h")
    assert violations(await made("u2")) == [("score", "stale")]
    assert await run() == []


async def test_a_default_is_a_guess_where_a_function_was_never_called(
    store: FeatureStore, user: type, known: None, clock: ManualClock
) -> None:
    @feature(entity=user, refresh="10m", materialize=True, default=0, freshness="caught_up")
    async def score(user_id: str) -> int:
        if user_id == "u2":
            raise ValueError(user_id)
        return 7

    made = telling(store, "{score}")
    clock.advance("10m")
    await store.drain()  # it succeeds for all known entities: there is none
    assert violations(await made("u1")) == [("score", "never_ran")]
    for each in ("u1", "u2"):
        await store.publish("seen", each)
    await store.drain()
    assert violations(await made("u1")) == [("score", "never_ran")]
    clock.advance("10m")
    await store.drain()
    ctx = await made("u1")
    assert (ctx.content, ctx.freshness_status) == ("7", "guaranteed")
    assert violations(await made("u2")) == [("score", "never_ran")]


async def test_the_success_of_another_query_says_nothing(
    store: FeatureStore, user: type, clock: ManualClock, settings: Settings
) -> None:
    def declare(store: FeatureStore, user: type, text: str) -> ContextFunction[[str]]:
        options: Any = {"refresh": "10m", "materialize": True, "freshness": "caught_up"}

        @feature(entity=user, sql=f"SELECT '{text}' AS user_id, 5 AS rank", default=0, **options)
        def rank(user_id: str) -> int: ...  # type: ignore[empty-body]

        return telling(store, "{rank}")

    made = declare(store, user, "u1")
    clock.advance("10m")
    await store.drain()
    assert violations(await made("u2")) == []
    async with FeatureStore(settings=settings, clock=clock) as later:

        @entity(later)
        class User:
            user_id: str

        made = declare(later, User, "u2")
        assert violations(await made("u2")) == [("rank", "never_ran")]
        clock.advance("10m")
        await later.drain()
        assert (await made("u2")).content == "5"


async def test_a_query_for_known_entities_says_nothing_about_those_that_it_left_out(
    store: FeatureStore, user: type, known: None, clock: ManualClock
) -> None:
    @feature(
        entity=user,
        refresh="10m",
        sql="SELECT 'u1' AS user_id, 5 AS rank",
        default=0,
        freshness="caught_up",
    )
    def rank(user_id: str) -> int: ...  # type: ignore[empty-body]

    made = telling(store, "{rank}")
    await store.publish("seen", "u2")
    await store.drain()
    clock.advance("10m")
    await store.drain()
    # It returns u1, which was not known and so not written; u2 was known, and is not returned.
    assert violations(await made("u1")) == [("rank", "never_ran")]
    assert violations(await made("u2")) == []
    await store.publish("seen", "u1")
    await store.drain()
    assert violations(await made("u1")) == [("rank", "never_ran")]
    clock.advance("10m")
    await store.drain()
    ctx = await made("u1")
    assert (ctx.content, ctx.freshness_status) == ("5", "guaranteed")
