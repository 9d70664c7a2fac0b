"""`headwater eval list` and `headwater eval show`: what a run found, in every form."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import asdict, replace

from headwater import ContextItem, FeatureStore, context
from headwater.cli.evaluation_reports import ReportFindings, choose
from headwater.contexts.evaluation.differences import difference
from headwater.contexts.evaluation.gates import conclude, read_baseline
from headwater.contexts.evaluation.results import RunFolder
from headwater.model.evaluations import AnswerReport, Cause, ComparedContext, ScoreComparison
from headwater.records.sealing import open_core
from tests.cli.conftest import Run
from tests.contexts.evaluation import evaluated as small
from tests.evaluations import RUN_ID, changed_record, evaluated, write_cohort, write_run

PROMPT = Cause(kind="context", name="support", alone=True)
RANK = Cause(kind="feature", name="rank", alone=True)
HELPFUL = ScoreComparison(
    name="helpful",
    pairs=3,
    before=1.0,
    after=0.5,
    wins=0,
    ties=0,
    losses=3,
    p_sign=0.25,
    p_value=0.0001,
    is_exact=False,
)
RULES = "You are a support agent.\nAnswer in {words}, and never promise a refund."
FACTS = "\n".join(f"Fact {n}: the shop sells boots of kind {n}." for n in range(12))
HOSTILE = "<script>alert(1)</script> | `x` @team #12 \x1b[2J ]]> &amp; \u202e"


async def make_evaluation(folder: Path, size: int = 6) -> list[str]:
    """Write a cohort and a run of it: real records, of which the third and each second differ."""
    words = "three sentences"
    facts: dict[str, Any]
    async with FeatureStore() as store:

        @context(store, model="gpt-4o")
        async def support(question: str) -> list[ContextItem]:
            return [
                ContextItem(RULES.format(words=words), required=True, priority=9),
                ContextItem(FACTS, priority=1),
                ContextItem(f"Asked: {question}", priority=5),
            ]

        rows, sides, records = [], [], []
        for number in range(size):
            words = "three sentences"
            question = HOSTILE if number == 1 else f"Where is parcel {number}?"
            before = await store.get_record((await support(question)).context_id)
            records.append(before)
            words = "two short sentences" if number % 2 else words
            after = await store.get_record((await support(question)).context_id)
            found = difference(open_core(before), open_core(after))
            if found.kinds:
                facts = {"causes": (PROMPT, RANK) if number == 5 else (PROMPT,)}
                if number == 3:
                    facts |= {"fidelity": "approximate", "reasons": ("the history was pruned",)}
                row = evaluated(before, after)
                rows.append(replace(row, **asdict(found) | facts))
                sides.append(changed_record(before, after))
            elif number == 2:
                error = f"KeyError: {HOSTILE!r}"
                rows.append(evaluated(before, None, status="failed", error=error))
            else:
                rows.append(evaluated(before))
    write_cohort(folder, "last-month", records)
    write_run(folder, "last-month", rows, sides, started_at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    results = RunFolder(folder / "last-month" / RUN_ID)
    results.finish(conclude(results, {"max_changed": "2%", "p95_tokens": "+500"}))
    return [record.context_id for record in records]


@pytest.fixture
def evaluation(folder: Path) -> list[str]:
    """The ids of the contexts of an evaluation."""
    return asyncio.run(make_evaluation(folder / "evals"))


def test_cohorts_and_their_runs_are_listed(run: Run, folder: Path, evaluation: list[str]) -> None:
    write_run(
        folder / "evals",
        "last-month",
        [],
        [],
        started_at=datetime(2026, 3, 2, tzinfo=UTC),
        run_id="aaaa",
        missing=9,
    )
    listed = run("eval", "list")
    assert listed.code == 0
    heading, newest, oldest = listed.out.splitlines()
    columns = "COHORT RUN STARTED CONTEXTS CHANGED FAILED GATES CHANGES"
    assert heading.split() == columns.split()
    assert "not finished" in newest
    assert newest.endswith("context support, feature rank")
    assert oldest.endswith("context support (3), feature rank (1)")
    assert f"{RUN_ID}  2026-03-01T12:00:00Z  6         3        1" in oldest
    assert "max_failed, max_changed broken" in oldest
    assert [entry["run"]["run_id"] for entry in run("eval", "list", "--json").json] == [
        "aaaa",
        RUN_ID,
    ]
    unfinished = run("eval", "show", "last-month")
    assert (unfinished.code, "is not finished" in unfinished.err) == (1, True)


def test_a_report_names_gates_differences_causes_and_fidelity(
    run: Run, evaluation: list[str]
) -> None:
    shown = run("eval", "show", "last-month")
    assert shown.code == 0
    assert "1 of 6 contexts fails, 3 changed, 3 in what a model would have been shown" in shown.out
    assert "4 exact, 1 approximate." in shown.out
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "BROKEN max_changed 2% 4 of 6 (66.7%), 1 approximate" in lines
    assert "changed 3 50.0% 1" in lines
    assert "edited 3 1" in lines
    assert "context support changed 3 1 features.py:41" in lines
    assert "1 the history was pruned" in lines
    assert any(line.startswith(f"{evaluation[1]} edited") for line in lines)
    assert "\x1b" not in shown.out
    assert f"max_failed is broken by, first of all:\n  {evaluation[2]}\n" in shown.out
    assert lines[-1] == "Gates are broken: max_failed, max_changed."
    assert run("eval", "show", "last-month", "--json").json["summary"]["changed"] == 3


def test_one_context_is_compared_with_its_record(run: Run, evaluation: list[str]) -> None:
    shown = run("eval", "show", "last-month", evaluation[3])
    assert shown.code == 0
    assert "-Answer in three sentences, and never promise a refund." in shown.out
    assert "+Answer in two short sentences, and never promise a refund." in shown.out
    assert "approximate; the history was pruned" in shown.out
    data = run("eval", "show", "last-month", evaluation[3], "--json").json
    assert data["context"]["causes"][0]["name"] == "support"
    assert data["before"]["content"] != data["after"]["content"]


def test_the_contexts_of_a_kind_and_of_a_status_are_listed(run: Run, evaluation: list[str]) -> None:
    listed = run("eval", "show", "last-month", "--kind", "edited")
    heading, *rows = listed.out.splitlines()
    assert heading.split() == ["CONTEXT", "DIFFERENCE", "CAUSE", "TOKENS", "FIDELITY"]
    assert [row.split()[0] for row in rows] == evaluation[1::2]
    failed = run("eval", "show", "last-month", "--status", "failed", "--json").json
    assert [one["context_id"] for one in failed] == [evaluation[2]]
    nothing = run("eval", "show", "last-month", "--kind", "refusal")
    assert nothing.out == f"Run {RUN_ID} has no contexts that are refusal.\n"
    assert run("eval", "show", "last-month", "--kind", "lsot").code == 2


def test_rare_differences_are_among_the_examples_the_worst_first(tmp_path: Path) -> None:
    contexts = [
        *(small.changed(n, "edited", "tokens") for n in range(200)),
        *(small.changed(n, "lost", "tokens", lost=1) for n in range(200, 206)),
        small.changed(206, "lost", lost=1, lost_required=1),
        small.changed(207, "freshness", causes=(RANK,)),
        *(small.evaluated(n, "failed", error="KeyError") for n in range(300, 400)),
    ]
    few = [one.context_id for one in choose(contexts, 5)]
    assert few[:3] == ["ctx-00300", "ctx-00206", "ctx-00200"]
    assert "ctx-00207" in few
    shown = choose(contexts)
    assert sum("lost" in one.kinds for one in shown) == 7
    assert sum(one.status == "failed" for one in shown) == 20
    folder = small.run_folder(tmp_path, contexts)
    report = conclude(folder, {})
    hidden = ReportFindings(report, [ComparedContext(context=one) for one in shown]).hidden
    assert hidden["failed"] == 80
    assert "lost" not in hidden


def test_a_context_that_failed_is_shown_without_what_it_lacks(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    results = RunFolder(folder / "evals" / "last-month" / RUN_ID)
    bare = {"freshness_before": "", "freshness_after": "", "cost_before": None, "cost_after": None}
    rows = [replace(one, **bare) if one.status == "failed" else one for one in results.contexts()]
    results.write(0, rows, [*results.changes()])
    shown = run("eval", "show", "last-month", evaluation[2])
    assert "failed: KeyError" in shown.out
    assert "freshness" not in shown.out
    assert "price" not in shown.out


@pytest.mark.parametrize("scores", [(), (HELPFUL,)])
def test_calls_that_failed_are_in_every_report(
    run: Run, folder: Path, evaluation: list[str], scores: tuple[ScoreComparison, ...]
) -> None:
    results = RunFolder(folder / "evals" / "last-month" / RUN_ID)
    problems = {f"judges:answer: RateLimitError: {HOSTILE}": 6}
    answers = AnswerReport(
        answer="judges:answer",
        score="judges:quality",
        contexts=3,
        answered=0,
        problems=problems,
        scores=scores,
    )
    results.finish(conclude(results, {}, answers=answers))
    shown = run("eval", "show", "last-month", "--html", "page.html", "--markdown", "comment.md")
    page, comment = ((folder / name).read_text() for name in ("page.html", "comment.md"))
    for text in (shown.out, page, comment):
        assert "Scores of judges:answer, which answered to both sides of 0 of 3 contexts" in text
        assert "RateLimitError" in text
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    if scores:
        assert "helpful 1.000 0.500 -0.500 0 / 0 / 3 <0.001 0.250" in lines
    else:
        assert "none, because no context has a score on both sides" in shown.out
    assert "<script>alert" not in page
    assert "@team" not in comment.split("<details>")[0]


def test_a_run_without_gates_is_not_called_good(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    results = RunFolder(folder / "evals" / "last-month" / RUN_ID)
    rows = [one for one in results.contexts() if one.status != "failed"]
    results.write(0, rows, [*results.changes()])
    results.finish(conclude(results, {}))
    shown = run("eval", "show", "last-month", "--html", "page.html", "--markdown", "comment.md")
    assert shown.out.splitlines()[-1] == "No gates are set; see [eval.gates]."
    page, comment = ((folder / name).read_text() for name in ("page.html", "comment.md"))
    assert "<h1> 3 of 5 contexts changed.</h1>" in page
    assert "<title>last-month: 3 of 5 contexts changed.</title>" in page
    assert "No gates are set" in page
    assert comment.startswith("### Headwater: 3 of 5 contexts changed.")
    assert "No gates are set" in comment


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["last-mont"], "did you mean 'last-month'?"),
        (["last-month", "--run", "zz"], "no run 'zz'"),
        (["last-month", "zz"], "has no context 'zz'"),
        (["last-month", ""], "6 contexts begin with ''; give more characters"),
    ],
)
def test_unknown_names_are_refused_with_a_hint(
    run: Run, evaluation: list[str], arguments: list[str], problem: str
) -> None:
    refused = run("eval", "show", *arguments)
    assert refused.code == 1
    assert problem in refused.err


def test_a_page_needs_no_other_file_and_marks_the_words_that_differ(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    assert run("eval", "show", "last-month", "--html", "page.html").code == 0
    page = (folder / "page.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src 'none'" in page
    assert "<del>three</del>" in page
    assert "<ins>two short</ins>" in page
    assert "equal lines" in page
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert page.count("<details ") == 4
    for kind in ("edited", "failed", "tokens"):
        assert f'<option value="{kind}">' in page
    assert 'data-fidelity="approximate"' in page


def test_a_comment_for_a_pull_request_shows_user_text_as_it_is(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    assert run("eval", "show", "last-month", "--markdown", "comment.md").code == 0
    text = (folder / "comment.md").read_text()
    assert text.startswith("### ❌ Headwater: Gates are broken: max_failed, max_changed.")
    assert "| BROKEN | max_changed | 2% | 4 of 6 (66.7%), 1 approximate |" in text
    assert "+Answer in two short sentences, and never promise a refund." in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert any("KeyError" in line for line in tables)
    outside = "".join(part for n, part in enumerate(text.split("```")) if n % 2 == 0)
    assert "@team" not in outside
    assert "<script>" not in outside


def test_test_cases_are_valid_for_ci_systems(run: Run, folder: Path, evaluation: list[str]) -> None:
    assert run("eval", "show", "last-month", "--junit", "junit.xml").code == 0
    root = ElementTree.fromstring((folder / "junit.xml").read_text())
    gates, contexts = root.findall("testsuite")
    assert gates.attrib | {"tests": "3", "failures": "2", "errors": "0"} == gates.attrib
    assert contexts.attrib | {"tests": "4", "failures": "3", "errors": "1"} == contexts.attrib
    names = [case.get("name") for case in gates.findall("testcase")]
    assert names == ["max_failed 0", "max_changed 2%", "p95_tokens +500"]
    for suite in (gates, contexts):
        kinds = [child.tag for child in suite]
        order = [
            "properties",
            *["testcase"] * int(suite.attrib["tests"]),
            "system-out",
            "system-err",
        ]
        assert kinds == order
        for case in suite.findall("testcase"):
            assert len(case) <= 1
            assert {"name", "classname", "time"} == case.attrib.keys()


def test_a_baseline_of_all_changes_can_be_written(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    assert run("eval", "show", "last-month", "--write-baseline", "accepted.json").code == 0
    baseline = read_baseline(folder / "accepted.json")
    assert sorted(baseline.accepted) == sorted([evaluation[1], evaluation[3], evaluation[5]])


def test_values_that_were_redacted_since_are_not_shown_again(
    run: Run, folder: Path, evaluation: list[str]
) -> None:
    redacted = run("context", "redact", evaluation[3], "/output/content", "--reason", "asked", "-y")
    assert redacted.code == 0, redacted.err
    run("eval", "show", "last-month", "--html", "page.html", "--markdown", "comment.md")
    page, comment = ((folder / name).read_text() for name in ("page.html", "comment.md"))
    assert page.count("<ins>two short</ins>") == 2
    assert comment.count("+Answer in two short sentences") == 2
    assert "were redacted" in page
    assert "were redacted" in comment
