"""Evaluations: recorded contexts assembled again with a changed handler, and assembled live."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path

from bench.case import Effort
from bench.floors import Measuring, Rate
from headwater import Settings
from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from proof.edits import Edit
from proof.trial import COHORT, Trial
from proof.world import Step, assemble, history

SEED = 7
_OLD = 'sign * event.payload["amount"])'


def _steps(effort: Effort) -> list[Step]:
    """Return a history whose worker handles many events at a time, so that it is lived quickly."""
    steps = history(SEED, effort.of(10_000, 1_000, 50))
    return [step for n, step in enumerate(steps) if step.kind != "drain" or n % 50 == 0]


@contextmanager
def evaluated(where: str, effort: Effort) -> Iterator[Rate]:
    """Contexts per second of a run with a changed handler, its start and its report included."""
    trial = Trial(Path(where), Settings(), _steps(effort))
    asyncio.run(trial.live())
    factors = count(2)

    def rate() -> float:
        edit = Edit(
            "handler", frozenset({"feature total_spend"}), ((_OLD, f"{next(factors)} * {_OLD}"),)
        )
        file = trial.file(edit)
        start = time.perf_counter()
        asyncio.run(trial.run("run", COHORT, "--file", file))
        taken = time.perf_counter() - start
        found = list(trial.results(edit).contexts())
        assert any(said.status == "changed" for said in found)
        return len(found) / taken

    yield rate


@contextmanager
def assembled(where: str, effort: Effort) -> Iterator[Rate]:
    """Contexts per second that one client assembles of the same world, each recorded."""
    trial = Trial(Path(where), Settings(), _steps(effort))
    asyncio.run(trial.live())
    asked = cycle([step for step in trial.steps if step.kind == "assemble"])

    os.environ["PROOF_WEB"] = "The web"

    async def counted() -> float:
        store = load_store(trial.features)
        await runtime_of(store).rebind(trial.settings, runtime_of(store).clock)
        await assemble(store, next(asked))
        number, start = 0, time.perf_counter()
        while (taken := time.perf_counter() - start) < effort.seconds:
            await assemble(store, next(asked))
            number += 1
        await store.close()
        return number / taken

    yield lambda: asyncio.run(counted())


MEASURES: dict[str, Measuring] = {"evaluated": evaluated, "assembled": assembled}
