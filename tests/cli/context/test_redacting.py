"""`headwater context redact`."""

import pytest

from headwater.model.lineage import Context
from tests.cli.conftest import Ran, Run
from tests.cli.context.desk import redacted

ELSEWHERE = [
    "/items/2/content",
    "/items/3/content",
    "/output/content",
    "/retrievals/0/arguments",
    "/retrievals/0/results/0/content",
    "/retrievals/0/results/1/content",
]


def test_a_value_is_redacted_and_the_record_still_verifies(run: Run, made: Context) -> None:
    assert redacted(run, made).code == 2
    done = redacted(run, made, "--reason", "asked by the customer", "--by", "dpo", "--json")
    assert done.json["record_hash"] == made.record_hash
    assert done.json["also_disclosed"] == ELSEWHERE
    (note,) = done.json["redactions"]
    assert (note["pointer"], note["reason"], note["by"]) == (
        "/inputs/question",
        "asked by the customer",
        "dpo",
    )
    verified = run("context", "verify", made.context_id)
    assert verified.code == 0
    assert "redacted: /inputs/question" in verified.out
    shown = run("context", "show", made.context_id).out
    assert shown.count("/inputs/question") == 1
    (row,) = [line for line in shown.splitlines() if line.startswith("/inputs/question")]
    assert row.split()[1:3] == [note["redacted_at"], "dpo"]
    assert row.endswith("  asked by the customer")
    again = redacted(run, made, "--reason", "again")
    assert again.code == 1
    assert f"erased at {note['redacted_at']} by dpo, because: asked by the customer" in again.err
    assert "did you mean" not in again.err


def test_a_value_is_redacted_in_every_place_at_once(run: Run, made: Context) -> None:
    done = redacted(run, made, "--reason", "r", "--everywhere", "--file", "features.py", "--json")
    assert [note["pointer"] for note in done.json["redactions"]] == ["/inputs/question", *ELSEWHERE]
    assert done.json["also_disclosed"] == []
    assert "parcels" not in run("context", "export", made.context_id).out
    assert run("context", "verify", made.context_id).code == 0


def test_several_values_are_redacted_at_once_or_none(run: Run, made: Context) -> None:
    def redact(*pointers: str) -> Ran:
        return run("context", "redact", made.context_id, *pointers, "--reason", "a fault", "--yes")

    assert "did you mean '/inputs/question'" in redact("/items/2/content", "/inputs/questio").err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []
    done = redact("/inputs/question", "/items/2/content", "/inputs/question")
    assert f"Redacted /inputs/question, /items/2/content of {made.context_id}." in done.out
    left = [pointer for pointer in ELSEWHERE if pointer != "/items/2/content"]
    assert f"also occurs at {' '.join(left)}. " in done.err
    # Of the text that is gone now, these items are left.
    assert "also occurs at /items/0/content /items/1/content. " in redact(*left).err
    assert "parcels" not in run("context", "export", made.context_id).out


def test_redaction_asks_for_confirmation_only_on_a_terminal(
    run: Run, made: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.output.is_interactive", lambda: True)
    asked = run(
        "context", "redact", made.context_id, "/inputs/question", "--reason", "r", stdin="n"
    )
    assert asked.code == 1
    assert f"The value also occurs at {' '.join(ELSEWHERE)}. Pass these pointers too" in asked.err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []
    done = redacted(run, made, "--reason", "asked by the customer")
    assert "Redacted /" in done.out
    assert "The value also occurs at /items/2/content /items/3/content " in done.err


def test_redaction_everywhere_lists_the_places_before_it_asks(
    run: Run, made: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.output.is_interactive", lambda: True)
    erase = ("context", "redact", made.context_id, "/inputs/question", "--everywhere")
    asked = run(*erase, "--reason", "r", stdin="n")
    assert asked.code == 1
    assert f"Permanently redact {', '.join(['/inputs/question', *ELSEWHERE])} of" in asked.out
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []


def test_redaction_without_a_terminal_needs_yes(run: Run, made: Context) -> None:
    refused = run("context", "redact", made.context_id, "/inputs/question", "--reason", "r")
    assert refused.code == 2
    assert "pass --yes" in refused.err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []
