"""The events behind the values of a recorded context."""

from __future__ import annotations

import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.contexts.recorded import service
from headwater.declarations.runtime import runtime_of
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


async def test_each_stored_value_has_the_event_or_the_verb_that_wrote_it(
    store: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["n"])

    @feature(entity=User, trigger="never", default="")
    async def note(user_id: str, event: ServiceEvent) -> str:
        return ""

    @feature(entity=User, template="{visits} visits, {note}")
    def blurb(user_id: str) -> str:
        return ""

    @context(store)
    async def made(user_id: str) -> str:
        text: str = await store.get_feature("blurb", user_id)
        return f"{text} {await store.get_feature('visits', 'unknown')}"

    for n in (1, 2, 3):
        await store.publish("visit", "ada", {"n": n}, event_id=f"visit-{n}")
        await store.drain()
        clock.advance("1m")
        if n == 2:
            await store.set_feature("note", "ada", "new here")
            made_then = await made("ada")
    trace = await store.records.explain(made_then.context_id)
    found = await store.records.causes(made_then.context_id)
    blurb_read = next(at for at, read in enumerate(trace.features) if read.feature == "blurb")
    inputs = trace.features[blurb_read].inputs
    told = {
        inputs[each.input].feature: (each.cause, each.event and each.event.event_type)
        for each in found.causes
        if each.read == blurb_read and each.input is not None
    }
    assert told == {"visits": ("visit-2", "visit"), "note": ("set", None)}
    assert {each.read for each in found.causes} == {blurb_read}
    assert (found.context_id, found.is_complete) == (made_then.context_id, True)
    monkeypatch.setattr(service, "MOST_VALUES", 1)
    fewer = await store.records.causes(made_then.context_id)
    assert (len({each.cause for each in fewer.causes}), fewer.is_complete) == (1, False)


async def test_the_event_is_that_of_the_entity_if_others_have_the_same_id(
    store: FeatureStore, clock: ManualClock
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger=["visit", "call"], default=0)
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return 1

    @context(store)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("seen", user_id))

    for number in range(4):
        for name, event_type in (("ada", "visit"), ("bob", "call"), ("cleo", "call")):
            await store.publish(event_type, name, event_id=f"daily-{number}", timestamp=clock.now())
        clock.advance("1d")
    await store.drain()
    for name, event_type in (("ada", "visit"), ("bob", "call")):
        found = await store.records.causes((await made(name)).context_id)
        assert [each.event and each.event.event_type for each in found.causes] == [event_type]
        history = (await runtime_of(store).open()).value_history
        page = await history.page("seen", name, None, None, 10, events=True)
        assert [each.event and each.event.event_type for each in page.values] == [event_type] * 4


async def test_a_cached_value_that_was_computed_from_a_default_has_its_cause(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="never", default=0)
    def given(user_id: str, event: ServiceEvent) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user, ttl="1h")
    async def greeting(user_id: str) -> str:
        return f"given {await store.get_feature('given', user_id)}"

    @context(store)
    async def made(user_id: str) -> str:
        return str(await store.get_feature("greeting", user_id))

    await made("ada")
    clock.advance("1m")
    found = await store.records.causes((await made("ada")).context_id)
    assert ([each.cause for each in found.causes], found.is_complete) == (["computed"], True)
