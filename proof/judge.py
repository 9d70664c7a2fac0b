"""Compare what an evaluation says of an edit with the world that was lived with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.model.evaluations import EvaluatedContext
from proof.edits import Edit
from proof.world import Seen


@dataclass(frozen=True)
class Truth:
    """What an edit does: lives of the world with former code, the edit, and its parts alone."""

    edit: Edit
    before: Sequence[Seen]
    after: Sequence[Seen]
    alone: Sequence[tuple[Edit, Sequence[Seen]]] = ()

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
        if old.context_id is None:
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
        if truth.edit.unreproducible and said.reasons:
            return []
        return [f"approximate: {'; '.join(said.reasons)}"]
    faults = []
    if said.status == "skipped":
        faults.append(f"skipped: {said.error}")
    elif new.outcome == "TokenBudgetError":
        if said.status != "failed":
            faults.append(f"the world fails with {new.outcome}, the evaluation is {said.status}")
    elif said.status == "failed":
        faults.append(f"failed: {said.error}")
    elif old.outcome != new.outcome:
        faults += _differences(new, said)
    elif said.is_text_changed or "refusal" in said.kinds:
        faults.append(f"the world shows the same text, the evaluation says {said.kinds}")
    elif (old.shown, old.values) == (new.shown, new.values) and said.status != "identical":
        faults.append(f"nothing differs in the world, the evaluation says {said.kinds}")
    if said.status in {"changed", "failed"}:
        faults += _blame(truth.culprits(number), said)
    return faults


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
