"""Columns of features that are not stored: templates, derived features and queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import FeatureValueError, HeadwaterError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import past

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


async def columns(
    store: FeatureStore,
    names: Sequence[str],
    *minutes: float,
    user_id: str = "u1",
    **options: Any,
) -> list[tuple[Any, ...]]:
    """Return the values of features at some minutes, and their minutes with ``with_as_of``."""
    rows = [{"user_id": user_id, "timestamp": at(minute)} for minute in minutes]
    found = await store.get_historical_features(rows, names, **options)
    return [tuple(list(row.values())[2:]) for row in found]


@pytest.fixture
def shop(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy", default=0.0)
    async def total(user_id: str, event: ServiceEvent) -> float:
        return float(await store.get_feature("total", user_id)) + float(event.payload["amount"])

    @feature(entity=user, trigger="rename")
    def name(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["name"])

    @feature(entity=user, template="{name} spent {total}", default="nobody")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="<{line}> {tier}")
    def page(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, derived=True)
    async def tier(user_id: str) -> str:
        return "gold" if await store.get_feature("total", user_id) >= 10 else "silver"

    @feature(entity=user, derived=True)
    def size(user_id: str) -> dict[str, int] | None:
        name = store.sync.get_feature("name", user_id)
        return None if name is None else {"letters": len(name)}


async def buy(store: FeatureStore, clock: ManualClock, minute: float, amount: float) -> None:
    await happen(store, clock, minute, "buy", amount=amount)


async def happen(
    store: FeatureStore, clock: ManualClock, minute: float, event_type: str, **payload: Any
) -> None:
    await store.publish(event_type, "u1", payload, timestamp=at(minute))
    await store.drain()


async def test_templates_and_derived_features_are_computed_from_the_values_of_each_moment(
    store: FeatureStore, shop: None, clock: ManualClock
) -> None:
    clock.advance("10m")
    await buy(store, clock, 10, 4)
    clock.advance("10m")
    await happen(store, clock, 20, "rename", name="Ada")
    clock.advance("10m")
    await buy(store, clock, 30, 8)
    names = ["line", "page", "tier", "size", "total"]
    rows = await columns(store, names, 35, 0, 20, 10, 30, with_as_of=True)
    ada = {"letters": 3}
    assert rows == [
        (
            "Ada spent 12.0",
            at(20),
            "<Ada spent 12.0> gold",
            at(20),
            "gold",
            at(30),
            ada,
            at(20),
            12.0,
            at(30),
        ),
        ("nobody", None, "<nobody> silver", None, "silver", None, None, None, 0.0, None),
        (
            "Ada spent 4.0",
            at(10),
            "<Ada spent 4.0> silver",
            at(10),
            "silver",
            at(10),
            ada,
            at(20),
            4.0,
            at(10),
        ),
        ("nobody", None, "<nobody> silver", None, "silver", at(10), None, None, 4.0, at(10)),
        (
            "Ada spent 12.0",
            at(20),
            "<Ada spent 12.0> gold",
            at(20),
            "gold",
            at(30),
            ada,
            at(20),
            12.0,
            at(30),
        ),
    ]
    assert await columns(store, ["size"], 35, user_id="u2") == [(None,)]


async def test_late_values_count_only_where_they_are_asked_for(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="seen", order="event_time")
    def place(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["place"])

    @feature(entity=user, derived=True)
    async def shout(user_id: str) -> str | None:
        found = await store.get_feature("place", user_id)
        return None if found is None else found.upper()

    clock.advance("30m")
    await happen(store, clock, 30, "seen", place="late")
    clock.advance("10m")
    await happen(store, clock, 5, "seen", place="early")
    assert await columns(store, ["shout"], 10, 35, 45) == [("EARLY",), ("LATE",), ("LATE",)]
    known = await columns(store, ["shout"], 10, 35, 45, known=True)
    assert known == [(None,), ("LATE",), ("LATE",)]


async def test_a_derived_feature_reads_other_entities_and_others_only_at_some_moments(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @entity(store)
    class Item:
        item_id: int

    @feature(entity=Item, trigger="priced")
    def price(item_id: int, event: ServiceEvent) -> float:
        return float(event.payload["price"])

    @feature(entity=user, trigger="chose")
    def choice(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["item"])

    @feature(entity=user, trigger="chose", ttl="1h")
    def discount(user_id: str, event: ServiceEvent) -> float:
        return 0.5

    @feature(entity=user, derived=True)
    async def to_pay(user_id: str) -> float | None:
        try:
            chosen = await store.get_feature("choice", user_id)
            full = None if chosen is None else await store.get_feature("price", chosen)
            if full is None or full < 10:
                return None if full is None else float(full)
            return float(full) * float(await store.get_feature("discount", user_id) or 1)
        except HeadwaterError:
            return -1.0

    clock.advance("10m")
    for minute, item, amount in ((1, 7, 5.0), (2, 8, 20.0), (10, 7, 30.0)):
        await store.publish("priced", str(item), {"price": amount}, timestamp=at(minute))
    clock.advance("20m")
    await happen(store, clock, 5, "chose", item=7)
    await happen(store, clock, 15, "chose", item=8)
    moments = (0, 4, 5, 9, 12, 16, 74, 76)
    expected = [None, None, 5.0, 5.0, 15.0, 10.0, 10.0, 20.0]
    assert await columns(store, ["to_pay"], *moments) == [(value,) for value in expected]


async def test_cached_and_logged_values_count_from_their_computation_on(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    def amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    async def described(user_id: str) -> str:
        return f"{await store.get_feature('amount', user_id)} at {clock.now():%M}"

    feature(entity=user, ttl="8m", name="cached")(described)
    feature(entity=user, log=True, name="logged")(described)

    @feature(entity=user, derived=True)
    async def both(user_id: str) -> list[str | None]:
        values = await store.get_features(["cached", "logged"], [user_id])
        return list(values[user_id].values())

    clock.advance("10m")
    await buy(store, clock, 1, 5)
    clock.advance("10m")
    assert await store.get_feature("cached", "u1") == "5 at 20"
    assert await store.get_feature("logged", "u1") == "5 at 20"
    # Both values have an input of minute 1, and were not known before minute 20.
    for known in (True, False):
        assert await columns(store, ["cached", "logged", "both"], 5, 20, 27, 28, known=known) == [
            (None, None, [None, None]),
            ("5 at 20", "5 at 20", ["5 at 20", "5 at 20"]),
            ("5 at 20", "5 at 20", ["5 at 20", "5 at 20"]),
            (None, "5 at 20", [None, "5 at 20"]),
        ]
    assert await past(store, "logged") == ["5 at 20"]


async def test_a_derived_feature_with_a_ttl_was_served_from_its_cache(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    def amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=user, ttl="8m", derived=True)
    async def double(user_id: str) -> int | None:
        found = await store.get_feature("amount", user_id)
        return None if found is None else 2 * int(found)

    for minute in (10, 13):
        clock.advance(at(minute) - clock.now())
        await buy(store, clock, minute, minute)
        await store.get_feature("double", "u1")
    assert await columns(store, ["double"], 5, 12, 14, 20, known=True) == [
        (None,),
        (20,),
        (20,),
        (26,),
    ]
    assert await columns(store, ["double"], 5, 12, 14, 20) == [(None,), (20,), (26,), (26,)]


@pytest.mark.parametrize(
    ("verb", "problem"),
    [
        ("publish", "its function calls publish, and a derived feature depends on nothing but"),
        ("set_feature", "its function calls set_feature"),
        ("history", "its function calls get_feature_history"),
        ("frame", "its function calls get_historical_features"),
        ("events", "its function calls list"),
        ("plain", "it reads 'plain', which has no history because it is computed at every read"),
        ("none", "feature 'wrong' failed for 'u1': .*cannot store None as float"),
        ("fail", "feature 'wrong' failed for 'u1': ZeroDivisionError: .* \\(at 2026-01-01T00:05"),
    ],
)
async def test_a_derived_feature_that_depends_on_other_things_is_refused(
    store: FeatureStore, shop: None, user: type, clock: ManualClock, verb: str, problem: str
) -> None:
    @feature(entity=user)
    def plain(user_id: str) -> int:
        return 1

    @feature(entity=user, derived=True)
    async def wrong(user_id: str) -> float:
        total = await store.get_feature("total", user_id)
        if verb == "fail":
            return float(1 // 0)
        if verb == "none":
            return None  # type: ignore[return-value]
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "publish": lambda: store.publish("buy", user_id),
            "set_feature": lambda: store.set_feature("total", user_id, 1.0),
            "history": lambda: store.get_feature_history("total", user_id),
            "frame": lambda: store.get_historical_features(
                [{"user_id": user_id, "timestamp": at(9)}], ["total"]
            ),
            "events": store.bus.list,
            "plain": lambda: store.get_feature("plain", user_id),
        }
        with suppress(InvalidInputError):
            await calls[verb]()
        return float(total)

    with pytest.raises(HeadwaterError, match=problem):
        await columns(store, ["wrong"], 5)
    assert await past(store, "total") == []


async def test_a_feature_without_a_past_is_refused_with_both_remedies(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    def plain(user_id: str) -> int:
        return 1

    with pytest.raises(
        InvalidInputError, match=r"'plain' has no history.* log=True .* derived=True"
    ):
        await columns(store, ["plain"], 5)


async def test_a_derived_feature_that_reads_nothing_is_of_the_moment_itself(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, derived=True)
    def shout(user_id: str) -> str:
        return user_id.upper()

    clock.advance("1h")
    assert await columns(store, ["shout"], 5, with_as_of=True) == [("U1", at(5))]


async def test_an_empty_frame_gets_the_columns_of_computed_features(
    store: FeatureStore, shop: None
) -> None:
    assert await columns(store, ["line", "tier", "size"]) == []


async def test_more_rows_than_a_page_are_computed_once_for_each_moment(
    store: FeatureStore, user: type, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.history.recomputing._ROWS", 7)
    runs: list[str] = []

    @feature(entity=user, trigger="buy")
    def amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=user, derived=True)
    async def double(user_id: str) -> int:
        found = await store.get_feature("amount", user_id) or 0
        runs.append(user_id)
        return 2 * int(found)

    clock.advance("1h")
    for minute in range(5):
        await buy(store, clock, minute, minute)
    minutes = [minute % 5 + 0.5 for minute in range(20)]
    found = await columns(store, ["double"], *minutes)
    assert found == [(2 * int(minute),) for minute in minutes]
    assert len(runs) <= 1 + 3 * 5


async def test_rows_in_which_a_function_reads_the_same_values_share_one_computation(
    store: FeatureStore, shop: None, user: type, clock: ManualClock
) -> None:
    runs: list[str] = []

    @feature(entity=user, derived=True)
    async def double(user_id: str) -> float:
        total = float(await store.get_feature("total", user_id))
        runs.append(user_id)
        return 2 * total

    @feature(entity=user, derived=True)
    async def initial(user_id: str) -> str | None:
        # Only one state needs the second read.
        if await store.get_feature("total", user_id) < 5:
            return None
        name = await store.get_feature("name", user_id)
        runs.append("initial")
        return str(name)[0]

    clock.advance("1h")
    await happen(store, clock, 1, "rename", name="Ada")
    await buy(store, clock, 10, 4)
    await buy(store, clock, 20, 8)
    minutes = [float(minute) for minute in range(5, 30)]
    for known in (False, True):
        runs.clear()
        rows = [
            {"user_id": i, "timestamp": at(60 * known + m)} for i in ("u1", "u2") for m in minutes
        ]
        found = await store.get_historical_features(
            rows, ["double", "initial"], known=known, with_as_of=True
        )
        values = [tuple(list(row.values())[2:]) for row in found]
        if known:
            assert set(values[:25]) == {(24.0, at(20), "A", at(1))}
        else:
            assert values[:25] == [
                (0.0, None, None, None)
                if m < 10
                else (8.0, at(10), None, at(10))
                if m < 20
                else (24.0, at(20), "A", at(1))
                for m in minutes
            ]
        assert set(values[25:]) == {(0.0, None, None, None)}
        # The three states of one user and the one of the other, and the first row to learn from.
        assert len(runs) <= (3 if known else 5) + 1 + 1


async def test_a_function_that_asks_for_the_time_is_computed_at_each_moment(
    store: FeatureStore, shop: None, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, derived=True)
    def minute(user_id: str) -> int:
        return store.clock.micros() // 60_000_000 % 60

    @feature(entity=user, derived=True)
    async def waited(user_id: str) -> int | None:
        # Only rich users are asked when.
        if await store.get_feature("total", user_id) < 5:
            return None
        return int((store.clock.now() - at(20)).total_seconds() // 60)

    @feature(entity=user, derived=True)
    async def nested(user_id: str) -> str:
        return f"{await store.get_feature('waited', user_id)}"

    @feature(entity=user, derived=True)
    def constant(user_id: str) -> str:
        return user_id.upper()

    clock.advance("1h")
    await buy(store, clock, 10, 4)
    await buy(store, clock, 20, 8)
    minutes = (30.0, 21.0, 30.0, 5.0, 20.0, 12.0, 40.0)
    names = ["minute", "waited", "nested", "constant"]
    rich = [m - 20 if m >= 20 else None for m in minutes]
    found = await columns(store, names, *minutes, with_as_of=True)
    assert [row[0] for row in found] == list(minutes)
    assert [row[2] for row in found] == rich
    assert [row[4] for row in found] == [str(None if r is None else int(r)) for r in rich]
    # A value that was computed from nothing is of the moment itself.
    assert [row[1] for row in found] == [row[7] for row in found] == [at(m) for m in minutes]


async def test_the_first_row_whose_function_fails_is_named(
    store: FeatureStore, shop: None, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, derived=True)
    async def inverse(user_id: str) -> float:
        return 1 / (float(await store.get_feature("total", user_id)) - 12)

    clock.advance("1h")
    await buy(store, clock, 10, 4)
    await buy(store, clock, 20, 8)
    with pytest.raises(HeadwaterError, match=r"'inverse' failed for 'u1'.* \(at 2026-01-01T00:25"):
        await columns(store, ["inverse"], 5, 15, 25, 26)


async def test_a_value_that_a_function_changes_later_is_kept_as_it_was(
    store: FeatureStore, shop: None, user: type, clock: ManualClock
) -> None:
    seen: list[float] = []

    @feature(entity=user, derived=True)
    async def totals(user_id: str) -> list[float]:
        seen.append(await store.get_feature("total", user_id))
        return seen

    clock.advance("1h")
    await buy(store, clock, 10, 4)
    (first,), (second,) = await columns(store, ["totals"], 5, 15)
    assert (set(first), second) == ({0.0}, [*first, 4.0])


async def test_a_query_with_times_takes_part_at_past_moments(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="""SELECT entity_id AS user_id, 10 * count(*) OVER (
                   PARTITION BY entity_id ORDER BY "timestamp") AS value, "timestamp"
               FROM events WHERE event_type = 'click'""",
    )
    def clicks(user_id: str) -> int: ...  # type: ignore[empty-body]

    @feature(entity=user, trigger="click", default=0)
    async def count(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("count", user_id)) + 1

    @feature(entity=user, template="{count} and {clicks}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    clock.advance("1h")
    for minute in (10, 20):
        await happen(store, clock, minute, "click")
    names = ["clicks", "count", "line"]
    # The query has not run since the second event.
    clock.advance("1m")
    assert await columns(store, names, 5, 10, 25) == [
        (None, 0, None),
        (10, 1, "1 and 10"),
        (20, 2, "2 and 20"),
    ]
    assert await columns(store, ["clicks"], 25, 61, known=True) == [(None,), (10,)]
    clock.advance("5m")
    await store.drain()
    assert await columns(store, ["clicks"], 25, 61, 66, known=True) == [(None,), (10,), (20,)]
    # At one moment, the row of the query that runs now counts as written last.
    await store.set_feature("clicks", "u1", 99, as_of=at(20))
    await store.set_feature("clicks", "u1", 15, as_of=at(15))
    assert await columns(store, ["clicks"], 10, 16, 25) == [(10,), (15,), (20,)]


async def test_rows_of_a_query_that_are_not_values_are_refused(
    store: FeatureStore, user: type
) -> None:
    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        sql="SELECT 'u1' AS user_id, 'x' AS value, TIMESTAMPTZ '2026-01-01 00:00:00Z' AS timestamp",
    )
    def wrong(user_id: str) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(InvalidInputError, match="returns 1 of 1 rows that are not values of it"):
        await columns(store, ["wrong"], 5)


async def test_values_of_an_earlier_type_are_converted(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="never", default=0)
    def score(user_id: str, event: ServiceEvent) -> int: ...  # type: ignore[empty-body]

    await store.set_feature("score", "u1", 5)
    clock.advance("10m")
    await store.close()
    later = FeatureStore(settings=settings, clock=clock)

    @entity(later, name="User")
    class Customer:
        user_id: str

    @feature(entity=Customer, name="score", trigger="never", default="none", convert=str)
    def new_score(user_id: str, event: ServiceEvent) -> str: ...  # type: ignore[empty-body]

    async with later:
        await later.drain()  # a worker enters the type
        await later.set_feature("score", "u1", "six")
        rows = await columns(later, ["score"], -5, 5, 10, with_as_of=True)
        assert rows == [("none", None), ("5", at(0)), ("six", at(10))]


@pytest.mark.parametrize(
    ("annotation", "expected"), [(dict[str, str], "dict"), (list[str], "list"), (date, "date")]
)
async def test_values_of_an_earlier_type_without_a_conversion_are_refused(
    store: FeatureStore,
    settings: Settings,
    clock: ManualClock,
    tmp_path: Path,
    annotation: Any,
    expected: str,
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="never")
    def country(user_id: str, event: ServiceEvent) -> str: ...  # type: ignore[empty-body]

    await store.set_feature("country", "u1", "US")
    await store.close()
    later = FeatureStore(settings=settings, clock=clock)

    @entity(later, name="User")
    class Customer:
        user_id: str

    def changed(user_id: str, event: ServiceEvent) -> Any: ...

    changed.__annotations__["return"] = annotation
    feature(entity=Customer, name="country", trigger="never")(changed)
    rows = [{"user_id": "u1", "timestamp": at(5)}] * 2
    file = tmp_path / "rows.parquet"
    pl.DataFrame(rows).write_parquet(file)
    problem = f"2 values in history that cannot be read as {expected}.*\"US\" of 'u1'; .* convert="
    async with later:
        for frame in (rows, pl.DataFrame(rows), file):
            with pytest.raises(FeatureValueError, match=problem):
                await later.get_historical_features(frame, ["country"])
