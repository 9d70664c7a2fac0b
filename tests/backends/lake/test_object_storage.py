"""A lake in S3-compatible storage gives the answers of one in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from headwater.backends.duckdb import frame_plan
from headwater.backends.lake.store import LakeOfflineStore, catalog_in_home, open_catalog
from headwater.backends.runners.inline import InlineRunner
from headwater.backends.runners.processes import ProcessRunner
from headwater.core.clock import SystemClock, to_micros
from headwater.core.duckdb_session import scalar, session
from headwater.core.object_storage import ObjectStorage
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.ports import FrameColumn, FrameQuery, LakeTail, Point, Runner
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import Embedded, after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS
from tests.backends.lake.test_forgetting import InterruptedTail

KEYS = {"access_key": "an-id", "secret_key": "a-secret-4711"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with started() as (_, address):
        yield address


@contextmanager
def started() -> Iterator[tuple[ThreadedMotoServer, str]]:
    """Run a server with a bucket; it may be stopped within."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"127.0.0.1:{port}"
    assert host
    bucket = fs.S3FileSystem(
        scheme="http",
        endpoint_override=address,
        region="us-east-1",
        allow_bucket_creation=True,
        **KEYS,
    )
    bucket.create_dir("lake")
    yield server, f"http://{address}"
    with suppress(RuntimeError):
        server.stop()


def lake_in(
    endpoint: str,
    parts: Embedded,
    prefix: str,
    tail: LakeTail | None = None,
    runner: Runner | None = None,
) -> LakeOfflineStore:
    lake = {"url": f"s3://lake/{prefix}", "endpoint": endpoint, "region": "us-east-1", **KEYS}
    settings = Settings().replace(lake=lake, offline={"segment_rows": SEGMENT_ROWS})
    store = LakeOfflineStore(
        tail or parts.tail,
        settings.lake,
        open_catalog(settings.lake, catalog_in_home(parts.home.path)),
        parts.home.scratch,
        SystemClock(),
        settings.offline,
        runner or InlineRunner(),
    )
    store.create()
    return store


async def test_rows_are_moved_merged_read_and_forgotten_in_a_bucket(
    endpoint: str, tmp_path: Path
) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_in(endpoint, parts, "one")
        for start in range(0, 9 * SEGMENT_ROWS, SEGMENT_ROWS):
            numbers = range(start, start + SEGMENT_ROWS)
            await parts.online.put(
                [change(n, entity_id=f"u{n % 3}", as_of=after(n)) for n in numbers]
            )
            await store.maintain()
        assert parts.tail_rows() == 0
        [[past]] = await store.as_of(["clicks"], [Point("u1", after(60))])
        assert past is not None
        assert past.value == b"58"
        assert (await store.forget("User", "u1")).history == 30
        counts = await store.query("SELECT entity_id, count(*) FROM feature_history GROUP BY 1", {})
        assert {tuple(row) for row in counts.rows} == {("u0", 30), ("u2", 30)}


@pytest.mark.parametrize("runner", [InlineRunner(), ProcessRunner(2)], ids=["inline", "processes"])
async def test_a_frame_whose_files_an_erasure_deletes_is_read_from_the_next_snapshot(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: Runner
) -> None:
    if isinstance(runner, ProcessRunner):  # several tasks
        monkeypatch.setattr(frame_plan, "MAX_POINTS", 4)
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        tail = InterruptedTail(parts.home, parts.erasures)
        prefix = type(runner).__name__
        store = lake_in(endpoint, parts, prefix, tail, runner)
        other = lake_in(endpoint, parts, prefix)
        await parts.online.put([change(n, entity_id=f"u{n}") for n in range(SEGMENT_ROWS)])
        await other.maintain()
        rows = [
            {"row": n, "entity_id": f"u{n}", "at": to_micros(after(1))} for n in range(SEGMENT_ROWS)
        ]
        points, answer = tmp_path / "points.parquet", tmp_path / "answer.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), points)
        tail.meanwhile = lambda: asyncio.run(other.forget("User", "u3"))
        await store.read_frame(FrameQuery(points, [FrameColumn("clicks", "int")]), answer)
        values = pyarrow.parquet.read_table(answer)["v0"].to_pylist()
        assert values == [None if n == 3 else n for n in range(SEGMENT_ROWS)]


async def test_empty_keys_are_those_of_the_machine_for_every_reader_and_writer(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    storage = ObjectStorage(endpoint)
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        no_keys = pytest.raises(ConfigError, match="no keys of AWS: set it")
        with session(parts.home.scratch) as duck, no_keys:
            storage.open(duck)
        keys = "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = s3cr\n"
        (tmp_path / "keys").write_text(keys)
        with session(parts.home.scratch) as duck:
            storage.open(duck)
            secret = scalar(duck.run("SELECT secret_string FROM duckdb_secrets()"))
            assert "key_id=AKFILE" in secret
        monkeypatch.setattr(f"{__name__}.KEYS", {})
        store = lake_in(endpoint, parts, "machine")
        await parts.online.put([change(n, as_of=after(n)) for n in range(SEGMENT_ROWS)])
        await store.maintain()
        counted = await store.query("SELECT count(*) FROM feature_history", {})
        assert counted.rows == [(SEGMENT_ROWS,)]
        assert parts.tail_rows() == 0


async def test_no_error_shows_the_keys(endpoint: str, tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_in(endpoint, parts, "two")
        assert "4711" not in repr(store.tables)
        assert "4711" not in repr(lake_in(endpoint, parts, "two"))


async def test_a_bucket_that_goes_away_is_named(tmp_path: Path) -> None:
    with started() as (server, address), embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_in(address, parts, "away")
        await parts.online.put([change(n, as_of=after(n)) for n in range(SEGMENT_ROWS)])
        await store.maintain()
        server.stop()
        await parts.online.put(
            [change(n, as_of=after(n)) for n in range(SEGMENT_ROWS, 2 * SEGMENT_ROWS)]
        )
        with pytest.raises(BackendUnavailableError, match="check lake") as raised:
            await store.maintain()
        assert KEYS["secret_key"] not in str(raised.value)
