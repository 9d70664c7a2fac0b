"""`python -m proof`: evaluate a world unchanged, and with edits that are judged by lives of it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from headwater import Settings
from headwater.core.logging import log
from proof.edits import UNCHANGED, Edit, edits
from proof.judge import Verdict, judge
from proof.trial import COHORT, Trial, truth_of
from proof.world import history
from tests.conftest import on_servers
from tests.servers import postgres, valkey

NAMED = 0.95
"""The share of changed contexts whose cause has to be named."""

Fresh = Callable[[], Settings]


def main() -> int:
    given = arguments()
    log.configure("error", "json")
    with TemporaryDirectory(prefix="headwater-proof-") as folder, stores(given.servers) as fresh:
        place = Path(folder)
        passed = asyncio.run(unchanged(place, fresh, given))
        if given.edits:
            passed &= asyncio.run(edited(place, fresh, given))
    return 0 if passed else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("--contexts", type=int, default=2_000, help="of the unchanged world")
    parser.add_argument("--edits", type=int, default=100, help="number of edits")
    parser.add_argument("--world", type=int, default=150, help="contexts of the edited world")
    parser.add_argument("--seed", type=int, default=7, help="of worlds and edits")
    parser.add_argument(
        "--servers", action="store_true", help="run on Redis and Postgres instead of embedded"
    )
    return parser.parse_args()


@contextmanager
def stores(on: bool) -> Iterator[Fresh]:  # noqa: FBT001 - the value of an option
    """Yield a function that returns the settings of a new store; its home is set by the trial."""
    if not on:
        yield Settings
        return
    with valkey() as redis_url, postgres() as postgres_url:
        yield lambda: on_servers(redis_url, postgres_url, f"proof_{uuid4().hex[:12]}")


async def unchanged(place: Path, fresh: Fresh, given: argparse.Namespace) -> bool:
    """Evaluate a world without a change; return whether none of its contexts differs."""
    trial = Trial(place / "unchanged", fresh(), history(given.seed, given.contexts))
    began = time.perf_counter()
    await trial.live()
    lived = time.perf_counter()
    await trial.run("run", COHORT, "--file", trial.features)
    found = {said.context_id: said for said in trial.results(UNCHANGED).contexts()}
    seconds = time.perf_counter() - lived
    counts = Counter((said.status, said.fidelity) for said in found.values())
    say(
        f"{len(trial.seen):,} contexts: lived in {lived - began:,.0f} s, evaluated in {seconds:.1f}"
    )
    for (status, fidelity), count in counts.most_common():
        say(f"  {count:,} {status}, {fidelity}")
    for reason, count in Counter(
        reason for said in found.values() for reason in said.reasons
    ).most_common(5):
        say(f"  {count:,} x {reason}")
    verdict = judge(await truth_of(trial, UNCHANGED, None), found)
    return report([verdict])


async def edited(place: Path, fresh: Fresh, given: argparse.Namespace) -> bool:
    """Evaluate edits of a smaller world; return whether the world says the same of each."""
    trial = Trial(place / "edited", fresh(), history(given.seed, given.world))
    await trial.live()
    verdicts = []
    for number, edit in enumerate(edits(given.seed, given.edits)):
        verdict = await tried(trial, edit, fresh)
        verdicts.append(verdict)
        mark = "ok" if verdict.is_right else f"{len(verdict.faults)} FAULTS"
        say(f"{number:3} {edit.kind}: {verdict.changed} changed, {mark}")
    return report(verdicts)


async def tried(trial: Trial, edit: Edit, fresh: Fresh) -> Verdict:
    """Live the world with an edit, evaluate it, and compare both."""
    found = await trial.evaluate(edit)
    return judge(await truth_of(trial, edit, fresh), found)


def report(verdicts: list[Verdict]) -> bool:
    """Print what is wrong, and return whether nothing is."""
    for verdict in verdicts:
        for fault in verdict.faults[:5]:
            say(f"{verdict.edit.kind} {sorted(verdict.edit.declarations)}: {fault}")
    changed, named = (sum(getattr(each, key) for each in verdicts) for key in ("changed", "named"))
    right = sum(verdict.is_right for verdict in verdicts)
    say(f"{right} of {len(verdicts)} right; {changed:,} contexts changed, {named:,} have a cause")
    return right == len(verdicts) and named >= NAMED * changed


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
