"""Contexts: requests, lists, causes, replays, differences and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headwater.core.tables import Tabular
from headwater.model.features import CauseEvent
from headwater.model.kinds import ContextName, DurationText
from headwater.model.lineage import Context, Decision, FreshnessStatus
from headwater.model.values import WindowRead

Params = Annotated[
    dict[str, Any],
    Meta(
        description="The arguments of the context's function, by name.",
        examples=[{"user_id": "ada", "question": "Where is my parcel?"}],
    ),
]
InteractionRef = Annotated[
    dict[str, Any],
    Meta(
        description="A reference that is recorded and returned; no name begins with a dollar.",
        examples=[{"call_id": "c-9", "turn_id": "t-3", "turn_index": 3}],
        extra_json_schema={"propertyNames": {"pattern": "^(?!\\$)"}},
    ),
]
MaxTokens = Annotated[
    int,
    Meta(
        description="A budget below the declared one.",
        examples=[400],
        extra_json_schema={"minimum": 1, "maximum": 2**53 - 1},
    ),
]


class AssembleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a context, and options that replace declared ones for this call."""

    params: Params = {}
    interaction_ref: InteractionRef | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: MaxTokens | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: DurationText | msgspec.UnsetType | None = msgspec.UNSET


class AssembleNamedBody(AssembleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of ``AssembleBody`` with the name of the context."""

    context: ContextName


Text = Annotated[str, Meta(description="The text.", examples=["Hello Ada"])]
ExternalInputs = Annotated[
    dict[str, Any],
    Meta(description="What it was assembled from, by name.", examples=[{"user_id": "ada"}]),
]
ExternalModel = Annotated[str, Meta(description="The model it is for.", examples=["gpt-4o"])]
TemplateVersion = Annotated[str, Meta(description="A version of its template.", examples=["3"])]


class Assembled(Context, frozen=True, kw_only=True):
    """An assembled context; ``cost`` is ``cost_nano_usd``, or null if the price is unknown."""

    cost: int | None


def assembled(context: Context) -> Assembled:
    """Return the response body of an assembled context."""
    return Assembled(**msgspec.structs.asdict(context), cost=context.cost_nano_usd)


LARGEST_PAGE = 1_000
MOST_BUCKETS = 500


class ContextPage(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Recorded contexts, the newest first; `next_cursor` is None on the last page."""

    contexts: Sequence[RecordSummary]
    next_cursor: str | None

    def rows(self) -> Sequence[RecordSummary]:
        return self.contexts

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<ContextPage contexts={len(self.contexts)}, {more}>"


class HistogramBucket(msgspec.Struct, frozen=True, kw_only=True):
    """The contexts from ``start`` on, until the next bucket starts.

    ``freshness`` is their number by freshness status, or None if there are too many to tell.
    """

    start: datetime
    contexts: int
    freshness: dict[FreshnessStatus, int] | None


class ContextHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """How many contexts were recorded in each of some intervals of equal width, oldest first.

    ``start`` and ``end`` are the edges of the first and the last bucket, None without contexts. If
    ``counted_from`` is not None, not all contexts from before it were counted, because there are
    too many: ask for less time.
    """

    start: datetime | None
    end: datetime | None
    seconds: float
    contexts: int
    counted_from: datetime | None
    buckets: Sequence[HistogramBucket]

    def __repr__(self) -> str:
        return f"<ContextHistogram contexts={self.contexts}, buckets={len(self.buckets)}>"


class ValueCause(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of a value that a context read: an event id, ``set``, ``computed``…

    `read` is the place of a feature in the explanation, `input` the place among its inputs.
    `event` is the event with that id, if the log still has it.
    """

    read: int
    input: int | None = None
    cause: str
    event: CauseEvent | None = None


class ContextCauses(msgspec.Struct, frozen=True, kw_only=True):
    """The causes of the values that a context read, where history knows them.

    `is_complete` is False if the causes of stored values are left out: the context read more values
    than are looked up, ids are withheld, or history has not got the values any more.
    """

    context_id: str
    causes: Sequence[ValueCause]
    is_complete: bool


Mode = Literal["show", "reassemble", "as_of", "live"]
ReplayMode = Annotated[Mode, Meta(description="What is done again.", examples=["reassemble"])]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay; ``fidelity`` explains how reliable it is.

    ``matches`` is True if the text is the recorded one, and None if that is unknown.
    """

    context_id: str
    mode: Mode
    fidelity: str
    content: str | None
    content_hash: str | None
    matches: bool | None
    context: Context | None = None
    differences: ContextDiff | None = None

    def __repr__(self) -> str:
        result = {True: "same text", False: "other text", None: "text unknown"}[self.matches]
        return f"<Replay {self.mode!r} of {self.context_id}: {result}>"


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a record that lists show."""

    context_id: str
    record_hash: str
    content_hash: str
    name: str
    created_at: datetime
    freshness_status: str
    caller: str | None = None
    assembly_us: int = 0
    """The duration of the assembly in microseconds."""
    model: str | None = None
    tokens: int = 0
    max_tokens: int | None = None
    cost_nano_usd: int | None = None
    items_dropped: int = 0
    is_signed: bool = False
    is_redacted: bool = False


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one call of a context that replace those of its declaration."""

    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    freshness_sla: timedelta | msgspec.UnsetType | None = msgspec.UNSET
    interaction_ref: Mapping[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


Change = Literal["added", "removed", "changed", "same", "unknown"]
"""How a value changed; unknown if one of the records withholds it."""


class ValueDiff(msgspec.Struct, frozen=True):
    """A named value of both records: an input, a rule or a version."""

    name: str
    change: Change
    before: Any
    after: Any


class ItemSide(msgspec.Struct, frozen=True, kw_only=True):
    """An item of one context; `place` is its index in the declared order."""

    place: int
    decision: Decision
    reason: str
    priority: int
    tokens: int
    emitted_tokens: int


class ItemDiff(msgspec.Struct, frozen=True, kw_only=True):
    """An item of both contexts, or of one of them."""

    identity: str
    change: Change
    flipped: bool
    """True if both contexts have the item and decided differently about it."""

    tokens_delta: int
    before: ItemSide | None
    after: ItemSide | None


class FeatureSide(msgspec.Struct, frozen=True, kw_only=True):
    """A feature's value in one context; None if it is withheld."""

    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: str
    fresh: bool
    window: WindowRead | msgspec.UnsetType = msgspec.UNSET


class FeatureDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity in both contexts, or in one of them."""

    feature: str
    entity: str
    entity_id: str | None
    change: Change
    before: FeatureSide | None
    after: FeatureSide | None


class ResultSide(msgspec.Struct, frozen=True, kw_only=True):
    """A result in one context; `rank` is its position among the results of its call, from 1."""

    rank: int
    score: str | None


class ResultDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A retriever's result in both contexts, or in one of them.

    It counts as changed if its content, rank or score changed.
    """

    retriever: str
    id: Any
    change: Change
    before: ResultSide | None
    after: ResultSide | None


class ContextDiff(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between two contexts."""

    before: str
    after: str
    same_content: bool
    tokens_before: int
    tokens_after: int
    tokens_delta: int
    items: Sequence[ItemDiff]
    features: Sequence[FeatureDiff]
    results: Sequence[ResultDiff]
    inputs: Sequence[ValueDiff]
    """Only the inputs that differ; the same holds for `interaction_ref` and `rules`."""

    interaction_ref: Sequence[ValueDiff]
    rules: Sequence[ValueDiff]
    text: str | None
    """A unified diff; None if one of the texts is withheld."""

    def __repr__(self) -> str:
        text = "same text" if self.same_content else "other text"
        return f"<ContextDiff {self.before} → {self.after}: {text}, {self.tokens_delta:+} tokens>"


CheckName = Literal["hash", "signature", "disclosures", "content", "reassembly", "link"]
Fault = Literal["altered", "another", "unsigned", "unchecked"]

# The sentences for one that is intact but does not meet a requirement of the caller.
_UNMET: dict[Fault, str] = {
    "another": "It is not the {noun} that was expected.",
    "unsigned": "It is not signed.",
    "unchecked": "Its signature could not be checked.",
}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check: `ok` is None if it could not be made; `detail` gives the reason.

    A failed check has a `fault`: the record was altered, or a requirement of the caller is not met.
    """

    check: CheckName
    ok: bool | None
    detail: str
    fault: Fault | None = None


class VerificationReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of all checks; `signed` is True if there is a signature, checked or not.

    `outcomes` are the reports of the outcomes of a record, each with its `outcome_id`.
    """

    checks: tuple[Check, ...]
    signed: bool
    outcome_id: str | None = None
    outcomes: tuple[VerificationReport, ...] = ()

    def __repr__(self) -> str:
        return f"<VerificationReport {'ok' if self.ok else 'failed'}: {self.verdict}>"

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return not any(report.faults for report in (self, *self.outcomes))

    @property
    def faults(self) -> set[Fault | None]:
        """The faults of its own checks."""
        return {check.fault for check in self.checks if check.ok is False}

    @property
    def verdict(self) -> str:
        """The result in one or two sentences, and one for each outcome that failed."""
        failed = [report for report in (self, *self.outcomes) if report.faults]
        if failed:
            return " ".join(map(_failure, failed))
        unproved = [report for report in (self, *self.outcomes) if not report.of("signature").ok]
        if not unproved:
            return "Nothing is broken."
        return f"Nothing is broken, but {_caveat(unproved[0])}."

    def of(self, name: CheckName) -> Check:
        """Return one check by name."""
        return next(check for check in self.checks if check.check == name)


def _failure(report: VerificationReport) -> str:
    noun, outcome = "record" if report.outcome_id is None else "outcome", report.outcome_id
    if report.faults - _UNMET.keys():
        return "This record is broken." if outcome is None else f"Outcome {outcome} is broken."
    unmet = [text.format(noun=noun) for fault, text in _UNMET.items() if fault in report.faults]
    return " ".join(unmet if outcome is None else [f"Outcome {outcome}:", *unmet])


def _caveat(report: VerificationReport) -> str:
    if report.outcome_id is None:
        return "its signature was not checked" if report.signed else "it is not signed"
    it = f"outcome {report.outcome_id}"
    return f"the signature of {it} was not checked" if report.signed else f"{it} is not signed"


def holds(name: CheckName, detail: str) -> Check:
    """Return a check that holds."""
    return Check(name, ok=True, detail=detail)


def broken(name: CheckName, detail: str, fault: Fault = "altered") -> Check:
    """Return a check that failed."""
    return Check(name, ok=False, detail=detail, fault=fault)


def unchecked(name: CheckName, detail: str) -> Check:
    """Return a check that could not be made."""
    return Check(name, ok=None, detail=detail)
