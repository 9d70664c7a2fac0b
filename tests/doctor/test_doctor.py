"""The doctor: each check names what it looked at, what it found, and the remedy."""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.core.clock import SystemClock
from headwater.doctor.examination import examine
from headwater.model.health import Finding
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from headwater.testing import ManualClock
from tests.doctor.conftest import DiskUsage
from tests.http.key_files import add_key
from tests.servers import free_port, valkey_node


async def findings_of(
    store: FeatureStore, open_breakers: Sequence[str] | None = None
) -> dict[str, Finding]:
    """Return the findings by area and check; of equal ones the worst."""
    found = (await examine(store, open_breakers=open_breakers)).findings
    order = ("ok", "unknown", "warning", "error")
    found.sort(key=lambda finding: order.index(finding.severity))
    return {f"{finding.area}: {finding.check}": finding for finding in found}


def problems(found: dict[str, Finding]) -> dict[str, str]:
    return {
        name: finding.severity
        for name, finding in found.items()
        if finding.severity in ("warning", "error")
    }


@pytest.mark.both_environments
async def test_a_store_without_workers_has_no_other_problem(settings: Settings) -> None:
    store = FeatureStore(settings=settings)
    async with store:
        found = await findings_of(store, [])
    allowed = {
        "workload: partitions",
        "message bus: fsync",  # the server of the tests is fast, not durable
        "relational store: fsync",
        "configuration: signing keys",
        "installation: table of models",  # half a year after its date
    }
    assert problems(found).keys() <= allowed, problems(found)
    assert found["workload: partitions"].severity == "warning"
    assert "headwater worker" in found["workload: partitions"].remedy
    assert found["workload: lag"].found == "no event waits"
    assert found["workload: circuit breakers"].found == "all closed"
    assert all(finding.looked_at and finding.found for finding in found.values())
    assert all(found[name].remedy for name in problems(found))


@pytest.mark.both_environments
async def test_waiting_events_and_dead_letters_are_reported(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="purchase", max_retries=0)
    async def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    await store.publish("purchase", "u1")
    await store.drain()
    await store.publish("purchase", "u1")
    clock.advance(timedelta(minutes=2))
    found = await findings_of(store, ["broken"])
    assert found["workload: partitions"].severity == "error"
    assert "1 event waits, the oldest for " in found["workload: lag"].found
    assert found["workload: lag"].severity == "warning"
    assert found["workload: dead letters"].found == "1, of broken: ValueError: no"
    assert "headwater dlq list" in found["workload: dead letters"].remedy
    assert "open for broken" in found["workload: circuit breakers"].found


@pytest.mark.both_environments
async def test_a_failing_schedule_is_found_without_the_features_file(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    @feature(entity=user, refresh="1h", materialize=True, sql="SELECT * FROM read_csv('none.csv')")
    def spend(user_id: str) -> int: ...  # type: ignore[empty-body]

    await store.drain()
    async with FeatureStore(settings=settings) as bare:
        found = await examine(bare)
    schedules = [each for each in found.findings if each.check == "schedules"]
    assert [each.severity for each in schedules] == ["warning", "unknown"]
    assert "spend refresh fails since" in schedules[0].found
    assert "the query cannot be run" in schedules[0].found
    assert "--url" in schedules[1].remedy
    assert "entities" not in {each.check for each in found.findings}


async def test_breakers_are_unknown_without_the_workers(home: Path) -> None:
    async with FeatureStore(home=home) as store:
        found = await findings_of(store)
    assert found["workload: circuit breakers"].severity == "unknown"
    assert "--url" in found["workload: circuit breakers"].remedy


async def test_a_home_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    found = await findings_of(FeatureStore(home=tmp_path / "none"))
    assert found["embedded store: home"].severity == "unknown"
    assert not (tmp_path / "none").exists()


async def test_problems_of_a_home_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FeatureStore(home=home):
        pass
    os.chmod(home, 0o755)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(10 << 30, 0, 1 << 20))
    found = await findings_of(FeatureStore(home=home))
    assert found["embedded store: rights"].severity == "warning"
    assert found["embedded store: rights"].remedy == f"chmod 700 {home}"
    assert found["embedded store: disk"].severity == "error"
    with closing(sqlite3.connect(home / "headwater.db")) as connection:
        connection.execute("PRAGMA user_version = 1000")
    found = await findings_of(FeatureStore(home=home))
    assert found["embedded store: migrations"].severity == "error"
    assert "workload: lag" not in found  # the store cannot be opened
    (home / "headwater.db").unlink()
    found = await findings_of(FeatureStore(home=home))
    assert "no headwater.db" in found["embedded store: database"].found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a features file next to a headwater.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwater.toml").write_text("[worker]\nbatch_size = 7\n")
    file = tmp_path / "features.py"
    file.write_text("from headwater import FeatureStore\nstore = FeatureStore(home='elsewhere')\n")
    return file


async def test_the_configuration_names_the_origin_of_each_value(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_PARTITIONS", "8")
    monkeypatch.setenv("HEADWATER_PARTITION", "8")
    monkeypatch.setenv("HEADWATER_API_KEY", "k-0123456789abcdef")
    found = await findings_of(load_store(project))
    assert found["configuration: partitions"].looked_at == "HEADWATER_PARTITIONS"
    assert found["configuration: worker.batch_size"].looked_at == "headwater.toml"
    assert found["configuration: home"].looked_at == "the features file"
    assert found["configuration: home"].found == "elsewhere"
    assert "0123456789" not in str(found)
    assert "HEADWATER_PARTITION is not" in found["configuration: variables"].found
    assert "HEADWATER_PARTITIONS" in found["configuration: variables"].remedy


async def test_missing_keys_are_errors(tmp_path: Path) -> None:
    settings = Settings().replace(
        env="production",
        home=tmp_path,
        signature_mode="required",
        embeddings={"provider": "cohere"},
    )
    found = await findings_of(FeatureStore(settings=settings))
    wanted = ("configuration: API keys", "configuration: signing keys", "installation: embeddings")
    assert [found[name].severity for name in wanted] == ["error"] * 3
    assert "COHERE_API_KEY" in found["installation: embeddings"].remedy
    assert "redis.url and postgres.url must be set" in found["message bus: connection"].found


async def test_the_keys_of_callers_are_examined(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    settings = Settings().replace(home=tmp_path, keys_file=path)
    now = datetime.now(UTC)
    for name, days in {"old": -1, "soon": 3, "fine": 90}.items():
        add_key(path, name, "read", expires=now + timedelta(days=days))
    report = await examine(FeatureStore(settings=settings))
    checks = ("API keys", "key expiry")
    keys = [finding for finding in report.findings if finding.check in checks]
    assert [finding.severity for finding in keys] == ["ok", "warning", "warning"]
    assert "3 in the keys file" in keys[0].found
    assert ("'old' expired" in keys[1].found, "'soon' expires" in keys[2].found) == (True, True)
    path.chmod(0o666)
    weak = settings.replace(api_key="changeme", http={"host": "0.0.0.0"})
    report = await examine(FeatureStore(settings=weak))
    errors = [finding.found for finding in report.findings if finding.severity == "error"]
    assert any("can write the keys file" in error for error in errors)
    assert any("fewer than 16" in error for error in errors)
    path.write_text("")
    none = (await findings_of(FeatureStore(settings=settings)))["configuration: API keys"]
    assert (none.severity, "refuses every request" in none.found) == ("warning", True)
    path.write_text("[broken")
    found = await findings_of(FeatureStore(settings=settings))
    assert found["configuration: API keys"].severity == "error"


async def test_servers_that_are_down_are_reported_separately() -> None:
    settings = Settings().replace(
        redis={"url": f"redis://:sesame@127.0.0.1:{free_port()}/0"},
        postgres={"url": f"postgresql://u:sesame@127.0.0.1:{free_port()}/d", "connect_timeout": 5},
    )
    found = await findings_of(FeatureStore(settings=settings))
    assert found["message bus: connection"].severity == "error"
    assert found["relational store: connection"].severity == "error"
    assert "sesame" not in str(found)


async def test_a_weak_redis_and_missing_tables_are_errors(new_production: Settings) -> None:
    options = ("--maxmemory", "1mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
    clock = ManualClock(SystemClock().now() + timedelta(hours=1))
    with valkey_node(*options) as port:
        settings = new_production.replace(redis={"url": f"redis://127.0.0.1:{port}/0"})
        found = await findings_of(FeatureStore(settings=settings, clock=clock))
    expected = {
        "message bus: eviction": "noeviction",
        "message bus: memory": "maxmemory",
        "message bus: fsync": "appendonly",
        "message bus: clock": "chrony",
        "relational store: clock": "chrony",
        "relational store: migrations": "headwater migrate",
    }
    for name, remedy in expected.items():
        assert name in problems(found), (name, found[name])
        assert remedy in found[name].remedy


@pytest.mark.both_environments
async def test_a_source_that_queries_cannot_read_names_its_remedy(
    settings: Settings, tmp_path: Path
) -> None:
    store = FeatureStore(settings=settings)
    store.source("orders", tmp_path / "orders.csv")
    store.source("unread", tmp_path / "unread.csv")
    user = store.entity(type("User", (), {"__annotations__": {"user_id": str}}))

    @feature(entity=user, refresh="1h", sql="SELECT user_id, n AS value FROM orders")
    def ordered(user_id: str) -> int: ...  # type: ignore[empty-body]

    async with store:
        found = await findings_of(store, [])
        missing = found["sources: orders"]
        assert missing.severity == "error"
        assert missing.found.endswith(", which ordered read")
        assert found["sources: unread"].severity == "warning"
        is_direct = "create it" in missing.remedy
        assert is_direct or missing.remedy == "run `headwater sources load orders`"
        (tmp_path / "orders.csv").write_text("user_id,n\nada,1\n")
        await store.sources.load("orders")
        assert (await findings_of(store, []))["sources: orders"].severity == "ok"
