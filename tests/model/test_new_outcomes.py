"""What an added outcome says, by the keywords that it was given."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Message, Response, Score, Usage
from headwater.errors import InvalidInputError
from headwater.messages.parts import TextPart
from headwater.model.new_outcomes import facts_of
from headwater.model.outcomes import OutcomeFacts

HELLO = Message(role="assistant", parts=(TextPart(content="Hello"),))


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        (
            {"answer": "Hello", "model": "gpt-4o", "usage": Usage(input=7)},
            OutcomeFacts(
                kind="response",
                response=Response(messages=(HELLO,), model="gpt-4o", usage=Usage(input=7)),
            ),
        ),
        ({"answer": [HELLO]}, OutcomeFacts(kind="response", response=Response(messages=(HELLO,)))),
        (
            {"answer": Response(model="gpt-4o"), "actor": "web"},
            OutcomeFacts(kind="response", response=Response(model="gpt-4o"), actor="web"),
        ),
        (
            {"score": "helpful", "value": 4.0, "judge": "human", "source_id": None},
            OutcomeFacts(kind="score", score=Score(name="helpful", value=4.0), judge="human"),
        ),
        (
            {"score": "safe", "flag": False, "explanation": "It names a person."},
            OutcomeFacts(
                kind="score",
                score=Score(name="safe", flag=False, explanation="It names a person."),
            ),
        ),
        (
            {"correction": "Hello"},
            OutcomeFacts(kind="correction", response=Response(messages=(HELLO,))),
        ),
        (
            {"error": "RateLimitError", "model": "gpt-4o"},
            OutcomeFacts(
                kind="error", response=Response(error_type="RateLimitError", model="gpt-4o")
            ),
        ),
    ],
)
def test_each_kind_has_a_keyword(given: dict[str, Any], facts: OutcomeFacts) -> None:
    assert facts_of(given) == facts


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "not none of them"),
        ({"answer": "Hello", "score": "helpful"}, "not answer and score"),
        ({"answer": "Hello", "value": 4.0}, "value= does not belong to answer="),
        ({"score": Score(name="helpful", value=1.0), "value": 4.0}, "set it in the score itself"),
        ({"score": "helpful", "model": "gpt-4o"}, "use value, label, flag, text"),
        ({"answer": 7}, "answer must be text, a list of messages or a Response: .*not int"),
        ({"correction": [{"role": "robot"}]}, "correction must be text"),
        ({"answer": "Hello", "usage": {"input": "many"}}, "usage is not what was billed"),
    ],
)
def test_what_is_not_one_outcome_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        facts_of(given)
