"""Handlers get the payload that was published, with the defaults of its class."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, Field

from headwater import Event, FeatureStore, ServiceEvent, context, entity, event, feature
from headwater.errors import EventError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


@dataclass
class Place:
    city: str = "Rome"


class PlainVisit:
    club: str
    minutes: int = 60
    kind: str = "gym"
    place: Place = field(default_factory=Place)


@dataclass
class DataVisit:
    club: str
    minutes: int = 60
    kind: str = "gym"
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class SlottedVisit:
    club: str
    minutes: int = 60
    kind: str = "gym"
    place: Place = field(default_factory=Place)


class StructVisit(msgspec.Struct):
    club: str
    minutes: int = 60
    kind: str = "gym"
    place: Place = msgspec.field(default_factory=Place)


WHOLE = {"club": "north", "minutes": 60, "kind": "gym", "place": {"city": "Rome"}}


@pytest.mark.parametrize("kind", [PlainVisit, DataVisit, SlottedVisit, StructVisit])
@pytest.mark.parametrize("payload", [{"club": "north"}, {"club": "north", "place": {}}])
async def test_a_window_a_value_and_an_event_have_the_defaults_of_a_payload(
    settings: Settings, clock: ManualClock, kind: Any, payload: dict[str, Any]
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class Member:
        member_id: str

    visit = event(store, "visit")(kind)

    @feature(
        entity=Member,
        trigger="visit",
        window="7d",
        aggregate=["count", "sum"],
        value="minutes",
        where={"kind": "gym"},
        by="kind",
    )
    def visits(member_id: str, event: Event[visit]) -> visit:  # type: ignore[valid-type]
        return event.payload

    @feature(entity=Member, trigger="visit")
    async def latest(member_id: str, event: Event[visit]) -> visit:  # type: ignore[valid-type]
        await store.publish("seen", member_id, event.payload)
        return event.payload

    @feature(entity=Member, trigger="again")
    async def kept(member_id: str, event: ServiceEvent) -> visit:  # type: ignore[valid-type]
        return await latest.get(member_id)

    @feature(entity=Member, trigger="seen")
    def seen(member_id: str, event: ServiceEvent) -> dict[str, Any]:
        return event.payload

    async with store:
        await store.publish("visit", "mia", payload)
        await store.drain()
        await store.publish("again", "mia", {})
        await store.drain()
        assert [letter.error for letter in await store.dead_letters.list()] == []
        names = ["visits_count_7d", "visits_sum_7d", "seen"]
        (values,) = (await store.get_features(names, ["mia"])).values()
        assert values == {
            "visits_count_7d": {"gym": 1},
            "visits_sum_7d": {"gym": 60},
            "seen": WHOLE,
        }
        for name in ("latest", "kept"):
            (change,) = await store.get_feature_history(name, "mia")
            assert msgspec.to_builtins(change.value) == WHOLE


async def test_a_context_records_the_defaults_of_an_argument(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @context(store)
    async def page(visit: DataVisit) -> str:
        return f"{visit.minutes} minutes"

    async with store:
        ctx = await store.assemble("page", {"visit": {"club": "north"}})
        assert ctx.content == "60 minutes"
        assert (await store.records.explain(ctx.context_id)).inputs == {"visit": WHOLE}


class Aliased(BaseModel):
    amount: int = Field(0, validation_alias="amt")
    note: str = Field("", exclude=True)


class Computed(BaseModel):
    amount: int = Field(0, alias="amt")

    @cached_property
    def double(self) -> int:
        return 2 * self.amount


async def test_a_model_that_handlers_would_read_otherwise_is_refused(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)
    async with store:
        with pytest.raises(EventError, match="Aliased reads other values of amount, note than it"):
            await store.publish("paid", "ada", Aliased.model_validate({"amt": 5, "note": "x"}))
        computed = Computed.model_validate({"amt": 5})
        assert computed.double == 10
        assert (await store.publish("paid", "ada", computed)).payload == {"amt": 5}
