"""What callers say to add an outcome: one keyword for each kind, and its details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict, get_args

import msgspec
from msgspec import Meta

from headwater.errors import InvalidInputError
from headwater.messages.parsing import messages_of
from headwater.messages.parts import Message, TextPart
from headwater.model.kinds import Moment
from headwater.model.outcomes import Judge, OutcomeFacts, OutcomeKind, Response, Score, Usage

Said = str | Sequence[Message] | Response
"""What a model said, or should have said. In Python, messages may have the shape of a provider."""


class NewOutcome(TypedDict, total=False):
    """An outcome to add: exactly one of ``answer``, ``score``, ``correction`` and ``error``.

    A score by its name has exactly one of ``value``, ``label``, ``flag`` and ``text``. ``model``
    and ``usage`` are those of an answer, a correction or an error that is given as text.
    """

    answer: (
        Annotated[
            Said, Meta(description="What the model answered.", examples=["It arrives on Friday."])
        ]
        | None
    )
    score: (
        Annotated[
            str | Score, Meta(description="A judgement, or the name of one.", examples=["helpful"])
        ]
        | None
    )
    correction: (
        Annotated[
            Said,
            Meta(
                description="What the model should have answered.",
                examples=["It arrives on Monday."],
            ),
        ]
        | None
    )
    error: (
        Annotated[
            str | Response,
            Meta(
                description="The type of the error of a failed call.", examples=["RateLimitError"]
            ),
        ]
        | None
    )
    value: Annotated[float, Meta(description="The score as a number.", examples=[4.0])] | None
    label: Annotated[str, Meta(description="The score as a category.", examples=["correct"])] | None
    flag: Annotated[bool, Meta(description="The score as yes or no.", examples=[True])] | None
    text: Annotated[str, Meta(description="The score as text.", examples=["too long"])] | None
    explanation: (
        Annotated[str, Meta(description="The reason.", examples=["It names the day."])] | None
    )
    identifier: (
        Annotated[str, Meta(description="The judge's own identifier.", examples=["rubric-3"])]
        | None
    )
    model: Annotated[str, Meta(description="The model that answered.", examples=["gpt-4o"])] | None
    usage: Annotated[
        Usage | None,
        Meta(description="The billed tokens.", examples=[{"input": 120, "output": 30}]),
    ]
    as_sent: Annotated[
        bool,
        Meta(
            description="False if something else than the context was sent, so that the billed "
            "tokens say nothing about the predicted ones.",
            examples=[True],
        ),
    ]
    judge: Annotated[Judge, Meta(description="What judged.", examples=["human"])] | None
    actor: (
        Annotated[
            str, Meta(description="The person or program; the key, if not given.", examples=["ada"])
        ]
        | None
    )
    links: (
        Annotated[
            Mapping[str, str],
            Meta(description="What it belongs to, by name.", examples=[{"trace_id": "4bf92f35"}]),
        ]
        | None
    )
    source: (
        Annotated[str, Meta(description="The system that it comes from.", examples=["langfuse"])]
        | None
    )
    source_id: (
        Annotated[
            str,
            Meta(
                description="That system's id of it, which is stored once.", examples=["score-17"]
            ),
        ]
        | None
    )
    at: Moment | None
    """When it came about; now, if not given."""
    outcome_id: Annotated[
        str,
        Meta(
            description="A new UUID, so that a request that is sent again is stored once.",
            examples=["01a1de13-6731-767b-b9ee-76ce545fa0f0"],
        ),
    ]


_KINDS: dict[str, OutcomeKind] = {
    "answer": "response",
    "score": "score",
    "correction": "correction",
    "error": "error",
}
_JUDGES = get_args(Judge)
_VALUES = ("value", "label", "flag", "text")
_OF_SCORES = (*_VALUES, "explanation", "identifier")
_OF_ANSWERS = ("model", "usage")
_SHARED = ("judge", "actor", "links", "source", "source_id")


def facts_of(given: Mapping[str, Any]) -> OutcomeFacts:
    """Return what a `NewOutcome` says; raise InvalidInputError if it is not one outcome."""
    given = {name: value for name, value in given.items() if value is not None}
    kinds = [name for name in _KINDS if name in given]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise InvalidInputError(
            f"an outcome is exactly one of answer=, score=, correction= and error=, not {found}"
        )
    (kind,) = kinds
    said = given[kind]
    _check_details(kind, said, given)
    shared = {name: given[name] for name in _SHARED if name in given}
    if (judge := given.get("judge")) is not None and judge not in _JUDGES:
        raise InvalidInputError(f"judge is one of {', '.join(_JUDGES)}, not {judge!r}")
    if kind == "score":
        score = said if isinstance(said, Score) else Score(name=said, **_only(_OF_SCORES, given))
        return OutcomeFacts(kind="score", score=score, **shared)
    response = said if isinstance(said, Response) else _response(kind, said, given)
    return OutcomeFacts(kind=_KINDS[kind], response=response, **shared)


def sendable(given: NewOutcome) -> dict[str, Any]:
    """Return what a client sends: messages in any shape as neutral ones."""
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for kind in ("answer", "correction"):
        if kind in said and not isinstance(said[kind], str | Response):
            said[kind] = _response(kind, said[kind], {}).messages
    return said


def _response(kind: str, said: Any, given: Mapping[str, Any]) -> Response:
    details = _only(_OF_ANSWERS, given)
    if "usage" in details:
        details["usage"] = _usage(details["usage"])
    if kind == "error":
        return Response(error_type=said, **details)
    if isinstance(said, str):
        said = [Message(role="assistant", parts=(TextPart(content=said),))]
    try:
        return Response(messages=tuple(messages_of(said)), **details)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{kind} must be text, a list of messages or a Response: {error}"
        ) from error


def _usage(usage: object) -> Usage:
    try:
        return msgspec.convert(usage, Usage)
    except msgspec.ValidationError as error:
        raise InvalidInputError(
            f"usage is not what was billed: {error}; write {{'input': 120, 'output': 30}}"
        ) from error


def _check_details(kind: str, said: Any, given: Mapping[str, Any]) -> None:
    """Raise InvalidInputError for details that the outcome cannot have."""
    of_kind = _OF_SCORES if kind == "score" else _OF_ANSWERS
    allowed = () if isinstance(said, msgspec.Struct) else of_kind
    for name in (*_OF_SCORES, *_OF_ANSWERS):
        if name in given and name not in allowed:
            raise InvalidInputError(
                f"{name}= does not belong to {kind}= given as {type(said).__name__}; "
                + (f"use {', '.join(allowed)}" if allowed else f"set it in the {kind} itself")
            )


def _only(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}
