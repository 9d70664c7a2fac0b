"""The steps of programs, and how programs are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Protocol, get_args

import pytest

from headwater import FeatureStore
from headwater.errors import (
    BackfillRefusedError,
    EntityChangedError,
    ErasedEntityError,
    InvalidInputError,
)
from tests.crossing.features import declare_moved
from tests.crossing.model import Event, Timed
from tests.crossing.world import USERS, Part, World


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
        event_id, received_at = f"e{world.model.accepted}", world.store_time()
        event = Event(event_id, self.user_id, self.amount, at, self.bad, received_at)
        if await _buy(world, event):
            world.model.accept(event)
        if self.drain:
            await world.drain()


async def _buy(world: World, event: Event) -> bool:
    payload = {"amount": event.amount, "bad": event.bad}
    return await world.publish("buy", event.user_id, payload, at=event.at, event_id=event.event_id)


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
        document = f"by {USERS.index(self.user_id)}"
        payload = {"text": self.text, "document": document}
        if await world.publish("note", self.user_id, payload, at=at):
            world.model.user(self.user_id)
            world.model.index(document, Timed(at, f"note {self.text}"))
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
        moved = FeatureStore(settings=world.settings, clock=world.clock)
        declare_moved(moved, world.declared)
        async with moved:
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
            if world.model.lacks_events:
                with pytest.raises(BackfillRefusedError, match="pruned"):
                    await world.store.backfills.run(world.total)
                return
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
    """History, events or records of before some seconds ago are removed."""

    part: Part
    seconds: int

    async def take(self, world: World) -> None:
        await world.drain()
        await world.prune(self.part, self.seconds)


@dataclass(frozen=True)
class Export:
    """The history since the last export is exported."""

    async def take(self, world: World) -> None:
        await world.store.history.export(world.exported)


@dataclass(frozen=True)
class Enter:
    """A system outside of the store has something about a user, which a cached search finds."""

    user_id: str
    number: int

    async def take(self, world: World) -> None:
        world.model.directory[self.user_id] = self.number


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


Draw = Callable[[Random], Step]
"""Returns a step with arguments that are drawn; one that is repeated is drawn more often."""


def _user(random: Random) -> str:
    return random.choice(USERS)


def _text(random: Random) -> int:
    return random.randint(1, 9)


def _late(random: Random) -> int:
    return random.choice([0, 0, 0, 30, 300])


def _publish(random: Random) -> Step:
    is_bad, is_handled = random.random() < 0.3, random.random() < 0.7
    return Publish(_user(random), random.randint(1, 9), _late(random), bad=is_bad, drain=is_handled)


_common: list[Draw] = [
    _publish,
    _publish,
    _publish,
    lambda random: Wait(random.choice([1, 5, 15, 60, 300])),
    lambda random: Assemble(_user(random)),
    lambda random: Assemble(_user(random)),
    lambda random: Set(_user(random), random.choice([None, 0.5, 1.0, 2.5]), _late(random)),
]
_rare: list[Draw] = [
    lambda random: Again(random.randint(0, 9)),
    lambda _: Restart(),
    lambda random: Enter(_user(random), _text(random)),
]
_versions: list[Draw] = [
    lambda random: Function(random.choice([1, 10])),
    lambda random: Backfill(switch=random.random() < 0.7),
    lambda random: Backfill(switch=random.random() < 0.7),
    lambda _: Switch(),
    lambda _: SwitchBack(),
    lambda _: Rename(),
    lambda _: Reuse(),
    lambda random: Default(random.choice([0, 5])),
    lambda _: Export(),
]
_erasure: list[Draw] = [
    lambda random: Forget(_user(random), may_return=random.random() < 0.5),
    lambda random: Prune(random.choice(get_args(Part)), random.choice([5, 60])),
    lambda _: Redrive(),
    lambda _: Move(),
    lambda _: Convert(),
]
_documents: list[Draw] = [
    lambda random: Note(_user(random), _text(random), random.choice([0, 300])),
    lambda random: Index(random.randint(1, 3), _text(random)),
]

THEMES: dict[str, list[Draw]] = {
    "versions": [*_common, *_rare, *_versions, *_versions],
    "erasure": [*_common, *_rare, *_erasure, *_erasure],
    "documents": [*_common, *_rare, *_documents, *_documents, *_documents],
    "everything": [*_common, *_rare, *_versions, *_erasure, *_documents],
}


def drawn(theme: str, random: Random) -> list[Step]:
    """Return a program in which the steps of a theme are frequent."""
    return [random.choice(THEMES[theme])(random) for _ in range(random.randint(5, 12))]
