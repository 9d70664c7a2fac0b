"""A program that indexes documents again and again until it is killed: ``HOME direct|handler``."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

import msgspec

from conformance.documents import document, stored_document
from conformance.suite import Opened, change, click, outcome
from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.ports import DocumentWrite
from headwater.settings.schema import Settings

NAMES = ("a", "b", "c")


def version(name: str, number: int) -> DocumentWrite:
    """Return a version of a document: some chunks stay, some move, and their number changes."""
    parts = [f"{name} {number} {part}" for part in range(2 + number % 4)]
    return document(name, "first", *parts, "last", metadata={"number": number})


async def index_directly(store: Opened, first: int) -> None:
    for number in itertools.count(first):
        await store.vectors.write([version(name, number) for name in NAMES])


async def index_in_commits(store: Opened, first: int) -> None:
    """Commit a value and documents with the same number, as a worker does for a handler."""
    leases = await store.hold(f"w{first}")
    for number in itertools.count(first):
        await store.publish([click("u1", number)])
        batch = await store.only_batch(leases)
        # A killed process may have left an event with the same number.
        assert {each.event.payload["number"] for each in batch.deliveries} == {number}
        result = outcome(batch, [change(number)])
        documents = [version(name, number) for name in NAMES]
        await store.bus.commit(msgspec.structs.replace(result, documents=documents))


async def main(home: Path, way: str) -> None:
    settings = Settings().replace(home=home)
    backends = await connect(settings, SystemClock())
    store = Opened(**msgspec.structs.asdict(backends))
    stored = await stored_document(store.vectors, "a")
    first = 1 if stored is None else stored.metadata["number"] + 1
    await (index_directly if way == "direct" else index_in_commits)(store, first)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
