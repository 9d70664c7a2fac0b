"""The steps of programs, and how programs are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import pytest
from hypothesis import strategies as st

from headwater import FeatureStore
from headwater.errors import EntityChangedError, ErasedEntityError, InvalidInputError
from tests.crossing.features import declare_moved
from tests.crossing.model import Event, Timed
from tests.crossing.world import USERS, Extent, World


class Step(Protocol):
    """One use of a store."""

    async def take(self, world: World) -> None: ...


@dataclass(frozen=True)
class Publish:
    """A purchase; with ``drain``, it is handled at once."""

    user_id: str
    amount: int
    late: int = 0
    bad: bool = False
    drain: bool = True

    async def take(self, world: World) -> None:
        at = world.clock.now() - timedelta(seconds=self.late)
        event = Event(f"e{world.model.accepted}", self.user_id, self.amount, at, self.bad)
        if await _buy(world, event):
            world.model.accept(event)
        if self.drain:
            await world.drain()


async def _buy(world: World, event: Event) -> bool:
    payload = {"amount": event.amount, "bad": event.bad}
    return await world.publish("buy", event, payload, event_id=event.event_id)


@dataclass(frozen=True)
class Again:
    """An event that was published before, repeated."""

    place: int

    async def take(self, world: World) -> None:
        if world.model.events:
            await _buy(world, world.model.events[self.place % len(world.model.events)])
            await world.drain()


@dataclass(frozen=True)
class Note:
    """An event whose handler indexes a document."""

    user_id: str
    text: int
    late: int = 0

    async def take(self, world: World) -> None:
        at = world.clock.now() - timedelta(seconds=self.late)
        event = Event("", self.user_id, self.text, at)
        if await world.publish("note", event, {"text": self.text}, event_id=None):
            world.model.user(self.user_id)
            text = f"note {self.text} of {self.user_id}"
            world.model.index(self.user_id, Timed(at, text))
        await world.drain()


@dataclass(frozen=True)
class Index:
    """A document, indexed by an application."""

    document: int
    text: int

    async def take(self, world: World) -> None:
        text = f"note {self.text}"
        await world.store.index("notes", self.document, text)
        world.model.index(str(self.document), Timed(world.clock.now(), text))


@dataclass(frozen=True)
class Set:
    """A value that an application writes, perhaps of an earlier time."""

    user_id: str
    value: float | None
    late: int = 0

    async def take(self, world: World) -> None:
        at = world.clock.now() - timedelta(seconds=self.late)
        setting = world.store.set_feature("score", self.user_id, self.value, as_of=at)
        if world.model.admits(self.user_id, at):
            await setting
            world.model.set_score(self.user_id, Timed(at, self.value))
        else:
            with pytest.raises(ErasedEntityError):
                await setting


@dataclass(frozen=True)
class Redrive:
    """A features file without the fault, and its events once more."""

    async def take(self, world: World) -> None:
        await world.deploy(world.declared._replace(cured=True))
        letters = await world.store.dead_letters.list()
        if letters:
            await world.store.dead_letters.redrive(*(letter.id for letter in letters))
        world.model.redrive()
        await world.drain()


@dataclass(frozen=True)
class Restart:
    """The same features file in another process."""

    async def take(self, world: World) -> None:
        await world.deploy(world.declared)


@dataclass(frozen=True)
class Default:
    """A features file with another default."""

    value: int

    async def take(self, world: World) -> None:
        await world.deploy(world.declared._replace(default=self.value))


@dataclass(frozen=True)
class Function:
    """A features file with another function of ``total``."""

    weight: int

    async def take(self, world: World) -> None:
        await world.deploy(world.declared._replace(weight=self.weight))


@dataclass(frozen=True)
class Convert:
    """A features file with another type of ``price``."""

    async def take(self, world: World) -> None:
        await world.deploy(world.declared._replace(unit="euros"))


@dataclass(frozen=True)
class Rename:
    """Another name of ``total``, and a features file that uses it."""

    async def take(self, world: World) -> None:
        if world.declared.reused:
            return
        before, other = world.total, {"total": "spend", "spend": "total"}[world.total]
        await world.deploy(world.declared._replace(total=other), rename=before)


@dataclass(frozen=True)
class Reuse:
    """A features file with another feature of the name that ``total`` had."""

    async def take(self, world: World) -> None:
        if world.total != "total":
            await world.deploy(world.declared._replace(reused=True))


@dataclass(frozen=True)
class Move:
    """A features file that declares ``price`` for another entity, which is refused."""

    async def take(self, world: World) -> None:
        if all(user.amount is None for user in world.model.users.values()):
            return  # a feature without values may move
        async with FeatureStore(settings=world.settings, clock=world.clock) as moved:
            declare_moved(moved)
            with pytest.raises(EntityChangedError):
                await moved.drain()
            with pytest.raises(EntityChangedError):
                await moved.get_feature("price", "u1")


@dataclass(frozen=True)
class Backfill:
    """A version of ``total`` from all events, perhaps served at once."""

    switch: bool

    async def take(self, world: World) -> None:
        if world.model.unserved is None:
            await world.drain()
            await world.store.backfills.run(world.total)
            world.model.backfill()
        if self.switch:
            await Switch().take(world)


@dataclass(frozen=True)
class Switch:
    """The version that a backfill has made is served."""

    async def take(self, world: World) -> None:
        number = world.model.unserved
        if number is not None:
            await world.store.backfills.switch(world.total)
            world.model.switch(number, world.clock.now())


@dataclass(frozen=True)
class SwitchBack:
    """The version before is served again, if it is still kept fresh."""

    async def take(self, world: World) -> None:
        model = world.model
        before = [
            number
            for number, version in model.versions.items()
            if number != model.active and version.replaced_at is not None
        ]
        if not before:
            return
        number = max(before)
        try:
            await world.store.backfills.switch(world.total, version=number)
        except InvalidInputError:
            assert model.versions[number].is_retired
        else:
            assert not model.versions[number].is_retired
            model.switch(number, world.clock.now())


@dataclass(frozen=True)
class Prune:
    """History of before some seconds ago is removed."""

    seconds: int

    async def take(self, world: World) -> None:
        # Half a second, so that nothing was served at that very moment.
        await world.store.admin.prune(history=timedelta(seconds=self.seconds + 0.5))


@dataclass(frozen=True)
class Forget:
    """A user is erased, and may return or not."""

    user_id: str
    may_return: bool

    async def take(self, world: World) -> None:
        await world.forget(self.user_id, may_return=self.may_return)


@dataclass(frozen=True)
class Wait:
    """Time passes; schedules that have become due run."""

    seconds: int

    async def take(self, world: World) -> None:
        world.wait(self.seconds)
        await world.drain()


@dataclass(frozen=True)
class Assemble:
    """A context is assembled and recorded."""

    user_id: str

    async def take(self, world: World) -> None:
        await world.assemble(self.user_id)


@dataclass(frozen=True)
class Check:
    """All that was observed so far is compared now, and not only at the end."""

    async def take(self, world: World) -> None:
        await world.check("values")


Steps = list[st.SearchStrategy[Step]]
"""Strategies for steps; one that is repeated is drawn more often."""


_users = st.sampled_from(USERS)
_late = st.sampled_from([0, 0, 0, 30, 300])
_publish = st.builds(
    Publish,
    _users,
    st.integers(1, 9),
    _late,
    bad=st.sampled_from([False, False, True]),
    drain=st.sampled_from([True, True, False]),
)
_common: Steps = [
    _publish,
    _publish,
    _publish,
    st.builds(Wait, st.sampled_from([1, 5, 15, 60, 300])),
    st.builds(Assemble, _users),
    st.builds(Set, _users, st.sampled_from([None, 0.5, 1.0, 2.5]), _late),
]
_rare: Steps = [st.builds(Again, st.integers(0, 9)), st.builds(Restart)]
_versions: Steps = [
    st.builds(Function, st.sampled_from([1, 10])),
    st.builds(Backfill, st.booleans()),
    st.builds(Backfill, switch=st.just(value=True)),
    st.builds(Switch),
    st.builds(SwitchBack),
    st.builds(Rename),
    st.builds(Reuse),
    st.builds(Default, st.sampled_from([0, 5])),
]
_erasure: Steps = [
    st.builds(Forget, _users, st.booleans()),
    st.builds(Prune, st.sampled_from([5, 60])),
    st.builds(Redrive),
    st.builds(Move),
    st.builds(Convert),
]
_documents: Steps = [
    st.builds(Note, _users, st.integers(1, 9), _late),
    st.builds(Index, st.integers(1, 3), st.integers(1, 9)),
]

THEMES: dict[str, Steps] = {
    "versions": [*_common, *_rare, st.builds(Check), *_versions],
    "erasure": [*_common, *_rare, *_erasure],
    "documents": [*_common, *_rare, *_documents],
    "everything": [*_common, *_rare, *_versions, *_erasure, *_documents],
}


EXTENTS: st.SearchStrategy[Extent] = st.sampled_from([*["values"] * 5, "everything"])
"""What is compared at the end of a program: rarely everything, which takes long."""


def programs(theme: str) -> st.SearchStrategy[Sequence[Step]]:
    """Return a strategy for programs in which the steps of a theme are frequent."""
    return st.lists(st.one_of(THEMES[theme]), min_size=3, max_size=12)
