"""CSV: columns that are not ours stay as they are, ours are read by their declared types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import FeatureValueError

AT = "2026-01-01T00:00:00Z"
TYPES: Mapping[str, Any] = {
    "text": str,
    "whole": int,
    "number": float,
    "exact": Decimal,
    "flag": bool,
    "moment": datetime,
    "day": date,
    "maybe": str | None,
    "many": list[int],
}


@pytest.fixture(autouse=True)
def declared(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    for name, kind in TYPES.items():

        def value(user_id: str, event: ServiceEvent) -> Any:
            return event.payload["value"]

        value.__name__ = name
        value.__annotations__["return"] = kind
        feature(entity=User, trigger="never")(value)


async def imported(store: FeatureStore, folder: Path, name: str, texts: Sequence[str]) -> list[Any]:
    """Import a column of CSV and return the value of each row, None for a missing one."""
    file = folder / f"{name}.csv"
    rows = [f"u{number},{AT},{text}" for number, text in enumerate(texts)]
    file.write_text("\n".join([f"user_id,timestamp,{name}", *rows]) + "\n")
    await store.history.import_file(file, [name])
    values = []
    for number in range(len(texts)):
        found = await store.get_feature_history(name, f"u{number}")
        values.append(found[0].value if found else None)
    return values


@pytest.mark.parametrize(
    ("name", "texts", "values"),
    [
        ("text", ["1/2/2026"], None),
        ("text", ["12:00"], None),
        ("text", ["1/2/2026", "12:00", "007", "1e5", "true"], None),
        ("text", ['""', "", "NULL", "nan"], ["", None, "NULL", "nan"]),
        ("maybe", ['""', "x"], ["", "x"]),
        ("whole", ["7", "-7", "+7", "007", "7.0", "", "nan"], [7, -7, 7, 7, 7, None, None]),
        ("whole", ["9223372036854775807"], [9223372036854775807]),
        (
            "number",
            ["1.5", "-0.0", "0.1", "1e300", ".5", "nan"],
            [1.5, -0.0, 0.1, 1e300, 0.5, None],
        ),
        (
            "exact",
            ["12.50", "0.1", "123456789012345678.12345"],
            [Decimal("12.50"), Decimal("0.1"), Decimal("123456789012345678.12345")],
        ),
        ("flag", ["true", "False", "0"], [True, False, False]),
        ("day", ["2026-02-01"], [date(2026, 2, 1)]),
        ("moment", ["2026-02-01 12:00:00+02:00"], [datetime(2026, 2, 1, 10, tzinfo=UTC)]),
        ("many", ['"[1, 2]"'], [[1, 2]]),
    ],
)
async def test_values_of_csv_are_read_by_the_declared_type(
    store: FeatureStore, tmp_path: Path, name: str, texts: list[str], values: list[Any] | None
) -> None:
    expected = texts if values is None else values
    found = await imported(store, tmp_path, name, texts)
    assert list(map(repr, found)) == list(map(repr, expected))  # also tells -0.0 from 0.0


@pytest.mark.parametrize(
    ("name", "text"),
    [("whole", "1.5"), ("whole", "1/2"), ("number", "inf"), ("day", "1/2/2026"), ("flag", "maybe")],
)
async def test_a_text_that_does_not_fit_the_type_is_refused(
    store: FeatureStore, tmp_path: Path, name: str, text: str
) -> None:
    with pytest.raises(FeatureValueError, match="which values of the file do not fit"):
        await imported(store, tmp_path, name, [text])


async def test_values_of_parquet_keep_their_sign_their_digits_and_empty_texts(
    store: FeatureStore, tmp_path: Path
) -> None:
    file = tmp_path / "values.parquet"
    duckdb.sql(
        f"COPY (SELECT 'u0' AS user_id, TIMESTAMPTZ '{AT}' AS timestamp, '' AS text,"
        " -0.0::DOUBLE AS number, 123456789012345678.50::DECIMAL(30, 2) AS exact)"
        f" TO '{file}' (FORMAT parquet)"
    )
    await store.history.import_file(file, ["text", "number", "exact"])
    values = {
        name: (await store.get_feature_history(name, "u0"))[0].value
        for name in ("text", "number", "exact")
    }
    assert values == {"text": "", "number": 0.0, "exact": Decimal("123456789012345678.50")}
    assert math.copysign(1, values["number"]) == -1
    assert str(values["exact"]) == "123456789012345678.50"


async def test_a_negative_zero_keeps_its_sign_in_frames_and_exports(
    store: FeatureStore, tmp_path: Path
) -> None:
    expected, folder = [0.0, -0.0, 1.5, 0.0, -0.0], tmp_path / "exported"
    await imported(store, tmp_path, "number", list(map(str, expected)))
    await store.history.export(folder)
    true_at, known_at = datetime.fromisoformat(AT), datetime.now(UTC)
    for at, known, exported in (
        (true_at, False, None),
        (true_at, False, folder),
        (known_at, True, None),
    ):
        rows = [{"user_id": f"u{number}", "timestamp": at} for number in range(len(expected))]
        found = await store.get_historical_features(
            rows, ["number"], known=known, exported=exported
        )
        # The texts tell -0.0 from 0.0.
        assert [repr(row["number"]) for row in found] == list(map(repr, expected))


async def test_columns_of_the_callers_csv_stay_as_they_are(
    store: FeatureStore, tmp_path: Path
) -> None:
    rows = [
        "user_id,label,timestamp,price,note,at",
        'u1,1/2/2026,2026-01-01T00:00:00.5Z,12.50,"a, ""b""",12:00',
        '007,007,2026-01-01 00:00:00+02:00,1e5,"",',
    ]
    file, output = tmp_path / "labels.csv", tmp_path / "out.csv"
    file.write_text("\n".join(rows) + "\n")
    await store.get_historical_features(file, ["text"], output=output)
    assert output.read_text().splitlines() == [f"{rows[0]},text", *(f"{row}," for row in rows[1:])]
    table = tmp_path / "out.parquet"
    await store.get_historical_features(file, ["text"], output=table)
    ((user, at, label, note),) = duckdb.sql(
        f"SELECT user_id, timestamp, label, note FROM '{table}' LIMIT 1 OFFSET 1"
    ).fetchall()
    assert (user, label, note) == ("007", "007", "")
    assert at == datetime(2025, 12, 31, 22, tzinfo=UTC)
