"""Commands for a store whose Redis has lost its data."""

import asyncio
from pathlib import Path

import pytest

from headwater.backends.redis.client import Redis, command
from headwater.cli import operating
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from tests.cli.conftest import Run


@pytest.fixture
def servers(folder: Path, production: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a store on servers, in the environment."""
    monkeypatch.setenv("HEADWATER_REDIS_URL", production.redis.url)
    monkeypatch.setenv("HEADWATER_REDIS_PREFIX", production.redis.prefix)
    monkeypatch.setenv("HEADWATER_POSTGRES_URL", production.postgres.url)
    monkeypatch.setenv("HEADWATER_POSTGRES_SCHEMA", production.postgres.schema)
    return production


async def lose(settings: Settings) -> None:
    """Remove all keys of a store."""
    redis = Redis(settings.redis.url, timeout=5, connect_timeout=5)
    await redis.open()
    keys = await redis.call(command("any", "KEYS", f"{settings.redis.prefix}:*"))
    await redis.call(command("any", "DEL", *keys))
    await redis.close()


def test_a_lost_value_is_not_reported_as_never_computed(servers: Settings, run: Run) -> None:
    assert run("events", "publish", "purchase", "u1", "amount=3").code == 0
    asyncio.run(load_store("features.py").drain())
    assert " 3.0 " in run("features", "get", "total_spend", "u1").out
    assert run("audit").code == 0
    asyncio.run(lose(servers))
    for _ in range(2):
        lost = run("features", "get", "total_spend", "u1")
        assert "no worker has computed" not in lost.err
        assert lost.code == 1
        assert "Postgres has not confirmed that it holds the history of the store" in lost.err
        assert "headwater rebuild --adopt" in lost.err
    assert run("rebuild").code == 1
    rebuilt = run("rebuild", "--adopt")
    assert rebuilt.out.startswith("Rebuilt ")
    assert " 3.0 " in run("features", "get", "total_spend", "u1").out
    assert "no worker has computed" in run("features", "get", "total_spend", "u2").err


@pytest.fixture
def mistyped(servers: Settings, run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A store with history, and settings with the prefix of another store."""
    assert run("events", "publish", "purchase", "u1", "amount=3").code == 0
    asyncio.run(load_store("features.py").drain())
    assert run("audit").code == 0
    monkeypatch.setenv("HEADWATER_REDIS_PREFIX", servers.redis.prefix + "-typo")
    return servers


def test_history_of_another_store_is_refused_without_adopt(mistyped: Settings, run: Run) -> None:
    refused = run("rebuild")
    assert refused.code == 1
    assert f"holds the history of store {mistyped.redis.prefix}-" in refused.err
    assert "`headwater rebuild --adopt`" in refused.err
    assert run("rebuild", "--adopt", "--json").json["values"] > 0
    assert " 3.0 " in run("features", "get", "total_spend", "u1").out


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
@pytest.mark.usefixtures("mistyped")
def test_rebuild_asks_before_it_adopts_the_history_of_another_store(
    run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr(operating, "is_interactive", lambda: True)
    asked = run("rebuild", stdin=f"{answer}\n")
    assert asked.code == code
    assert "Adopt it now?" in asked.out
    assert ("Rebuilt " in asked.out) == (code == 0)
