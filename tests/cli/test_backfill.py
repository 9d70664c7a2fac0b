"""`headwater backfill`: compute, compare, switch, and explain mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_verbs import drain

STRICT = """

@feature(entity=User, trigger="visit", max_retries=0)
def strict(user_id: str, event: ServiceEvent) -> int:
    if event.payload.get("bad"):
        raise ValueError("a bad visit")
    return 1
"""


@pytest.fixture
def visited(folder: Path, run: Run) -> Path:
    """A store with two visits of one user, and a feature that was added after them."""
    run("events", "publish", "visit", "u1", "bad=true")
    run("events", "publish", "visit", "u1")
    drain(folder)
    file = folder / "features.py"
    file.write_text(file.read_text() + STRICT)
    return folder


@pytest.mark.usefixtures("visited")
def test_a_backfill_is_shown_compared_and_served(run: Run) -> None:
    ran = run("backfill", "strict", "--processes", "1")
    assert "Replaying events: 0 of 2" in ran.err
    assert "{" not in ran.err  # no log records between the lines of the progress
    replayed, failed, *table, ready = ran.out.splitlines()
    assert replayed == "Replayed 2 events of strict: 1 value."
    assert failed == "1 event failed:"
    assert "ValueError: a bad visit" in table[1]
    assert "`headwater backfill switch strict`" in ready
    assert run("backfill", "status", "strict", "--json").json["state"] == "ready"
    assert run("backfill", "compare", "strict", "--json").json["online"]["only_new"] == 1
    assert "Version 2 of strict is served now" in run("backfill", "switch", "strict").out
    assert run("features", "get", "strict", "u1").out.splitlines()[1].split()[:2] == ["u1", "1"]


@pytest.mark.usefixtures("visited")
def test_mistakes_are_explained(run: Run) -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    for arguments, problem in (
        (("strct",), "did you mean 'strict'? (searched"),
        (("status", "strct"), "did you mean 'strict'? (searched"),
        (("switch", "strict"), "start one with `headwater backfill strict`"),
        (("shout",), "feature 'shout' cannot be backfilled: it has no trigger"),
        (("strict", "--since", "2026-01-01"), "has no time zone; add one"),
        (("strict", "--since", late, "--until", early), "is not before until"),
        (("strict", "--until", late, "--switch"), "makes no new version to switch to"),
    ):
        ran = run("backfill", *arguments)
        assert ran.code != 0
        assert problem in ran.err
