"""Outcomes, alone and in the document of their record: intact, altered and of another record."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec

from headwater.core.canonical_json import canonical, parse
from headwater.messages.parts import Blob, Message, TextPart, ToolCall
from headwater.model.outcomes import OutcomeFacts, Response, Score, Usage
from headwater.records.document import export
from headwater.records.outcomes import OutcomeRecord, outcome_core, seal_outcome
from headwater.records.record import Record, hash_of
from headwater.records.redaction import redact
from headwater.records.signing import parse_keyring, sign
from verifier.generator.cases.records import FULL, OTHER, SIGNED
from verifier.generator.cases.vocabulary import (
    Case,
    Document,
    changed,
    checked,
    disclosure,
    outcome_case,
    text_of,
)
from verifier.generator.samples import ED25519, ED25519_PUBLIC, HMAC, NOON, salts

_LATER = NOON + timedelta(seconds=2)
_ANSWER = Message(
    role="assistant",
    parts=(
        TextPart(content="Your parcel “P-7” is in Zürich 😀."),
        ToolCall(id="c-1", name="track", arguments={"parcel": "p-7", "share": 0.5, "$ref": None}),
        Blob(mime_type="image/png", content=b"\x89PNG\r\n"),
    ),
    finish_reason="stop",
)
FACTS = {
    "response": OutcomeFacts(
        kind="response",
        actor="billing",
        source="gateway",
        source_id="g-1",
        response=Response(
            messages=(_ANSWER,),
            response_id="resp-1",
            provider="openai",
            model_asked="gpt-4o",
            model="gpt-4o-2024-11-20",
            finish_reasons=("stop",),
            usage=Usage(input=19, output=40, cache_read=8, raw={"prompt_tokens": 19, "ms": 1.5}),
            latency_ms=812.125,
            first_token_ms=90.0,
        ),
    ),
    "score": OutcomeFacts(
        kind="score",
        actor="ada",
        judge="human",
        score=Score(name="helpful", value=0.1 + 0.2, explanation="It names the place."),
    ),
    "label": OutcomeFacts(
        kind="score", judge="model", score=Score(name="tone", label="kind", identifier="rubric-3")
    ),
    "flag": OutcomeFacts(kind="score", judge="code", score=Score(name="safe", flag=False)),
    "correction": OutcomeFacts(
        kind="correction",
        links={"corrects": "019b7e9c-4c1c-7000-8000-000000000001", "a/b~c": "to escape"},
        response=Response(messages=(Message(role="assistant", parts=(TextPart(content="No."),)),)),
    ),
    "error": OutcomeFacts(kind="error", response=Response(error_type="RateLimitError")),
}


def _sealed(name: str, of: Record = FULL) -> OutcomeRecord:
    core = outcome_core(
        FACTS[name],
        outcome_id=f"019b7e9c-4c1c-7000-8000-{list(FACTS).index(name) + 1:012}",
        context_id=of.context_id,
        record_hash=of.record_hash,
        at=_LATER,
        predicted=19 if name == "response" else None,
        cost_nano_usd=447_500 if name == "response" else None,
    )
    return seal_outcome(core, salts())


def _signed(name: str) -> OutcomeRecord:
    return sign(_sealed(name), parse_keyring(HMAC), _LATER)


def _with(record: Record, *outcomes: OutcomeRecord | Document) -> Document:
    document: Document = json.loads(export(record))
    return document | {"outcomes": [json.loads(text_of(outcome)) for outcome in outcomes]}


def _rehashed(outcome: OutcomeRecord, **score: Any) -> Document:
    """Return the document of an outcome with another score, and the hash of the new core."""
    tree = parse(outcome.core)
    tree["score"] |= score
    core = canonical(tree)
    return changed(outcome, lambda d: d.update(core=core.decode(), outcome_hash=hash_of(core)))


def outcomes() -> list[Case]:
    """Return all cases with outcomes."""
    return [*_intact(), *_altered(), *_alone(), *_unreadable()]


def _intact() -> list[Case]:
    response, score = _signed("response"), _signed("score")
    erased = redact(response, "/response/messages/0", at=_LATER, reason="asked for", by="dpo")
    by_ed25519 = sign(_sealed("score"), parse_keyring(ED25519), _LATER)
    ok = "Nothing is broken."
    return [
        outcome_case(
            "outcomes",
            "a record with outcomes of every kind",
            _with(SIGNED, *map(_signed, FACTS)),
            *[checked("++++")] * len(FACTS),
            checks="+++++",
            says=ok,
            keys=HMAC,
        ),
        outcome_case(
            "outcomes-unsigned",
            "neither the record nor its outcome is signed",
            _with(FULL, _sealed("score")),
            checked("+.++"),
            checks="+.+++",
            says="Nothing is broken, but it is not signed.",
        ),
        outcome_case(
            "outcome-private",
            "an outcome without values",
            _with(SIGNED.private(), response.private()),
            checked("++.+"),
            checks="++...",
            says=ok,
            keys=HMAC,
        ),
        outcome_case(
            "outcome-redacted",
            "a message of the answer was erased, with a note",
            _with(SIGNED, erased, score),
            checked("++++", "/response/messages/0"),
            checked("++++"),
            checks="+++++",
            says=ok,
            keys=HMAC,
        ),
        outcome_case(
            "outcome-by-another-key",
            "the record and its outcome were signed by two keys",
            _with(SIGNED, by_ed25519),
            checked("++++"),
            checks="+++++",
            says=ok,
            keys=f"{HMAC}\n{ED25519_PUBLIC}",
        ),
    ]


def _altered() -> list[Case]:
    response, score = _signed("response"), _signed("score")
    broken = f"Outcome {score.outcome_id} is broken."
    response_broken = f"Outcome {response.outcome_id} is broken."
    value = changed(
        response,
        lambda d: disclosure(d, "/response/messages/0")["value"].update(role="user"),
    )
    missing = changed(response, lambda d: d["disclosures"].pop(0))
    with_score = score.core.decode().replace('"value":"0.3', '"value":"9.3')
    unsigned = msgspec.structs.replace(score, signature=None)
    flag = _rehashed(_signed("flag"), flag=True)
    early = redact(score, "/actor", at=_LATER, reason="asked for")
    early_document = changed(
        early, lambda d: d["redactions"][0].update(redacted_at="2026-01-01T00:00:00.000000Z")
    )
    whole: list[tuple[str, str, OutcomeRecord | Document, tuple[str, ...], str]] = [
        (
            "score",
            "a score was altered",
            changed(score, lambda d: d.update(core=with_score)),
            ("xx++", score.outcome_hash),
            broken,
        ),
        (
            "score-rehashed",
            "a score was altered, and its hash was computed again",
            _rehashed(score, value="9.3"),
            ("+x++", score.outcome_hash),
            broken,
        ),
        (
            "flag-rehashed",
            "a flag was altered, and its hash was computed again",
            flag,
            ("+x++", "but this core hashes to"),
            f"Outcome {_sealed('flag').outcome_id} is broken.",
        ),
        (
            "id",
            "an outcome was given another id",
            changed(score, lambda d: d.update(outcome_id=response.outcome_id)),
            ("x+++", "outcome_id"),
            response_broken,
        ),
        (
            "record-hash",
            "an outcome names another record beside its core",
            changed(score, lambda d: d.update(record_hash=OTHER.record_hash)),
            ("x+++", "record_hash", OTHER.record_hash),
            broken,
        ),
        (
            "value",
            "a message of the answer was altered",
            value,
            ("++x+", "/response/messages/0"),
            response_broken,
        ),
        (
            "missing",
            "a value is missing without a note",
            missing,
            ("++x+", "/actor is missing"),
            response_broken,
        ),
        (
            "redacted-before",
            "a value was erased before the outcome was made",
            early_document,
            ("++x+", "/actor", "before the outcome was made"),
            broken,
        ),
        (
            "signature-of-another",
            "the signature is that of another outcome",
            msgspec.structs.replace(score, signature=response.signature),
            ("+x++", response.outcome_hash),
            broken,
        ),
        (
            "signature-of-a-record",
            "the signature is that of the record",
            msgspec.structs.replace(score, signature=SIGNED.signature),
            ("+x++", "not readable"),
            broken,
        ),
        (
            "unsigned-known-keys",
            "the signature of an outcome was removed",
            unsigned,
            ("+x++", "not signed"),
            f"Outcome {score.outcome_id}: It is not signed.",
        ),
        (
            "of-a-record",
            "the core of an outcome is that of a record",
            msgspec.structs.replace(score, core=SIGNED.core, outcome_hash=SIGNED.record_hash),
            ("xx..", "not that of an outcome"),
            broken,
        ),
    ]
    return [
        *(
            outcome_case(
                f"outcome-{name}",
                what,
                _with(SIGNED, outcome),
                checked(*checks),
                checks="+++++",
                says=says,
                keys=HMAC,
            )
            for name, what, outcome, checks, says in whole
        ),
        outcome_case(
            "outcome-moved",
            "an outcome was moved to another record",
            _with(OTHER, response, score),
            checked("+++x", SIGNED.record_hash, OTHER.record_hash),
            checked("+++x", SIGNED.record_hash),
            checks="+++++",
            says=f"{response_broken} {broken}",
            keys=HMAC,
        ),
        outcome_case(
            "outcome-of-an-altered-record",
            "the record of an outcome was altered",
            _with(SIGNED, score)
            | {"core": SIGNED.core.decode().replace('"support"', '"Support"', 1)},
            checked("+++x", SIGNED.record_hash),
            checks="xx+++",
            says=f"This record is broken. {broken}",
            keys=HMAC,
        ),
    ]


def _alone() -> list[Case]:
    score = _signed("score")
    name = f"outcome {score.outcome_id}"
    return [
        outcome_case(
            "outcome-alone",
            "an outcome without its record",
            score,
            checked("+++."),
            says="Nothing is broken.",
            keys=HMAC,
            expect=score.outcome_hash,
        ),
        outcome_case(
            "outcome-alone-unchecked",
            "an outcome without its record and without keys",
            score,
            checked("+.+."),
            says=f"Nothing is broken, but the signature of {name} was not checked.",
            expect=score.outcome_id,
        ),
        outcome_case(
            "outcome-alone-unsigned",
            "an outcome without its record and without a signature",
            _sealed("score"),
            checked("+.+."),
            says=f"Nothing is broken, but {name} is not signed.",
        ),
        outcome_case(
            "outcome-alone-another",
            "another outcome was expected",
            score,
            checked("x++.", "another outcome than"),
            says=f"O{name[1:]}: It is not the outcome that was expected.",
            keys=HMAC,
            expect=_sealed("label").outcome_hash,
        ),
        outcome_case(
            "outcome-alone-altered",
            "a score was altered, and its hash was computed again",
            _rehashed(score, value="1"),
            checked("+x+.", score.outcome_hash),
            says=f"O{name[1:]} is broken.",
            keys=HMAC,
        ),
    ]


def _unreadable() -> list[Case]:
    score, document = _sealed("score"), _with(FULL)
    texts = {
        "outcomes-null": ("the outcomes are not a list", document | {"outcomes": None}),
        "outcome-is-a-record": ("an outcome is a record", _with(FULL, json.loads(export(FULL)))),
        "outcome-is-a-text": ("an outcome is a text", document | {"outcomes": ["score"]}),
        "outcome-without-id": (
            "an outcome has no id",
            changed(score, lambda d: d.pop("outcome_id")),
        ),
    }
    return [
        Case(name=f"unreadable-{name}", what=what, document=text_of(unreadable))
        for name, (what, unreadable) in texts.items()
    ]
