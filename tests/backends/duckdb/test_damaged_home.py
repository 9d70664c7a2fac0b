"""A home that lost its database, or whose segments changed: nothing is lost without a word."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import duckdb
import msgspec
import pytest

from headwater import FeatureStore
from headwater.backends.segment_files import checksum_of
from headwater.backends.sqlite.inspection import inspect
from headwater.errors import HomeError
from headwater.ports import FrameColumn, FrameQuery, Point, Segment
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import GRACE, START, Embedded, after, embedded, series
from tests.engine.support import records

SEGMENT_ROWS = 5
EVENT = """
SELECT 1::BIGINT AS seq, 'e1' AS event_id, 'note' AS event_type, 'u1' AS entity_id,
       1::USMALLINT AS bucket, 0::USMALLINT AS "partition", now() AS "timestamp",
       now() AS received_at, '{}' AS payload
"""


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as opened:
        yield opened


@pytest.fixture
def long_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let segments be longer than the end that every read checks."""
    monkeypatch.setattr("headwater.backends.segment_files._ENDING_BYTES", 64)


@pytest.fixture
async def segmented(tmp_path: Path) -> Path:
    """Return a closed home with two segments of history."""
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        await parts.online.put(series(2 * SEGMENT_ROWS))
        await parts.history.maintain()
    return tmp_path / "home"


def contents(home: Path) -> dict[str, bytes]:
    files = (file for file in home.rglob("*") if file.is_file())
    return {str(file.relative_to(home)): file.read_bytes() for file in files}


def settings_of(home: Path) -> Settings:
    return Settings().replace(home=home, partitions=4)


async def publish(home: Path) -> None:
    async with FeatureStore(settings=settings_of(home)) as store:
        await store.publish("note", "u1")


@pytest.mark.parametrize("left", ["segments", "vectors", "write-ahead log", "empty database"])
async def test_no_database_is_created_beside_the_files_of_another(
    segmented: Path, left: str
) -> None:
    database = segmented / "headwater.db"
    if left == "empty database":
        database.write_bytes(b"")
    else:
        database.unlink()
    if left == "vectors":
        (segmented / "vectors" / "1-1-8192.vectors").write_bytes(b"block")
    if left == "write-ahead log":
        (segmented / "headwater.db-wal").write_bytes(b"frames")
    if left in ("vectors", "write-ahead log"):
        for file in (segmented / "segments").glob("*.parquet"):
            file.unlink()
    before = contents(segmented)
    remedy = r"restore the whole folder from a backup; to start anew .* set HEADWATER_HOME"
    for _ in range(2):
        with pytest.raises(HomeError, match=f"has no tables in headwater.db, but .*{remedy}"):
            await publish(segmented)
    assert contents(segmented) == before


async def test_a_database_without_tables_beside_segments_is_refused(segmented: Path) -> None:
    (segmented / "headwater.db").unlink()
    with embedded(segmented.with_name("other"), SEGMENT_ROWS) as other:
        bare = other.home.connect()
        bare.execute("PRAGMA user_version = 0")
        bare.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        bare.close()
    (segmented.with_name("other") / "headwater.db").rename(segmented / "headwater.db")
    with pytest.raises(HomeError, match="2 files of a store, such as segments/history-"):
        await publish(segmented)


async def test_a_home_that_was_moved_away_is_started_anew(segmented: Path) -> None:
    (segmented / "headwater.db").unlink()
    shutil.move(segmented, segmented.with_name("kept"))
    await publish(segmented)
    assert len(list((segmented.with_name("kept") / "segments").glob("*.parquet"))) == 2


async def test_files_that_the_database_did_not_write_are_named_and_never_removed(
    parts: Embedded, capsys: pytest.CaptureFixture[str]
) -> None:
    await parts.online.put(series(3))
    foreign = {"history-0000-1023-x.parquet", "events-0000-1023-y.parquet.unfinished"}
    for name in foreign:
        (parts.home.segments / name).write_bytes(b"of another database")
    for _ in range(2):
        await parts.history.maintain()
        parts.clock.advance(2 * GRACE)
    assert parts.segment_files() == foreign
    (warned,) = records(capsys.readouterr().err, "segments of another database are not read")
    assert (warned["files"], warned["example"]) == (2, min(foreign))
    (found,) = [f for f in inspect(settings_of(parts.home.path)) if f.check == "other segments"]
    assert found.severity == "warning"
    assert "1 files were not written by this database, such as history-0000-1023-x" in found.found


def exchange(parts: Embedded) -> str:
    """Put the bytes of one segment into the file of another."""
    first, second = sorted(parts.live())
    folder = parts.home.segments
    (folder / first).write_bytes((folder / second).read_bytes())
    return first


def truncate(parts: Embedded) -> str:
    name = min(parts.live())
    content = (parts.home.segments / name).read_bytes()
    (parts.home.segments / name).write_bytes(content[: len(content) // 2])
    return name


def remove(parts: Embedded) -> str:
    name = min(parts.live())
    (parts.home.segments / name).unlink()
    return name


def flip_a_bit_at_the_end(parts: Embedded) -> str:
    return flip_a_bit(parts, b"PAR1", -1)


def flip_a_bit(parts: Embedded, before: bytes, distance: int = 0) -> str:
    """Change a byte at a distance from the first or, backwards, the last of some bytes."""
    name = min(parts.live())
    content = bytearray((parts.home.segments / name).read_bytes())
    content[(content.rindex if distance < 0 else content.index)(before) + distance] ^= 1
    (parts.home.segments / name).write_bytes(content)
    return name


def flip_a_bit_of_a_text(parts: Embedded) -> str:
    """Change the cause of every row, which no reader notices."""
    name = flip_a_bit(parts, b"test")
    with duckdb.connect() as duck:
        rows = duck.execute(f"SELECT DISTINCT cause FROM '{parts.home.segments / name}'").fetchall()
    assert rows == [("uest",)]
    return name


Damage = Callable[[Embedded], str]
DAMAGES = [exchange, truncate, remove, flip_a_bit_at_the_end]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_segment_that_is_not_the_one_that_was_written_is_named_by_every_read(
    segmented: Path, tmp_path: Path, damage: Damage, is_running: bool
) -> None:
    with embedded(segmented, SEGMENT_ROWS) as parts:
        if is_running:
            assert (await parts.history.as_of(["clicks"], [Point("u1", after(99))]))[0][0]
        name = damage(parts)
        reads: list[Callable[[], Awaitable[object]]] = [
            lambda: parts.history.as_of(["clicks"], [Point("u1", START)]),
            lambda: all_rows(parts),
            lambda: parts.history.latest("User", after="", limit=10),
            lambda: parts.history.export_history(tmp_path / "out.parquet", after=0),
            lambda: parts.history.read_frame(frame_in(tmp_path), tmp_path / "answer.parquet"),
        ]
        for read in reads:
            with pytest.raises(HomeError, match=rf"{name}.* backup"):
                await read()
        (found,) = [f for f in inspect(settings_of(segmented)) if f.check == "segments"]
        assert found.severity == "error"
        assert name in found.found
    async with FeatureStore(settings=settings_of(segmented)) as store:
        with pytest.raises(HomeError, match=rf"is damaged: {name} .* backup"):
            await store.admin.audit()


@pytest.mark.usefixtures("long_segments")
async def test_an_audit_reads_every_byte_of_every_segment(segmented: Path) -> None:
    async with FeatureStore(settings=settings_of(segmented)) as store:
        assert (await store.admin.audit()).complete
        with embedded(segmented, SEGMENT_ROWS) as parts:
            name = flip_a_bit_of_a_text(parts)
        with pytest.raises(HomeError, match=f"{name} has bytes that changed since"):
            await store.admin.audit()


@pytest.mark.usefixtures("long_segments")
async def test_damage_is_never_copied_into_a_new_segment(segmented: Path) -> None:
    with embedded(segmented, SEGMENT_ROWS) as parts:
        await parts.online.put(series(8 * SEGMENT_ROWS))
        name = flip_a_bit_of_a_text(parts)
        before = parts.live()
        changes: list[Callable[[], Awaitable[object]]] = [
            parts.history.maintain,
            lambda: parts.history.prune(history=after(3), events=None),
            lambda: parts.history.export_history(segmented / "export.parquet", after=0),
        ]
        for change in changes:
            with pytest.raises(HomeError, match=f"{name} .*restore these files"):
                await change()
        assert name in parts.live()
        assert before <= parts.segment_files()


@pytest.mark.usefixtures("long_segments")
async def test_damage_never_becomes_a_current_value_or_a_replayed_event(segmented: Path) -> None:
    with embedded(segmented, SEGMENT_ROWS) as parts:
        name = flip_a_bit_of_a_text(parts)
        file = parts.home.segments / "events-x.parquet"
        with duckdb.connect() as duck:
            duck.execute(f"COPY ({EVENT}) TO '{file}' (FORMAT parquet)")
        written = msgspec.structs.replace(checksum_of(file), digest=b"of other bytes")
        parts.tail.add(Segment(file.name, "events", 1, checksum=written))
        with pytest.raises(HomeError, match=f"{file.name} has bytes that changed since"):
            await parts.history.export_events(segmented, ["note"], {0: "9"}, files=1)
    async with FeatureStore(settings=settings_of(segmented)) as store:
        with pytest.raises(HomeError, match=f"{name} has bytes that changed since"):
            await store.admin.rebuild()


@pytest.mark.usefixtures("long_segments")
async def test_a_segment_that_cannot_be_read_is_named_though_its_end_is_as_written(
    segmented: Path,
) -> None:
    with embedded(segmented, SEGMENT_ROWS) as parts:
        name = flip_a_bit(parts, b"clicks", len("clicks"))  # the head of the next page
        for read in (parts.history.as_of(["clicks"], [Point("u1", START)]), all_rows(parts)):
            with pytest.raises(HomeError, match=f"{name} has bytes that changed since"):
                await read


def frame_in(folder: Path) -> FrameQuery:
    points = folder / "points.parquet"
    with duckdb.connect() as duck:
        rows = "SELECT 0 AS row, 'u1' AS entity_id, 0::BIGINT AS at"
        duck.execute(f"COPY ({rows}) TO '{points}' (FORMAT parquet)")
    return FrameQuery(points, [FrameColumn("clicks", "int")])


async def all_rows(parts: Embedded) -> object:
    return await parts.history.query("SELECT * FROM feature_history", {})
