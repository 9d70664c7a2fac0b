"""A store that an earlier release wrote is opened by this one, with all that it has."""

from __future__ import annotations

import lzma
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from headwater import FeatureStore
from headwater.backends.postgres.migrate import migrate
from headwater.settings.schema import Settings
from tests.servers import valkey_machine
from tests.upgrades.shop import FIRST, PEOPLE, VISITS, declared, visit
from tests.wheels import postgres_installation

RELEASES = sorted(folder for folder in Path(__file__).parent.iterdir() if folder.name[0].isdigit())
EMBEDDINGS = {"provider": "lexical"}


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture
def home(release: Path, tmp_path: Path) -> Settings:
    """Return the settings of the embedded store of a release."""
    with tarfile.open(release / "home.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Settings().replace(home=str(tmp_path / "home"), embeddings=EMBEDDINGS)


@pytest.fixture
def servers(release: Path, postgres_url: str) -> Iterator[Settings]:
    """Yield the settings of the store of a release on servers, before its migration."""
    name = f"upgrade_{uuid4().hex[:12]}"
    url = urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
    _query(postgres_url, f"CREATE DATABASE {name}")
    _query(url, "CREATE EXTENSION IF NOT EXISTS vector")
    _query(url, lzma.decompress((release / "postgres.sql.xz").read_bytes()).decode())
    with valkey_machine() as machine:
        machine.kill()
        dump = lzma.decompress((release / "redis.rdb.xz").read_bytes())
        (machine.folder / "dump.rdb").write_bytes(dump)
        machine.start()
        redis = f"redis://127.0.0.1:{machine.port}/0"
        yield Settings().replace(redis={"url": redis}, postgres={"url": url}, embeddings=EMBEDDINGS)
    _query(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def _query(url: str, sql: str) -> None:
    installation = postgres_installation()
    libraries = {"LD_LIBRARY_PATH": str(installation / "lib")}
    command = (str(installation / "bin" / "psql"), "-q", "-d", url, "-v", "ON_ERROR_STOP=1")
    subprocess.run(
        command, input=sql, text=True, check=True, capture_output=True, env=libraries, timeout=100
    )


async def has_all(store: FeatureStore) -> None:
    """Check that a store has what a release wrote, and goes on from there."""
    assert await visits_of(store) == [14, 13, 13]
    assert await store.get_feature("summary", "bob") == "13 visits, the last to page-37"
    before = [{"user_id": "ada", "timestamp": FIRST.replace(minute=number)} for number in (1, 10)]
    frame = await store.get_historical_features(before, ["visits"])
    assert [row["visits"] for row in frame] == [1, 4]
    [letter] = await store.dead_letters.list()
    assert (letter.feature, letter.event.event_id) == ("fragile", "broken-1")
    [chunk] = await store.search("help", "How long does a heavy parcel take?", top_k=1)
    assert chunk.document == "parcels"
    [summary] = (await store.list_contexts()).contexts
    assert (await store.records.verify(summary.context_id)).ok
    recorded = await store.get_context_at(summary.context_id)
    assert "7 visits, the last to page-18" in (recorded.content or "")
    logged = await store.bus.list(event_id="visit-0")
    assert [each.event.entity_id for each in logged] == ["ada"]
    # Events are known by their ids, and new ones count.
    await visit(store, range(VISITS + 3))
    assert await visits_of(store) == [15, 14, 14]
    assert (await store.admin.audit()).differences == []
    await store.admin.rebuild()
    assert await visits_of(store) == [15, 14, 14]


async def visits_of(store: FeatureStore) -> list[int]:
    return [await store.get_feature("visits", person) for person in PEOPLE]


async def test_an_embedded_store_goes_on(home: Settings) -> None:
    async with declared(home) as store:
        await has_all(store)


@pytest.mark.direct
async def test_a_store_on_servers_goes_on(servers: Settings) -> None:
    await migrate(servers)
    async with declared(servers) as store:
        await has_all(store)
