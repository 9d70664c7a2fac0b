"""Backups of an embedded home that is in use: of one moment, verified, and restored whole."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.connect import restore
from headwater.backends.sqlite import backup
from headwater.backends.sqlite.home import SCHEMA_VERSION
from headwater.declarations.runtime import runtime_of
from headwater.errors import ConfigError, HomeError, InvalidInputError
from headwater.settings.groups import LakeSettings, OfflineSettings
from headwater.settings.schema import Settings

SMALL_SEGMENTS = OfflineSettings(segment_rows=20)


def opened(home: Path) -> FeatureStore:
    """Return a store that counts events, with small segments."""
    store = FeatureStore(settings=Settings(home=str(home), offline=SMALL_SEGMENTS))

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    return store


async def visit(store: FeatureStore, count: int) -> None:
    for number in range(count):
        await store.publish("visit", f"u{number % 7}")
    await store.drain()
    # As a worker does now and then: full segments are written and merged.
    await (await runtime_of(store).open()).backends.offline.maintain()


async def total(store: FeatureStore) -> int:
    """Return the visits of all, which must be those of history."""
    ids = [f"u{number}" for number in range(7)]
    online = [await store.get_feature("visits", of) for of in ids]
    past = [len(await store.get_feature_history("visits", of)) for of in ids]
    assert online == past
    return sum(online)


def restored(folder: Path, home: Path) -> FeatureStore:
    restore(Settings(home=str(home)), folder)
    return opened(home)


async def test_a_restored_home_has_the_values_and_the_history_of_the_backup(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        report = await store.backup(tmp_path / "monday")
        await visit(store, 70)
    assert report.files > 1
    assert report.bytes == sum(
        file.stat().st_size
        for file in (tmp_path / "monday").rglob("*")
        if file.is_file() and file.name != "backup.json"
    )
    async with restored(tmp_path / "monday", tmp_path / "other") as store:
        assert await total(store) == 70
        assert (await store.admin.audit()).differences == []
        await visit(store, 7)
        assert await total(store) == 77


async def test_backups_of_a_home_in_use_are_each_of_one_moment(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 7)
        done = asyncio.Event()

        async def use() -> None:
            for _ in range(6):
                await visit(store, 35)
            done.set()

        using = asyncio.create_task(use())
        folders = list[Path]()
        while not folders or (len(folders) < 4 and not done.is_set()):
            folders.append(tmp_path / f"backup-{len(folders)}")
            await store.backup(folders[-1])
        await using
    counts = []
    for number, folder in enumerate(folders):
        async with restored(folder, tmp_path / f"home-{number}") as copy:
            await copy.drain()  # events that were waiting at that moment
            counts.append(await total(copy))
            assert (await copy.admin.audit()).differences == []
    assert counts == sorted(counts)


async def test_segments_that_a_merge_removes_meanwhile_begin_the_copy_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        copied = backup._copy_segments  # noqa: SLF001
        attempts = list[int]()

        def removed_once(*arguments: object) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                raise FileNotFoundError("gone")
            copied(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(backup, "_copy_segments", removed_once)
        await store.backup(tmp_path / "monday")
    assert len(attempts) == 2


async def test_a_damaged_backup_is_refused_and_named(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        await store.backup(tmp_path / "monday")
    settings = Settings(home=str(tmp_path / "other"))
    segment = next((tmp_path / "monday" / "segments").iterdir())
    content = segment.read_bytes()
    segment.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    with pytest.raises(HomeError, match=f"damaged: {segment.name} is another file"):
        restore(settings, tmp_path / "monday")
    segment.unlink()
    with pytest.raises(HomeError, match=f"{segment.name} is missing"):
        restore(settings, tmp_path / "monday")
    segment.write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "monday" / "headwater.db")) as db, db:
        db.execute("DELETE FROM entities")
    with pytest.raises(HomeError, match="has other bytes than were written"):
        restore(settings, tmp_path / "monday")
    assert not (tmp_path / "other").exists()


async def test_a_home_that_exists_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 7)
        await store.backup(tmp_path / "monday")
        with pytest.raises(InvalidInputError, match="exists; name a folder that does not"):
            await store.backup(tmp_path / "monday")
        with pytest.raises(HomeError, match="is not empty"):
            restore(Settings(home=str(tmp_path / "home")), tmp_path / "monday")
        assert await total(store) == 7
    with pytest.raises(InvalidInputError, match="is no backup"):
        restore(Settings(home=str(tmp_path / "new")), tmp_path / "home")


@pytest.mark.parametrize("name", ["mon#1", "a?b", "50%25", "with space"])
async def test_the_name_of_a_folder_may_have_signs_of_addresses(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 7)
        await store.backup(tmp_path / "backups" / name)
    assert [each.name for each in (tmp_path / "backups").iterdir()] == [name]
    async with restored(tmp_path / "backups" / name, tmp_path / f"home {name}") as store:
        assert await total(store) == 7


async def test_a_backup_is_restored_into_an_empty_folder_behind_a_link(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        await store.backup(tmp_path / "monday")
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)  # as in each volume of ext4
    (tmp_path / "linked").symlink_to(volume)
    async with restored(tmp_path / "monday", tmp_path / "linked") as store:
        assert await total(store) == 70
    assert not (volume / "restoring").exists()
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="cannot be made"):
        restore(Settings(home=str(tmp_path / "file")), tmp_path / "monday")


async def test_a_home_that_is_complete_stays_if_its_last_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        await store.backup(tmp_path / "monday")
    sync = backup._sync  # noqa: SLF001
    home = tmp_path / "other"

    def fail_at_the_end(path: Path) -> None:
        if path == home:
            raise OSError(5, "Input/output error", str(path))
        sync(path)

    monkeypatch.setattr(backup, "_sync", fail_at_the_end)
    with pytest.raises(HomeError, match="Input/output error"):
        restore(Settings(home=str(home)), tmp_path / "monday")
    async with opened(home) as store:
        assert await total(store) == 70
        assert (await store.admin.audit()).differences == []


async def test_a_backup_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await store.backup(tmp_path / "monday")
    file = tmp_path / "monday" / "backup.json"
    manifest = msgspec.json.decode(file.read_bytes()) | {"schema_version": SCHEMA_VERSION + 1}
    file.write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(HomeError, match="is of a newer Headwater"):
        restore(Settings(home=str(tmp_path / "other")), tmp_path / "monday")


async def test_a_backup_is_private_and_logged(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        await store.backup(tmp_path / "monday")
        [entry] = (await store.audit_log(action="admin.backup")).entries
        assert (entry.target, entry.outcome) == (str(tmp_path / "monday"), "done")
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "monday", *(tmp_path / "monday").rglob("*"))
    }
    assert modes == {0o700, 0o600}


async def test_a_backup_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "home") as store:
        await visit(store, 70)
        for segment in (tmp_path / "home" / "segments").glob("*.parquet"):
            segment.write_bytes(b"damaged")
        with pytest.raises(HomeError, match="is damaged"):
            await store.backup(tmp_path / "backups" / "monday")
    assert list((tmp_path / "backups").iterdir()) == []


async def test_a_home_with_a_lake_is_refused(tmp_path: Path) -> None:
    lake = LakeSettings(url=str(tmp_path / "lake"))
    settings = Settings(home=str(tmp_path / "home"), lake=lake)
    async with FeatureStore(settings=settings) as store:
        with pytest.raises(ConfigError, match="a lake cannot be backed up by itself"):
            await store.backup(tmp_path / "monday")
        await store.lake.compact()
    # A process that was not told of the lake, such as a job of cron.
    settings = Settings(home=settings.home)
    async with FeatureStore(settings=settings) as store:
        with pytest.raises(ConfigError, match="a lake cannot be backed up by itself"):
            await store.backup(tmp_path / "monday")
    assert not (tmp_path / "monday").exists()


async def test_a_store_on_servers_names_their_tools(production: Settings, tmp_path: Path) -> None:
    async with FeatureStore(settings=production) as store:
        with pytest.raises(ConfigError, match="pg_dump"):
            await store.backup(tmp_path / "monday")
    with pytest.raises(ConfigError, match="HEADWATER_ENV is production"):
        restore(production, tmp_path / "monday")
