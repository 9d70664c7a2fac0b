"""The plan of a run, drawn from its seed: its events, and the faults between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

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
    "note": 2_000,
    "coin": 500,
}
_ENDING_PER_100_000 = {"stick": 20, "block": 2, "exit": 5, "kill": 5}
# An event that ends its worker does so several times, each of which takes seconds.
_ALL_TYPES_FROM = 4_000

# A feature fails long enough for its circuit breaker to open, recovers, and fails a little again.
_SPAN = ["broken"] * 40 + ["mended"] * 5 + ["relapse"] * 3
_EVENTS_PER_SPAN = 5_000

SPAN = tuple(dict.fromkeys(_SPAN))
"""The event types of a feature that fails for a span of events; one account has all of a span."""

CHAINED = ("step", "slow", "flaky", "raise", "hang", "stick", *SPAN)
"""The event types that extend an account's chain."""

Fault = Literal[
    "worker killed",
    "worker stopped past its lease",
    "workers restarted one by one",
    "new feature deployed",
    "Redis killed",
    "Redis master killed, replica promoted",
    "Redis master and replica exchanged",
    "connections cut",
    "Postgres stopped",
    "Postgres primary killed, replica promoted",
    "network slow",
    "network silent",
    "answers cut in half",
    "answers lost",
    "Redis out of disk, appendfsync always",
    "Redis out of disk, appendfsync everysec",
    "Redis out of memory",
    "Redis restored from an older snapshot",
    "clock of a worker an hour ahead",
    "clock of a worker an hour behind",
    "Kafka broker killed",
    "Kafka broker stopped for a moment",
]

_ON_BOTH: Mapping[Fault, int] = {
    "worker killed": 5,
    "worker stopped past its lease": 4,
    "workers restarted one by one": 1,
    "connections cut": 3,
    "Postgres stopped": 2,
    "Postgres primary killed, replica promoted": 1,
    "network slow": 1,
    "network silent": 1,
    "answers cut in half": 1,
    "answers lost": 1,
    "Redis out of disk, appendfsync always": 1,
    "Redis out of disk, appendfsync everysec": 1,
    "Redis out of memory": 1,
    "Redis restored from an older snapshot": 1,
    "clock of a worker an hour ahead": 1,
    "clock of a worker an hour behind": 1,
}
_DEPLOY: Fault = "new feature deployed"

ON_SERVER: Mapping[Fault, int] = {**_ON_BOTH, "Redis killed": 3}
"""The faults of a run on one Redis, each with its number in 20,000 events."""

ON_CLUSTER: Mapping[Fault, int] = {
    **_ON_BOTH,
    "Redis master killed, replica promoted": 3,
    "Redis master and replica exchanged": 2,
}
"""The faults of a run on a cluster, or behind Sentinels, each with its number in 20,000 events."""

ON_BROKERS: Mapping[Fault, int] = {"Kafka broker killed": 3, "Kafka broker stopped for a moment": 1}
"""The further faults of a run with events in Kafka, each with its number in 20,000 events."""


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


def batches(
    seed: int, events: int, lane: int, folder: Path, density: float = 1.0
) -> Iterator[list[Step]]:
    """Yield the events of one publisher in the batches that it publishes."""
    random = Random(f"{seed}/{lane}")
    types = _types(Random(f"{seed}/types"), events, density)[lane::LANES]
    steps = _steps(random, types, lane, folder)
    while batch := list(islice(steps, random.randint(1, _LARGEST_BATCH))):
        yield batch


def _steps(random: Random, types: Sequence[str], lane: int, folder: Path) -> Iterator[Step]:
    numbers: Counter[str] = Counter()
    for place, event_type in enumerate(types):
        event_id = f"{lane}-{place}"
        entity_id = _entity(random, event_type, lane)
        payload: dict[str, Any] = {}
        if event_type == "gift":
            payload["pot"] = _pot(random)
        elif event_type in CHAINED:
            numbers[entity_id] += 1
            payload["number"] = numbers[entity_id]
        if event_type == "flaky":
            payload["mark"] = str(folder / f"flaky-{event_id}")
        yield Step(event_id, event_type, entity_id, payload)


def _types(random: Random, events: int, density: float) -> list[str]:
    """Return the types of all events: mostly steps, with spans and rare types at random places."""
    types = ["step"] * events
    spans = max(2, events // _EVENTS_PER_SPAN)
    for number in range(spans):
        first, end = (events * part // spans for part in (number, number + 1))
        length = LANES * len(_SPAN)
        start = random.randrange(first, max(first + 1, end - length))
        types[start : start + length : LANES] = _SPAN
    free = [place for place, event_type in enumerate(types) if event_type == "step"]
    at_least = int(events >= _ALL_TYPES_FROM)
    counts = {
        event_type: max(at_least, round(events * per_100_000 * share / 100_000))
        for kinds, share in ((_RARE_PER_100_000, 1.0), (_ENDING_PER_100_000, density))
        for event_type, per_100_000 in kinds.items()
    }
    places = iter(random.sample(free, sum(counts.values())))
    for event_type, count in counts.items():
        for place in islice(places, count):
            types[place] = event_type
    return types


def _entity(random: Random, event_type: str, lane: int) -> str:
    if event_type == "coin":
        return _pot(random)
    if event_type == "note":
        return f"account-{random.randrange(lane, HOT_ACCOUNTS, LANES)}"
    return f"account-{lane}" if event_type in SPAN else _account(random, lane)


def _pot(random: Random) -> str:
    return f"pot-{random.randrange(POTS)}"


def _account(random: Random, lane: int) -> str:
    own = HOT_ACCOUNTS if random.random() < HOT_SHARE else ACCOUNTS
    return f"account-{random.randrange(lane, own, LANES)}"


def faults(
    seed: int,
    events: int,
    workers: int,
    kinds: Mapping[Fault, int] = ON_SERVER,
    density: float = 1.0,
) -> list[Planned]:
    """Return the faults of a run in order: each kind at least once, none at the very end.

    The deploy is among those in the middle, so that many events come before and after it.
    """
    random = Random(f"{seed}/faults")
    drawn: list[Fault] = [
        fault
        for fault, each in kinds.items()
        for _ in range(max(1, round(each * density * events / 20_000)))
    ]
    random.shuffle(drawn)
    drawn.insert(random.randint(len(drawn) // 3, len(drawn) * 2 // 3), _DEPLOY)
    moments = sorted(random.sample(range(events // 50, events - events // 50), len(drawn)))
    return [
        Planned(
            after,
            fault,
            random.randrange(workers),
            seconds=random.uniform(0.1, 1.5),
            all_at_work=random.random() < 0.5,
        )
        for after, fault in zip(moments, drawn, strict=True)
    ]
