"""The workflow of examples/ci: its steps are run here as GitHub Actions runs them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from headwater.store.loader import load_store
from tests.docs.pages import ROOT

CI = ROOT / "examples" / "ci"
FEATURES = """
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase", default=0)
async def total_spend(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("total_spend", user_id) + event.payload["amount"]

@context(store, max_tokens=200)
async def support(user_id: str, question: str):
    return [
        ContextItem("You are a support agent.", required=True),
        ContextItem.template("The customer has spent {total_spend} EUR.", priority=50),
        ContextItem(question, required=True),
    ]
"""
GATES = '[eval.gates]\nmax_changed = "2%"\nlost_required = 0\n'
VALUES = {
    "github.token": "token",
    "github.event.pull_request.number": "12",
    "github.sha": "abc",
    "env.COHORT": "october",
}
"""The expressions that the workflow may use; secrets are empty, as in a fork."""
ACTIONS = {
    "actions/checkout",
    "actions/setup-python",
    "actions/cache/restore",
    "actions/cache",
    "actions/upload-artifact",
}
PIP = '#!/bin/sh\necho "$@" >> "$CALLS"\n'
"""Stands in for programs that the runner has: it notes how it was called."""


class Job(NamedTuple):
    """What a run of the workflow's job did."""

    failed: list[str]
    ran: list[str]
    calls: str
    summary: str
    output: str


@pytest.fixture(scope="module")
def workflow() -> Any:
    return yaml.safe_load((CI / "evaluate.yml").read_text())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a cohort, and the archive of the store that the cache has."""
    for name in list(os.environ):
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features.py").write_text(FEATURES)
    (tmp_path / "headwater.toml").write_text(GATES)
    (tmp_path / "requirements.txt").write_text("headwater\n")
    store = load_store(tmp_path / "features.py")

    async def live() -> None:
        async with store:
            for amount in range(8):
                await store.publish("purchase", "ada", {"amount": amount})
                await store.drain()
                question = "Where is my parcel?"
                await store.assemble("support", {"user_id": "ada", "question": question})
            await store.evaluations.freeze("october", file="features.py", context="support")

    asyncio.run(live())
    subprocess.run(["tar", "-czf", "store.tar.gz", ".headwater"], check=True)
    shutil.rmtree(".headwater")
    return tmp_path


def run_job(workflow: Any, repository: Path) -> Job:
    """Run the steps of the job one after the other; those with ``uses`` are only checked."""
    (job,) = workflow["jobs"].values()
    outside = repository.parent / f"{repository.name}-runner"
    outside.mkdir(exist_ok=True)
    for name in ("gh", "python"):
        program = outside / name
        program.write_text(PIP.replace('"$@"', f'{name} "$@"'))
        program.chmod(0o755)
    path = os.pathsep.join([str(outside), str(Path(sys.executable).parent), os.environ["PATH"]])
    calls, summary = outside / "calls", outside / "summary"
    calls.write_text("")
    summary.write_text("")
    runner = {"PATH": path, "CALLS": str(calls), "GITHUB_STEP_SUMMARY": str(summary)}
    done = Job([], [], "", "", "")
    output = ""
    for step in job["steps"]:
        if done.failed and step.get("if") != "always()":
            continue
        done.ran.append(step["name"])
        if "uses" in step:
            assert step["uses"].partition("@")[0] in ACTIONS
            continue
        variables = {**job["env"], **step.get("env", {})}
        environment = {name: _filled(value) for name, value in variables.items()}
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _filled(step["run"])],
            cwd=repository,
            env={**os.environ, **runner, **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        output += ended.stdout + ended.stderr
        if ended.returncode:
            done.failed.append(step["name"])
    return done._replace(calls=calls.read_text(), summary=summary.read_text(), output=output)


def _filled(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        return "" if match[1].startswith("secrets.") else VALUES[match[1]]

    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", value, str(text))


def edit(repository: Path, before: str, after: str) -> None:
    file = repository / "features.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def test_a_pull_request_that_changes_no_context_passes(workflow: Any, repository: Path) -> None:
    edit(repository, "\nstore = ", "\n# Nothing that a model would see.\nstore = ")
    job = run_job(workflow, repository)
    assert job.failed == [], job.output
    assert "python -m pip install -r requirements.txt" in job.calls
    assert "gh pr comment 12 --body-file evaluation.md --edit-last --create-if-none" in job.calls
    assert job.summary == (repository / "evaluation.md").read_text() != ""
    assert "<html" in (repository / "evaluation.html").read_text()


def test_a_broken_gate_fails_the_job_and_is_in_the_comment(workflow: Any, repository: Path) -> None:
    edit(repository, "You are a support agent.", "You are a kind support agent.")
    job = run_job(workflow, repository)
    assert job.failed == ["Evaluate"], job.output
    assert job.ran[-1] == "Comment on the pull request"
    assert "gh pr comment 12" in job.calls
    assert "max_changed" in job.summary
    assert "context support" in job.summary


def test_an_altered_cohort_fails_the_job(workflow: Any, repository: Path) -> None:
    cohort = repository / "evals" / "october.cohort"
    cohort.write_bytes(cohort.read_bytes().replace(b"parcel", b"parcle", 1))
    job = run_job(workflow, repository)
    assert job.failed == ["Evaluate"]
    assert "cannot be used" in job.output
    assert "gh" not in job.calls


def test_the_workflow_may_only_read_and_comment(workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert list(workflow[True]) == ["pull_request"]  # YAML 1.1 reads `on` as a boolean
