"""The steps of programs with windows, and how programs are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from tests.crossing.window_features import PLANS
from tests.crossing.window_world import USERS, Event, World

DAY = 86_400


class Step(Protocol):
    """One use of a store."""

    async def take(self, world: World) -> None: ...


@dataclass(frozen=True)
class Publish:
    """A purchase some seconds ago, or ahead of the clock; with ``tied``, of an earlier one's time.

    With ``drain``, it is handled at once.
    """

    user_id: str
    price: float | None
    ago: float = 0
    items: int = 1
    place: str = "here"
    category: str = "books"
    kind: str = "card"
    tied: bool = False
    bad: bool = False
    drain: bool = True

    async def take(self, world: World) -> None:
        at = world.clock.now() - timedelta(seconds=self.ago)
        if self.tied and world.accepted.events:
            at = world.accepted.events[-1].at
        payload = {
            "price": self.price,
            "items": self.items,
            "place": self.place,
            "category": self.category,
            "kind": self.kind if self.price is not None else "",
            "bad": self.bad,
        }
        world.published += 1
        await world.publish(Event(f"e{world.published}", self.user_id, at, payload))
        if self.drain:
            await world.drain()


@dataclass(frozen=True)
class Again:
    """An event that was published before, repeated."""

    place: int

    async def take(self, world: World) -> None:
        events = world.accepted.events
        if events:
            await world.publish(events[self.place % len(events)])
            await world.drain()


@dataclass(frozen=True)
class Wait:
    """Time passes; values fall without an event."""

    seconds: float

    async def take(self, world: World) -> None:
        world.wait(self.seconds)


@dataclass(frozen=True)
class SetBack:
    """The clock is set back."""

    seconds: float

    async def take(self, world: World) -> None:
        world.set_back(self.seconds)


@dataclass(frozen=True)
class Change:
    """A features file with other windows, another limit of keys or another filter."""

    plan: int
    max_keys: int
    kind: str | None

    async def take(self, world: World) -> None:
        await world.deploy(
            world.declared._replace(plan=self.plan, max_keys=self.max_keys, kind=self.kind)
        )


@dataclass(frozen=True)
class Restart:
    """The same features file in another process."""

    async def take(self, world: World) -> None:
        await world.deploy(world.declared)


@dataclass(frozen=True)
class Redrive:
    """A features file without the fault, and its events once more."""

    async def take(self, world: World) -> None:
        await world.drain()
        await world.deploy(world.declared._replace(cured=True))
        letters = await world.store.dead_letters.list()
        if letters:
            await world.store.dead_letters.redrive(*(letter.id for letter in letters))
        await world.drain()
        world.accepted.redrive(world.clock.now())


@dataclass(frozen=True)
class Import:
    """Past contributions of a warehouse table, each with its age in seconds."""

    family: str
    user_id: str
    rows: tuple[tuple[int, Any], ...]

    async def take(self, world: World) -> None:
        await world.import_rows(self.family, self.user_id, self.rows)


@dataclass(frozen=True)
class Rebuild:
    """All states are made again from history."""

    async def take(self, world: World) -> None:
        await world.store.admin.rebuild()


@dataclass(frozen=True)
class Backfill:
    """The contributions of all stored events are made again, and served as a new version."""

    family: str

    async def take(self, world: World) -> None:
        await world.backfill(self.family)


@dataclass(frozen=True)
class Forget:
    """A user is erased, and may return or not."""

    user_id: str
    may_return: bool

    async def take(self, world: World) -> None:
        await world.forget(self.user_id, may_return=self.may_return)


@dataclass(frozen=True)
class Assemble:
    """A context is assembled and recorded."""

    user_id: str

    async def take(self, world: World) -> None:
        await world.assemble(self.user_id)


Draw = Callable[[Random], Step]

_PRICES = (None, 0.1, 0.2, 0.3, 1e16, -1e16, 3.5, -7.25, 1e-9, 0.0, 1234.56)
_AGES = (0, 0, 0, 0, 1, 2.5, 59, 60, 61, 599, 600, 660, 3_600, 7_200, DAY, DAY + 3_600, 3 * DAY)
_STEPS = (0.5, 1, 2.5, 10, 60, 600, 3_600, DAY)
_KEYS = ("books", "cars", "art", "other", "zoo")


def _user(random: Random) -> str:
    return random.choice(USERS)


def _publish(random: Random) -> Step:
    return Publish(
        _user(random),
        random.choice(_PRICES),
        ago=random.choice(_AGES) if random.random() < 0.9 else -random.choice(_AGES[:-2]),
        items=random.choice([0, 1, 2, -3, 10**12]),
        place=random.choice(["here", "there", "é", ""]),
        category=random.choice(_KEYS),
        kind=random.choice(["card", "card", "cash"]),
        tied=random.random() < 0.15,
        bad=random.random() < 0.15,
        drain=random.random() < 0.7,
    )


def _import(random: Random) -> Step:
    family = random.choice(["amount", "items", "places", "cards"])
    ages = sorted(random.sample([30, 61, 90, 599, 1_000, 3_599, 4_000, DAY - 1, 2 * DAY], 3))
    values: dict[str, Callable[[], Any]] = {
        "amount": lambda: random.choice(_PRICES[1:]),
        "items": lambda: random.randint(0, 9),
        "places": lambda: random.choice(["here", "far"]),
        "cards": lambda: {
            "category": random.choice(_KEYS),
            "price": random.choice([1.5, 2.5]),
            "kind": random.choice(["card", "cash"]),
        },
    }
    rows = [(age, values[family]()) for age in ages]
    # Two purchases of one amount in one second are two.
    return Import(family, _user(random), (*rows, rows[0]))


DRAWS: list[Draw] = [
    *[_publish] * 8,
    *[lambda random: Wait(random.choice(_STEPS))] * 3,
    *[lambda random: Assemble(_user(random))] * 2,
    lambda random: Again(random.randint(0, 9)),
    lambda random: SetBack(random.choice([1, 30, 600, 7_200])),
    lambda random: Change(
        random.randrange(len(PLANS)),
        random.choice([1, 2, 5]),
        random.choice(["card", "cash", None]),
    ),
    lambda _: Restart(),
    lambda _: Redrive(),
    _import,
    lambda _: Rebuild(),
    lambda random: Backfill(random.choice(["amount", "places", "cards"])),
    lambda random: Forget(_user(random), may_return=random.random() < 0.5),
]


def drawn(random: Random) -> list[Step]:
    """Return a program."""
    return [random.choice(DRAWS)(random) for _ in range(random.randint(6, 14))]
