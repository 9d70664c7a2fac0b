"""`headwater context`: diff and replay."""

import asyncio
from pathlib import Path

import pytest

from headwater.model.lineage import Context
from headwater.store.loader import load_store
from tests.cli.conftest import Run
from tests.cli.context.desk import assemble, redacted


def test_two_contexts_are_compared(folder: Path, run: Run) -> None:
    before = assemble(folder)
    after = assemble(folder, "u2", max_tokens=20)
    compared = run("context", "diff", before.context_id, str(after.record_hash))
    assert compared.code == 0
    for told in (
        "text          different",
        f"({after.tokens - before.tokens:+d})",
        "user_id  changed  u1      u2",
        "max_tokens",
        "The customer has spent 0.",
        "kept at 2",
        "dropped at 2, 0 tokens",
        "-The customer has spent 40.",
        "+The customer has spent 0.",
    ):
        assert told in compared.out
    whole = run("context", "diff", before.context_id, after.context_id, "--json").json
    assert whole["same_content"] is False
    same = run("context", "diff", before.context_id, before.context_id).out
    assert same.splitlines()[2:] == [
        "text          equal",
        f"tokens        {before.tokens} → {before.tokens} (+0)",
    ]


@pytest.mark.parametrize("mode", ["show", "reassemble", "as_of", "live"])
def test_a_context_is_replayed_and_says_how_faithfully(run: Run, made: Context, mode: str) -> None:
    replayed = run("context", "replay", made.context_id, "--mode", mode)
    assert replayed.code == 0
    assert replayed.out == made.content
    assert replayed.err.startswith(f"\n{mode}: "), "the text ends without a line break"
    whole = run("context", "replay", made.context_id, "--mode", mode, "--json").json
    assert (whole["mode"], whole["matches"]) == (mode, True)
    assert whole["fidelity"]
    assert len(run("context", "list", "--json").json["contexts"]) == 1


def test_a_live_replay_has_the_values_of_now_and_as_of_those_of_then(
    folder: Path, run: Run, made: Context
) -> None:
    store = load_store(folder / "features.py")

    async def spend() -> None:
        async with store:
            await store.set_feature("total_spend", "u1", 99)

    asyncio.run(spend())
    assert "has spent 99." in run("context", "replay", made.context_id, "--mode", "live").out
    assert "has spent 40." in run("context", "replay", made.context_id, "--mode", "as_of").out


@pytest.mark.parametrize("mode", ["reassemble", "as_of", "live"])
def test_a_replay_that_is_not_possible_names_the_command_that_shows_the_record(
    run: Run, made: Context, mode: str
) -> None:
    redacted(run, made, "--reason", "r", "--everywhere")
    refused = run("context", "replay", made.context_id, "--mode", mode)
    assert refused.code == 1
    assert refused.err.endswith(f"; `headwater context show {made.context_id}` shows its record\n")
    shown = run("context", "show", made.context_id)
    assert (shown.code, f"its hash is {made.content_hash}" in shown.out) == (0, True)
