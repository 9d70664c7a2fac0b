"""The plan of a run, drawn from its seed: its events, and the faults between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, get_args

ACCOUNTS = 400
HOT_ACCOUNTS = 8
HOT_SHARE = 0.2
POTS = 10
LANES = 4
"""Concurrent publishers. Each has its own accounts, so the events of an account stay in order."""

_LARGEST_BATCH = 30
_RARE_PER_100_000 = {
    "slow": 3_000,
    "flaky": 300,
    "raise": 150,
    "hang": 50,
    "gift": 1_000,
    "coin": 500,
    "stick": 5,
    "exit": 5,
    "kill": 5,
}

Fault = Literal[
    "worker killed",
    "worker stopped past its lease",
    "workers restarted one by one",
    "Redis killed",
    "connections cut",
    "Postgres stopped",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
_FAULTS_PER_20_000 = dict(zip(FAULTS, (5, 4, 1, 3, 3, 2), strict=True))


class Step(NamedTuple):
    """One event to publish."""

    event_id: str
    event_type: str
    entity_id: str
    payload: dict[str, Any]


class Planned(NamedTuple):
    """A fault to inject after a number of published events: its target and its duration.

    Half of the faults wait until every worker has joined; the others may hit one that is starting.
    """

    after: int
    fault: Fault
    worker: int
    seconds: float
    all_at_work: bool


def batches(seed: int, events: int, lane: int, folder: Path) -> Iterator[list[Step]]:
    """Yield the events of one publisher in the batches that it publishes."""
    random = Random(f"{seed}/{lane}")
    types = _types(Random(f"{seed}/types"), events)[lane::LANES]
    steps = _steps(random, types, lane, folder)
    while batch := list(islice(steps, random.randint(1, _LARGEST_BATCH))):
        yield batch


def _steps(random: Random, types: Sequence[str], lane: int, folder: Path) -> Iterator[Step]:
    numbers: Counter[str] = Counter()
    for place, event_type in enumerate(types):
        event_id = f"{lane}-{place}"
        entity_id = _pot(random) if event_type == "coin" else _account(random, lane)
        payload: dict[str, Any] = {}
        if event_type == "gift":
            payload["pot"] = _pot(random)
        elif event_type in CHAINED:
            numbers[entity_id] += 1
            payload["number"] = numbers[entity_id]
        if event_type == "flaky":
            payload["mark"] = str(folder / f"flaky-{event_id}")
        yield Step(event_id, event_type, entity_id, payload)


CHAINED = ("step", "slow", "flaky", "raise", "hang")
"""The event types that extend an account's chain."""


def _types(random: Random, events: int) -> list[str]:
    """Return the types of all events: mostly steps, with rare types at random places."""
    types = ["step"] * events
    for event_type, per_100_000 in _RARE_PER_100_000.items():
        count = max(1, round(events * per_100_000 / 100_000))
        for place in random.sample(range(events), count):
            types[place] = event_type
    return types


def _pot(random: Random) -> str:
    return f"pot-{random.randrange(POTS)}"


def _account(random: Random, lane: int) -> str:
    own = HOT_ACCOUNTS if random.random() < HOT_SHARE else ACCOUNTS
    return f"account-{random.randrange(lane, own, LANES)}"


def faults(seed: int, events: int, workers: int) -> list[Planned]:
    """Return the faults of a run in order: each kind at least once, none at the very end."""
    random = Random(f"{seed}/faults")
    kinds = [
        fault
        for fault, each in _FAULTS_PER_20_000.items()
        for _ in range(max(1, round(each * events / 20_000)))
    ]
    random.shuffle(kinds)
    moments = sorted(random.sample(range(events // 50, events - events // 50), len(kinds)))
    return [
        Planned(
            after,
            fault,
            random.randrange(workers),
            seconds=random.uniform(0.1, 1.5),
            all_at_work=random.random() < 0.5,
        )
        for after, fault in zip(moments, kinds, strict=True)
    ]
