"""Evaluations: recorded contexts, assembled again with other code on what was known then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from headwater.core.tables import Tabular
from headwater.model.contexts import ContextDiff
from headwater.model.lineage import ContextTrace

DeclarationKind = Literal["feature", "retriever", "context", "index", "option"]
"""What may cause a difference; an option is one of the run itself, such as another budget."""

Status = Literal["identical", "changed", "failed", "skipped"]
"""A context that failed raised an error with the new code; one that was skipped cannot be assembled
again by any code, because its record withholds what it was called with, or is gone."""

Fidelity = Literal["exact", "approximate"]
"""Whether every read had what was known at its moment, or something is not known any more."""

ChangeKind = Literal[
    "gained",
    "lost",
    "cut",
    "edited",
    "reordered",
    "values",
    "tokens",
    "price",
    "freshness",
    "refusal",
]
"""How a context differs: items gained, lost, cut short or with another text, or in another order;
values that were read; tokens, price and freshness; refused now, or no longer."""

TEXT_KINDS: frozenset[ChangeKind] = frozenset({"gained", "lost", "cut", "edited", "reordered"})
"""The changes that a model would see."""


class CohortHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a cohort file: how its contexts were chosen, and the code of that time.

    `code` has the texts of the features file and of the user's modules that it imports, by their
    paths below the folder that they are imported from; `features` is that of the features file.
    """

    format: str = "headwater-cohort-1"
    name: str
    created_at: datetime
    chosen: Mapping[str, Any]
    """The options that chose the contexts: context, since, where, score, sample, seed, source…"""
    features: str
    code: Mapping[str, str]


class CohortEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A context of a cohort. `inputs` are those that its record discloses.

    In the file they are tagged as in records, such as ``{"$decimal": "1.10"}``.
    """

    context_id: str
    record_hash: str
    name: str
    created_at: datetime
    inputs: Mapping[str, Any]


class CohortSeal(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a cohort file: the hash of all bytes before it, signed as records are.

    `statement` is the exact text that was signed: the hash, the cohort's name, the key and when.
    """

    count: int
    cohort_hash: str
    statement: str | None = None
    signature: str | None = None


class FrozenCohort(msgspec.Struct, frozen=True, kw_only=True):
    """What was frozen: how many contexts, of which time, and how many of each kind."""

    name: str
    path: str
    cohort_hash: str
    is_signed: bool
    count: int
    start: datetime
    end: datetime
    """The moments of the first and of the last context."""
    contexts: Mapping[str, int]
    models: Mapping[str, int]
    statuses: Mapping[str, int]
    """How many contexts there are by name, by model and by freshness status."""
    left_out: Mapping[str, int]
    """How many were not frozen although they were chosen, and why."""

    def __repr__(self) -> str:
        return f"<FrozenCohort {self.name!r}: contexts={self.count}>"


class DeclarationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration that differs between the code of the cohort and the present code."""

    kind: DeclarationKind
    name: str
    change: Literal["added", "removed", "changed"]
    location: str = ""
    """The file and line of the present code, or of the former one if it was removed."""
    problem: str = ""
    """Why values of it are not reproducible, such as a scheduled feature; empty if they are."""

    @property
    def label(self) -> str:
        """The declaration for people, such as ``feature churn_risk``."""
        return f"{self.kind} {self.name}"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration that caused a difference.

    Taken back alone, it undoes the whole difference (`alone`) or a part of it.
    """

    kind: DeclarationKind
    name: str
    alone: bool


class EvaluatedContext(msgspec.Struct, frozen=True, kw_only=True):
    """One context of a cohort: what the recorded one and the one of the new code have in common.

    `reasons` say what is not exact. `compared_with` is `base` if the former code does not give the
    recorded text any more: then the differences are those between former and present code.
    """

    context_id: str
    record_hash: str
    name: str
    created_at: datetime
    status: Status
    kinds: tuple[ChangeKind, ...] = ()
    fidelity: Fidelity = "exact"
    reasons: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()
    """Features that it reads and whose present handler fails for an event, with the error."""
    compared_with: Literal["record", "base"] = "record"
    causes: tuple[Cause, ...] = ()
    gained: int = 0
    lost: int = 0
    cut: int = 0
    lost_required: int = 0
    values: tuple[str, ...] = ()
    """The features whose values differ."""
    tokens_before: int = 0
    tokens_after: int = 0
    cost_before: int | None = None
    cost_after: int | None = None
    """Nano-USD."""
    freshness_before: str = ""
    freshness_after: str = ""
    content_after: str = ""
    """The hash of the text that the new code gives; a baseline accepts a change by it."""
    model: str | None = None
    error: str = ""
    """Why it failed or was skipped."""

    @property
    def is_text_changed(self) -> bool:
        """Whether a model would be shown something else."""
        return not TEXT_KINDS.isdisjoint(self.kinds)


class ChangedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of a context that changed: the records as documents, and their differences.

    `before` is the document of the recorded context, or of the one of the former code.
    """

    context_id: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    diff: ContextDiff


class PortionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished portion of a run counts."""

    number: int
    contexts: int


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of an evaluation; its id is a hash of the cohort, the code and the options."""

    run_id: str
    cohort: str
    cohort_hash: str
    count: int
    file: str
    base: str
    """Where the former code is from: the cohort, or a path."""
    options: Mapping[str, Any]
    changes: tuple[DeclarationChange, ...]
    started_at: datetime
    finished_at: datetime | None = None
    portion: int = 0
    """The number of contexts of a portion."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of a number over contexts."""

    p50: float
    p95: float
    total: int


class EvaluationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found, over all contexts of its cohort."""

    contexts: int
    identical: int
    changed: int
    failed: int
    skipped: int
    text_changed: int = 0
    """The contexts of which a model would be shown something else."""
    fidelity: Mapping[str, int]
    """How many of the contexts that were assembled are exact, and how many approximate."""
    approximate: Mapping[str, int] = {}
    """How many contexts of a status, a kind and a cause are only approximate, by its name."""
    reasons: Mapping[str, int]
    """How many contexts have each reason for not being exact, or for being skipped or failed."""
    dead_letters: Mapping[str, int] = {}
    """How many contexts read a value that lacks an event, because its handler fails for that."""
    kinds: Mapping[str, int]
    causes: Mapping[str, int]
    """How many differences each declaration caused; `unexplained` counts those of none."""
    tokens_before: Spread
    """Of the contexts that both codes assemble."""
    tokens_after: Spread
    priced: int = 0
    """The contexts with a price on both sides, of which the costs are, in nano-USD."""
    cost_before: int
    cost_after: int
    new_refusals: int
    lost_required: int
    """The contexts that lost a required item."""

    @property
    def compared(self) -> int:
        """The contexts that the new code was given; the others cannot be assembled again."""
        return self.contexts - self.skipped


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a limit of ``[eval.gates]`` holds, and the first contexts that break it."""

    gate: str
    limit: str
    value: str
    passed: bool
    contexts: tuple[str, ...] = ()


class BaselineUse(msgspec.Struct, frozen=True, kw_only=True):
    """How many changes a baseline accepted, and its entries that no longer occur."""

    file: str
    accepted: int
    stale: int
    contexts: tuple[str, ...] = ()
    """The first contexts of stale entries."""


class EvaluationProgress(msgspec.Struct, frozen=True):
    """How many contexts of a run are done."""

    done: int
    total: int
    label: str = "evaluate"
    seconds_left: float | None = None


OnEvaluated = Callable[[EvaluationProgress], None]


class ScorePair(msgspec.Struct, frozen=True, kw_only=True):
    """A score of the answers to both sides of a context."""

    score: str
    context_id: str
    before: float
    after: float


class ScoreComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A score of both answers, over the contexts that have it on both sides.

    `p_sign` is of the exact sign test over wins and losses, `p_value` of a paired permutation test
    of the mean difference; both have two sides. `is_exact` says whether the latter counted all
    permutations or a seeded sample.
    """

    name: str
    pairs: int
    before: float
    after: float
    """The means."""
    wins: int
    ties: int
    losses: int
    p_sign: float
    p_value: float
    is_exact: bool
    worst: tuple[ScorePair, ...] = ()
    """The contexts whose score fell most."""

    @property
    def difference(self) -> float:
        """By how much the mean grew."""
        return self.after - self.before


class AnswerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answers to both sides of the contexts whose text changed, and how it scores.

    Answers are outcomes of the evaluation, never of a record: nothing of them is in the store.
    """

    answer: str
    """The function that was asked, as ``module:function``."""
    score: str | None
    contexts: int
    """The contexts whose text changed."""
    answered: int
    """Those of them with an answer to both sides."""
    recorded: int = 0
    """Those of them whose former answer is the recorded one."""
    withheld: int = 0
    """Those of them that were not asked, because their record withholds the text."""
    problems: Mapping[str, int] = {}
    """How many calls failed, by function and error."""
    scores: tuple[ScoreComparison, ...] = ()


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run, with its summary and its gates."""

    run: EvaluationRun
    summary: EvaluationSummary
    gates: Sequence[GateResult] = ()
    baseline: BaselineUse | None = None
    answers: AnswerReport | None = None


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list; `finished_at` and what follows it are None until it is finished."""

    run_id: str
    file: str
    contexts: int
    started_at: datetime
    finished_at: datetime | None = None
    changed: int | None = None
    failed: int | None = None
    passed: bool | None = None
    """Whether all gates hold."""


class ListedCohort(msgspec.Struct, frozen=True, kw_only=True):
    """A cohort and its runs, the newest first; the first fields are None if its file is damaged."""

    name: str
    created_at: datetime | None
    contexts: int | None
    chosen: Mapping[str, Any] | None
    runs: Sequence[ListedRun]


class EvaluationList(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Cohorts, the newest first; `more` is how many others there are."""

    cohorts: Sequence[ListedCohort]
    more: int = 0

    def rows(self) -> Sequence[ListedCohort]:
        return self.cohorts

    def __repr__(self) -> str:
        return f"<EvaluationList cohorts={len(self.cohorts)}>"


class EvaluatedPage(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Contexts of a run in the order of its cohort; `next_cursor` is None on the last page."""

    contexts: Sequence[EvaluatedContext]
    next_cursor: str | None

    def rows(self) -> Sequence[EvaluatedContext]:
        return self.contexts

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<EvaluatedPage contexts={len(self.contexts)}, {more}>"


class ComparedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context of a run, and both sides of it if it changed.

    `withheld` says why the sides of a context that changed are not shown.
    """

    context: EvaluatedContext
    before: ContextTrace | None = None
    after: ContextTrace | None = None
    diff: ContextDiff | None = None
    withheld: str = ""

    def __repr__(self) -> str:
        return f"<ComparedContext {self.context.context_id}: {self.context.status}>"
