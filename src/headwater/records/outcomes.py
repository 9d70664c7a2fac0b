"""Outcomes as sealed bytes: what a model answered to a context, and what was said about it. Pure.

An outcome is sealed like a record: texts, ids and people are committed to; kinds, names of scores
and models, and numbers are plain. Its core names the record that it belongs to by id and hash.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import msgspec

from headwater.core.canonical_json import LARGEST
from headwater.errors import OutcomeError, RecordValueError
from headwater.messages.parts import Message
from headwater.model.outcomes import (
    Judge,
    Outcome,
    OutcomeFacts,
    OutcomeKind,
    Response,
    Score,
    Usage,
)
from headwater.model.values import LONGEST_ID, LONGEST_NAME, Exact
from headwater.records.core import Committed, decimal_text, disclosed
from headwater.records.record import Form, Moment, Sealed, Statement, core_fields, hash_of
from headwater.records.sealing import Salts, commitments, open_core, seal_core
from headwater.records.signing import statement_of

OUTCOME_SPEC = "CRS-001-OUTCOME"
MOST_NAMES = 32
"""Links and finish reasons of one outcome."""


class SealedUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Billed tokens, and the provider's own object."""

    input: Exact | None = None
    output: Exact | None = None
    cache_read: Exact | None = None
    cache_write: Exact | None = None
    reasoning: Exact | None = None
    raw: Committed[Any] | None = None


class SealedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer: each message is one commitment to its neutral JSON."""

    messages: tuple[Committed[Any], ...] = ()
    response_id: Committed[str] | None = None
    provider: str | None = None
    model_asked: str | None = None
    model: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: SealedUsage | None = None
    latency_us: Exact | None = None
    first_token_us: Exact | None = None
    error_type: str | None = None


class SealedScore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A judgement; ``value`` is a number as decimal text, because a core has no floats."""

    name: str
    value: str | None = None
    label: Committed[str] | None = None
    flag: bool | None = None
    text: Committed[str] | None = None
    explanation: Committed[str] | None = None
    identifier: Committed[str] | None = None


class OutcomeCore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All content of one outcome; absent fields are not written."""

    spec: str
    version: Exact
    outcome_id: str
    context_id: str
    record_hash: str
    kind: OutcomeKind
    at: datetime
    actor: Committed[str] | None = None
    judge: Judge | None = None
    links: dict[str, Committed[str]] = {}
    source: str | None = None
    source_id: Committed[str] | None = None
    response: SealedResponse | None = None
    score: SealedScore | None = None
    predicted: Exact | None = None
    cost_nano_usd: Exact | None = None


class OutcomeStatement(
    Statement,
    frozen=True,
    kw_only=True,
    rename={"sealed_hash": "outcome_hash", "sealed_id": "outcome_id"},
):
    """The signed statement about an outcome; its core names the record."""

    sealed_hash: str
    sealed_id: str


class _At(msgspec.Struct, frozen=True):
    at: Moment


class OutcomeRecord(Sealed, frozen=True, kw_only=True):
    """A sealed outcome of the record with this context id and hash."""

    FORM: ClassVar[Form] = Form(
        "outcome", "an outcome", OUTCOME_SPEC, "outcome_hash", "outcome_id", OutcomeStatement
    )
    outcome_id: str
    context_id: str
    record_hash: str
    outcome_hash: str

    @property
    def sealed_id(self) -> str:
        return self.outcome_id

    @property
    def sealed_hash(self) -> str:
        return self.outcome_hash

    def made_at(self) -> datetime | None:
        core = core_fields(self.core, _At)
        return None if core is None else core.at


def outcome_core(
    facts: OutcomeFacts,
    *,
    outcome_id: str,
    context_id: str,
    record_hash: str,
    at: datetime,
    predicted: int | None = None,
    cost_nano_usd: int | None = None,
) -> OutcomeCore:
    """Return the core of an outcome.

    Raises:
        OutcomeError: The facts are incomplete, contradict each other or are out of range.
    """
    check_facts(facts)
    return OutcomeCore(
        spec=OUTCOME_SPEC,
        version=1,
        outcome_id=outcome_id,
        context_id=context_id,
        record_hash=record_hash,
        kind=facts.kind,
        at=at,
        actor=facts.actor,
        judge=facts.judge,
        links=dict(facts.links),
        source=facts.source,
        source_id=facts.source_id,
        response=None if facts.response is None else _sealed_response(facts.response),
        score=None if facts.score is None else _sealed_score(facts.score),
        predicted=predicted,
        cost_nano_usd=cost_nano_usd,
    )


def _sealed_response(response: Response) -> SealedResponse:
    usage = response.usage
    return SealedResponse(
        messages=tuple(map(_neutral, range(len(response.messages)), response.messages)),
        response_id=response.response_id,
        provider=response.provider,
        model_asked=response.model_asked,
        model=response.model,
        finish_reasons=tuple(response.finish_reasons),
        usage=None if usage is None else SealedUsage(**msgspec.structs.asdict(usage)),
        latency_us=_micros(response.latency_ms),
        first_token_us=_micros(response.first_token_ms),
        error_type=response.error_type,
    )


def _neutral(at: int, message: Message) -> Any:
    """Return a message as JSON values, with bytes; raise unless it can be read again."""
    try:
        neutral = msgspec.to_builtins(message, builtin_types=(bytes,))
        msgspec.convert(neutral, Message)
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"it is not a message: {error}; see headwater.messages.parts.Message"
        raise RecordValueError(f"/response/messages/{at}", problem) from error
    return neutral


def _micros(millis: float | None) -> int | None:
    return None if millis is None else round(millis * 1_000)


def _sealed_score(score: Score) -> SealedScore:
    value = None if score.value is None else decimal_text(float(score.value))
    return SealedScore(**msgspec.structs.asdict(score) | {"value": value})


def seal_outcome(core: OutcomeCore, salts: Salts = os.urandom) -> OutcomeRecord:
    """Return the sealed outcome of a core; equal cores and salts give equal bytes."""
    raw, disclosures = seal_core(core, salts)
    return OutcomeRecord(
        outcome_id=core.outcome_id,
        context_id=core.context_id,
        record_hash=core.record_hash,
        outcome_hash=hash_of(raw),
        core=raw,
        disclosures=disclosures,
    )


def open_outcome(record: OutcomeRecord) -> OutcomeCore:
    """Return the core with the disclosed values; others are a `Commitment`.

    Raises:
        RecordValueError: A disclosed value does not open its commitment, or the core is invalid.
    """
    return open_core(record, OutcomeCore)


def outcome_view(record: OutcomeRecord, sealed: OutcomeCore | None = None) -> Outcome:
    """Return an outcome as people read it; withheld values are None and listed.

    ``sealed`` is the core that was just sealed, which need not be opened.
    """
    core, signature = sealed or open_outcome(record), record.signature
    tree = msgspec.json.decode(record.core) if sealed is None else None
    shown = {item.pointer for item in record.disclosures}
    committed = (pointer for pointer, _ in commitments(tree))
    return Outcome(
        outcome_id=core.outcome_id,
        context_id=core.context_id,
        record_hash=core.record_hash,
        outcome_hash=record.outcome_hash,
        kind=core.kind,
        at=core.at,
        actor=disclosed(core.actor),
        judge=core.judge,
        links={name: text for name, link in core.links.items() if (text := disclosed(link))},
        source=core.source,
        source_id=disclosed(core.source_id),
        response=None if core.response is None else _shown_response(core.response),
        score=None if core.score is None else _shown_score(core.score),
        predicted=core.predicted,
        cost_nano_usd=core.cost_nano_usd,
        signed_by=None if signature is None else statement_of(signature, OutcomeStatement).key_id,
        withheld=[pointer for pointer in committed if pointer not in shown],
        redacted=[note.pointer for note in record.redactions],
    )


def _shown_response(response: SealedResponse) -> Response:
    """Return an answer without its withheld messages."""
    usage, shown = response.usage, filter(None, map(disclosed, response.messages))
    return Response(
        messages=tuple(msgspec.convert(message, Message) for message in shown),
        response_id=disclosed(response.response_id),
        provider=response.provider,
        model_asked=response.model_asked,
        model=response.model,
        finish_reasons=response.finish_reasons,
        usage=None if usage is None else Usage(**_shown(usage)),
        latency_ms=_millis(response.latency_us),
        first_token_ms=_millis(response.first_token_us),
        error_type=response.error_type,
    )


def _shown_score(score: SealedScore) -> Score:
    value = None if score.value is None else float(score.value)
    return Score(**_shown(score) | {"value": value})


def _shown(part: msgspec.Struct) -> dict[str, Any]:
    return {name: disclosed(value) for name, value in msgspec.structs.asdict(part).items()}


def _millis(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000


class _Rule(NamedTuple):
    """The part of each kind of outcome, and its required fields."""

    part: str
    needs: str | None = None


_RULES: dict[OutcomeKind, _Rule] = {
    "response": _Rule("response"),
    "score": _Rule("score"),
    "correction": _Rule("response", "messages"),
    "error": _Rule("response", "error_type"),
}
_PARTS: dict[str, type[msgspec.Struct]] = {"response": Response, "score": Score}
_JUDGEMENTS = ("value", "label", "flag", "text")


def check_facts(facts: OutcomeFacts) -> None:
    """Raise `OutcomeError` unless an outcome is complete, consistent and within its limits."""
    rule = _RULES.get(facts.kind)
    if rule is None:
        raise OutcomeError("kind", f"{facts.kind!r} is not one of {', '.join(_RULES)}")
    for name, kind in _PARTS.items():
        part = {"response": facts.response, "score": facts.score}[name]
        if name != rule.part and part is not None:
            raise OutcomeError(name, f"an outcome of kind {facts.kind!r} has none; leave it out")
        if name == rule.part and type(part) is not kind:
            raise OutcomeError(name, f"an outcome of kind {facts.kind!r} needs a {kind.__name__}")
    for field, text, longest in _texts(facts):
        _check_text(field, text, longest)
    if len(facts.links) > MOST_NAMES:
        raise OutcomeError("links", f"there are {len(facts.links)}, at most {MOST_NAMES} fit")
    if facts.source_id is not None and facts.source is None:
        raise OutcomeError("source", "a source_id needs the name of its source")
    if facts.score is not None:
        _check_score(facts.score)
    if facts.response is not None:
        _check_response(facts.response, facts.kind, rule.needs)


def _texts(facts: OutcomeFacts) -> Iterator[tuple[str, Any, int | None]]:
    """Yield the texts of an outcome, each with its limit; a name has no control characters."""
    yield from (("actor", facts.actor, LONGEST_ID), ("source", facts.source, LONGEST_NAME))
    yield "source_id", facts.source_id, LONGEST_ID
    for name, link in facts.links.items():
        yield "links", name, LONGEST_NAME
        yield f"links.{name}", link, LONGEST_ID
    if facts.score is not None:
        score = facts.score
        yield "score.name", score.name, LONGEST_NAME
        yield from (("score.label", score.label, LONGEST_ID), ("score.text", score.text, None))
        yield "score.identifier", score.identifier, LONGEST_ID
        yield "score.explanation", score.explanation, None
    if facts.response is not None:
        response = facts.response
        yield "response.response_id", response.response_id, LONGEST_ID
        for field in ("provider", "model_asked", "model", "error_type"):
            yield f"response.{field}", getattr(response, field), LONGEST_NAME
        for reason in response.finish_reasons:
            yield "response.finish_reasons", reason, LONGEST_NAME


def _check_text(field: str, text: Any, longest: int | None) -> None:
    if text is None:
        return
    if type(text) is not str:
        raise OutcomeError(field, f"{text!r} is not a text")
    if longest is None:
        return
    if not text.strip():
        raise OutcomeError(field, "it is empty; leave it out, or give a text")
    if len(text) > longest:
        raise OutcomeError(field, f"it has {len(text)} characters, at most {longest} fit")
    if not text.isprintable():
        raise OutcomeError(field, f"{text!r} has control characters; remove them")


def _check_score(score: Score) -> None:
    given = [name for name in _JUDGEMENTS if getattr(score, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise OutcomeError("score", f"give exactly one of {', '.join(_JUDGEMENTS)}, not {found}")
    if type(score.name) is not str:
        raise OutcomeError("score.name", "a score needs a name, such as 'helpfulness'")
    if score.flag is not None and type(score.flag) is not bool:
        raise OutcomeError("score.flag", f"{score.flag!r} is neither true nor false")
    if score.value is not None:
        _check_number("score.value", score.value, None)


def _check_response(response: Response, kind: OutcomeKind, needs: str | None) -> None:
    if needs is not None and not getattr(response, needs):
        raise OutcomeError(f"response.{needs}", f"an outcome of kind {kind!r} needs it")
    if kind != "error" and response.error_type is not None:
        raise OutcomeError("response.error_type", "a failed call is an outcome of kind 'error'")
    if len(response.finish_reasons) > MOST_NAMES:
        raise OutcomeError("response.finish_reasons", f"at most {MOST_NAMES} fit")
    for name in ("latency_ms", "first_token_ms"):
        _check_number(f"response.{name}", getattr(response, name), LARGEST / 1_000)
    usage = response.usage
    if usage is not None and type(usage) is not Usage:
        raise OutcomeError("response.usage", f"{usage!r} is not a Usage")
    counts = {} if usage is None else msgspec.structs.asdict(usage)
    for name, count in counts.items():
        if (
            name != "raw"
            and count is not None
            and (type(count) is not int or not 0 <= count <= LARGEST)
        ):
            raise OutcomeError(f"response.usage.{name}", f"{count!r} is not a number of tokens")


def _check_number(field: str, number: Any, largest: float | None) -> None:
    """Raise unless a number is finite and, with a limit, neither negative nor larger."""
    if number is None:
        return
    if type(number) not in (int, float) or not _is_finite(number):
        raise OutcomeError(field, f"{number!r} is not a finite number")
    if largest is not None and not 0 <= number <= largest:
        raise OutcomeError(field, f"{number!r} is not between 0 and {largest:.0f}")


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond the floats
        return False
