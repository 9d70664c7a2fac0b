"""Published examples of windows of other feature platforms, with their data and their numbers.

Chronon's windows begin at a hop, as those here do: of five minutes for windows of less than twelve
hours, of an hour for those of less than twelve days, and of a day for longer ones. `hop=` gives the
same hops here; the default is another ladder. Its windows end before the moment of the query
(`t < T`); those here include it (`t ≤ T`). An empty sum or count is null there and 0 here, and its
lists of last values begin with the newest one.

Feast computes windows for the ends of tiles and stores the results, so that the newest one is up to
a hop old; here a read evaluates them at its own moment. It publishes no example of windows with
both data and results. What is tested are the tiles of its page about merging them, and what its
demonstration expects of Chronon's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments


class Example(NamedTuple):
    """Values at their times, and the features of the family ``x`` at a moment."""

    moment: str
    windows: Sequence[str]
    aggregates: Sequence[str]
    values: Sequence[tuple[float, int]]
    """Times in seconds since 1970, and values."""
    expected: dict[str, Any]
    hop: str | None = None


QUICKSTART = ("3d", "14d", "30d")
TOTALS = ("sum", "count", "avg")

EXAMPLES = {
    # Purchases and returns of one user in the data of the quickstart, and the row of the training
    # set that Chronon's page about joins shows.
    "purchases": Example(
        "2023-11-30T05:01:15.364Z",
        QUICKSTART,
        (*TOTALS, "last(10)"),
        [
            *((1698930853, 360), (1700186464, 272), (1700677019, 497)),
            *((1700891861, 474), (1701251152, 331)),
        ],
        {
            "x_sum_3d": 331,
            "x_sum_14d": 1574,
            "x_sum_30d": 1934,
            "x_count_3d": 1,
            "x_count_14d": 4,
            "x_count_30d": 5,
            "x_avg_3d": 331.0,
            "x_avg_14d": 393.5,
            "x_avg_30d": 386.8,
            "x_last10_30d": [360, 272, 497, 474, 331],
        },
    ),
    "returns": Example(
        "2023-11-30T05:01:15.364Z",
        QUICKSTART,
        (*TOTALS, "last(2)"),
        [(1699153026, 181), (1699745142, 388), (1700516264, 76)],
        {
            "x_sum_3d": 0,
            "x_sum_14d": 76,
            "x_sum_30d": 645,
            "x_count_3d": 0,
            "x_count_14d": 1,
            "x_count_30d": 3,
            "x_avg_3d": None,
            "x_avg_14d": 76.0,
            "x_avg_30d": 215.0,
            "x_last2_30d": [388, 76],
        },
    ),
    # Another user of the same data, on the day for which the quickstart uploads; the numbers are
    # those that Feast's demonstration of Chronon expects.
    "purchases of user 5": Example(
        "2023-12-01T00:00:00Z",
        ("30d",),
        ("sum", "count"),
        [
            *((1699048213, 275), (1699814842, 466), (1700009564, 367)),
            *((1701014790, 69), (1701137739, 76)),
        ],
        {"x_sum_30d": 1253, "x_count_30d": 5},
        hop="1d",
    ),
    "returns of user 5": Example(
        "2023-12-01T00:00:00Z",
        ("30d",),
        ("sum", "count"),
        [
            *((1699279564, 482), (1699370518, 3), (1699552885, 491)),
            *((1700445280, 115), (1700922494, 178)),
        ],
        {"x_sum_30d": 1269, "x_count_30d": 5},
        hop="1d",
    ),
    # Chronon's tests of its tiles. A window begins at the hop in which it would begin exactly.
    "a window without events": Example(
        "2024-02-05T21:19:31Z",
        ("6h",),
        TOTALS,
        [(1707091210, 4), (1707091220, 5), (1707091510, 6), (1707094800, 10)],
        {"x_sum_6h": 0, "x_count_6h": 0, "x_avg_6h": None},
        hop="5m",
    ),
    "a window of a day": Example(
        "2024-02-05T21:19:31Z",
        ("1d",),
        TOTALS,
        [(1707091210, 4), (1707091220, 5), (1707091510, 6), (1707094800, 10)],
        {"x_sum_1d": 25, "x_count_1d": 4, "x_avg_1d": 6.25},
        hop="1h",
    ),
    "windows that begin within an hour": Example(
        "2024-02-05T21:19:31Z",
        ("6h", "12h"),
        TOTALS,
        [
            *((1707124500, 1), (1707124500, 2), (1707124800, 3)),
            *((1707145210, 4), (1707145220, 5), (1707146100, 6), (1707146400, 10)),
        ],
        {"x_sum_6h": 16, "x_count_6h": 2, "x_sum_12h": 31, "x_count_12h": 7, "x_avg_6h": 8.0},
        hop="5m",
    ),
    "a hop of eight minutes": Example(
        "2024-02-05T03:19:00Z",
        ("3h",),
        TOTALS,
        [(1707091210, 4), (1707091220, 5), (1707091680, 6), (1707092160, 10)],
        {"x_sum_3h": 10, "x_count_3h": 1, "x_avg_3h": 10.0},
        hop="8m",
    ),
    "tiles of days": Example(
        "2024-02-05T21:19:31Z",
        ("12d",),
        TOTALS,
        [
            *((1707004800, 1), (1707091210, 4), (1707091220, 5)),
            *((1707091510, 6), (1707094800, 10)),
        ],
        {"x_sum_12d": 26, "x_count_12d": 5, "x_avg_12d": 5.2},
        hop="1d",
    ),
    "a day in hops of an hour": Example(
        "2024-02-05T01:12:00Z",
        ("1d",),
        ("sum",),
        [
            *((1707004800, 1000), (1707008400, 100), (1707012000, 100), (1707015600, 100)),
            *((1707019200, 100), (1707022800, 100), (1707026400, 1000), (1707048000, 1000)),
            *((1707069600, 1000), (1707091200, 1000)),
        ],
        {"x_sum_1d": 4500},
        hop="1h",
    ),
    "an hour and ten minutes in hops of five": Example(
        "2024-02-05T01:12:00Z",
        ("1h", "10m"),
        ("sum",),
        [
            *((1707091200, 1000), (1707091800, 1), (1707092100, 1)),
            *((1707092400, 10), (1707093600, 10), (1707094800, 100)),
        ],
        {"x_sum_1h": 122, "x_sum_10m": 100},
        hop="5m",
    ),
    # Feast's page about tiles: the average of two tiles is not that of their averages.
    "an average of two tiles": Example(
        "2024-02-05T01:00:00Z",
        ("1h",),
        TOTALS,
        [(1707091200, 10), (1707091260, 20), (1707091320, 30), (1707091500, 100)],
        {"x_sum_1h": 160, "x_count_1h": 4, "x_avg_1h": 40.0},
        hop="5m",
    ),
}


async def test_published_examples_give_the_same_numbers(settings: Settings) -> None:
    moments = {name: datetime.fromisoformat(each.moment) for name, each in EXAMPLES.items()}
    clock = ManualClock(min(moments.values()))
    store = FeatureStore(settings=settings, clock=clock)
    for number, example in enumerate(EXAMPLES.values()):
        declare(store, f"x{number}", example)
    async with store:
        for number, (name, example) in sorted(
            enumerate(EXAMPLES.items()), key=lambda each: moments[each[1][0]]
        ):
            if moments[name] > clock.now():
                clock.advance(moments[name] - clock.now())
            await check(store, f"x{number}", name, example, moments[name])


def declare(store: FeatureStore, family: str, example: Example) -> None:
    """Declare the windows of an example for an entity of their own."""

    class User:
        user_id: str

    def value(user_id: str, event: ServiceEvent) -> int:
        found: int = event.payload["value"]
        return found

    feature(
        entity=entity(store, name=f"User{family}")(User),
        name=family,
        trigger=family,
        window=example.windows,
        aggregate=example.aggregates,
        hop=example.hop,
    )(value)


async def check(
    store: FeatureStore, family: str, name: str, example: Example, moment: datetime
) -> None:
    """Publish the values of an example, and compare its numbers online and in history."""
    for seconds, value in example.values:
        at = datetime.fromtimestamp(seconds, UTC)
        await store.publish(family, "ada", {"value": value}, timestamp=at)
    await store.drain()
    expected = {f"{family}{key[1:]}": value for key, value in example.expected.items()}
    assert (await store.get_features(list(expected), ["ada"]))["ada"] == expected, name
    # Values of one moment are written one microsecond after the other.
    for known, written in ((False, timedelta(0)), (True, timedelta(milliseconds=1))):
        rows = [{"user_id": "ada", "timestamp": moment + written}]
        (row,) = await store.get_historical_features(rows, list(expected), known=known)
        assert {key: row[key] for key in expected} == expected, (name, known)
