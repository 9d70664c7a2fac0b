"""The cases: every row of the table with its contestants and its targets."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bench import web
from bench.case import (
    AtMostSeconds,
    Case,
    Contestant,
    Effort,
    Measure,
    SecondsMoreThanFloor,
    TimesFloor,
    TimesPeer,
)
from bench.fabra import peer
from bench.process import measuring, python, scratch
from bench.startup import HEADWATER, seconds_of


def in_child(module: str, name: str) -> Contestant:
    """A measure of floors.py or ours.py, in a process and a folder of its own."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        label = f"{module}-{name}"
        with scratch(label) as home:
            given = msgspec.json.encode(effort).decode()
            command = python("-m", "bench.child", f"bench.{module}", name, home, given)
            with measuring(label, command, {"HEADWATER_HOME": str(home)}) as measure:
                yield measure

    return contestant


CASES = (
    Case(
        name="worker",
        unit="events/s",
        ours=in_child("ours", "worker"),
        floor=in_child("floors", "worker"),
        floor_is="the same SQLite transactions",
        peer=peer.worker,
        targets=(TimesFloor(0.4), TimesPeer(10)),
    ),
    Case(
        name="read 1x10",
        unit="calls/s",
        ours=in_child("ours", "read_one"),
        floor=in_child("floors", "read_one"),
        floor_is="SELECT + decode, inline",
        targets=(TimesFloor(0.667),),
    ),
    Case(
        name="read 100x10",
        unit="calls/s",
        ours=in_child("ours", "read_hundred"),
        floor=in_child("floors", "read_hundred"),
        floor_is="SELECT + decode, inline",
        targets=(TimesFloor(0.667),),
    ),
    Case(
        name="publish, 1 client",
        unit="events/s",
        ours=in_child("ours", "publish"),
        floor=in_child("floors", "commit"),
        floor_is="SQLite commit of one row",
        targets=(TimesFloor(0.5),),
    ),
    Case(
        name="publish, 64 clients",
        unit="events/s",
        ours=in_child("ours", "publish_concurrently"),
        floor=in_child("ours", "publish"),
        floor_is="ours with 1 client",
        targets=(TimesFloor(3),),
    ),
    Case(
        name="HTTP read",
        unit="req/s",
        ours=web.ours,
        floor=web.floor,
        floor_is="bare ASGI on the same uvicorn",
        peer=peer.http_read,
        targets=(TimesFloor(0.4),),
    ),
    Case(
        name="import headwater",
        unit="s",
        # Every public name, because the package loads each when it is first used.
        ours=seconds_of(sys.executable, "-c", "from headwater import *"),
        floor=seconds_of(sys.executable, "-c", "pass"),
        floor_is="python -c pass",
        targets=(SecondsMoreThanFloor(0.3),),
    ),
    Case(
        name="headwater --help",
        unit="s",
        ours=seconds_of(HEADWATER, "--help"),
        floor=seconds_of(sys.executable, "-c", "pass"),
        floor_is="python -c pass",
        targets=(AtMostSeconds(0.5),),
    ),
)
