"""Outcomes: what a model answered to a context, and what people and programs said about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from headwater.messages.parts import Message

OutcomeKind = Literal["response", "score", "correction", "error"]
Judge = Literal["human", "model", "code"]
ImportFormat = Literal["langfuse", "otlp", "csv"]


class Usage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Billed tokens; ``input`` includes the cached ones, ``output`` those of reasoning.

    ``raw`` is the provider's own object.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    raw: Any = None


class Response(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """An answer of a model; a correction is what it should have answered.

    ``error_type`` is that of a call which failed, such as ``RateLimitError``.
    """

    messages: tuple[Message, ...] = ()
    response_id: str | None = None
    provider: str | None = None
    model_asked: str | None = None
    model: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage | None = None
    latency_ms: float | None = None
    first_token_ms: float | None = None
    error_type: str | None = None


class Score(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A judgement: exactly one of ``value``, ``label``, ``flag`` and ``text``.

    ``identifier`` is the judge's own, such as the version of a rubric.
    """

    name: str
    value: float | None = None
    label: str | None = None
    flag: bool | None = None
    text: str | None = None
    explanation: str | None = None
    identifier: str | None = None


class OutcomeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome says; ``links`` names what it belongs to, such as ``{"corrects": …}``.

    ``source`` and ``source_id`` are another system's name and its id of the outcome: the same
    pair is stored once.
    """

    kind: OutcomeKind
    response: Response | None = None
    score: Score | None = None
    actor: str | None = None
    judge: Judge | None = None
    links: Mapping[str, str] = {}
    source: str | None = None
    source_id: str | None = None


class Outcome(OutcomeFacts, frozen=True, kw_only=True):
    """A stored outcome of a context; withheld values are None and listed in ``withheld``.

    ``predicted`` is the number of tokens that the record counted, ``cost_nano_usd`` the price of
    the usage.
    """

    outcome_id: str
    context_id: str
    record_hash: str
    outcome_hash: str
    at: datetime
    predicted: int | None = None
    cost_nano_usd: int | None = None
    signed_by: str | None = None
    withheld: Sequence[str] = ()
    redacted: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<Outcome {self.kind!r} {self.outcome_id} of {self.context_id}>"


class ContextOutcomes(msgspec.Struct, frozen=True):
    """The outcomes of a context, the oldest first."""

    context: str
    outcomes: Sequence[Outcome]


class ImportProblem(msgspec.Struct, frozen=True):
    """A line of an import that was not stored, and why."""

    line: int
    problem: str


class OutcomeImport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the outcomes of an import: stored, stored before, or refused."""

    added: int
    known: int
    failed: int
    problems: Sequence[ImportProblem]
    """The first of those that failed, by their lines."""

    def __repr__(self) -> str:
        return f"<OutcomeImport added={self.added} known={self.known} failed={self.failed}>"


class OutcomeExport(msgspec.Struct, frozen=True):
    """Outcomes as lines of OTLP in JSON."""

    otlp: str
