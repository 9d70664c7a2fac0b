"""Answers to the contexts that changed: who is asked, what is kept, and how scores compare."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.contexts.evaluation.answers import AnswerOptions, UserFunction, answer_changed
from headwater.contexts.evaluation.gates import conclude
from headwater.contexts.evaluation.results import RunFolder
from headwater.errors import InvalidInputError
from headwater.model.contexts import ContextDiff
from headwater.model.evaluations import AnswerReport, ChangedRecord, GateResult
from headwater.model.lineage import PastContext
from headwater.records.document import export
from headwater.records.redaction import redact
from headwater.records.sealing import seal
from headwater.settings.gates import check_gates
from tests.contexts.evaluation.evaluated import NOON, changed, evaluated, run_folder
from verifier.generator.samples import sample, sample_item

UNCOMPARED = ContextDiff(
    before="",
    after="",
    same_content=False,
    tokens_before=0,
    tokens_after=0,
    tokens_delta=0,
    items=[],
    features=[],
    results=[],
    inputs=[],
    interaction_ref=[],
    rules=[],
    text=None,
)


def side(text: str, *, withheld: bool = False) -> dict[str, Any]:
    """Return the document of a context with this text."""
    core = sample()
    output = msgspec.structs.replace(core.output, content=text)
    record = seal(msgspec.structs.replace(core, items=(sample_item(text),), output=output))
    if withheld:
        record = redact(record, "/output/content", at=NOON, reason="asked")
    document: dict[str, Any] = msgspec.json.decode(export(record))
    return document


def evaluation(path: Path, count: int = 4, **facts: Any) -> RunFolder:
    """Return a run in which the texts of all contexts but the first have changed."""
    contexts = [evaluated(0), *(changed(number, **facts) for number in range(1, count + 1))]
    records = [
        ChangedRecord(
            context_id=context.context_id,
            before=side(f"before {number}"),
            after=side(f"after {number}"),
            diff=UNCOMPARED,
        )
        for number, context in enumerate(contexts[1:], 1)
    ]
    return run_folder(path, contexts, records)


class Model:
    """A model that echoes what it is shown, and can fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.running = self.most = 0

    async def answer(self, context: PastContext) -> str:
        text = str(context.content)
        self.asked.append(text)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if text in self.failing:
            raise TimeoutError("the provider does not answer")
        return f"answer to {text}"

    def score(self, context: PastContext, answer: str) -> dict[str, float | bool]:
        assert answer == f"answer to {context.content}"
        side, number = str(context.content).split()
        return {
            "helpful": float(number) - (side == "after"),
            "safe": (side, number) != ("after", "3"),
        }

    def options(self, **options: Any) -> AnswerOptions:
        return AnswerOptions(
            UserFunction("models:answer", self.answer),
            UserFunction("judges:score", self.score),
            **options,
        )


async def not_recorded(context_id: str) -> str | None:
    return None


async def ask(folder: RunFolder, options: AnswerOptions) -> AnswerReport:
    return await answer_changed(folder, options, not_recorded)


def gate(folder: RunFolder, report: AnswerReport | None, name: str, limit: str) -> GateResult:
    """Return the result of one gate."""
    gates = conclude(folder, {name: limit}, answers=report).gates
    return next(each for each in gates if each.gate == name)


async def test_only_contexts_whose_text_changed_are_asked_on_both_sides(tmp_path: Path) -> None:
    model, folder = Model(), evaluation(tmp_path, 2)
    report = await ask(folder, model.options())
    assert sorted(model.asked) == ["after 1", "after 2", "before 1", "before 2"]
    assert (report.answer, report.score) == ("models:answer", "judges:score")
    assert (report.contexts, report.answered, report.problems) == (2, 2, {})
    helpful, safe = report.scores
    assert (helpful.name, helpful.before, helpful.after, helpful.losses) == ("helpful", 1.5, 0.5, 2)
    assert (safe.name, safe.ties) == ("safe", 2)
    unchanged = evaluation(tmp_path / "values", 2, kinds=("values", "tokens"))
    assert (await ask(unchanged, model.options())).contexts == 0
    assert len(model.asked) == 4


async def test_what_is_answered_is_not_asked_again(tmp_path: Path) -> None:
    model, folder = Model(), evaluation(tmp_path)
    model.failing = {"after 2"}
    first = await ask(folder, model.options())
    assert (first.contexts, first.answered) == (4, 3)
    assert first.problems == {"models:answer: TimeoutError: the provider does not answer": 1}
    # A line that a killed process had begun is not an answer.
    with (folder.path / "answers.jsonl").open("ab") as lines:
        lines.write(b'{"context_id":"ctx-00002","side":"af')
    model.asked.clear()
    model.failing.clear()
    second = await ask(folder, model.options())
    assert (model.asked, second.answered, second.problems) == (["after 2"], 4, {})
    model.asked.clear()
    assert await ask(folder, model.options()) == second
    assert model.asked == []


async def test_another_function_is_asked_anew(tmp_path: Path) -> None:
    model, folder = Model(), evaluation(tmp_path, 1)
    await ask(folder, model.options())
    shouted = UserFunction("models:shout", lambda context: str(context.content).upper())
    report = await ask(folder, AnswerOptions(shouted))
    assert (report.answered, report.scores) == (1, ())
    assert (folder.path / "answers.jsonl").read_text().count("BEFORE 1") == 1


async def test_no_more_contexts_are_asked_at_a_time_than_wanted(tmp_path: Path) -> None:
    model = Model()
    await ask(evaluation(tmp_path, 9), model.options(concurrency=3))
    assert model.most == 3


async def test_contexts_whose_text_is_withheld_are_counted_and_not_asked(tmp_path: Path) -> None:
    model = Model()
    record = ChangedRecord(
        context_id="ctx-00001", before=side("a", withheld=True), after=side("b"), diff=UNCOMPARED
    )
    report = await ask(run_folder(tmp_path, [changed(1)], [record]), model.options())
    assert (report.withheld, report.answered, model.asked) == (1, 0, [])


async def test_recorded_answers_stand_for_the_recorded_side(tmp_path: Path) -> None:
    model, folder = Model(), evaluation(tmp_path, 2)

    async def recorded(context_id: str) -> str | None:
        return "answer to before 1" if context_id == "ctx-00001" else None

    report = await answer_changed(folder, model.options(is_recorded_used=True), recorded)
    assert sorted(model.asked) == ["after 1", "after 2", "before 2"]
    assert (report.answered, report.recorded, report.scores[0].pairs) == (2, 1, 2)
    of_base = evaluation(tmp_path / "base", 1, compared_with="base")
    report = await answer_changed(of_base, model.options(is_recorded_used=True), recorded)
    assert (report.answered, report.recorded) == (1, 0)


@pytest.mark.parametrize("returned", ["good", float("nan"), {"helpful": "yes"}])
async def test_a_score_that_is_no_number_is_a_problem_of_the_function(
    tmp_path: Path, returned: object
) -> None:
    judge = UserFunction("judges:helpful", lambda context, answer: returned)
    options = AnswerOptions(UserFunction("models:echo", lambda context: "yes"), judge)
    report = await ask(evaluation(tmp_path, 1), options)
    ((problem, count),) = report.problems.items()
    assert (problem.startswith("judges:helpful: "), count, report.scores) == (True, 1, ())


@pytest.mark.parametrize("returned", [True, 3, 0.5])
async def test_a_bare_score_has_the_name_of_its_function(tmp_path: Path, returned: float) -> None:
    judge = UserFunction("judges:helpful", lambda context, answer: returned)
    options = AnswerOptions(UserFunction("models:echo", lambda context: {"text": "yes"}), judge)
    report = await ask(evaluation(tmp_path, 1), options)
    assert [(score.name, score.after) for score in report.scores] == [("helpful", float(returned))]


async def test_a_mean_that_falls_breaks_the_gate_if_that_is_significant(tmp_path: Path) -> None:
    few, many, model = evaluation(tmp_path / "few", 3), evaluation(tmp_path / "many", 8), Model()
    asked = [(folder, await ask(folder, model.options())) for folder in (few, many)]
    # Each score falls by one: three times that may be chance, eight times it hardly is.
    assert [gate(*each, "score_drop", "helpful 0.1").passed for each in asked] == [True, False]
    assert gate(*asked[1], "score_drop", "helpful 1").passed
    assert gate(*asked[1], "score_drop", "helpful 0.1 p<0.001").passed
    broken = gate(*asked[1], "score_drop", "helpful 0.1")
    assert (broken.limit, len(broken.contexts)) == ("helpful 0.1", 5)
    assert broken.value == "4.5 → 3.5 (p = 0.0078)"


async def test_one_context_below_a_floor_breaks_the_gate_whatever_the_average_says(
    tmp_path: Path,
) -> None:
    folder = evaluation(tmp_path)
    report = await ask(folder, Model().options())
    broken = gate(folder, report, "hard_break", "safe>=1")
    assert (broken.passed, broken.contexts, broken.value) == (
        False,
        ("ctx-00003",),
        "1 of 4 fell below",
    )
    # A score that was below the floor before has not broken now.
    assert gate(folder, report, "hard_break", "helpful >= 1").contexts == ("ctx-00001",)
    assert gate(folder, report, "hard_break", "helpful<=4").passed
    # Another gate judges the same run again, without asking anything.
    assert gate(folder, report, "score_drop", "safe 0.1").passed


async def test_gates_of_scores_say_that_nothing_was_scored(tmp_path: Path) -> None:
    folder = evaluation(tmp_path, 2)
    unasked = gate(folder, None, "hard_break", "safe>=1")
    assert (unasked.passed, unasked.value) == (True, "not scored; pass --answer and --score")
    report = await ask(folder, Model().options())
    unknown = gate(folder, report, "hard_break", "polite>=1")
    assert (unknown.passed, unknown.value) == (False, "no context has this score")


@pytest.mark.parametrize(
    "gates", [{"score_drop": "0.1"}, {"score_drop": "helpful"}, {"hard_break": "safe=1"}]
)
def test_a_gate_of_scores_that_cannot_be_read_is_refused(gates: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="must be scores, each with"):
        check_gates(gates)
