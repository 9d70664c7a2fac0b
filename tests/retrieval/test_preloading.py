"""Modules that take long to load are loaded before they would block the event loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from tests.engine.support import records
from tests.retrieval.support import Words, declare_docs, documents, index_all

WORKER = """
import asyncio, sys
from headwater import FeatureStore, Index, Worker

store = FeatureStore()
Index(store, "docs")

async def main():
    async with store:
        before = "numpy" in sys.modules
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        while not worker.health().ok:
            await asyncio.sleep(0.01)
        print(before, "numpy" in sys.modules)
        worker.stop()
        await running

asyncio.run(main())
"""

SERVER = """
import asyncio, os, signal, sys
from headwater import FeatureStore, Index
from headwater.http.server.processes import serve
from headwater.retrieval.embeddings.local import local_model

store = FeatureStore()
Index(store, "docs")
Index(store, "words", embedder="lexical")

def loaded():
    search = "headwater.backends.sqlite.vectors.search"
    return [local_model.cache_info().currsize, search in sys.modules]

def ready(url):
    print(*before, *loaded())
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
    global before
    await store.index("words", "parcels", "Parcels take two days.")
    before = loaded()
    await serve(store, host="127.0.0.1", port=0, on_ready=ready)

asyncio.run(main())
"""


def test_a_worker_loads_the_modules_of_indexes_before_it_takes_events(tmp_path: Path) -> None:
    assert last_line(WORKER, tmp_path) == "False True"


def test_a_server_loads_models_and_vectors_before_it_is_ready(tmp_path: Path) -> None:
    assert last_line(SERVER, tmp_path) == "0 False 1 True"


def last_line(program: str, home: Path) -> str:
    environment = {**os.environ, "HEADWATER_HOME": str(home)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()[-1]


@pytest.mark.both_environments
async def test_what_a_server_loads_costs_no_call_of_an_embedder(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)
    words.texts.clear()
    await (await runtime_of(store).open()).warm_up()
    assert not words.texts
    assert documents(await store.search("docs", "tall animals", top_k=1)) == ["giraffes"]


@pytest.mark.both_environments
async def test_an_index_that_cannot_be_searched_keeps_no_server_from_its_start(
    store: FeatureStore, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    declare_docs(store)
    await index_all(store)
    async with FeatureStore(settings=settings) as other:
        declare_docs(other, Words(dimensions=8))
        await (await runtime_of(other).open()).warm_up()
    (warning,) = records(capfd.readouterr().err, "the first requests will be slow")
    assert "headwater index reindex docs" in warning["error"]
