"""Time and chance in the code of functions are found without running it."""

from __future__ import annotations

import random
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from random import choice
from typing import Any

import numpy as np
import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, feature
from headwater.declarations.hidden_inputs import hidden_inputs, unrepeatable
from headwater.declarations.runtime import runtime_of

seeded = random.Random(7)
now = datetime.now


def hour() -> int:
    return datetime.now(UTC).hour


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
            np.random.rand(),
            max([1, 2], key=lambda _: random.randint(1, 6)),
        ]

    assert sorted(names(function)) == [
        ("choice", False),
        ("np.random.rand", False),
        ("random.Random", False),
        ("random.randint", False),
        ("random.random", False),
        ("secrets.token_hex", False),
        ("uuid.uuid4", False),
    ]


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
            seeded.random(),
            uuid.uuid5(uuid.NAMESPACE_URL, event.event_id),
        ]

    assert hidden_inputs(function) == ()
    assert hidden_inputs(len) == ()


def test_functions_that_a_function_calls_are_examined() -> None:
    def function() -> str:
        return f"{hour()} o'clock"

    (found,) = hidden_inputs(function)
    assert (found.name, found.location.file) == ("datetime.now", __file__)
    assert found.location.line == hour.__code__.co_firstlineno + 1


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
