"""Gates of an evaluation: limits that its contexts keep to or break, and changes that are accepted.

A baseline is a file, meant to be committed, of the changes that a team has looked at: the text that
each of these contexts has with the new code. A change to exactly that text breaks no gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from pathlib import Path

import msgspec

from headwater.contexts.evaluation.results import RunFolder
from headwater.contexts.evaluation.summary import is_refused_now, summarize
from headwater.errors import InvalidInputError
from headwater.model.evaluations import (
    AnswerReport,
    BaselineUse,
    EvaluatedContext,
    EvaluationReport,
    EvaluationSummary,
    GateResult,
    ScorePair,
    Spread,
)
from headwater.settings.gates import (
    DEFAULT_GATES,
    GATES,
    Gate,
    Limit,
    ScoreDrop,
    ScoreFloor,
    parse_gates,
    parse_score_gates,
)

NAMED = 5
"""The contexts that a broken gate names."""
_REFUSED = "refused"
_NANO = 1_000_000_000

_COUNTED: Mapping[str, Callable[[EvaluatedContext], bool]] = {
    "max_changed": lambda context: context.status in ("changed", "failed"),
    "max_failed": lambda context: context.status == "failed",
    "max_skipped": lambda context: context.status == "skipped",
    "approximate": lambda context: context.fidelity == "approximate",
    "lost_required": lambda context: context.lost_required > 0,
    "new_refusals": is_refused_now,
}
_ACCEPTABLE = frozenset(("max_changed", "lost_required", "new_refusals"))
"""The gates that accepted changes do not count for."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes that are accepted: by context, the hash of its new text, or that it is refused."""

    format: str = "headwater-baseline-1"
    accepted: Mapping[str, str] = {}

    def accepts(self, context: EvaluatedContext) -> bool:
        """Return whether a context changed in exactly the accepted way."""
        form = self.accepted.get(context.context_id)
        return form is not None and form == _accepted_as(context)

    def use(self, contexts: Iterable[EvaluatedContext], file: Path) -> BaselineUse:
        """Return how many changes are accepted, and the entries that no longer occur."""
        occurring = {context.context_id for context in contexts if self.accepts(context)}
        stale = sorted(self.accepted.keys() - occurring)
        return BaselineUse(
            file=str(file),
            accepted=len(occurring),
            stale=len(stale),
            contexts=tuple(stale[:NAMED]),
        )


_decode_baseline = msgspec.json.Decoder(Baseline).decode
NO_BASELINE = Baseline()


def _accepted_as(context: EvaluatedContext) -> str | None:
    if context.status != "changed":
        return None
    return _REFUSED if is_refused_now(context) else context.content_after


def read_baseline(path: Path) -> Baseline:
    """Return the changes that a file accepts; raise InvalidInputError if it is not a baseline."""
    try:
        baseline = _decode_baseline(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the baseline {path}: {error.strerror}; --write-baseline writes one"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is not a baseline: {error}; --write-baseline writes one"
        ) from error
    if baseline.format != NO_BASELINE.format:
        raise InvalidInputError(
            f"{path} has the format {baseline.format!r}, not {NO_BASELINE.format!r}; write it "
            "again with --write-baseline"
        )
    return baseline


def baseline_text(contexts: Iterable[EvaluatedContext]) -> str:
    """Return a baseline that accepts all changes of contexts; the same changes give the same."""
    entries = ((context.context_id, _accepted_as(context)) for context in contexts)
    accepted = dict(sorted((name, form) for name, form in entries if form is not None))
    encoded = msgspec.json.encode(Baseline(accepted=accepted))
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def conclude(
    folder: RunFolder,
    gates: Mapping[str, Gate],
    baseline: Path | None = None,
    answers: AnswerReport | None = None,
) -> EvaluationReport:
    """Return the report of a run whose portions are done, by these gates and this baseline.

    It reads the results only, so a run that was finished earlier can be judged by other gates.
    """
    summary = summarize(folder.contexts())
    accepted = NO_BASELINE if baseline is None else read_baseline(baseline)
    scored = check_score_gates(folder.scores(), answers, gates)
    return EvaluationReport(
        run=folder.run,
        summary=summary,
        gates=[*check_gates(folder.contexts(), summary, gates, accepted), *scored],
        baseline=None if baseline is None else accepted.use(folder.contexts(), baseline),
        answers=answers,
    )


def check_gates(
    contexts: Iterable[EvaluatedContext],
    summary: EvaluationSummary,
    gates: Mapping[str, Gate],
    baseline: Baseline = NO_BASELINE,
) -> list[GateResult]:
    """Return whether each gate holds, and the first contexts that break it.

    Contexts that raise an error break a gate unless another limit of `max_failed` is set, and an
    evaluation that compared nothing does not pass. There is no result if no gate is set and these
    hold.
    """
    limits = parse_gates({**DEFAULT_GATES, **gates})
    counts = {name: _Count() for name in limits if GATES[name] == "share"}
    worst: dict[str, list[tuple[int, str]]] = {"tokens": [], "cost": []}
    skipped: list[str] = []
    for context in contexts:
        is_accepted = baseline.accepts(context)
        for name, count in counts.items():
            if _COUNTED[name](context):
                count.add(context, is_accepted=is_accepted and name in _ACCEPTABLE)
        for measure, number in _measures(context):
            worst[measure] = nlargest(NAMED, [*worst[measure], (number, context.context_id)])
        if context.status == "skipped" and len(skipped) < NAMED:
            skipped.append(context.context_id)
    results = [] if summary.compared else [_nothing_compared(summary, skipped)]
    for name, limit in limits.items():
        given = str({**DEFAULT_GATES, **gates}[name])
        if name in counts:
            whole = summary.contexts if name == "max_skipped" else summary.compared
            results.append(counts[name].result(name, given, limit, whole))
        else:
            named = worst["cost" if name == "cost" else "tokens"]
            results.append(_growth_result(name, given, limit, summary, named))
    # A default that holds is no gate that somebody set.
    return results if gates else [result for result in results if not result.passed]


def check_score_gates(
    pairs: Iterable[ScorePair], answers: AnswerReport | None, gates: Mapping[str, Gate]
) -> Iterator[GateResult]:
    """Yield whether each gate of scores holds, and the first contexts that break it.

    A fall of a mean breaks its gate if it is larger than the limit and significant. One context
    that crosses a floor is enough, whatever the mean says. Where nothing was asked or changed,
    these gates hold.
    """
    drops, floors = parse_score_gates(gates)
    crossed: dict[ScoreFloor, list[str]] = {floor: [] for floor in floors}
    for pair in () if answers is None else pairs:
        for floor, contexts in crossed.items():
            if floor.score == pair.score and floor.holds(pair.before) > floor.holds(pair.after):
                contexts.append(pair.context_id)
    scores = {} if answers is None else {score.name: score for score in answers.scores}
    limits: list[ScoreDrop | ScoreFloor] = [*drops, *floors]
    for limit in limits:
        score, broken = scores.get(limit.score), list[str]()
        if score is None or answers is None:
            is_held, value = answers is None or not answers.contexts, _unscored(answers)
        elif isinstance(limit, ScoreDrop):
            is_held = -score.difference <= limit.most or score.p_value >= limit.level
            value = f"{score.before:.4g} → {score.after:.4g} (p = {score.p_value:.2g})"
            broken = [pair.context_id for pair in score.worst]
        else:
            broken = crossed[limit]
            verb = "fell below" if limit.is_least else "rose above"
            is_held, value = not broken, f"{len(broken):,} of {score.pairs:,} {verb}"
        if score is not None and answers is not None and score.pairs < answers.contexts:
            value += f", {answers.contexts - score.pairs:,} not scored"
        yield GateResult(
            gate="score_drop" if isinstance(limit, ScoreDrop) else "hard_break",
            limit=limit.text,
            value=value,
            passed=is_held,
            contexts=() if is_held else tuple(broken[:NAMED]),
        )


def _unscored(answers: AnswerReport | None) -> str:
    if answers is None:
        return "not scored; pass --answer and --score"
    return "no context has this score" if answers.contexts else "no text changed"


class _Count:
    """The contexts that count for a gate, and the first of them."""

    def __init__(self) -> None:
        self.number = self.accepted = self.approximate = 0
        self.first: list[str] = []

    def add(self, context: EvaluatedContext, *, is_accepted: bool) -> None:
        if is_accepted:
            self.accepted += 1
            return
        self.number += 1
        self.approximate += context.fidelity == "approximate"
        if len(self.first) < NAMED:
            self.first.append(context.context_id)

    def result(self, name: str, given: str, limit: Limit, whole: int) -> GateResult:
        is_held = self.number <= limit.most(whole)
        words = [f"{self.number:,} of {whole:,}{_percent(self.number, whole)}"]
        if self.approximate and name != "approximate":
            words.append(f"{self.approximate:,} approximate")
        if self.accepted:
            words.append(f"{self.accepted:,} more accepted")
        return GateResult(
            gate=name,
            limit=given,
            value=", ".join(words),
            passed=is_held,
            contexts=() if is_held else tuple(self.first),
        )


def _measures(context: EvaluatedContext) -> Iterator[tuple[str, int]]:
    """Yield the tokens of a context that was assembled, and by how much its cost grew."""
    if context.status not in ("identical", "changed"):
        return
    yield "tokens", context.tokens_after
    if (cost := (context.cost_after or 0) - (context.cost_before or 0)) > 0:
        yield "cost", cost


def _growth_result(
    name: str,
    given: str,
    limit: Limit,
    summary: EvaluationSummary,
    worst: list[tuple[int, str]],
) -> GateResult:
    if name == "cost":
        before, after = summary.cost_before, summary.cost_after
        value = f"{usd(before)} → {usd(after)}"
        is_held = summary.priced > 0 and after <= limit.most(before)
    else:
        quantile = name.removesuffix("_tokens")
        before, after = (
            _whole(spread, quantile) for spread in (summary.tokens_before, summary.tokens_after)
        )
        value = f"{before:,} → {after:,}"
        is_held = after <= limit.most(before)
        worst = [one for one in worst if one[0] > limit.most(before)]
    if name == "cost" and not summary.priced:
        value = "no context has a price; add its model to the setting `prices`"
    elif before:
        value += f" ({(after - before) / before:+.1%})"
    if name == "cost" and summary.priced < summary.compared:
        value += f", of the {summary.priced:,} contexts with a price"
    if approximate := summary.fidelity.get("approximate"):
        value += f", {approximate:,} approximate"
    return GateResult(
        gate=name,
        limit=given,
        value=value,
        passed=is_held,
        contexts=() if is_held else tuple(context_id for _, context_id in worst),
    )


def _whole(spread: Spread, quantile: str) -> int:
    return int(spread.p50 if quantile == "p50" else spread.p95)


def _nothing_compared(summary: EvaluationSummary, skipped: list[str]) -> GateResult:
    value = f"{summary.contexts:,} skipped" if summary.contexts else "the cohort is empty"
    return GateResult(
        gate="contexts", limit="1 or more", value=value, passed=False, contexts=tuple(skipped)
    )


def _percent(number: int, whole: int) -> str:
    return f" ({number / whole:.1%})" if number and whole else ""


def usd(nano: int) -> str:
    """Return an amount of nano-USD for people."""
    return f"{nano / _NANO:,.{2 if nano >= _NANO else 6}f} USD"
