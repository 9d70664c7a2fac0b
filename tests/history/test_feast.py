"""Exports of history as a repository of Feast, and what Feast reads from them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import polars
import pytest

from bench.feast.peer import read_repository
from headwater import FeatureStore, ServiceEvent
from headwater.errors import InvalidInputError
from headwater.testing import ManualClock

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FEATURES = ("spend", "seen", "item", "tags", "device", "day", "tier", "grid", "login", "score")
REFS = (*(f"User:{name}" for name in FEATURES[:8]), "User_login:login", "User_score:score")


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock at the start of the spine, or most of its rows would be before any value."""
    return ManualClock(START)


@pytest.fixture
def shop(store: FeatureStore) -> FeatureStore:
    @store.entity
    class User:
        """A "customer" of the shop."""

        user_id: str

    @store.entity
    class Shop:
        shop_id: int

    def field(name: str) -> Callable[[str, ServiceEvent], Any]:
        def handler(user_id: str, event: ServiceEvent) -> Any:
            value = event.payload[name]
            return date.fromisoformat(value) if name == "day" else value

        handler.__name__ = name
        return handler

    kinds = {
        "spend": float,
        "item": str | None,
        "tags": list[str],
        "device": dict[str, int],
        "day": date,
        "tier": Literal["a", "b"],
        "grid": list[list[int]],
    }
    for name, kind in kinds.items():
        handler = field(name)
        handler.__annotations__["return"] = kind
        store.feature(User, trigger=name)(handler)

    @store.feature(User, trigger="seen", default=0)
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["seen"])

    @store.feature(User, trigger="login", ttl="5d")
    def login(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @store.feature(User, ttl="3h")
    async def score(user_id: str) -> float:
        return (await store.get_feature("spend", user_id) or 0.0) / 2

    @store.feature(Shop, trigger="rated")
    def stars(shop_id: int, event: ServiceEvent) -> int:
        return int(event.payload["stars"])

    @store.feature(User, trigger="spend", window="1d", aggregate="sum")
    def paid(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["spend"])

    @store.feature(User)
    def unkept(user_id: str) -> float:
        return 1.0

    @store.feature(User, derived=True)
    async def twice(user_id: str) -> float:
        return 2 * (await store.get_feature("spend", user_id) or 0.0)

    @store.feature(User, trigger="left")
    def leave(user_id: str, event: ServiceEvent) -> None: ...

    return store


async def live(store: FeatureStore, clock: ManualClock, seed: int) -> None:
    """Publish events about random moments, also late ones, and read now and then."""
    chance = random.Random(seed)
    for _ in range(150):
        payload = {
            "spend": chance.randrange(1_000) / 8,
            "seen": chance.randrange(9),
            "item": chance.choice([None, "a", "b"]),
            "tags": chance.sample(["x", "y", "z"], chance.randrange(3)),
            "device": {"n": chance.randrange(9)},
            "day": f"2026-03-{chance.randrange(1, 29):02}",
            "tier": chance.choice("ab"),
            "grid": [[chance.randrange(9)], []],
        }
        moment = clock.now() - chance.randrange(1_000_000) * timedelta(seconds=0.5)
        kind = chance.choice([*payload, "login"])
        user_id = f"u{chance.randrange(4)}"
        await store.publish(kind, user_id, payload, timestamp=moment)
        clock.advance(timedelta(seconds=chance.randrange(10_000)))
        await store.drain()
        if chance.random() < 0.3:
            await store.get_feature("score", user_id)


def spine(clock: ManualClock, seed: int, *, since: datetime = START) -> list[dict[str, Any]]:
    """Return rows at random moments that are of no event, of entities with and without values."""
    chance = random.Random(seed)
    span = int((clock.now() - since) / timedelta(milliseconds=1))
    return [
        {
            "user_id": f"u{chance.randrange(5)}",
            "event_timestamp": since + timedelta(0, 0, 7, chance.randrange(span)),
            "n": number,
        }
        for number in range(300)
    ]


def texts(file: Path) -> list[dict[str, str]]:
    """Return the values of rows in the order of the frame, as texts in one notation."""
    rows = polars.read_parquet(file).sort("n").to_dicts()
    return [{name: repr(plain(row[name])) for name in FEATURES} for row in rows]


def plain(value: Any) -> Any:
    """Return a value as Feast and pandas have it: dates are texts, integers may be floats."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case int() | float():
            return None if value != value else float(value)
        case list():
            return [plain(item) for item in value]
    return value


async def check_same(shop: FeatureStore, rows: list[dict[str, Any]], folder: Path) -> None:
    """Check that Feast reads from an export what the store has; its missing values are our default.

    Some values of each feature are missing, and several are there.
    """
    frame, output = folder / "frame.parquet", folder / "ours.parquet"
    polars.DataFrame(rows).write_parquet(frame)
    await shop.get_historical_features(frame, FEATURES, at="event_timestamp", output=output)
    ours = texts(output)
    theirs = texts(read_repository(folder / "feast", frame, REFS))
    for row in theirs:
        row["seen"] = "0.0" if row["seen"] == "None" else row["seen"]
    for name in FEATURES:
        column = [row[name] for row in ours]
        assert [row[name] for row in theirs] == column, name
        assert len(set(column)) > 2, name


@pytest.mark.peer
@pytest.mark.both_environments
async def test_feast_reads_the_values_that_the_store_has(
    shop: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    await live(shop, clock, seed=7)
    report = await shop.history.export_feast(tmp_path / "feast")
    assert {view.name: len(view.features) for view in report.views} == {
        "User": 8,
        "User_login": 1,
        "User_score": 1,
        "Shop": 1,
    }
    await check_same(shop, spine(clock, seed=7), tmp_path)


@pytest.mark.peer
async def test_feast_reads_what_is_left_of_pruned_history(
    shop: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    await live(shop, clock, seed=8)
    before = (await shop.history.export_feast(tmp_path / "feast")).views[0].rows
    await shop.admin.prune(history="3d")
    assert (await shop.history.export_feast(tmp_path / "feast")).views[0].rows < before
    since = clock.now() - 3 * DAY
    await check_same(shop, spine(clock, seed=8, since=since), tmp_path)


async def test_features_without_stored_history_are_left_out_and_named(
    shop: FeatureStore, tmp_path: Path
) -> None:
    report = await shop.history.export_feast(tmp_path / "feast")
    reasons = {name: reason.partition(",")[0] for name, reason in report.left_out.items()}
    assert reasons == {
        "paid": "windows change as time passes",
        "paid_sum_1d": "windows change as time passes",
        "unkept": "it is computed at every read",
        "twice": "it is computed at every read",
        "leave": "it never has a value",
    }
    (view,) = (await shop.history.export_feast(tmp_path / "one", ["stars"])).views
    assert (view.name, view.entity, view.features, view.rows) == ("Shop", "Shop", ["stars"], 0)
    (file,) = (tmp_path / "one" / "history").iterdir()
    assert list(polars.read_parquet(file).schema.items()) == [
        ("shop_id", polars.Int64()),
        ("event_timestamp", polars.Datetime("us", "UTC")),
        ("created_timestamp", polars.Datetime("us", "UTC")),
        ("stars", polars.Int64()),
    ]


async def test_features_whose_names_are_taken_are_left_out_or_refused(
    store: FeatureStore, tmp_path: Path
) -> None:
    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="a")
    def Event_Timestamp(user_id: str, event: ServiceEvent) -> int:  # noqa: N802 - as a user may
        return 1

    @store.feature(User, trigger="a", ttl="1d")
    def age(user_id: str, event: ServiceEvent) -> int:
        return 1

    @store.entity
    class user_AGE:  # noqa: N801 - as a user may
        age_id: str

    @store.feature(user_AGE, trigger="a")
    def years(age_id: str, event: ServiceEvent) -> int:
        return 1

    report = await store.history.export_feast(tmp_path / "feast", ["Event_Timestamp", "age"])
    assert list(report.left_out) == ["Event_Timestamp"]
    with pytest.raises(InvalidInputError, match="two feature views would have one name"):
        await store.history.export_feast(tmp_path / "feast")


@pytest.mark.both_environments
async def test_an_export_replaces_the_one_before_and_has_nothing_of_who_was_forgotten(
    shop: FeatureStore, tmp_path: Path
) -> None:
    folder = tmp_path / "feast"
    for user_id in ("ada-lovelace", "bob"):
        await shop.set_feature("item", user_id, "a")
        await shop.set_feature("login", user_id, START)
    await shop.history.export_feast(folder)
    (folder / "feature_store.yaml").write_text("project: mine\n")
    (folder / "more.py").touch()
    (folder / "history" / "User.1.unfinished").write_text("lovelace")
    item = folder / "history" / "User.parquet"
    assert polars.read_parquet(item)["user_id"].to_list() == ["ada-lovelace", "bob"]
    await shop.admin.forget("User", "ada-lovelace", reason="asked")
    await shop.history.export_feast(folder, ["item"])
    assert list((folder / "history").iterdir()) == [item]
    assert polars.read_parquet(item)["user_id"].to_list() == ["bob"]
    for written in folder.rglob("*.*"):
        assert b"lovelace" not in written.read_bytes()
    assert (folder / "feature_store.yaml").read_text() == "project: mine\n"
    assert "login" not in (folder / "definitions.py").read_text()


async def test_a_folder_with_other_files_is_refused(shop: FeatureStore, tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text("store = 1\n")
    with pytest.raises(InvalidInputError, match="not of an earlier export"):
        await shop.history.export_feast(tmp_path)
    assert (tmp_path / "definitions.py").read_text() == "store = 1\n"


async def test_values_are_exported_as_the_present_code_converts_them(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="a")
    def size(user_id: str, event: ServiceEvent) -> int:
        return 1

    await store.set_feature("size", "ada", 4)
    await store.close()
    later = FeatureStore(settings=store.settings, clock=clock)
    later.entity(User)

    async def in_words(user_id: str, event: ServiceEvent) -> str:
        return "1 cm"

    in_words.__name__ = "size"
    later.feature(User, trigger="a", convert=lambda old: f"{old} cm")(in_words)
    await later.history.export_feast(tmp_path / "feast")
    await later.close()
    found = polars.read_parquet(tmp_path / "feast" / "history" / "User.parquet")
    assert found["size"].to_list() == ["4 cm"]
