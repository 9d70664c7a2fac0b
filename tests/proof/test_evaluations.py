"""Evaluations of a world against the world itself: what they show, cost and leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from headwater.settings.schema import Settings
from proof.edits import UNCHANGED, Edit, edits
from proof.judge import judge
from proof.trial import COHORT, Trial, truth_of
from proof.world import history
from tests.engine.support import until
from tests.places import everything

CONTEXTS = 60
EDITS = {edit.key: edit for edit in edits(7, 100)}
CHOSEN = (
    "handler: feature last_page",
    "handler: feature points",
    "template: feature summary",
    "default: feature language",
    "budget: context chat",
    "priority: context support",
    "retriever option: retriever search_help",
    "type: feature channels",
    "helper: feature average_order, feature points, feature price, feature total_spend",
    "new feature: context support, feature refunds",
    "removed item: context profile",
    "freshness: context urgent",
)


@pytest.fixture
async def trial(settings: Settings, home: Path) -> Trial:
    trial = Trial(home, settings, history(7, CONTEXTS))
    await trial.live()
    return trial


async def contents(trial: Trial) -> dict[str, str]:
    """Return a hash of every table and key of a store."""
    found: dict[str, str] = {}
    async for place, content in everything(trial.settings):
        if not place.startswith("file:"):
            found[place] = sha256(found.get(place, "").encode() + content).hexdigest()
    return found


@pytest.mark.both_environments
async def test_an_unchanged_file_changes_no_context(trial: Trial) -> None:
    found = await trial.evaluate(UNCHANGED)
    assert {(said.status, said.fidelity) for said in found.values()} == {("identical", "exact")}
    assert len(found) == CONTEXTS


@pytest.mark.both_environments
async def test_a_run_writes_nothing_to_the_store(trial: Trial) -> None:
    # On servers, the first read of history copies what waits to Postgres.
    await trial.evaluate(UNCHANGED)
    before = await contents(trial)
    for chosen in ("handler: feature points", "template: feature summary"):
        found = await trial.evaluate(EDITS[chosen])
    assert any(said.status == "changed" for said in found.values())
    assert await contents(trial) == before


async def test_edits_are_found_as_the_world_shows_them_and_nothing_else_is_blamed(
    home: Path,
) -> None:
    # Both lives in one environment: on servers the arrival of an event has the time of Redis.
    trial = Trial(home, Settings(), history(7, CONTEXTS))
    await trial.live()
    changed = 0
    for edit in map(EDITS.__getitem__, CHOSEN):
        verdict = judge(await truth_of(trial, edit, Settings), await trial.evaluate(edit))
        assert verdict.faults == [], edit
        changed += verdict.changed
    assert changed > CONTEXTS


def start(trial: Trial, edit: Edit) -> subprocess.Popen[bytes]:
    """Start a run of one context at a time, in a process group of its own."""
    words = ["eval", "run", COHORT, "--file", str(trial.file(edit)), "--processes", "1"]
    variables = {**trial.environment, "HEADWATER_EVAL_PORTION": "5"}
    command = [sys.executable, "-m", "headwater", *words]
    return subprocess.Popen(command, env=variables, start_new_session=True)


async def test_a_run_that_was_killed_continues_after_its_last_portion(trial: Trial) -> None:
    edit = EDITS["template: feature summary"]
    runs = Path(trial.settings.eval.folder) / COHORT
    process = start(trial, edit)
    await until(lambda: any(runs.glob("*/part-00001.jsonl")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (folder,) = (file.parent for file in runs.glob("*/run.json"))
    written = {part: part.stat().st_mtime_ns for part in folder.glob("part-*[0-9].jsonl")}
    assert not (folder / "report.json").exists()
    assert start(trial, edit).wait() in {0, 1}
    assert (folder / "report.json").exists()
    assert written == {part: part.stat().st_mtime_ns for part in written}
    assert len(written) < len(list(folder.glob("part-*[0-9].jsonl"))) == CONTEXTS / 5
    continued = list(trial.results(edit).contexts())
    assert continued == list((await trial.evaluate(edit)).values())


def peak(trial: Trial, edit: Edit) -> int:
    """Return the most memory that a process of a run takes, in kilobytes."""
    process = start(trial, edit)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in {0, 1}
    return usage.ru_maxrss


async def test_memory_does_not_grow_with_the_cohort(trial: Trial, tmp_path: Path) -> None:
    larger = Trial(tmp_path, Settings(), history(7, 4 * CONTEXTS))
    await larger.live()
    edit = EDITS["handler: feature points"]
    assert peak(larger, edit) < 1.1 * peak(trial, edit)
