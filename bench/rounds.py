"""Runs a case: all contestants set up together, then measured in turn, round after round."""

import sys
from contextlib import ExitStack

from bench.case import (
    Case,
    ContestantFailedError,
    Effort,
    Figure,
    Figures,
    Measure,
    Outcome,
)


def run(case: Case, effort: Effort, *, with_peer: bool) -> Outcome:
    """Measure in turns, so that noise on the machine affects all contestants equally."""
    chosen = {"ours": case.ours, "floor": case.floor, "peer": case.peer if with_peer else None}
    entered = {who: contestant for who, contestant in chosen.items() if contestant}
    rounds_to_run = min(effort.rounds, case.rounds or effort.rounds)
    failures: dict[str, str] = {}
    taken: dict[str, list[Figure]] = {who: [] for who in entered}
    with ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for who, contestant in entered.items():
            progress(f"{case.name}: {who} is set up")
            try:
                measures[who] = stack.enter_context(contestant(effort))
            except ContestantFailedError as failed:
                failures[who] = str(failed)
        for number in range(1, rounds_to_run + 1):
            for who in [who for who in measures if who not in failures]:
                progress(f"{case.name}: round {number} of {rounds_to_run}, {who}")
                try:
                    taken[who].append(measures[who]())
                except ContestantFailedError as failed:
                    failures[who] = str(failed)
        progress("")
    best = {who: case.best(figures) for who, figures in taken.items() if who not in failures}
    rounds = {who: [figure.value for figure in figures] for who, figures in taken.items()}
    return Outcome(case, Figures(**best), rounds, failures)


def progress(text: str) -> None:
    """Print progress on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
