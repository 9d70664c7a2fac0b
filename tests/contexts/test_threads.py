"""Reads in threads of a user function are tracked if the thread has the function's context."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

import pytest

from headwater import ContextItem, FeatureStore, FreshnessSLAError, context


async def test_reads_of_a_thread_with_the_contexts_variables_belong_to_the_context(
    store: FeatureStore, user: type
) -> None:
    @context(store, freshness_sla="1s", freshness_strict=True)
    async def beside(user_id: str) -> str:
        return str(await asyncio.to_thread(store.sync.get_feature, "visits", user_id))

    @context(store, freshness_sla="1s", freshness_strict=True)
    def at_once(*user_ids: str) -> list[ContextItem]:
        with ThreadPoolExecutor() as pool:
            reads = [
                pool.submit(copy_context().run, partial(store.sync.get_feature, "visits", user_id))
                for user_id in user_ids
            ]
            return [ContextItem(str(read.result())) for read in reads]

    with pytest.raises(FreshnessSLAError):
        await beside("u1")
    with pytest.raises(FreshnessSLAError) as caught:
        await at_once("u1", "u2", "u3")
    assert {violation.entity_id for violation in caught.value.violations} == {"u1", "u2", "u3"}


async def test_reads_of_a_bare_thread_belong_to_no_context(store: FeatureStore, user: type) -> None:
    """A limit, and documented as one: such a thread does not know on whose behalf it runs."""

    @context(store, freshness_sla="1s")
    async def made(user_id: str) -> str:
        loop = asyncio.get_running_loop()
        read = store.sync.get_feature
        return str(await loop.run_in_executor(None, read, "visits", user_id))

    ctx = await made("u1")
    assert (ctx.content, ctx.lineage.features, ctx.is_fresh) == ("0", [], True)
