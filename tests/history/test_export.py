"""Exports of history: incremental, complete after any crash, and readable without the store."""

from __future__ import annotations

import os
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.backends.duckdb import history_export as exports
from headwater.backends.duckdb.exported_history import ExportedHistory, load_manifest, save_manifest
from headwater.backends.duckdb.history_export import HistoryExport
from headwater.backends.duckdb.segments import SegmentFolder
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, InvalidInputError
from headwater.model.catalog import (
    CatalogEntry,
    CatalogState,
    FeatureVersion,
    Horizons,
    VersionState,
)
from headwater.ports import FrameColumn, FrameQuery
from headwater.settings.schema import Settings
from headwater.testing import ManualClock


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings().replace(home=home, partitions=4)


@pytest.fixture(autouse=True)
def user(store: FeatureStore) -> type:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0)
    async def spend(user_id: str, event: ServiceEvent) -> int:
        return 1

    return User


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "it's" / "export"


async def write(store: FeatureStore, numbers: range) -> None:
    for number in numbers:
        await store.set_feature("spend", f"u{number % 3}", number)


def values(folder: Path) -> list[int]:
    """Return all exported values."""
    live = [str(folder / segment.name) for segment in ExportedHistory(folder).manifest().live]
    if not live:
        return []
    found = duckdb.read_parquet(live).project("value_int").fetchall()
    return sorted(value for (value,) in found)


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.parquet*")}


async def exporting(store: FeatureStore, folder: Path, **catalog: Any) -> HistoryExport:
    engine = await runtime_of(store).open()

    async def load() -> CatalogState:
        return replace(CatalogState(), **catalog)

    return HistoryExport(engine.backends.offline, load, folder, engine.clock.now())


@pytest.mark.both_environments
async def test_an_export_adds_the_rows_since_the_last_one_and_frames_are_read_from_it(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    assert (await store.history.export(folder)).rows == 0
    await write(store, range(5))
    report = await store.history.export(folder)
    assert (report.added, report.rows, report.files) == (5, 5, 1)
    await write(store, range(5, 8))
    report = await store.history.export(folder)
    assert (report.added, report.rows, report.files) == (3, 8, 2)
    assert (await store.history.export(folder)).added == 0
    assert values(folder) == list(range(8))
    frame = [{"user_id": f"u{number}", "timestamp": clock.now()} for number in (2, 0, 9)]
    exported = await store.get_historical_features(frame, ["spend"], exported=folder)
    assert [row["spend"] for row in exported] == [5, 6, 0]
    assert exported == await store.get_historical_features(frame, ["spend"])


async def test_an_export_is_read_without_the_store(
    store: FeatureStore, clock: ManualClock, folder: Path, tmp_path: Path
) -> None:
    await write(store, range(5))
    await store.history.export(folder)
    elsewhere = FeatureStore(home=tmp_path / "elsewhere", clock=clock)
    runtime_of(elsewhere).registry.add_feature(runtime_of(store).registry.feature("spend"))
    frame = [{"user_id": "u0", "timestamp": clock.now()}]
    (row,) = await elsewhere.get_historical_features(frame, ["spend"], exported=folder)
    assert row["spend"] == 3
    assert runtime_of(elsewhere).current() is None
    assert "elsewhere" not in os.listdir(tmp_path)


async def test_values_of_an_export_are_those_of_its_version(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    await write(store, range(3))
    definition = runtime_of(store).registry.feature("spend")
    states: list[tuple[int, str, VersionState]] = [(1, "spend", "active"), (2, "spend@2", "ready")]
    versions = [
        FeatureVersion(
            number=number,
            series=series,
            state=state,
            type="int",
            structure="",
            created_at=clock.now(),
        )
        for number, series, state in states
    ]
    entry = CatalogEntry(feature="spend", entity="User", versions=versions)
    await (await exporting(store, folder, features={"spend": entry}, revision=1)).run()
    (exported,) = ExportedHistory(folder).versions_of(
        [replace(definition, series="spend@2")], ["spend"]
    )
    assert exported.series == "spend"
    frame = folder.parent / "points.parquet"
    duckdb.sql('SELECT 0 AS "row", \'u0\' AS entity_id, 0 AS "at"').write_parquet(str(frame))
    for series, is_exported in (("spend@2", True), ("spend@3", False)):
        query = FrameQuery(frame, [FrameColumn(series, "int")])
        with (
            nullcontext()
            if is_exported
            else pytest.raises(
                InvalidInputError, match=r"is older than 'spend@3', .* export .* again"
            )
        ):
            await ExportedHistory(folder).read_frame(query, folder.parent / "answer.parquet")


async def test_rows_after_the_export_are_refused(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    await write(store, range(1))
    await store.history.export(folder)
    late = clock.now() + timedelta(seconds=1)
    frame = [{"user_id": "u0", "timestamp": at} for at in (clock.now(), late, late)]
    with pytest.raises(InvalidInputError, match=r"2 rows of the frame .* export .* again"):
        await store.get_historical_features(frame, ["spend"], exported=folder)


async def test_small_files_are_merged_and_kept_for_readers_for_some_minutes(
    store: FeatureStore, clock: ManualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "SEGMENT_ROWS", 4)
    for number in range(0, 16, 2):
        await write(store, range(number, number + 2))
        report = await store.history.export(folder)
    assert report.files == 1
    assert values(folder) == list(range(16))
    assert len(files(folder)) == 9
    clock.advance(timedelta(minutes=6))
    await store.history.export(folder)
    assert len(files(folder)) == 1
    assert values(folder) == list(range(16))


@pytest.mark.parametrize("step", [1, 2, 3, 4])
async def test_an_export_that_was_killed_is_completed_by_the_next_one(
    store: FeatureStore, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    # So many rows are divided by bucket at once.
    monkeypatch.setattr(exports, "SEGMENT_ROWS", 1)
    await write(store, range(64))
    saves = 0

    def dying(*arguments: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == step:
            raise RuntimeError("killed")
        save_manifest(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(exports, "save_manifest", dying)
        with pytest.raises(RuntimeError):
            await store.history.export(folder)
    await write(store, range(64, 66))
    await store.history.export(folder)
    assert values(folder) == list(range(66))
    manifest = ExportedHistory(folder).manifest()
    assert files(folder) == {s.name for s in manifest.segments}


async def test_a_folder_with_other_files_is_refused_and_left_alone(
    store: FeatureStore, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.parquet"
    mine.write_bytes(b"mine")
    with pytest.raises(InvalidInputError, match=r"mine\.parquet; name a new or empty folder"):
        await store.history.export(tmp_path)
    assert mine.read_bytes() == b"mine"


async def test_two_exports_into_one_folder_do_not_run_at_once(
    store: FeatureStore, folder: Path
) -> None:
    await store.history.export(folder)
    with (
        SegmentFolder(folder).lock(wait=False),
        pytest.raises(InvalidInputError, match="already"),
    ):
        await store.history.export(folder)


async def test_the_history_of_another_store_is_not_mixed_in(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    def created(at: datetime) -> dict[str, CatalogEntry]:
        version = FeatureVersion(
            number=1, series="spend", state="active", type="int", structure="", created_at=at
        )
        return {"spend": CatalogEntry(feature="spend", entity="User", versions=[version])}

    await (await exporting(store, folder, features=created(clock.now()))).run()
    await (await exporting(store, folder, features=created(clock.now()))).run()
    other = await exporting(store, folder, features=created(clock.now() - timedelta(1)))
    with pytest.raises(InvalidInputError, match="another store"):
        await other.run()


async def test_rows_that_were_pruned_before_they_were_exported_are_missing(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    await write(store, range(1))
    await (await exporting(store, folder)).run()
    assert ExportedHistory(folder).manifest().earliest is None
    # Pruned after they were exported.
    pruned = Horizons(history=clock.now())
    await (await exporting(store, folder, pruned=pruned)).run()
    assert ExportedHistory(folder).manifest().earliest is None
    pruned = Horizons(history=clock.now() + timedelta(seconds=1))
    await (await exporting(store, folder, pruned=pruned)).run()
    assert ExportedHistory(folder).manifest().earliest == pruned.history


async def test_rows_that_are_pruned_while_they_are_exported_are_missing(
    store: FeatureStore, clock: ManualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(store, range(1))
    clock.advance("10d")
    offline = (await runtime_of(store).open()).backends.offline
    export = offline.export_history

    async def export_after_pruning(file: Path, *, after: int) -> int:
        await store.admin.prune(history="5d")
        return await export(file, after=after)

    monkeypatch.setattr(offline, "export_history", export_after_pruning)
    await store.history.export(folder)
    assert ExportedHistory(folder).manifest().earliest == clock.now() - timedelta(days=5)


@pytest.mark.both_environments
async def test_values_of_a_dropped_feature_do_not_return_when_it_is_declared_again(
    store: FeatureStore, clock: ManualClock, folder: Path, user: type
) -> None:
    @feature(entity=user, trigger="buy", default=0)
    async def other(user_id: str, event: ServiceEvent) -> int:
        return 7

    await store.publish("buy", "u0", {})
    await Worker(store).drain()
    await write(store, range(2))
    await store.history.export(folder)
    assert values(folder) == [0, 1, 1, 7]
    await store.catalog.drop("spend")
    clock.advance("1s")
    await Worker(store).drain()
    await store.set_feature("spend", "u2", 5)
    report = await store.history.export(folder)
    assert (report.added, report.rows) == (1, 2)
    assert values(folder) == [5, 7]
    assert (await store.history.export(folder)).added == 0
    assert values(folder) == [5, 7]


async def test_a_folder_without_an_export_or_with_a_damaged_one_is_named(
    store: FeatureStore, clock: ManualClock, folder: Path
) -> None:
    frame = [{"user_id": "u0", "timestamp": clock.now()}]
    with pytest.raises(InvalidInputError, match="headwater history export"):
        await store.get_historical_features(frame, ["spend"], exported=folder)
    await write(store, range(1))
    await store.history.export(folder)
    (segment,) = ExportedHistory(folder).manifest().live
    (folder / segment.name).unlink()
    with pytest.raises(BackendError, match=segment.name):
        await store.get_historical_features(frame, ["spend"], exported=folder)
    (folder / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(InvalidInputError, match="format 99"):
        load_manifest(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"manifest\.json is not"):
        load_manifest(folder)
