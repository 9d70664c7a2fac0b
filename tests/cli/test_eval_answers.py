"""The options --answer and --score of `headwater eval run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.eval_answers import answer_options
from headwater.contexts.evaluation.answers import AnswerOptions
from headwater.errors import InvalidInputError


@pytest.fixture
def judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the working directory."""
    (tmp_path / "eval_judges.py").write_text(
        "import math\n\ndef answer(context):\n    return 'yes'\n\ndef helpful(context, answer):\n"
        "    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "eval_judges"
    sys.modules.pop("eval_judges", None)


def options(answer: str | None, score: str | None = None) -> AnswerOptions | None:
    return answer_options(answer, score, concurrency=2, recorded_answers=False)


def test_functions_are_found_in_the_working_directory(judges: str) -> None:
    found = options(f"{judges}:answer", f"{judges}:helpful")
    assert found is not None
    assert found.score is not None
    assert (found.answer.name, found.answer.function(None)) == ("eval_judges:answer", "yes")
    assert (found.score.function(None, "yes"), found.concurrency) == (1, 2)
    assert options(None) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("eval_judges", "does not name a module and a function"),
        ("eval_judges.py:answer", "does not name a module and a function"),
        ("eval_judge:answer", "there is no module 'eval_judge'"),
        ("eval_judges:answr", "has no function 'answr'; did you mean 'answer'"),
        ("eval_judges:math", "has no function 'math'"),
    ],
)
@pytest.mark.usefixtures("judges")
def test_a_function_that_is_not_there_is_named(answer: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        options(answer)


def test_a_score_needs_answers() -> None:
    with pytest.raises(InvalidInputError, match="pass --answer module:function"):
        options(None, "judges:helpful")
    with pytest.raises(InvalidInputError, match="pass --answer module:function"):
        answer_options(None, None, concurrency=4, recorded_answers=True)
