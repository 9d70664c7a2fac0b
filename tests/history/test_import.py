"""Imports of feature tables into history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import FeatureValueError, InvalidInputError
from headwater.history import importing
from headwater.testing import ManualClock
from tests.history.frame_features import START, VALUES, declare_all_types, rows, write_all

DAY = timedelta(days=1)
NAMES = ["conv_rate", "trips"]


@pytest.fixture
def drivers(store: FeatureStore) -> FeatureStore:
    """A store with two features of drivers."""

    @entity(store)
    class Driver:
        driver_id: int

    @feature(entity=Driver, trigger="trip")
    def conv_rate(driver_id: int, event: ServiceEvent) -> float:
        return 0.0

    @feature(entity=Driver, trigger="trip")
    def trips(driver_id: int, event: ServiceEvent) -> int:
        return 0

    @feature(entity=Driver)
    def today(driver_id: int) -> int:
        return 1

    return store


def table(start: datetime, **columns: Any) -> pd.DataFrame:
    """Return a file of Feast: three rows, one without trips; columns can be replaced."""
    given = {
        "driver_id": [1, 1, 2],
        "event_timestamp": [start, start + DAY, start],
        "conv_rate": pd.Series([0.5, 0.75, 0.25], dtype="float32"),
        "trips": [10.0, None, 20.0],
        "created": start + 2 * DAY,
    }
    return pd.DataFrame(given | columns)


async def read(store: FeatureStore, driver: int, at: datetime, *, known: bool = False) -> Any:
    frame = [{"driver_id": driver, "timestamp": at}]
    (row,) = await store.get_historical_features(frame, NAMES, known=known)
    return row["conv_rate"], row["trips"]


async def test_large_values_are_read_a_few_rows_at_a_time(
    drivers: FeatureStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, calls = tmp_path / "stats.parquet", []
    table(clock.now() - 30 * DAY).to_parquet(file)
    monkeypatch.setattr(importing, "_BYTES_AT_ONCE", 0)
    await drivers.history.import_file(file, NAMES, progress=lambda *done: calls.append(done))
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]


async def test_values_that_take_more_memory_than_a_session_has_are_refused(
    drivers: FeatureStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stats.parquet"
    table(clock.now() - 30 * DAY, trips=["1" * 1000] * 3).to_parquet(file)
    monkeypatch.setattr(importing, "session_memory", lambda: 4_000)
    with pytest.raises(InvalidInputError, match=r"values of 30\d\d bytes, and at most 1000"):
        await drivers.history.import_file(file, NAMES)


@pytest.mark.both_environments
async def test_a_file_is_imported_with_its_times_and_again_without_effect(
    drivers: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    start = clock.now() - 30 * DAY
    file, calls = tmp_path / "stats.parquet", []
    table(start).to_parquet(file)
    for _ in range(2):
        report = await drivers.history.import_file(
            file, NAMES, progress=lambda *done: calls.append(done)
        )
        assert (report.rows, report.values, report.missing) == (3, 5, 1)
        clock.advance("1h")
    assert calls == [(0, 3), (3, 3)] * 2
    assert await read(drivers, 1, start - DAY) == (None, None)
    assert await read(drivers, 1, start) == (0.5, 10)
    assert await read(drivers, 1, start + DAY) == (0.75, 10)
    assert await read(drivers, 1, start + DAY, known=True) == (None, None)
    assert await read(drivers, 1, start + 2 * DAY, known=True) == (0.75, 10)
    (past,) = await drivers.get_feature_history("conv_rate", 2)
    assert (past.value, past.as_of, past.written_at) == (0.25, start, start + 2 * DAY)
    assert past.cause.startswith("import")
    assert await drivers.get_feature("conv_rate", 1) is None
    assert (await drivers.admin.rebuild()).values == 4
    assert await drivers.get_features(NAMES, [1]) == {1: {"conv_rate": 0.75, "trips": 10}}


@pytest.mark.both_environments
async def test_blobs_are_the_bytes_of_a_feature_and_the_text_of_another(
    store: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    @entity(store)
    class User:
        user_id: str

    types: dict[str, Any] = {
        "digest": bytes,
        "digests": list[bytes],
        "by_name": dict[str, bytes],
        "legacy": str,
    }
    for name, kind in types.items():
        store.stored_feature(name, kind, entity=User)
    file = tmp_path / "digests.parquet"
    duckdb.sql(
        f"SELECT 'u1' AS user_id, TIMESTAMPTZ '{clock.now() - DAY}' AS timestamp,"
        " 'abcd'::BLOB AS digest, ['abcd'::BLOB, '\\xFF'::BLOB] AS digests,"
        " MAP {'x': 'abcd'::BLOB} AS by_name, 'abcd'::BLOB AS legacy"
    ).write_parquet(str(file))

    await store.history.import_file(file, list(types))

    values = [(await store.get_feature_history(name, "u1"))[0].value for name in types]
    assert values == [b"abcd", [b"abcd", b"\xff"], {"x": b"abcd"}, "abcd"]


async def test_the_row_created_last_counts_among_rows_of_one_time(
    drivers: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    start, file = clock.now() - 30 * DAY, tmp_path / "stats.parquet"
    created = [start + hour * timedelta(hours=1) for hour in (1, 2, 3)]
    rates = [0.5, 0.75, 0.5]  # the first value returns
    table(start, driver_id=1, event_timestamp=start, conv_rate=rates, created=created).to_parquet(
        file
    )
    await drivers.history.import_file(file, ["conv_rate"])
    assert (await read(drivers, 1, start))[0] == 0.5
    found = [(await read(drivers, 1, at, known=True))[0] for at in created]
    assert found == rates


async def test_columns_have_usual_names_or_are_named(
    drivers: FeatureStore, clock: ManualClock, tmp_path: Path
) -> None:
    start, file = clock.now() - 30 * DAY, tmp_path / "rates.csv"
    file.write_text(f"driver_id,timestamp,value\n1,{start.isoformat()},0.5\n")
    report = await drivers.history.import_file(file, ["conv_rate"])
    assert report.values == 1
    assert await read(drivers, 1, start) == (0.5, None)
    assert await read(drivers, 1, clock.now() - DAY, known=True) == (None, None)
    naive = start.replace(tzinfo=None).isoformat()
    file.write_text(f"who,day,rate,made\n2,{naive},7,{naive}\n")
    named: dict[str, Any] = {"id": "who", "at": "day", "value": "rate", "written": "made"}
    with pytest.raises(InvalidInputError, match=r"'day' have no time zone; pass .*time_zone='UTC'"):
        await drivers.history.import_file(file, ["trips"], **named)
    with pytest.raises(InvalidInputError, match="unknown time zone 'Europe/Berln'; did you mean"):
        await drivers.history.import_file(file, ["trips"], **named, time_zone="Europe/Berln")
    await drivers.history.import_file(file, ["trips"], **named, time_zone="Asia/Kolkata")
    assert (await read(drivers, 2, start - timedelta(hours=5, minutes=30), known=True))[1] == 7


@pytest.mark.parametrize(
    ("columns", "names", "options", "problem"),
    [
        ({"driver_id": [1, None, 2]}, NAMES, {}, r"row 1 has no value in column 'driver_id'"),
        ({"driver_id": ["1", "x", "y"]}, NAMES, {}, r"row 1: driver_id must be .* 'x' \(and 1 mo"),
        ({"event_timestamp": "soon"}, NAMES, {}, r"'event_timestamp' holds text, not times"),
        (
            {"event_timestamp": datetime(2100, 1, 1, tzinfo=UTC)},
            NAMES,
            {},
            r"row 0: 2100-01-01T00:00:00\+00:00 in column 'event_timestamp' is in the future",
        ),
        (
            {"trips": [1.5, 2.0, 2.5]},
            NAMES,
            {},
            r"'trips' has the type int, .*row 0: 1.5, row 2: 2",
        ),
        (
            {"conv_rate": ["a", "b", "c"]},
            NAMES,
            {},
            r"the type float, .*\(row 0: \"a\", row 1: \"b",
        ),
        (
            {},
            NAMES,
            {"id": "driver"},
            r"no column 'driver' with the ids \(id=\); did you mean 'dri",
        ),
        ({}, NAMES, {"value": "trips"}, r"value= names the column of one feature"),
        ({}, ["today"], {}, r"feature 'today' is computed at every read"),
        ({}, ["conv_rte"], {}, r"did you mean 'conv_rate'"),
    ],
)
async def test_invalid_files_are_refused_with_the_rows(
    drivers: FeatureStore,
    clock: ManualClock,
    tmp_path: Path,
    columns: dict[str, Any],
    names: list[str],
    options: dict[str, Any],
    problem: str,
) -> None:
    file = tmp_path / "stats.parquet"
    table(clock.now() - 30 * DAY, **columns).to_parquet(file)
    errors = (InvalidInputError, FeatureValueError, LookupError)
    with pytest.raises(errors, match=problem):
        await drivers.history.import_file(file, names, **options)


async def test_other_files_are_refused(drivers: FeatureStore, tmp_path: Path) -> None:
    for name, problem in (("none.parquet", "there is no file"), ("a.txt", "not a file that ends")):
        (tmp_path / "a.txt").write_text("")
        with pytest.raises(InvalidInputError, match=problem):
            await drivers.history.import_file(tmp_path / name, NAMES)
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(InvalidInputError, match=r"bad.parquet cannot be read"):
        await drivers.history.import_file(tmp_path / "bad.parquet", NAMES)


async def test_a_result_of_every_type_can_be_imported_again(
    store: FeatureStore, home: Path, tmp_path: Path
) -> None:
    declare_all_types(store)
    await write_all(store)
    file = tmp_path / "all.parquet"
    pd.DataFrame([row for row in rows() if row["label"] == 1]).to_parquet(tmp_path / "rows.parquet")
    names = list(VALUES)
    await store.get_historical_features(tmp_path / "rows.parquet", names, output=file)
    other = FeatureStore(home=home / "other", clock=store.clock)
    declare_all_types(other)
    async with other:
        report = await other.history.import_file(file, names)
        assert report.values == len(names)  # None is a value of the last one
        found = await other.get_historical_features(rows()[:1], names)
    assert {name: found[0][name] for name in names} == VALUES
    assert found[0]["timestamp"] > START
