"""The summary of a run: counts and exact quantiles, in one pass over its contexts. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from headwater.model.evaluations import (
    ChangeKind,
    EvaluatedContext,
    EvaluationSummary,
    Fidelity,
    Spread,
)

UNEXPLAINED = "unexplained"
"""The cause of differences that no changed declaration explains."""
OTHER_REASONS = "other reasons"
_MOST_REASONS = 100
_ID = re.compile(
    r"\b(?:(?=\w*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|[A-Za-z]{0,4}[-_]?\d+(?:T\d+)?Z?)\b"
)
"""A number, a time, a hash, or an id such as ``user-17``; not a name such as ``spend_30d``."""


def summarize(contexts: Iterable[EvaluatedContext]) -> EvaluationSummary:
    """Count contexts, in memory that does not grow with their number."""
    totals = _Totals()
    for context in contexts:
        totals.add(context)
    return totals.summary()


def cause_labels(context: EvaluatedContext) -> list[str]:
    """Return the causes of a difference or failure for people, such as ``feature churn_risk``."""
    labels = [f"{cause.kind} {cause.name}" for cause in context.causes]
    return labels or [UNEXPLAINED] if context.status == "changed" else labels


def is_refused_now(context: EvaluatedContext) -> bool:
    """Return whether a context is refused that was not refused before."""
    return "refusal" in context.kinds and context.freshness_after == "refused"


class _Totals:
    """What is counted: a name occurs once for a context, so that approximate ones are a part."""

    def __init__(self) -> None:
        self.names = Counter[str]()
        self.approximate = Counter[str]()
        self.kinds, self.causes = Counter[str](), Counter[str]()
        self.reasons, self.fidelity = Counter[str](), Counter[str]()
        self.examples, self.varied = dict[str, str](), set[str]()
        self.dead_letters = Counter[str]()
        self.tokens_before, self.tokens_after = Counter[int](), Counter[int]()
        self.priced = self.cost_before = self.cost_after = 0

    def add(self, context: EvaluatedContext) -> None:
        """Count a context."""
        causes = cause_labels(context)
        self.causes.update(causes)
        self.kinds.update(context.kinds)
        facts = {
            context.status: True,
            "text_changed": context.is_text_changed,
            "new_refusals": is_refused_now(context),
            "lost_required": context.lost_required > 0,
        }
        names = [name for name, holds in facts.items() if holds]
        self.names.update(names)
        if context.fidelity == "approximate":
            self.approximate.update((*names, *context.kinds, *causes))
        self._add_reasons(context)
        self.dead_letters.update(context.dead_letters)
        if context.status in ("identical", "changed"):
            self.fidelity[context.fidelity] += 1
            self.tokens_before[context.tokens_before] += 1
            self.tokens_after[context.tokens_after] += 1
            if context.cost_before is not None and context.cost_after is not None:
                self.priced += 1
                self.cost_before += context.cost_before
                self.cost_after += context.cost_after

    def _add_reasons(self, context: EvaluatedContext) -> None:
        error = f"{context.status}: {context.error}" if context.error else ""
        for reason in (*context.reasons, *filter(None, [error])):
            # Messages of errors may name ids, so that there is one for each context.
            form = _ID.sub("…", reason)
            if form not in self.examples and len(self.examples) == _MOST_REASONS:
                form = OTHER_REASONS
            elif self.examples.setdefault(form, reason) != reason:
                self.varied.add(form)
            self.reasons[form] += 1

    def _reason(self, form: str) -> str:
        example = self.examples.get(form, form)
        return f"{example} (numbers and ids vary)" if form in self.varied else example

    def summary(self) -> EvaluationSummary:
        """Return the summary; most frequent reasons and causes first."""
        names = self.names
        return EvaluationSummary(
            contexts=sum(names[status] for status in _STATUSES),
            **{status: names[status] for status in _STATUSES},
            text_changed=names["text_changed"],
            fidelity={name: self.fidelity[name] for name in get_args(Fidelity)},
            approximate=dict(sorted(self.approximate.items())),
            reasons={self._reason(form): n for form, n in _ranked(self.reasons).items()},
            dead_letters=_ranked(self.dead_letters),
            kinds={name: self.kinds[name] for name in get_args(ChangeKind) if self.kinds[name]},
            causes=_ranked(self.causes),
            tokens_before=_spread(self.tokens_before),
            tokens_after=_spread(self.tokens_after),
            priced=self.priced,
            cost_before=self.cost_before,
            cost_after=self.cost_after,
            new_refusals=names["new_refusals"],
            lost_required=names["lost_required"],
        )


_STATUSES = ("identical", "changed", "failed", "skipped")


def _ranked(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _spread(counts: Mapping[int, int]) -> Spread:
    """Return quantiles that are numbers of contexts themselves (nearest rank)."""
    total = sum(number * count for number, count in counts.items())
    return Spread(p50=_quantile(counts, 50), p95=_quantile(counts, 95), total=total)


def _quantile(counts: Mapping[int, int], percent: int) -> float:
    rank = -(-sum(counts.values()) * percent // 100)
    for number, count in sorted(counts.items()):
        rank -= count
        if rank <= 0:
            return number
    return 0
