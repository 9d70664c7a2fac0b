"""The features of a support desk, and its contexts."""

import asyncio
import hashlib
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

from headwater.model.contexts import Overrides
from headwater.model.lineage import Context
from headwater.store.loader import load_store
from tests.cli.conftest import Ran, Run

DESK = '''
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature, retriever

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase", default=0)
async def total_spend(user_id: str, event: ServiceEvent) -> int:
    return event.payload["amount"]

@retriever(store)
async def search_docs(query: str):
    return [
        {"text": f"{query}: see page {n}", "id": f"page-{n}", "score": 1 / n, "document": "pages"}
        for n in (1, 2)
    ]

@context(
    store, max_tokens=60, freshness_sla="5m", model="gpt-4o", allow_looser="freshness_sla"
)
async def support(user_id: str, question: str):
    """What a support agent knows."""
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem.template("The customer has spent {total_spend}.", priority=80),
        *(ContextItem(doc.text, priority=50, source=doc) for doc in await search_docs(question)),
        ContextItem("word " * 100, priority=1),
    ]
'''


def assemble(
    folder: Path, user_id: str = "u1", question: str = "parcels", **options: Any
) -> Context:
    """Assembles the desk's context in the folder's store."""
    store = load_store(folder / "features.py")

    async def assembled() -> Context:
        async with store:
            if user_id == "u1":
                await store.set_feature("total_spend", "u1", 40)
            params = {"user_id": user_id, "question": question}
            overrides = Overrides(**options)
            return await store.assemble("support", params, overrides)

    return asyncio.run(assembled())


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tamper(folder: Path, statement: str) -> None:
    """Change the database without the store."""
    with sqlite3.connect(folder / ".headwater" / "headwater.db") as log:
        log.execute(statement)
    log.close()


def unpacked(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def redacted(run: Run, made: Context, *options: str) -> Ran:
    return run("context", "redact", made.context_id[:18], "/inputs/question", *options, "--yes")
