"""The floors on Redis: the simplest programs with redis-py and hiredis."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import redis

from bench.case import Effort, Figure
from bench.floors import (
    BATCH,
    ENTITIES,
    NAMES,
    PARTITIONS,
    Measuring,
    Rate,
    calls_per_second,
    decode,
    encode,
    micros,
    partition_of,
)
from bench.pings import Watch, events_in, paced

GROUP = "floor"
STREAM = "floor:pings"
STATE = "floor:User:"
SENT_AT = "floor:sent_at:"
CHANGES = "floor:changes"

READ = """
local found = redis.call(
  'XREADGROUP', 'GROUP', ARGV[1], 'one', 'COUNT', ARGV[2], 'STREAMS', KEYS[1], '>')
if not found then
  return {{}, {}}
end
local entries, keys, asked = found[1][2], {}, {}
for _, entry in ipairs(entries) do
  local key = ARGV[3] .. entry[2][2]
  if not asked[key] then
    asked[key] = true
    keys[#keys + 1] = key
  end
end
return {entries, redis.call('MGET', unpack(keys))}
"""
COMMIT = """
local entries = tonumber(ARGV[3])
redis.call('XADD', KEYS[2], '*', 'changes', ARGV[2])
redis.call('MSET', unpack(ARGV, entries + 4))
return redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 4, entries + 3))
"""


def connected(url: str) -> Any:
    """A client, typed loosely because redis-py's answers depend on how it is set up."""
    return redis.Redis.from_url(url, protocol=2)


def stream_of(partition: int) -> str:
    return f"floor:{partition}:events"


def event(number: int, entity_id: str) -> bytes:
    """An event as long as ours."""
    return encode(
        {
            "event_type": "purchase",
            "entity_id": entity_id,
            "payload": {"amount": 1.5},
            "timestamp": "2026-01-31T12:00:00.123456Z",
            "event_id": f"00000000-0000-7000-8000-{number:012d}",
        }
    )


def fill(server: Any, events: int) -> None:
    with server.pipeline(transaction=False) as pipe:
        for number in range(events):
            entity_id = f"u{number % ENTITIES}"
            fields = {"k": entity_id, "e": event(number, entity_id)}
            pipe.xadd(stream_of(partition_of(entity_id)), fields)
        pipe.execute()


def added(
    entries: list[Any], states: list[bytes | None]
) -> tuple[dict[bytes, bytes], list[tuple[Any, ...]]]:
    """The new state of each entity that a batch touches, and each value as a row of history."""
    ids = dict.fromkeys(fields[1] for _, fields in entries)
    new: dict[bytes, list[Any]] = {
        entity_id: decode(state)["total_spend"] if state else [0.0, 0, 0, None]
        for entity_id, state in zip(ids, states, strict=True)
    }
    rows: list[tuple[Any, ...]] = []
    for _, (_, entity_id, _, text) in entries:
        happened = decode(text)
        total, now = new[entity_id][0] + happened["payload"]["amount"], micros()
        moment, cause = happened["timestamp"], happened["event_id"]
        new[entity_id] = [total, moment, now, None]
        rows.append(
            ("total_spend", "User", happened["entity_id"], "float", total, moment, now, cause)
        )
    return {entity_id: encode({"total_spend": own}) for entity_id, own in new.items()}, rows


@contextmanager
def worker(url: str, effort: Effort) -> Iterator[Rate]:
    """Events per second of a loop with one script to read a batch and one to commit it."""
    with closing(connected(url)) as server:
        read, commit = server.script_load(READ), server.script_load(COMMIT)
        for partition in range(PARTITIONS):
            server.xgroup_create(stream_of(partition), GROUP, mkstream=True)

        def work_off(stream: str) -> None:
            while True:
                entries, states = server.evalsha(read, 1, stream, GROUP, BATCH, STATE)
                if not entries:
                    return
                new, rows = added(entries, states)
                arguments: list[Any] = [len(entries), *(position for position, _ in entries)]
                for entity_id, state in new.items():
                    arguments += (STATE.encode() + entity_id, state)
                server.evalsha(commit, 2, stream, CHANGES, GROUP, encode(rows), *arguments)

        def rate() -> float:
            fill(server, effort.server_events)
            start = time.perf_counter()
            for partition in range(PARTITIONS):
                work_off(stream_of(partition))
            return effort.server_events / (time.perf_counter() - start)

        yield rate


@contextmanager
def read_one(url: str, effort: Effort) -> Iterator[Rate]:
    """MGET + decode of one entity with ten features, per second."""
    with _reading(url, effort, ids=1) as rate:
        yield rate


@contextmanager
def read_hundred(url: str, effort: Effort) -> Iterator[Rate]:
    """MGET + decode of a hundred entities with ten features each, per second."""
    with _reading(url, effort, ids=100) as rate:
        yield rate


@contextmanager
def _reading(url: str, effort: Effort, *, ids: int) -> Iterator[Rate]:
    now = micros()
    state = encode({name: [1.5, now, now] for name in NAMES})
    wanted = [f"u{number}" for number in range(ids)]
    keys = [STATE + entity_id for entity_id in wanted]
    with closing(connected(url)) as server:
        server.mset({f"{STATE}u{number}": state for number in range(ENTITIES)})

        def read() -> dict[str, dict[str, Any]]:
            states = zip(wanted, map(decode, server.mget(keys)), strict=True)
            return {key: {name: state[name][0] for name in NAMES} for key, state in states}

        yield lambda: calls_per_second(read, effort.seconds)


@contextmanager
def ping(url: str, effort: Effort) -> Iterator[Rate]:
    """Add events at a steady pace; return the rate."""
    with closing(connected(url)) as server:

        def send(entity_id: str) -> None:
            sent = {"entity_id": entity_id, "payload": {"sent": time.monotonic()}}
            server.xadd(STREAM, {"e": encode(sent)})

        def rate() -> float:
            start = time.perf_counter()
            for entity_id, early in paced(effort.seconds):
                time.sleep(early)
                send(entity_id)
            return events_in(effort.seconds) / (time.perf_counter() - start)

        yield rate


@contextmanager
def watch(url: str, effort: Effort) -> Iterator[Callable[[], Figure]]:
    """Measure how long it takes until the values of the events can be read."""
    watching = Watch()
    with closing(connected(url)) as server:

        def figure() -> Figure:
            for ids in watching.looks(effort.seconds):
                found = server.mget([SENT_AT + entity_id for entity_id in ids])
                watching.saw(ids, [None if value is None else decode(value) for value in found])
            return watching.figure()

        yield figure


def consume(url: str) -> None:
    """Set the value of each event as it arrives, until stopped."""
    last: Any = "0"
    with closing(connected(url)) as server:
        while True:
            for _, entries in server.xread({STREAM: last}, count=BATCH, block=1_000):
                happened = [decode(fields[b"e"]) for _, fields in entries]
                server.mset(
                    {SENT_AT + e["entity_id"]: encode(e["payload"]["sent"]) for e in happened}
                )
                last = entries[-1][0]


MEASURES: dict[str, Measuring] = {
    "worker": worker,
    "read_one": read_one,
    "read_hundred": read_hundred,
    "ping": ping,
    "watch": watch,
}


if __name__ == "__main__":
    consume(sys.argv[1])
