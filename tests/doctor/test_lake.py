"""The doctor finds whether a lake can be read, and whether rows wait to be moved into it."""

from __future__ import annotations

import shutil
from pathlib import Path

from headwater import FeatureStore
from headwater.settings.schema import Settings
from tests.backends.lake.lakes import SEGMENT_ROWS, settings_of
from tests.doctor.test_doctor import findings_of, problems


def store_of(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @store.entity
    class User:
        user_id: str

    @store.feature(User, stored=True)
    def clicks(user_id: str) -> int:
        return 0

    return store


async def test_tables_that_do_not_exist_are_not_created(tmp_path: Path) -> None:
    async with store_of(settings_of(tmp_path)) as store:
        found = await findings_of(store)
    assert found["lake: tables"].severity == "unknown"
    assert "headwater lake init" in found["lake: tables"].remedy
    assert not (tmp_path / "lake").exists()
    assert not (tmp_path / "home" / "iceberg.sqlite").exists()


async def test_a_lake_beside_postgres_is_found_once_it_is_created(
    production: Settings, tmp_path: Path
) -> None:
    settings = production.replace(home=tmp_path / "home", lake={"url": str(tmp_path / "lake")})
    async with store_of(settings) as store:
        found = await findings_of(store)
        assert found["lake: tables"].severity == "unknown"
        assert not (tmp_path / "lake").exists()
        await store.lake.init()
        found = await findings_of(store)
        assert found["lake: tables"].found == "events has 0 rows in 0 files"
        assert found["lake: rows to move"].severity == "ok"


async def test_rows_that_wait_for_a_worker_are_a_warning(tmp_path: Path) -> None:
    async with store_of(settings_of(tmp_path)) as store:
        await store.lake.init()
        found = await findings_of(store)
        assert {name for name in problems(found) if name.startswith("lake")} == set()
        assert found["lake: rows to move"].severity == "ok"
        for number in range(SEGMENT_ROWS):
            await store.set_feature("clicks", f"u{number}", number)
        found = await findings_of(store)
        assert found["lake: rows to move"].severity == "warning"
        assert "history has 10 or more" in found["lake: rows to move"].found
        assert "headwater worker" in found["lake: rows to move"].remedy
        await store.lake.compact()
        found = await findings_of(store)
        assert found["lake: rows to move"].severity == "ok"


async def test_a_lake_whose_files_are_gone_is_an_error(tmp_path: Path) -> None:
    async with store_of(settings_of(tmp_path)) as store:
        await store.lake.init()
    shutil.rmtree(tmp_path / "lake")
    async with store_of(settings_of(tmp_path)) as store:
        found = await findings_of(store)
    assert found["lake: tables"].severity == "error"
    assert "cannot be read" in found["lake: tables"].found
    assert "lake.url" in found["lake: tables"].remedy
