"""The limits of a caller, applied by the store in each environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater import FeatureStore, ServiceEvent, context, feature, retriever
from headwater.core.callers import Caller, CallerLimits, set_caller
from headwater.errors import CallerLimitError, UnknownContextError


@contextmanager
def calling_as(name: str, **limits: object) -> Iterator[None]:
    """Run the code inside for a limited caller."""
    set_caller(Caller(name, limits=CallerLimits(**limits)))  # type: ignore[arg-type]
    try:
        yield
    finally:
        set_caller(None)


@pytest.mark.both_environments
async def test_a_tenant_reads_assembles_and_sees_only_its_own(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="purchase", default=0)
    async def spend(user_id: str, event: ServiceEvent) -> int:
        return 1

    @retriever(store)
    async def nearby(name: str) -> list[str]:
        return [str(await store.get_feature("spend", name))]

    @context(store)
    async def report(user_id: str, name: str) -> str:
        return str(await store.get_feature("spend", user_id)) + (await nearby(name))[0].text

    others = await store.assemble("report", {"user_id": "acme-1", "name": "acme-1"})
    with calling_as("acme", tenant="acme-"):
        own = await store.assemble("report", {"user_id": "acme-1", "name": "acme-2"})
        with pytest.raises(CallerLimitError, match="'bell-1'"):
            await store.assemble("report", {"user_id": "acme-1", "name": "bell-1"})
        with pytest.raises(CallerLimitError, match="'bell-1'"):
            await store.publish("purchase", "bell-1")
        assert (await store.get_context_at(own.context_id)).content == own.content
        with pytest.raises(UnknownContextError):
            await store.get_context_at(others.context_id)
        (listed,) = (await store.list_contexts()).contexts
        assert listed.context_id == own.context_id
        (found,) = (await store.records.find(entity="User", entity_id="acme-1")).contexts
        assert found.context_id == own.context_id
    assert len((await store.list_contexts()).contexts) == 2
    assert await store.bus.list() == []


async def test_a_handler_is_not_limited_by_the_caller_whose_task_started_it(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="purchase", default=0)
    async def spend(user_id: str, event: ServiceEvent) -> int:
        return 1 + int(await store.get_feature("spend", "bell-1"))

    with calling_as("acme", tenant="acme-"):
        await store.publish("purchase", "acme-1")
        await store.drain()
        assert await store.get_feature("spend", "acme-1") == 1
