"""The rows about windows: each beside plain features, embedded and on servers.

Feast's windows are computed by Spark and Chronon's by Spark and Flink: they are not comparable.
"""

from collections.abc import Callable

from bench import production
from bench.case import Case, Contestant, TimesFloor
from bench.in_child import in_child


def embedded(name: str) -> Contestant:
    return in_child("windows", name)


def on_servers(name: str) -> Contestant:
    return production.ours(name, "windows")


PLACES: dict[str, Callable[[str], Contestant]] = {"": embedded, "redis ": on_servers}

WINDOW_CASES = tuple(
    case
    for prefix, measured in PLACES.items()
    for case in (
        Case(
            name=f"{prefix}worker, 3 windows x 4 aggregates",
            unit="events/s",
            ours=measured("worker"),
            floor=measured("plain_worker"),
            floor_is="ours with a plain handler",
            targets=(TimesFloor(0.75),),
        ),
        Case(
            name=f"{prefix}repeated read of 12 windows",
            unit="calls/s",
            ours=measured("read"),
            floor=measured("plain_read"),
            floor_is="ours of 12 plain features",
            targets=(TimesFloor(0.667),),
        ),
    )
)
