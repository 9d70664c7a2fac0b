"""The floors: the bare work under each of our operations, with nothing of ours around it."""

import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.case import Effort, Figure
from bench.tables import database, insert

BATCH = 100
ENTITIES = 1_000
PARTITIONS = 16
NAMES = [f"f{n}" for n in range(10)]

# Our own tables, so that what a row costs is the same on both sides.
START_CURSOR = insert("cursors", "partition", consumer_group="'floor'")
ADD_EVENT = insert(
    "events",
    *("partition", "event_id", "entity_id", "timestamp", "received_at", "payload"),
    event_type="'purchase'",
)
NEXT_BATCH = """
    SELECT seq, event_id, entity_id, timestamp, payload FROM events
    WHERE partition = ? AND seq > ? ORDER BY seq LIMIT ?
"""
READ_STATE = "SELECT state FROM entities WHERE entity = 'User' AND entity_id = ?"
READ_STATES = "SELECT entity_id, state FROM entities WHERE entity = 'User' AND entity_id IN ({})"
WRITE_STATE = f"""
    {insert("entities", "entity_id", "partition", "state", entity="'User'", version="1")}
    ON CONFLICT (entity, entity_id) DO UPDATE SET state = excluded.state, version = version + 1
"""
ADD_HISTORY = insert(
    "history",
    *("feature", "entity_id", "value", "as_of", "written_at", "cause"),
    entity="'User'",
    kind="'float'",
)
MOVE_CURSOR = """
    UPDATE cursors SET seq = ? WHERE consumer_group = 'floor' AND partition = ? AND seq = ?
"""

State = dict[str, list[Any]]  # feature → [value, as_of, written_at, expires_at]
Rate = Callable[[], float]
Measuring = Callable[[str, Effort], AbstractContextManager[Callable[[], float | Figure]]]

encode = msgspec.json.encode
decode = msgspec.json.decode


def micros() -> int:
    return time.time_ns() // 1_000


def partition_of(entity_id: str) -> int:
    return zlib.crc32(entity_id.encode()) % PARTITIONS


def event(number: int) -> tuple[int, str, str, int, int, bytes]:
    """An event as a row of the log."""
    now = micros()
    event_id = f"00000000-0000-7000-8000-{number:012d}"
    entity_id = f"u{number % ENTITIES}"
    return partition_of(entity_id), event_id, entity_id, now, now, encode({"amount": 1.5})


def read_states(db: sqlite3.Connection, ids: list[str]) -> dict[str, State]:
    """SELECT and decode, nothing else."""
    rows = db.execute(READ_STATES.format(",".join("?" * len(ids))), ids)
    return {entity_id: decode(state) for entity_id, state in rows}


def fill_states(db: sqlite3.Connection, ids: list[str], names: list[str]) -> None:
    now = micros()
    state = encode({name: [1.5, now, now, None] for name in names})
    db.execute("BEGIN IMMEDIATE")
    db.executemany(WRITE_STATE, [(entity_id, partition_of(entity_id), state) for entity_id in ids])
    db.execute("COMMIT")


def work_off(db: sqlite3.Connection, partition: int, names: list[str]) -> None:
    """Read, add and commit batch by batch until the partition is drained."""
    [(cursor,)] = db.execute("SELECT seq FROM cursors WHERE partition = ?", (partition,))
    while batch := db.execute(NEXT_BATCH, (partition, cursor, BATCH)).fetchall():
        states = read_states(db, list({row[2] for row in batch}))
        history = []
        for _, event_id, entity_id, timestamp, payload in batch:
            state = states.setdefault(entity_id, {name: [0.0, 0, 0, None] for name in names})
            amount = decode(payload)["amount"]
            for name in names:
                total = state[name][0] + amount
                now = micros()
                state[name] = [total, timestamp, now, None]
                history.append((name, entity_id, encode(total), timestamp, now, event_id))
        last = batch[-1][0]
        db.execute("BEGIN IMMEDIATE")
        db.execute(MOVE_CURSOR, (last, partition, cursor))
        rows = [(key, partition, encode(state)) for key, state in states.items()]
        db.executemany(WRITE_STATE, rows)
        db.executemany(ADD_HISTORY, history)
        db.execute("COMMIT")
        cursor = last


@contextmanager
def worker(home: str, effort: Effort) -> Iterator[Rate]:
    """Events per second of a read-modify-write loop over a durable log."""
    with _working(home, effort, ["total_spend"]) as rate:
        yield rate


@contextmanager
def worker_two(home: str, effort: Effort) -> Iterator[Rate]:
    """The same with two totals for each event."""
    with _working(home, effort, ["first_total", "second_total"]) as rate:
        yield rate


@contextmanager
def _working(home: str, effort: Effort, names: list[str]) -> Iterator[Rate]:
    with closing(database(Path(home) / "floor.db")) as db:
        db.executemany(START_CURSOR, [(partition,) for partition in range(PARTITIONS)])

        def rate() -> float:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(ADD_EVENT, [event(number) for number in range(effort.events)])
            db.execute("COMMIT")
            start = time.perf_counter()
            for partition in range(PARTITIONS):
                work_off(db, partition, names)
            return effort.events / (time.perf_counter() - start)

        yield rate


@contextmanager
def read_one(home: str, effort: Effort) -> Iterator[Rate]:
    """SELECT + decode of one entity with ten features, per second."""
    with _reading(home, effort, ids=1) as rate:
        yield rate


@contextmanager
def read_hundred(home: str, effort: Effort) -> Iterator[Rate]:
    """SELECT + decode of a hundred entities with ten features each, per second."""
    with _reading(home, effort, ids=100) as rate:
        yield rate


@contextmanager
def _reading(home: str, effort: Effort, *, ids: int) -> Iterator[Rate]:
    wanted = [f"u{number}" for number in range(ids)]
    with closing(database(Path(home) / "floor.db")) as db:
        fill_states(db, [f"u{number}" for number in range(ENTITIES)], NAMES)

        def read() -> dict[str, dict[str, Any]]:
            states = read_states(db, wanted)
            return {key: {name: states[key][name][0] for name in NAMES} for key in wanted}

        yield lambda: calls_per_second(read, effort.seconds)


@contextmanager
def commit(home: str, effort: Effort) -> Iterator[Rate]:
    """Durable commits of one event row per second."""
    row = event(1)
    with closing(database(Path(home) / "floor.db")) as db:

        def publish() -> None:
            db.execute("BEGIN IMMEDIATE")
            db.execute(ADD_EVENT, row)
            db.execute("COMMIT")

        yield lambda: calls_per_second(publish, effort.seconds)


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        call()
        calls += 1
    return calls / elapsed


MEASURES: dict[str, Measuring] = {
    "worker": worker,
    "worker_two": worker_two,
    "read_one": read_one,
    "read_hundred": read_hundred,
    "commit": commit,
}
