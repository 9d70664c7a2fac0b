"""Contexts know the store that they come from, and a block makes one the current context."""

from __future__ import annotations

import asyncio
import copy
import pickle

import msgspec
import pytest

from headwater import Context, ContextItem, FeatureStore, context, current_context
from headwater.errors import InvalidInputError


@pytest.fixture
async def ctx(store: FeatureStore) -> Context:
    """An assembled context."""

    @context(store)
    async def greeting() -> list[ContextItem]:
        return [ContextItem("Hello", priority=1)]

    return await greeting()


async def test_a_block_makes_a_context_the_current_one(store: FeatureStore, ctx: Context) -> None:
    other = await store.record_external(name="other", content="Hi")
    past = await store.get_context_at(ctx.context_id)
    assert current_context() is None
    async with ctx as entered:
        assert current_context() is entered is ctx
        with other:
            assert current_context() is other
            async with past:
                assert current_context() is past
        assert current_context() is ctx
    assert current_context() is None


async def test_tasks_have_contexts_of_their_own(store: FeatureStore, ctx: Context) -> None:
    contexts = [await store.record_external(name="other", content=text) for text in "abc"]
    entered = asyncio.Barrier(len(contexts))

    async def read(context: Context) -> str:
        async with context:
            await entered.wait()
            current = current_context()
            assert current is not None
            return current.context_id

    async with ctx:
        found = await asyncio.gather(*map(read, contexts))
        assert current_context() is ctx
    assert found == [context.context_id for context in contexts]


async def test_a_block_that_fails_ends_as_well(ctx: Context) -> None:
    with pytest.raises(ValueError, match="no answer"):
        async with ctx:
            raise ValueError("no answer")
    assert current_context() is None


async def test_a_binding_is_not_part_of_the_context(store: FeatureStore, ctx: Context) -> None:
    restored = msgspec.json.decode(msgspec.json.encode(ctx), type=Context)
    assert restored == ctx
    assert repr(restored) == repr(ctx)
    for unbound in (
        restored,
        pickle.loads(pickle.dumps(ctx)),
        copy.deepcopy(ctx),
        msgspec.structs.replace(ctx, name="other"),
    ):
        with pytest.raises(InvalidInputError, match=r"call store\.records\.add_outcome"):
            await unbound.add_outcome(score="helpful", value=4)
        async with unbound:  # as a function does that is replayed; its calls are not recorded
            assert current_context() is unbound


async def test_a_context_of_a_replay_is_not_recorded_and_takes_no_outcomes(
    store: FeatureStore, ctx: Context
) -> None:
    replay = await store.replay(ctx.context_id, "live")
    assert replay.context is not None
    with pytest.raises(InvalidInputError, match="replayed"):
        await replay.context.add_outcome(score="helpful", value=4)


def test_blocking_code_is_told_of_the_blocking_form(store: FeatureStore) -> None:
    ctx = store.sync.record_external(name="other", content="Hi")
    with pytest.raises(InvalidInputError, match=r"call ctx\.sync\.add_outcome"):
        _ = ctx.add_outcome(score="helpful", value=4)
    store.sync.close()
