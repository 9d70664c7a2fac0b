"""The limits of a caller, applied by the store in each environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature, retriever
from headwater.backends.connect import connect
from headwater.errors import CallerLimitError, UnknownContextError
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


@contextmanager
def calling_as(name: str, **limits: object) -> Iterator[None]:
    """Run the code inside for a limited caller."""
    set_caller(Caller(name, limits=CallerLimits(**limits)))  # type: ignore[arg-type]
    try:
        yield
    finally:
        set_caller(None)


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
        with pytest.raises(CallerLimitError, match="does not begin with 'acme-'") as refused:
            await store.assemble("report", {"user_id": "acme-1", "name": "bell-1"})
        assert "bell" not in str(refused.value)
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


def declare_letters(store: FeatureStore, kept: dict[str, Any]) -> FeatureStore:
    """Declare features of a user that are kept, and that read another tenant or an index."""
    Index(store, "letters", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="moved")
    async def address(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["address"])

    @feature(entity=User, **kept)
    async def neighbour(user_id: str) -> str:
        return f"lives at {await store.get_feature('address', 'bell-1')}"

    @feature(entity=User, **kept)
    async def letter(user_id: str) -> str:
        return (await store.search("letters", "parcel", mode="text"))[0].text

    @feature(entity=User, **kept)
    async def own(user_id: str) -> str:
        return f"lives at {await store.get_feature('address', user_id)}"

    @context(store)
    async def report(user_id: str, name: str) -> str:
        return str(await store.get_feature(name, user_id))

    return store


KEPT: list[dict[str, Any]] = [
    {"ttl": "3h"},
    {"refresh": "1h"},
    {"refresh": "1h", "freshness": "caught_up"},
    {"refresh": "1h", "ttl": "3h"},
]


@pytest.mark.parametrize("include_content", [True, False])
@pytest.mark.parametrize("kept", KEPT, ids=" ".join)
async def test_a_limit_holds_when_it_is_unknown_what_a_kept_value_was_computed_from(
    settings: Settings, clock: ManualClock, kept: dict[str, Any], include_content: bool
) -> None:
    settings = settings.replace(record={"include_content": include_content})

    async def is_refused(store: FeatureStore, name: str) -> bool:
        with calling_as("acme", tenant="acme-"):
            try:
                await store.assemble("report", {"user_id": "acme-1", "name": name})
            except CallerLimitError:
                return True
            return False

    async with declare_letters(FeatureStore(settings=settings, clock=clock), kept) as store:
        await store.index("letters", "bell-doc", "The parcel is for Bell.")
        for user_id in ("acme-1", "bell-1"):
            await store.publish("moved", user_id, {"address": "7 Elm Street"})
        await store.drain()
        for _ in range(2):
            assert await is_refused(store, "neighbour")
            assert await is_refused(store, "letter")
            assert not await is_refused(store, "own")
        clock.advance("1h")
        await store.drain()  # a schedule computes the values again
        assert await is_refused(store, "neighbour")
        assert await is_refused(store, "letter")
        assert not await is_refused(store, "own")
    async with declare_letters(FeatureStore(settings=settings, clock=clock), kept) as restarted:
        assert await is_refused(restarted, "neighbour")
        assert await is_refused(restarted, "letter")
    backends = await connect(settings, clock)
    await backends.notes.drop("feature/")
    await backends.lifecycle.close()
    async with declare_letters(FeatureStore(settings=settings, clock=clock), kept) as evicted:
        assert await is_refused(evicted, "neighbour")
        assert await is_refused(evicted, "letter")
        assert not await is_refused(evicted, "own")
