"""Imports of past contributions, so that long windows are right on the first day."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.history import importing
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.features.window_shop import DAY, HOUR, buy, declare, expected, served

pytestmark = pytest.mark.both_environments

Row = tuple[str, datetime, Any]


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    declare(store)


def write(file: Path, rows: list[Row], value: str = "value") -> Path:
    """Write a table of a warehouse."""
    table = pd.DataFrame(rows, columns=["user_id", "event_timestamp", value])
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    return file


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
async def test_a_window_of_30_days_is_right_on_the_first_day(
    store: FeatureStore, clock: ManualClock, tmp_path: Path, suffix: str
) -> None:
    now = clock.now()
    given = [(now - 37 * HOUR * number, float(number)) for number in range(40)]
    rows: list[Row] = [("u1", at, amount) for at, amount in given]
    rows += [("u2", at, 10 * amount) for at, amount in given if amount > 30]
    file = write(tmp_path / f"spend.{suffix}", rows)
    report = await store.history.import_file(file, ["spend"])
    assert (report.rows, report.added, report.states) == (49, 49, 2)
    assert await served(store) == expected(given, now)
    assert (await served(store, "u2"))["spend_count_7d"] == 0
    await buy(store, clock, 3.5)
    given.append((now, 3.5))
    assert await served(store) == expected(given, now)
    clock.advance(10 * DAY)
    assert await served(store) == expected(given, clock.now())
    assert not (await store.admin.audit()).differences


async def test_equal_rows_all_count_and_importing_them_again_changes_nothing(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    at = clock.now() - HOUR / 2
    rows: list[Row] = [("u1", at, text) for text in ("10.0", "10", "2.5", "10.00", "1e1")]
    rows.insert(2, ("u2", at, "10.0"))
    file = write(tmp_path / "spend.csv", rows)
    assert (await store.history.import_file(file, ["spend"])).added == 6
    values = await served(store)
    assert (values["spend_count_1h"], values["spend_sum_1h"]) == (5, 42.5)
    assert values["spend_last3_1h"] == [2.5, 10.0, 10.0]
    again = await store.history.import_file(file, ["spend"])
    assert (again.added, again.states) == (0, 2)
    # A later table has the same rows in another order, and new ones.
    later = write(tmp_path / "later.csv", [*reversed(rows), ("u1", at, "10")])
    clock.advance(timedelta(seconds=1))
    assert (await store.history.import_file(later, ["spend"])).added == 1
    assert (await served(store))["spend_sum_1h"] == 52.5
    assert not (await store.admin.audit()).differences


async def test_contributions_follow_those_of_events(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    await buy(store, clock, 1.0, HOUR / 2)
    await buy(store, clock, 2.0)
    file = write(tmp_path / "spend.csv", [("u1", clock.now() - HOUR / 4, 5.0)])
    await store.history.import_file(file, ["spend"])
    values = await served(store)
    assert (values["spend_sum_1h"], values["spend_last3_1h"]) == (8.0, [1.0, 5.0, 2.0])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
async def test_columns_are_fields_of_contributions(
    store: FeatureStore, clock: ManualClock, tmp_path: Path, suffix: str
) -> None:
    at = clock.now() - DAY
    table = pd.DataFrame(
        {
            "user_id": ["u1", "u1", "u1", "u1"],
            "event_timestamp": [at, at, at + HOUR, at],
            "amount": [1.5, 1.5, 4.0, None],
            "category": ["books", "books", None, None],
            "shop": [1, 2, 3, 4],
        }
    )
    file = tmp_path / f"bought.{suffix}"
    table.to_csv(file, index=False) if suffix == "csv" else table.to_parquet(file)
    report = await store.history.import_file(file, ["bought"])
    assert (report.values, report.added, report.missing) == (3, 3, 1)
    values = await store.get_features(["bought_sum_7d", "bought_count_7d"], ["u1"])
    assert values["u1"] == {
        "bought_sum_7d": {"books": 3.0, "null": 4.0},
        "bought_count_7d": {"books": 2, "null": 1},
    }


async def test_fields_that_are_not_declared_are_all_other_columns(
    settings: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(
        entity=User,
        trigger="buy",
        window="1d",
        aggregate=["count"],
        where={"paid": True},
        by="shop",
    )
    def orders(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return event.payload

    at = (clock.now() - HOUR).isoformat()
    file = tmp_path / "paid.csv"
    file.write_text(
        f"user_id,timestamp,paid,shop\nu1,{at},true,Rome\nu1,{at},false,Rome\nu1,{at},true,7\n"
    )
    async with store:
        assert (await store.history.import_file(file, ["orders"])).added == 3
        assert await store.get_feature("orders_count_1d", "u1") == {"Rome": 1, "7": 1}


async def test_contributions_with_fields_may_be_json(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "bought.parquet",
        [("u1", clock.now() - DAY, '{"amount": 2, "category": "toys"}')],
        "purchase",
    )
    await store.history.import_file(file, ["bought"], value="purchase")
    values = await store.get_features(["bought_sum_7d"], ["u1"])
    assert values["u1"]["bought_sum_7d"] == {"toys": 2.0}


async def test_values_that_do_not_fit_are_refused(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = write(tmp_path / "bought.csv", [("u1", clock.now(), "much")], "amount")
    with pytest.raises(FeatureValueError, match="row 0"):
        await store.history.import_file(file, ["bought"])


async def test_what_was_stored_before_a_value_that_does_not_fit_counts(
    store: FeatureStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_CHANGES_AT_ONCE", 2)
    await buy(store, clock, 10.0)
    rows: list[Row] = [(f"u{user}", clock.now() - DAY, user) for user in (1, 1, 2, 3)]
    file = write(tmp_path / "spend.csv", [*rows, ("u4", clock.now(), "x")])
    with pytest.raises(FeatureValueError, match="import the file again"):
        await store.history.import_file(file, ["spend"])
    assert (await served(store))["spend_sum_7d"] == 12.0
    assert not (await store.admin.audit()).differences


async def test_a_feature_of_a_family_names_the_family_to_import_into(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    file = write(tmp_path / "spend.csv", [("u1", clock.now(), 1.0)])
    with pytest.raises(InvalidInputError, match="contributions of 'spend'; import those into"):
        await store.history.import_file(file, ["spend_sum_1h"])
    with pytest.raises(InvalidInputError, match="import them alone"):
        await store.history.import_file(file, ["spend", "bought"])


async def test_contributions_are_not_written_in_the_future(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    now, file = clock.now(), tmp_path / "spend.csv"
    times = f"{(now - HOUR).isoformat()},{(now + DAY).isoformat()}"
    file.write_text(f"user_id,timestamp,created,value\nu1,{times},1.0\n")
    with pytest.raises(InvalidInputError, match=r"row 0: .* in column 'created' is in the future"):
        await store.history.import_file(file, ["spend"], written="created")
