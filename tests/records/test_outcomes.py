"""Outcomes as sealed bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from headwater.errors import OutcomeError, RecordValueError
from headwater.messages.parts import Blob, Message, TextPart, ToolCall
from headwater.model.outcomes import OutcomeFacts, Response, Score, Usage
from headwater.records.document import export, load_all
from headwater.records.outcomes import (
    MOST_NAMES,
    OutcomeRecord,
    check_facts,
    outcome_core,
    outcome_view,
    seal_outcome,
)
from headwater.records.redaction import copies_in, redact
from headwater.records.sealing import seal
from headwater.records.signing import parse_keyring, sign
from headwater.records.verify import verify_outcome
from tests.records.strategies import outcome_facts
from verifier.generator.samples import HMAC, NOON, salts, sample

ANSWER = Message(
    role="assistant",
    parts=(
        TextPart(content="Your parcel is in Kyoto. Where is my parcel?"),
        ToolCall(id="c1", name="track", arguments={"parcel": 7, "speed": 1.5, "$ref": None}),
        Blob(mime_type="image/png", content=b"\x89PNG"),
    ),
    finish_reason="stop",
)
RESPONSE = OutcomeFacts(
    kind="response",
    actor="ada",
    links={"trace": "t-1"},
    source="gateway",
    source_id="g-1",
    response=Response(
        messages=(ANSWER,),
        response_id="r-1",
        provider="openai",
        model_asked="gpt-4o",
        model="gpt-4o-2024-11-20",
        finish_reasons=("stop",),
        usage=Usage(input=12, output=5, cache_read=8, raw={"prompt_tokens": 12, "cost": 0.1}),
        latency_ms=812.125,
        first_token_ms=90.0,
    ),
)
SCORE = OutcomeFacts(
    kind="score", judge="human", score=Score(name="helpful", value=0.1, explanation="Nearly.")
)
_RECORD = seal(sample(), salts())


def sealed(facts: OutcomeFacts) -> OutcomeRecord:
    core = outcome_core(
        facts,
        outcome_id="019b7e9c-4c1b-7000-8000-000000000001",
        context_id=_RECORD.context_id,
        record_hash=_RECORD.record_hash,
        at=NOON,
        predicted=11,
        cost_nano_usd=80,
    )
    return seal_outcome(core, salts())


@pytest.mark.parametrize("facts", [RESPONSE, SCORE])
def test_an_outcome_reads_as_it_was_given(facts: OutcomeFacts) -> None:
    record = sealed(facts)
    view = outcome_view(record)
    given = {name: getattr(view, name) for name in facts.__struct_fields__}
    assert OutcomeFacts(**given) == facts
    assert (view.outcome_hash, view.record_hash) == (record.outcome_hash, _RECORD.record_hash)
    assert (view.at, view.predicted, view.cost_nano_usd) == (NOON, 11, 80)
    assert not view.withheld
    assert sealed(facts) == record


@given(outcome_facts())
def test_any_outcome_reads_as_it_was_given_and_verifies(facts: OutcomeFacts) -> None:
    outcome = sign(sealed(facts), parse_keyring(HMAC), NOON)
    view = outcome_view(load_all(export(outcome)).sealed)  # type: ignore[arg-type]
    known = {name: getattr(view, name) for name in facts.__struct_fields__}
    assert OutcomeFacts(**known) == facts
    for copy in (outcome, outcome.private()):
        assert verify_outcome(copy, HMAC, of=_RECORD).ok
        assert outcome_view(copy).outcome_hash == outcome.outcome_hash


def test_a_private_copy_has_facts_and_no_content() -> None:
    record = sealed(RESPONSE)
    private = record.private()
    assert (private.core, private.outcome_hash) == (record.core, record.outcome_hash)
    view = outcome_view(private)
    assert view.response is not None
    assert view.response.messages == ()
    assert view.response.model == "gpt-4o-2024-11-20"
    assert view.response.usage == Usage(input=12, output=5, cache_read=8)
    assert (view.actor, view.links, view.source_id) == (None, {}, None)
    assert view.withheld == [
        "/actor",
        "/links/trace",
        "/response/messages/0",
        "/response/response_id",
        "/response/usage/raw",
        "/source_id",
    ]
    for secret in (b"Kyoto", b"ada", b"t-1", b"g-1", b"r-1"):
        assert secret not in private.core


def test_a_value_of_the_record_is_found_inside_the_answer_and_erased() -> None:
    record = sealed(RESPONSE)
    places = copies_in(record, _RECORD, ["/inputs/question"])
    assert places == ["/response/messages/0"]
    erased = redact(record, *places, at=NOON, reason="requested")
    view = outcome_view(erased)
    assert view.response is not None
    assert view.response.messages == ()
    assert view.redacted == view.withheld == places
    assert erased.outcome_hash == record.outcome_hash


def test_an_outcome_names_the_key_that_signed_it() -> None:
    signed = sign(sealed(SCORE), parse_keyring(HMAC), NOON)
    assert outcome_view(signed).signed_by == "2026-01"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": "praise"}, "'praise' is not one of response, score, correction, error"),
        ({"kind": "score", "response": None}, "score: .* needs a Score"),
        ({"score": SCORE.score}, "score: an outcome of kind 'response' has none"),
        ({"response": {"model": "x"}}, "needs a Response"),
        ({"kind": "correction", "response": Response()}, "response.messages: .* needs it"),
        ({"kind": "error"}, "response.error_type: .* needs it"),
        ({"response": Response(error_type="Timeout")}, "is an outcome of kind 'error'"),
        ({"source": None}, "source: a source_id needs the name of its source"),
        ({"source": " "}, "source: it is empty"),
        ({"actor": 7}, "actor: 7 is not a text"),
        ({"actor": "a\0b"}, "actor: .* control characters"),
        ({"actor": "\ud800"}, "actor: .* control characters"),
        ({"links": {"x" * 257: "y"}}, "links: it has 257 characters, at most 256 fit"),
        ({"links": {str(at): "y" for at in range(MOST_NAMES + 1)}}, "links: there are 33"),
        ({"response": Response(latency_ms=-1)}, "latency_ms: -1 is not between 0 and"),
        ({"response": Response(first_token_ms=float("nan"))}, "nan is not a finite number"),
        ({"response": Response(usage=Usage(input=-1))}, "usage.input: -1 is not a number of"),
        ({"response": Response(usage={"input": 1})}, "is not a Usage"),  # type: ignore[arg-type]
        ({"response": Response(finish_reasons=("stop",) * 33)}, "at most 32 fit"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(
    changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(OutcomeError, match=problem):
        check_facts(msgspec.structs.replace(RESPONSE, **changes))


@pytest.mark.parametrize(
    ("score", "problem"),
    [
        (Score(name="x"), "exactly one of value, label, flag, text, not none"),
        (Score(name="x", value=1, flag=True), "not value and flag"),
        (Score(name=None, value=1), "a score needs a name"),  # type: ignore[arg-type]
        (Score(name="x", value=float("inf")), "inf is not a finite number"),
        (Score(name="x", value=10**400), "is not a finite number"),
        (Score(name="x", value=True), "True is not a finite number"),
        (Score(name="x", flag=1), "1 is neither true nor false"),  # type: ignore[arg-type]
        (Score(name="x", label=""), "score.label: it is empty"),
    ],
)
def test_a_score_is_exactly_one_judgement(score: Score, problem: str) -> None:
    with pytest.raises(OutcomeError, match=problem):
        check_facts(OutcomeFacts(kind="score", score=score))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message(role="chief", parts=()), "it is not a message"),  # type: ignore[arg-type]
        (
            Message(role="user", parts=(ToolCall(id="1", name="x", arguments=object()),)),
            "it is not a message",
        ),
        (Message(role="user", parts=(TextPart(content="\ud800"),)), "lone surrogate"),
    ],
)
def test_a_message_that_cannot_be_read_again_is_refused(message: Message, problem: str) -> None:
    facts = OutcomeFacts(kind="response", response=Response(messages=(message,)))
    with pytest.raises(RecordValueError, match=problem):
        sealed(facts)
