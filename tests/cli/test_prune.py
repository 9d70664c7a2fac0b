"""`headwater prune`: count, ask, remove, and say what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli import output
from tests.cli.conftest import FEATURES_WITH_RARE_TICKS, Run
from tests.cli.test_verbs import drain

AGES = ("--history", "1ms", "--events", "1ms", "--records", "1ms")


@pytest.fixture
def visited(folder: Path, run: Run) -> None:
    """A store with three visits of one user, and a tick."""
    (folder / "features.py").write_text(FEATURES_WITH_RARE_TICKS)
    for _ in range(3):
        run("events", "publish", "visit", "u1")
    drain(folder)


@pytest.mark.usefixtures("visited")
def test_a_dry_run_counts_and_a_run_removes(run: Run) -> None:
    counted = run("prune", *AGES, "--dry-run")
    assert "will be refused, for all features" in counted.err
    heading, *rows = counted.out.splitlines()
    assert heading.split() == ["PART", "BEFORE", "TO", "REMOVE"]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("history", "2"),
        ("events", "4"),
        ("records", "0"),
    ]
    removed = run("prune", *AGES, "--yes", "--json").json
    assert [removed[part]["rows"] for part in ("history", "events", "records")] == [2, 4, 0]
    assert (removed["dry_run"], removed["held"]) == (False, [])
    assert run("prune", "--events", "8w", "-y").out.splitlines()[1].split()[-1] == "0"
    assert run("features", "get", "visits", "u1").out.splitlines()[1].split()[:2] == ["u1", "3"]


@pytest.mark.usefixtures("visited")
def test_it_asks_on_a_terminal_and_needs_yes_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("prune", *AGES)
    assert refused.code == 2
    assert "pass --yes" in refused.err
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    asked = run("prune", "--events", "1ms", stdin="n\n")
    assert asked.code == 1
    assert "4 events from before" in asked.out
    assert run("prune", "--events", "1ms", stdin="y\n").out.splitlines()[-1].split()[-1] == "4"


def test_without_an_age_and_with_a_wrong_one_it_says_what_to_write(run: Run) -> None:
    run("events", "publish", "visit", "u1")
    kept = run("prune", "--dry-run")
    assert kept.code == 1
    assert "--history 400d" in kept.err
    wrong = run("prune", "--history", "400 days")
    assert "'400 days' is not a duration; write a number and one of ms, s" in wrong.err
