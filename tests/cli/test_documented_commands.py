"""The commands of the reference run as they are shown."""

import asyncio
import gzip
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
import pytest

from headwater import FeatureStore
from headwater.store.loader import load_store
from tests.cli.conftest import Run
from tests.docs.pages import DOCS, ROOT
from tests.docs.test_commands import documented_arguments

FEATURES = """
from headwater import ContextItem, FeatureStore, Index, ServiceEvent, context, entity, feature

store = FeatureStore()
Index(store, "docs", embedder="lexical")

store.source("customers", "customers.csv")

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase", max_retries=0, default=0.0)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    return await store.get_feature("total_spend", user_id) + event.payload["amount"]

@feature(entity=User, trigger="visit", max_retries=0)
async def last_page(user_id: str, event: ServiceEvent) -> str:
    return event.payload["page"]

@feature(entity=User, trigger="payment", window="1h", aggregate="sum")
def payments(user_id: str, event: ServiceEvent) -> float:
    return event.payload["amount"]

@feature(entity=User, refresh="1h")
def orders(user_id: str) -> int:
    return 0

@feature(entity=User, ttl="30d")
def risk(user_id: str) -> float:
    return 0.0

@entity(store)
class Driver:
    driver_id: int

@feature(entity=Driver, refresh="1d")
def conv_rate(driver_id: int) -> float:
    return 0.0

@feature(entity=Driver, refresh="1d")
def acc_rate(driver_id: int) -> float:
    return 0.0

@context(store, freshness_sla="5m")
async def support(user_id: str, question: str) -> list[ContextItem]:
    spent = await store.get_feature("total_spend", user_id)
    return [ContextItem(question), ContextItem(f"{spent} spent"), *map(ContextItem, "abcd")]
"""

EVENT = '{"event_type": "purchase", "entity_id": "ada", "payload": {"amount": 1}}\n'
REFERENCE = str((DOCS / "reference" / "cli.md").relative_to(ROOT))
OUTCOME_ID = "01a1de13-6731-767b-b9ee-76ce545fa0f0"
RECORD_HASH = "sha256:76f754e21eb349382fad06c8dfc87210476e3b06ea1e4a02653d3b39084404d8"
EXIT_STATUS_IS_A_RESULT = {"doctor"}
NEEDS_A_WORKER = 3
"""The exit status of a command that waited for what no worker did."""
NEEDS_A_LAKE = "lake"
RUNNING_UNTIL_CTRL_C = {"dev", "serve", "worker", "demo", "mcp", "ui"}


@pytest.fixture
def folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that the commands name."""
    secrets = f"march:a secret of many letters,ed25519:may:{'A' * 42}E"
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", secrets)
    (folder / "features.py").write_text(FEATURES)
    (folder / "shop").mkdir()
    (folder / "shop" / "features.py").write_text(FEATURES)
    (folder / "handbook").mkdir()
    (folder / "handbook" / "returns.md").write_text("# Returns\n\nReturns take 3 days.\n")
    (folder / "articles.jsonl").write_text('{"slug": "a", "body": "Returns are free."}\n')
    articles = str(folder / "articles.parquet")
    duckdb.sql("SELECT 1 AS id, 'Parcels are fast.' AS text").write_parquet(articles)
    now = "TIMESTAMPTZ '2026-01-15 09:00:00Z'"
    stats = f"SELECT 7 AS driver_id, {now} AS event_timestamp, 0.5 AS conv_rate, 0.9 AS acc_rate"
    duckdb.sql(stats).write_parquet(str(folder / "driver_stats.parquet"))
    with duckdb.connect(folder / "warehouse.duckdb") as warehouse:
        warehouse.execute(f"CREATE TABLE driver_stats AS {stats}")
    (folder / "scores.csv").write_text("customer,score,day\nada,0.25,2026-01-15\n")
    row = "2026-01-15T09:00:00Z,ada,5"
    (folder / "past.csv").write_text(f"at,customer,amount\n{row}\n")
    event = {"event_type": "visit", "entity_id": "ada", "timestamp": "2026-01-15T09:00:00Z"}
    (folder / "events.jsonl.gz").write_bytes(gzip.compress(msgspec.json.encode(event)))
    (folder / "langfuse.json").write_text('{"data": [], "meta": {"totalItems": 0}}')
    asyncio.run(_publish(load_store(folder / "features.py")))
    # Of after the switch: what version 1 was known to be is gone when it has been dropped.
    spine = "SELECT 'ada' AS user_id, now() AS timestamp, now() AS decided_at"
    duckdb.sql(spine).write_parquet(str(folder / "spine.parquet"))
    monkeypatch.setenv("HEADWATER_WORKER_CONSUMER_GROUP", "experiment")
    asyncio.run(_drain(load_store(folder / "features.py")))
    monkeypatch.delenv("HEADWATER_WORKER_CONSUMER_GROUP")
    return folder


async def _publish(store: FeatureStore) -> None:
    async with store:
        await store.publish("purchase", "ada", {"amount": 40})
        # Events without a payload become the dead letters 1 to 4.
        for _ in range(3):
            await store.publish("purchase", "ada")
        await store.drain()
        await store.publish("visit", "grace")
        await store.drain()
        # Version 1 is not served any more, so it can be dropped.
        await store.backfills.run("total_spend", switch=True)


async def _drain(store: FeatureStore) -> None:
    async with store:
        await store.drain()


class Contexts(NamedTuple):
    """The ids and the hash that replace those of the reference, and an exported record."""

    references: dict[str, str]
    document: str


def _assemble(run: Run) -> Contexts:
    first, second = (
        run("context", "assemble", "support", "user_id=ada", f"question={n}?", "--json").json
        for n in ("why", "how")
    )
    document = run("context", "export", first["context_id"]).out
    Path("record.json").write_text(document)
    outcome = run(
        "context", "outcome", first["context_id"], "--answer", "On Friday.", "--json"
    ).json
    references = {
        OUTCOME_ID: outcome["outcome_id"],
        "01a1de13-6731": first["context_id"],
        "01a1de13-9f02": second["context_id"],
        RECORD_HASH: first["record_hash"],
    }
    return Contexts(references, document)


@pytest.mark.usefixtures("folder")
def test_the_commands_of_a_lake_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LAKE_URL", "lake")
    commands = [each for each in documented_arguments(REFERENCE) if each[0] == NEEDS_A_LAKE]
    assert len(commands) == 4
    for words in commands:
        ran = run(*words, *(["--yes"] if "expire" in words else []))
        assert ran.code == 0, ran.err
        assert "history" in ran.out or "Removed 0 files" in ran.out


@pytest.mark.usefixtures("folder")
def test_the_commands_of_the_reference_run(run: Run) -> None:
    contexts = _assemble(run)
    for arguments in documented_arguments(REFERENCE):
        if arguments[0] in {NEEDS_A_LAKE, *RUNNING_UNTIL_CTRL_C} or {"--watch", "mirror"} & set(
            arguments
        ):
            continue
        words = [contexts.references.get(argument, argument) for argument in arguments]
        is_redaction = bool({"redact", "redact-outcome"}.intersection(words))
        if (is_redaction or "drop" in words) and "--yes" not in words:
            words.append("--yes")  # there is no terminal to ask on
        ran = run(*words, stdin=contexts.document if arguments[0] == "context" else EVENT)
        is_expected = ran.code == (NEEDS_A_WORKER if "--wait" in words else 0)
        has_succeeded = is_expected or (arguments[0] in EXIT_STATUS_IS_A_RESULT and not ran.err)
        assert has_succeeded, f"{' '.join(words)}: {ran.out}{ran.err}"
        if is_redaction:
            contexts = _assemble(run)
