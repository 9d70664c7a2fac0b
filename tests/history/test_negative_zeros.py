"""-0.0 keeps its sign in files with many zeros of both signs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.duckdb import frame_plan
from headwater.core.duckdb_session import session
from headwater.declarations.runtime import runtime_of

AT = "2026-01-01T00:00:00Z"
COUNT = 1_000
ZEROS = [("-0.0", "0.0")[number % 2] for number in range(COUNT)]
NAMES = ["number", "same", "many"]


@pytest.fixture
async def zeros(store: FeatureStore, tmp_path: Path) -> Path:
    """A file with zeros of both signs, which are the imported values of a store."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="never")
    def number(user_id: str, event: ServiceEvent) -> float:
        return 0.0

    @feature(entity=User, trigger="never")
    def many(user_id: str, event: ServiceEvent) -> list[float]:
        return []

    @feature(entity=User, derived=True)
    async def same(user_id: str) -> float:
        value: float = await store.get_feature("number", user_id)
        return value

    file = tmp_path / "zeros.parquet"
    duckdb.sql(
        f"COPY (SELECT 'u' || n AS user_id, TIMESTAMPTZ '{AT}' AS timestamp,"
        " CASE WHEN n % 2 = 0 THEN -0.0::DOUBLE ELSE 0.0::DOUBLE END AS own,"
        f" own AS number, [own] AS many FROM range({COUNT}) AS rows(n))"
        f" TO '{file}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 0)"
    )
    await store.history.import_file(file, ["number", "many"])
    return file


def points(file: Path, at: str) -> Path:
    """Write a frame with a column of the caller's own."""
    frame = file.with_name("frame.parquet")
    duckdb.sql(
        f"COPY (SELECT user_id, TIMESTAMPTZ '{at}' AS timestamp, own, [own] AS owns FROM '{file}')"
        f" TO '{frame}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 0)"
    )
    return frame


def texts(rows: duckdb.DuckDBPyRelation, name: str) -> list[str]:
    """Return a column as texts, which tell -0.0 from 0.0."""
    return [str(value).strip("[]") for (value,) in rows.select(name).fetchall()]


@pytest.mark.both_environments
@pytest.mark.parametrize("options", [{}, {"known": True}, {"exported": True}])
async def test_many_zeros_of_both_signs_keep_them_in_frames(
    store: FeatureStore, zeros: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    if "exported" in options:
        await store.history.export(tmp_path / "exported")
        options = {"exported": tmp_path / "exported"}
    frame = points(zeros, datetime.now(UTC).isoformat() if "known" in options else AT)
    given = duckdb.sql(f"FROM '{frame}'")
    listed = [
        {"user_id": user_id, "timestamp": at}
        for user_id, at in given.select("user_id, timestamp").fetchall()
    ]
    output = await store.get_historical_features(frame, NAMES, **options)
    relation = await store.get_historical_features(given, NAMES, **options)
    rows = await store.get_historical_features(listed, NAMES, **options)
    for name in [*NAMES, "own", "owns"]:
        assert texts(duckdb.sql(f"FROM '{output}'"), name) == ZEROS
        assert texts(relation, name) == ZEROS
    for name in NAMES:
        assert [str(row[name]).strip("[]") for row in rows] == ZEROS


async def test_many_zeros_of_both_signs_keep_them_in_a_divided_frame(
    store: FeatureStore, zeros: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_plan, "MAX_POINTS", COUNT // 4)
    output = await store.get_historical_features(points(zeros, AT), NAMES)
    for name in NAMES:
        assert texts(duckdb.sql(f"FROM '{output}'"), name) == ZEROS


@pytest.mark.both_environments
async def test_many_zeros_of_both_signs_keep_them_in_feature_history(
    store: FeatureStore, zeros: Path
) -> None:
    await (await runtime_of(store).open()).backends.offline.maintain()
    sql = """SELECT entity_id AS user_id, as_of AS "timestamp", value_float FROM feature_history
             WHERE feature = 'number' ORDER BY CAST(substr(entity_id, 2) AS INTEGER)"""
    found = await store.get_historical_features(sql, ["number"])
    assert texts(found, "value_float") == texts(found, "number") == ZEROS


def test_files_without_negative_zeros_have_dictionaries(tmp_path: Path) -> None:
    sizes = {}
    for zero in ("0.0", "-0.0"):
        file = tmp_path / f"{zero}.parquet"
        with session(tmp_path) as duck:
            rows = f"SELECT repeat('text', 1000) AS t, CAST('{zero}' AS DOUBLE) FROM range(10_000)"
            assert duck.write(rows, file) == 10_000
        sizes[zero] = file.stat().st_size
    assert sizes["0.0"] * 100 < sizes["-0.0"]
