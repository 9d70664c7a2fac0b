"""`headwater context`: show, list and find."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli import context_output
from headwater.model.lineage import Context
from tests.cli.conftest import Run
from tests.cli.context.desk import DESK, assemble, sha256


def test_a_context_is_shown_by_id_prefix_and_hash(run: Run, made: Context) -> None:
    shown = run("context", "show", made.context_id)
    assert shown.code == 0
    for told in (
        made.context_id,
        str(made.record_hash),
        made.content_hash,
        "guaranteed (SLA 5m",
        "of 60 (o200k_base, exact)",
        " USD\n",
        "total_spend  u1         40",
        "call_id  c1",
        "search_docs",
        "tokens did not fit; max_tokens would have to be",
    ):
        assert told in shown.out
    assert shown.out.endswith(f"\nText\n{made.content}\n")
    for ref in (made.context_id[:13], str(made.record_hash), str(made.record_hash)[7:]):
        assert run("context", "show", ref).out == shown.out


def test_a_context_without_an_sla_is_shown_as_not_checked(folder: Path, run: Run) -> None:
    unchecked = assemble(folder, freshness_sla=None)
    shown = run("context", "show", unchecked.context_id).out
    assert "guaranteed (not checked: no SLA, oldest " in shown


def test_values_that_json_cannot_represent_are_shown_in_tags(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(DESK.replace("question: str", "question"))
    values = (math.nan, {None: 1}, None)
    kept = [assemble(folder, question=value) for value in values]  # type: ignore[arg-type]
    shown = [run("context", "show", made.context_id).out for made in kept]
    assert '{"$float":"NaN"}' in shown[0]
    assert '{"$map":[[null,1]]}' in shown[1]
    told = run("context", "diff", kept[0].context_id, kept[1].context_id).out
    assert '{"$float":"NaN"}' in told


def test_nothing_is_wrapped_or_coloured_off_a_terminal(run: Run, made: Context) -> None:
    shown = run("context", "show", made.context_id).out
    assert "\x1b" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("4 ")]
    assert " dropped " in row
    assert " did not fit; max_tokens would have to be " in row
    assert "because" not in row
    assert "SECTION" not in shown
    assert row.endswith("…")
    heading, row = run("context", "list").out.splitlines()
    assert heading.split() == ["CONTEXT", "ID", "CREATED", "AT", "NAME", "FRESHNESS"]
    assert row.split()[::2] == [made.context_id, "support"]


def test_the_text_alone_is_given_byte_by_byte(folder: Path, made: Context) -> None:
    command = [sys.executable, "-m", "headwater", "context", "show", made.context_id, "--content"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert sha256(done.stdout) == made.content_hash
    assert done.stdout == made.content.encode()


def test_a_context_as_json_has_everything(run: Run, made: Context) -> None:
    trace = run("context", "show", made.context_id, "--json").json
    assert trace["content"] == made.content
    assert trace["inputs"] == {"user_id": "u1", "question": "parcels"}
    assert [result["id"] for result in trace["retrievers"][0]["results"]] == ["page-1", "page-2"]


@pytest.mark.usefixtures("home")
def test_a_context_that_was_never_recorded_is_named_with_a_remedy(run: Run) -> None:
    for verb in ("show", "export", "verify", "replay"):
        refused = run("context", verb, "sha256:" + "0" * 64)
        assert refused.code == 1
        assert refused.err.startswith("error: no recorded context 'sha256:000")
        assert "`headwater context list`" in refused.err


@pytest.mark.usefixtures("home")
def test_contexts_are_listed_newest_first_page_by_page(folder: Path, run: Run) -> None:
    assert run("context", "list").out == "No contexts.\n"
    ids = [assemble(folder).context_id for _ in range(3)]
    first = run("context", "list", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == [ids[2], ids[1]]
    assert f"pass --cursor {ids[1]} for the next page" in first.err
    rest = run("context", "list", "--cursor", ids[1], "--json").json
    assert [listed["context_id"] for listed in rest["contexts"]] == [ids[0]]
    assert rest["next_cursor"] is None


def test_on_a_narrow_terminal_ids_are_still_whole(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ids begin with their time, so only whole ones can be told apart and pasted.
    made = {assemble(folder).context_id for _ in range(2)}
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    words = run("context", "list").out.split()
    assert made <= set(words)


def test_lists_are_bounded_by_time_name_and_status(folder: Path, run: Run) -> None:
    fresh, degraded = assemble(folder), assemble(folder, "u2")

    def ids(*options: str) -> list[str]:
        listed = run("context", "list", *options, "--json").json["contexts"]
        return [context["context_id"] for context in listed]

    assert ids("--freshness-status", "degraded") == [degraded.context_id]
    assert ids("--name", "support", "--since", "1h") == [degraded.context_id, fresh.context_id]
    assert ids("--name", "sales") == []
    assert ids("--before", "1h") == []
    assert run("context", "list", "--since", "yesterday").code == 2


def test_contexts_are_found_by_feature_entity_and_chunk(folder: Path, run: Run) -> None:
    first, second = assemble(folder), assemble(folder, "u2")

    def found(*options: str) -> list[str]:
        listed = run("context", "find", *options, "--json").json["contexts"]
        return [context["context_id"] for context in listed]

    assert found("--feature", "total_spend") == [second.context_id, first.context_id]
    assert found("--feature", "total_spend", "--entity-id", "u2") == [second.context_id]
    assert found("--entity-id", "u1") == [first.context_id]
    assert found("--entity", "User", "--entity-id", "u1") == [first.context_id]
    assert found("--entity", "Order", "--entity-id", "u1") == []
    assert found("--chunk", "page-2") == [second.context_id, first.context_id]
    assert found("--chunk", "page-9") == []
    assert first.context_id in run("context", "find", "--chunk", "page-1").out
    assert found("--document", "pages", "--entity-id", "u1") == [first.context_id]
    nothing = run("context", "find", "--document", "pages", "--index", "docs")
    assert (nothing.out, nothing.code) == ("No contexts.\n", 0)
    assert "declares no index 'docs'" in nothing.err
    refused = run("context", "find")
    assert refused.code == 2
    assert "--feature, --entity-id, --chunk, --document, --index" in refused.err
    refused = run("context", "find", "--entity", "User")
    assert refused.code == 2
    assert "--entity needs --entity-id" in refused.err


def test_in_privacy_mode_hashes_and_facts_are_shown(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_RECORD_INCLUDE_CONTENT", "0")
    made = assemble(folder)
    shown = run("context", "show", made.context_id)
    assert shown.code == 0
    assert "parcels" not in shown.out
    assert f"(withheld; its hash is {made.content_hash})" in shown.out
    assert run("context", "verify", made.context_id).code == 0
    refused = run("context", "show", made.context_id, "--content")
    assert refused.code == 1
    assert f"is withheld; its hash is {made.content_hash}" in refused.err
    assert run("context", "replay", made.context_id, "--mode", "live").code == 1


def test_a_cost_is_written_in_dollars() -> None:
    assert context_output.dollars(None) is None
    assert context_output.dollars(45_000) == "0.000045 USD"
    assert context_output.dollars(2_000_000_000) == "2 USD"
    assert context_output.dollars(100_000_000_000) == "100 USD"
    assert context_output.dollars(0) == "0 USD"
