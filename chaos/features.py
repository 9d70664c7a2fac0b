"""The features file of the workers: handlers that work, fail, hang, exit or are killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from chaos.clock import clock_of_this_process
from chaos.plan import CHAINED, SPAN
from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature

Chain = tuple[int, int, str]
"""Number of events of an account, number of the last one, and a hash over all of them."""

EMPTY: Chain = (0, 0, "")

SLOW_SECONDS = 0.05

_DIMENSIONS = 8
_CHUNKS = 3

store = FeatureStore(clock=clock_of_this_process())


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return vectors that depend on the texts, without any meaning."""
    seeds = [crc32(text.encode()) for text in texts]
    return [[float((seed >> 4 * n & 15) + 1) for n in range(_DIMENSIONS)] for seed in seeds]


Index(store, "notes", embedder=embed, dimensions=_DIMENSIONS, chunk_tokens=16, overlap=0)


def note(event_id: str) -> str:
    """Return the document of an event, which is split into several chunks."""
    return "\n\n".join(
        f"Part {part} of the note that event {event_id} left here." for part in range(_CHUNKS)
    )


def extended(before: Chain, number: int, event_id: str) -> Chain:
    """Return the chain after an event; lost, doubled or reordered events change the hash."""
    count, _, link = before
    return count + 1, number, hashlib.sha256(f"{link}/{number}/{event_id}".encode()).hexdigest()


@entity(store)
class Account:
    account_id: str


@entity(store)
class Pot:
    pot_id: str


@feature(entity=Account, trigger=CHAINED, max_retries=5)
async def chain(account_id: str, event: ServiceEvent) -> Chain:
    before = await store.get_feature("chain", account_id) or EMPTY
    after = extended(before, event.payload["number"], event.event_id)
    if event.event_type == "slow":
        await asyncio.sleep(SLOW_SECONDS)
    if event.event_type == "flaky":
        _raise_the_first_time(Path(event.payload["mark"]))
    return after


def contribution(number: int) -> float:
    """Return what an event contributes to windows: sums of it depend on the order if rounded."""
    return number * 0.1


@feature(
    entity=Account,
    trigger=CHAINED,
    window=["10s", "7d"],
    aggregate=["count", "sum", "max", "distinct", "p95", "last(3)"],
    max_retries=5,
)
async def stepped(account_id: str, event: ServiceEvent) -> float:
    return contribution(event.payload["number"])


def _raise_the_first_time(mark: Path) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    raise ConnectionError("the first time it always fails")


@feature(entity=Account, trigger="raise", max_retries=1)
async def raises(account_id: str, event: ServiceEvent) -> int:
    raise ValueError(f"no value for event {event.event_id}")


@feature(entity=Account, trigger=SPAN, max_retries=1)
async def breaks(account_id: str, event: ServiceEvent) -> int:
    """Fail for so many events in a row that the circuit breaker opens."""
    if event.event_type != "mended":
        raise ConnectionError("the service behind this feature is unavailable")
    return int(event.payload["number"])


@feature(entity=Account, trigger="hang", max_retries=0)
async def hangs(account_id: str, event: ServiceEvent) -> int:
    await asyncio.Event().wait()
    return 0


@feature(entity=Account, trigger="stick", max_retries=0)
def sticks(account_id: str, event: ServiceEvent) -> int:
    threading.Event().wait()
    return 0


@feature(entity=Account, trigger="block", max_retries=0)
async def blocks(account_id: str, event: ServiceEvent) -> int:
    """Block the event loop, so that the watchdog ends the worker."""
    threading.Event().wait()
    return 0


@feature(entity=Account, trigger="exit", max_retries=0)
async def exits(account_id: str, event: ServiceEvent) -> int:
    os._exit(3)


@feature(entity=Account, trigger="kill", max_retries=0)
def kills(account_id: str, event: ServiceEvent) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@feature(entity=Account, trigger="gift")
async def given(account_id: str, event: ServiceEvent) -> int:
    """Count an account's gifts and add each to a pot, an entity of another partition."""
    pot_id = event.payload["pot"]
    await store.set_feature("filled", pot_id, (await store.get_feature("filled", pot_id) or 0) + 1)
    return (await store.get_feature("given", account_id) or 0) + 1


@feature(entity=Pot, trigger="coin")
async def filled(pot_id: str, event: ServiceEvent) -> int:
    return (await store.get_feature("filled", pot_id) or 0) + 1


# Documents are refused while Redis is an older copy, also in the partitions that are not.
@feature(entity=Account, trigger="note", max_retries=8)
async def noted(account_id: str, event: ServiceEvent) -> int:
    """Replace the document of an account with each event, and count the events."""
    await store.index("notes", account_id, note(event.event_id), {"event": event.event_id})
    return (await store.get_feature("noted", account_id) or 0) + 1


@context(store)
async def summary(account_id: str) -> str:
    """Assemble what is known of an account."""
    count, last, _ = await store.get_feature("chain", account_id) or EMPTY
    return f"{count} events, the last one is {last}"
