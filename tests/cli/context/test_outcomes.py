"""`headwater context`: add, list, show and redact outcomes."""

import pytest

from headwater.model.lineage import Context
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (("--answer", "On Friday.", "--model", "gpt-4o"), "response", "On Friday."),
        (("--score", "helpful=4", "--judge", "human"), "score", "helpful = 4.0"),
        (("--label", "tone=kind=of"), "score", "tone = kind=of"),
        (("--flag", "safe=false"), "score", "safe = false"),
        (("--text", "note=too long"), "score", "note = too long"),
        (("--correction", "On Monday."), "correction", "On Monday."),
        (("--error", "RateLimitError"), "error", "RateLimitError"),
    ],
)
def test_each_kind_of_outcome_is_added_listed_and_shown(
    run: Run, made: Context, options: tuple[str, ...], kind: str, said: str
) -> None:
    added = run("context", "outcome", made.context_id[:13], *options)
    assert (added.code, added.err) == (0, "")
    assert added.out.startswith(f"Added {kind} ")
    listed = run("context", "outcomes", made.context_id)
    (outcome,) = run("context", "outcomes", made.context_id, "--json").json
    assert outcome["kind"] == kind
    shown = run("context", "show", made.context_id)
    for output in (listed, shown):
        assert said in output.out
        assert outcome["outcome_id"] in output.out
    assert run("context", "show", made.context_id, "--json").json["outcomes"] == [outcome]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "exactly one of answer=, score=, correction= and error="),
        (("--score", "4"), "'4' has no name; write NAME=4"),
        (("--score", "helpful=high"), "'high' in 'helpful=high' is not a number"),
        (("--flag", "safe=perhaps"), "is not true or false"),
        (("--score", "helpful=4", "--flag", "safe=true"), "--score and --flag are several scores"),
        (("--answer", "Hi", "--score", "helpful=4"), "not answer and score"),
        (("--answer", "Hi", "--explanation", "why"), "explanation= does not belong to answer="),
    ],
)
def test_what_is_not_one_outcome_is_refused(
    run: Run, made: Context, options: tuple[str, ...], problem: str
) -> None:
    refused = run("context", "outcome", made.context_id, *options)
    assert refused.code != 0
    assert problem in " ".join(refused.err.split())
    assert run("context", "outcomes", made.context_id).out == "No outcomes.\n"


def test_a_value_of_an_outcome_is_redacted(run: Run, made: Context) -> None:
    added = run("context", "outcome", made.context_id, "--answer", "Ada lives there.", "--json")
    outcome_id = added.json["outcome_id"]
    redact = ("context", "redact-outcome", outcome_id, "/response/messages/0", "--reason", "asked")
    assert "--yes" in run(*redact).err
    assert run(*redact, "--yes").out == f"Redacted /response/messages/0 of {outcome_id}.\n"
    assert (
        "Ada" not in run("context", "show", made.context_id, "--json").out.partition("outcomes")[2]
    )
