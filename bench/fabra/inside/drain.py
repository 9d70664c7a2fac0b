"""Answers each line on stdin with the rate at which Fabra's worker works off a filled stream."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

import asyncio
import json
import os
import sys
import time

from fabra.events import AxiomEvent
from fabra.worker import AxiomWorker
from fabra_features import store

STREAM = "fabra:events:purchase"
ENTITIES = 1_000


class CountingWorker(AxiomWorker):
    """Fabra's worker, which also says when it has acknowledged so many events."""

    def __init__(self, events: int) -> None:
        super().__init__(store=store)
        self.left = events
        self.done = asyncio.Event()

    async def ack(self, stream: str, msg_id: str) -> None:
        await super().ack(stream, msg_id)
        self.left -= 1
        if not self.left:
            self.done.set()


async def drain(events: int) -> float:
    """Events per second of one worker, from its start to its last acknowledgement."""
    store.online_store.client = None  # each round has a separate event loop
    worker = CountingWorker(events)
    await fill(worker, events)
    start = time.perf_counter()
    running = asyncio.create_task(worker.run())
    await worker.done.wait()
    elapsed = time.perf_counter() - start
    await worker.redis.delete(STREAM, *(f"User:u{number}" for number in range(ENTITIES)))
    running.cancel()
    await asyncio.wait([running])
    return events / elapsed


async def fill(worker: CountingWorker, events: int) -> None:
    """Add the entries of Fabra's bus in one pipeline, because publishing is not measured."""
    async with worker.redis.pipeline(transaction=False) as pipe:
        for number in range(events):
            event = AxiomEvent(
                event_type="purchase", entity_id=f"u{number % ENTITIES}", payload={"amount": 1.5}
            )
            pipe.xadd(STREAM, {"data": event.model_dump_json()})
        await pipe.execute()


def main() -> None:
    events = int(sys.argv[1])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for _ in sys.stdin:
        answers.write(json.dumps({"value": asyncio.run(drain(events))}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
