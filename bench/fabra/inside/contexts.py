"""Answers each line on stdin with the rate at which Fabra assembles and records contexts."""
# mypy: disable-error-code="import-not-found"

import asyncio
import json
import os
import sys
import time
from importlib import import_module
from types import ModuleType


async def prepare(fabra: ModuleType, clients: int) -> None:
    for number in range(clients):
        values = {"f0": 1.5, "f1": 2.5, "f2": 3.5}
        await fabra.store.online_store.set_online_features("User", f"u{number}", values)
    made = await fabra.support(user_id="u0", question="Where is my parcel?")
    assert made.meta["evidence_persisted"], made.meta


async def client(fabra: ModuleType, number: int, seconds: float) -> float:
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        await fabra.support(user_id=f"u{number}", question="Where is my parcel?")
        calls += 1
    return calls / elapsed


async def rate(fabra: ModuleType, clients: int, seconds: float) -> float:
    return sum(await asyncio.gather(*(client(fabra, n, seconds) for n in range(clients))))


def main() -> None:
    clients, seconds = int(sys.argv[1]), float(sys.argv[2])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Not sooner: Fabra prints warnings about its environment to stdout.
    fabra = import_module("fabra_contexts")
    with asyncio.Runner() as runner:
        runner.run(prepare(fabra, clients))
        for _ in sys.stdin:
            figure = {"value": runner.run(rate(fabra, clients, seconds))}
            answers.write(json.dumps(figure) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
