"""A lake in S3-compatible storage gives the answers of one in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from headwater.backends.lake.store import LakeOfflineStore, catalog_in_home, open_catalog
from headwater.backends.runners.inline import InlineRunner
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError
from headwater.ports import Point
from headwater.settings.schema import Settings
from tests.backends.duckdb.embedded import Embedded, after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS

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


def lake_in(endpoint: str, parts: Embedded, prefix: str) -> LakeOfflineStore:
    lake = {"url": f"s3://lake/{prefix}", "endpoint": endpoint, "region": "us-east-1", **KEYS}
    settings = Settings().replace(lake=lake, offline={"segment_rows": SEGMENT_ROWS})
    store = LakeOfflineStore(
        parts.tail,
        settings.lake,
        open_catalog(settings.lake, catalog_in_home(parts.home.path)),
        parts.home.scratch,
        SystemClock(),
        settings.offline,
        InlineRunner(),
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
