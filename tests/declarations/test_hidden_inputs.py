"""Time and chance in the code of functions are found without running it."""

from __future__ import annotations

import email.utils
import os
import random
import secrets
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import cache
from random import choice
from typing import Any

import msgspec
import numpy as np
import pytest

from headwater import Chunk, ContextItem, FeatureStore, ServiceEvent, context, feature, retriever
from headwater.declarations.hidden_inputs import hidden_inputs, unrepeatable
from headwater.declarations.runtime import runtime_of

shared = random.Random()
seeded = random.Random(7)
generator = np.random.default_rng(7)
seed = np.random.SeedSequence(7)
now = datetime.now


def hour() -> int:
    return datetime.now(UTC).hour


@cache
def started() -> float:
    return time.time()


class Sampler:
    """Draws from a generator, which it has or gets."""

    __slots__ = ("_generator",)

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def draw(self) -> Any:
        return self._own()

    def pick(self, event: ServiceEvent) -> float:
        return random.Random(event.event_id).random()

    def __call__(self) -> int:
        return hour()

    @property
    def is_open(self) -> bool:
        return hour() > 8

    @staticmethod
    def token() -> str:
        return secrets.token_hex()

    def _own(self) -> Any:
        return self._generator.random()


sampler = Sampler(random.Random())
empty = Sampler(None)


def names(function: Callable[..., Any]) -> list[tuple[str, bool]]:
    return [(each.name, each.is_clock) for each in hidden_inputs(function)]


def test_the_clock_is_found_under_every_name() -> None:
    def function() -> object:
        import time as clock  # noqa: PLC0415
        from datetime import datetime as moment  # noqa: PLC0415

        return [
            datetime.now(UTC),
            datetime.utcnow(),  # noqa: DTZ003
            date.today(),  # noqa: DTZ011
            time.time(),
            clock.time_ns(),
            moment.now(UTC),
            now(UTC),
            time.strftime("%H"),
            time.localtime().tm_hour,
        ]

    assert sorted(names(function)) == [
        ("clock.time_ns", True),
        ("date.today", True),
        ("datetime.now", True),
        ("datetime.utcnow", True),
        ("moment.now", True),
        ("now", True),
        ("time.localtime", True),
        ("time.strftime", True),
        ("time.time", True),
    ]


def test_chance_is_found() -> None:
    def function() -> object:
        return [
            random.random(),
            choice([1, 2]),
            random.Random(),
            uuid.uuid4(),
            secrets.token_hex(),
            secrets.choice([1, 2]),
            os.urandom(4),
            np.random.rand(),
            np.random.default_rng().random(),
            np.random.RandomState(None),
            max([1, 2], key=lambda _: random.randint(1, 6)),
        ]

    assert sorted(names(function)) == [
        ("choice", False),
        ("np.random.RandomState", False),
        ("np.random.default_rng", False),
        ("np.random.rand", False),
        ("os.urandom", False),
        ("random.Random", False),
        ("random.randint", False),
        ("random.random", False),
        ("secrets.choice", False),
        ("secrets.token_hex", False),
        ("uuid.uuid4", False),
    ]


def test_chance_is_found_where_a_function_imports_it_itself() -> None:
    def function() -> object:
        import random as dice  # noqa: PLC0415
        from random import choice as pick  # noqa: PLC0415

        import numpy.random  # noqa: PLC0415
        from numpy.random import default_rng as generator  # noqa: PLC0415

        return dice.random(), pick([1, 2]), numpy.random.rand(), generator()

    assert sorted(names(function)) == [
        ("dice.random", False),
        ("generator", False),
        ("numpy.random.rand", False),
        ("pick", False),
    ]


def test_generators_that_all_calls_share_are_found_even_if_seeded() -> None:
    def function() -> object:
        drawn = shared
        random.shuffle([drawn.random()])
        return seeded.random(), generator.normal()

    assert sorted(names(function)) == [
        ("generator.normal", False),
        ("random.shuffle", False),
        ("seeded.random", False),
        ("shared", False),
    ]


def test_methods_of_objects_are_examined_like_functions() -> None:
    def draws() -> Any:
        return sampler.draw()

    def is_open() -> bool:
        return empty.is_open

    def calls() -> tuple[int, str]:
        return empty(), Sampler.token()

    def without(event: ServiceEvent) -> Any:
        return empty.draw() + empty.pick(event)

    assert names(draws) == [("self._generator.random", False)]
    assert names(is_open) == [("datetime.now", True)]
    assert sorted(names(calls)) == [("datetime.now", True), ("secrets.token_hex", False)]
    assert names(without) == []


def test_what_a_computation_of_the_past_can_repeat_is_not_found() -> None:
    store = FeatureStore()

    def function(time: Any, event: ServiceEvent) -> object:
        began = store.clock.monotonic()
        return [
            began,
            store.clock.now(),
            time.time(),
            event.timestamp.date(),
            datetime.fromtimestamp(3, UTC),
            random.Random(event.event_id).random(),
            np.random.default_rng(int(event.event_id)).random(),
            np.random.default_rng(seed).random(),
            np.random.RandomState(seed=7).rand(),
            isinstance(time, random.Random),
            uuid.uuid5(uuid.NAMESPACE_URL, event.event_id),
        ]

    def seeds(event: ServiceEvent) -> float:
        random.seed(event.event_id)
        shared.seed(event.event_id)
        np.random.seed(7)
        return random.random() + shared.random() + np.random.rand()

    assert hidden_inputs(function) == ()
    assert hidden_inputs(seeds) == ()
    assert hidden_inputs(len) == ()


def test_code_of_installed_libraries_is_not_examined() -> None:
    def function() -> object:
        return tempfile.mktemp(), email.utils.make_msgid(), pytest.approx(1), msgspec.to_builtins(1)

    assert hidden_inputs(function) == ()


def test_functions_that_a_function_calls_are_examined() -> None:
    def function() -> str:
        return f"{hour()} o'clock"

    def cached() -> float:
        return started()

    (hidden,) = hidden_inputs(function)
    assert (hidden.name, hidden.location.file) == ("datetime.now", __file__)
    assert hidden.location.line == hour.__code__.co_firstlineno + 1
    assert names(cached) == [("time.time", True)]


@pytest.fixture
def declared(store: FeatureStore, user: type) -> FeatureStore:
    @feature(entity=user, derived=True)
    def derived(user_id: str) -> int:
        return datetime.now(UTC).hour

    @feature(entity=user, trigger="login")
    def triggered(user_id: str, event: ServiceEvent) -> float:
        return time.time()

    @feature(entity=user)
    def on_demand(user_id: str) -> float:
        return random.random()

    @feature(entity=user, log=True)
    def logged(user_id: str) -> float:
        return time.time()

    @feature(entity=user, refresh="1h", materialize=True)
    def scheduled(user_id: str) -> float:
        return time.time()

    @feature(entity=user, template="{derived}")
    def template(user_id: str) -> str: ...  # type: ignore[empty-body]

    @context(store)
    def greeting(user_id: str) -> list[ContextItem]:
        return [ContextItem(f"{datetime.now(UTC):%A}")]

    return store


def test_only_functions_that_compute_the_past_are_named(declared: FeatureStore) -> None:
    found = [(name, hidden.name) for name, hidden in unrepeatable(runtime_of(declared).registry)]
    assert found == [
        ("feature 'derived'", "datetime.now"),
        ("feature 'triggered'", "time.time"),
        ("feature 'on_demand'", "random.random"),
        ("context 'greeting'", "datetime.now"),
    ]


def test_retrievers_and_the_features_that_call_them_are_named(
    store: FeatureStore, user: type
) -> None:
    @retriever(store)
    def recent(text: str) -> list[Chunk]:
        return [Chunk(text=f"{text} {random.random()}")]

    @retriever(store, index="articles", query="{text}")
    def searched(text: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @feature(entity=user, derived=True)
    async def first(user_id: str) -> str:
        return (await recent(user_id))[0].text

    assert [(name, hidden.name) for name, hidden in unrepeatable(runtime_of(store).registry)] == [
        ("feature 'first'", "random.random"),
        ("retriever 'recent'", "random.random"),
    ]
