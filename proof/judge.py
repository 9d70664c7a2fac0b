"""Compare what an evaluation says of an edit with the world that was lived with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.model.evaluations import EvaluatedContext
from proof.edits import Edit
from proof.world import Seen

_FEEDS_SCHEDULE = frozenset({"feature total_spend"})
"""What the scheduled feature reads: nobody knows what it would have been with another of these."""


@dataclass(frozen=True)
class Truth:
    """What an edit does: lives of the world with former code, the edit, and its parts alone."""

    edit: Edit
    before: Sequence[Seen]
    after: Sequence[Seen]
    alone: Sequence[tuple[Edit, Sequence[Seen]]] = ()
    since: int = 0
    """The first context to compare: a rebuilt index has the documents of its end, not of before."""

    @property
    def changed(self) -> int:
        """How many recorded contexts would have been shown otherwise."""
        pairs = zip(self.before, self.after, strict=True)
        return sum(old.outcome != new.outcome for old, new in pairs if old.context_id)

    def culprits(self, number: int) -> frozenset[str]:
        """Return the declarations that may be blamed for the difference of a context."""
        before, after = self.before[number], self.after[number]
        for part, seen in self.alone:
            others = [other for of, other in self.alone if of is not part]
            is_whole = seen[number].shown == after.shown
            if is_whole and all(other[number].shown == before.shown for other in others):
                return part.declarations
        return self.edit.declarations


@dataclass
class Verdict:
    """What is wrong with an evaluation of an edit; empty lists if nothing is."""

    edit: Edit
    changed: int = 0
    named: int = 0
    approximate: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.faults


def judge(truth: Truth, found: Mapping[str, EvaluatedContext]) -> Verdict:
    """Compare every context of an evaluation with the world."""
    verdict = Verdict(truth.edit)
    for number, (old, new) in enumerate(zip(truth.before, truth.after, strict=True)):
        if old.context_id is None or number < truth.since:
            continue
        said = found.get(old.context_id)
        if said is None:
            verdict.faults.append(f"#{number} {old.name} is not in the results")
            continue
        label = f"#{number} {old.name} {old.context_id}"
        verdict.faults += [f"{label}: {fault}" for fault in _faults(truth, number, said)]
        verdict.approximate += said.fidelity == "approximate"
        if old.outcome != new.outcome:
            verdict.changed += 1
            verdict.named += bool(said.causes)
    return verdict


def _faults(truth: Truth, number: int, said: EvaluatedContext) -> list[str]:
    old, new = truth.before[number], truth.after[number]
    if said.fidelity == "approximate":
        return [] if _may_be_approximate(truth.edit, said) else [f"approximate: {said.reasons}"]
    if truth.edit.unreproducible and said.status == "failed":
        return []  # the function that could tell is not there any more
    if said.status == "skipped":
        return [f"skipped: {said.error}"]
    if (said.status == "failed") != (new.outcome == "TokenBudgetError"):
        return [f"{said.status} {said.error}, the world shows {new.outcome}"]
    faults = []
    if old.outcome != new.outcome and said.status != "failed":
        faults = _differences(new, said)
    elif old.outcome == new.outcome:
        faults = _additions(old, new, said)
    if said.status != "identical":
        faults += _blame(truth.culprits(number), said)
    return faults


def _may_be_approximate(edit: Edit, said: EvaluatedContext) -> bool:
    """Return whether nobody could know better what the edit would have done to a context."""
    reads_schedule = all("segment" in reason for reason in said.reasons)
    is_fed = reads_schedule and not _FEEDS_SCHEDULE.isdisjoint(edit.declarations)
    return bool(said.reasons) and (edit.unreproducible or is_fed)


def _additions(old: Seen, new: Seen, said: EvaluatedContext) -> list[str]:
    """Return what an evaluation says to differ although the world shows the same."""
    if "refusal" in said.kinds:
        return ["a refusal is said to differ"]
    if old.outcome == "refused":
        return []  # neither was shown, so the world does not tell their texts
    if said.is_text_changed:
        return [f"the world shows the same text, the evaluation says {said.kinds}"]
    if (old.shown, old.values) == (new.shown, new.values) and said.status != "identical":
        return [f"nothing differs in the world, the evaluation says {said.kinds}"]
    return []


def _differences(new: Seen, said: EvaluatedContext) -> list[str]:
    if said.status != "changed":
        return [f"the world shows another text, the evaluation says {said.status}"]
    if new.outcome == "refused" or said.freshness_before == "refused":
        return [] if "refusal" in said.kinds else [f"a refusal differs, found {said.kinds}"]
    if not said.is_text_changed:
        return [f"the world shows another text, the evaluation says {said.kinds}"]
    if said.content_after != new.outcome:
        return [f"another text than the world's: {said.content_after} instead of {new.outcome}"]
    if said.tokens_after != new.tokens or said.freshness_after != new.freshness:
        after = (said.tokens_after, said.freshness_after)
        return [f"{after} tokens and freshness instead of {(new.tokens, new.freshness)}"]
    return []


def _blame(culprits: frozenset[str], said: EvaluatedContext) -> list[str]:
    named = {f"{cause.kind} {cause.name}" for cause in said.causes}
    if not named:
        return [f"no declaration is named for {said.kinds or said.error}"]
    wrong = {name for name in named if not any(name.startswith(right) for right in culprits)}
    return [f"{sorted(wrong)} blamed wrongly; right is {sorted(culprits)}"] if wrong else []
