"""Evaluating contexts: the present code assembles each again, and differences get their causes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence, Set
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import asdict

from headwater.contexts.evaluation.differences import difference
from headwater.contexts.evaluation.rerun import Rerun
from headwater.contexts.evaluation.variants import Changes
from headwater.contexts.recorded.verification import decode_record
from headwater.declarations.fingerprints import Declared
from headwater.errors import RecordValueError
from headwater.model.evaluations import Cause, ChangedRecord, CohortEntry, EvaluatedContext
from headwater.ports import RecordLog
from headwater.records.core import Commitment, Core
from headwater.records.diff import diff
from headwater.records.document import export
from headwater.records.record import Record
from headwater.records.sealing import open_core

_OTHER_CODE = "it was recorded by other code than the former one, with which it is compared"
_UNSTEADY = "the former code does not give the recorded text again, and is compared itself"
_WAVERING = (
    "the former code gives another text at each call, so no declaration is named as the cause: see "
    "`headwater check` for sources of time and chance"
)
_FAILING = "the former code fails today, so the record itself is compared"


class Recorded(NamedTuple):
    """A context of a cohort: its record, and the contexts that were assembled inside of it."""

    entry: CohortEntry
    record: Record
    core: Core
    inner: tuple[Core, ...]


class RunsVariants(Protocol):
    """Assembles contexts again with the declarations of variants."""

    async def run(
        self, taken_back: frozenset[Declared], contexts: Sequence[Recorded]
    ) -> list[Rerun]:
        """Return what the present declarations, with some taken back, make of each context."""

    def upstream(self, features: Iterable[str]) -> Set[str]:
        """Return these features, and all that they may be computed from."""


class Evaluated(NamedTuple):
    """An evaluated context, and both sides of it if it changed."""

    context: EvaluatedContext
    changed: ChangedRecord | None = None


class _Case(NamedTuple):
    """A context that differs, what it is compared with, and why that is not exact."""

    recorded: Recorded
    new: Rerun
    control: Rerun
    """What the former code makes of it."""
    former: Rerun
    compared_with: Literal["record", "base"] = "record"
    reasons: tuple[str, ...] = ()


class Evaluator:
    """Evaluates contexts in groups, one variant after the other.

    ``is_private`` says that no texts and values may be kept.
    """

    def __init__(
        self, records: RecordLog, changes: Changes, variants: RunsVariants, *, is_private: bool
    ) -> None:
        self._records = records
        self._keys = frozenset(changes.keys)
        self._own = changes.own
        self._variants = variants
        self._is_private = is_private

    async def evaluate(self, entries: Sequence[CohortEntry]) -> list[Evaluated]:
        """Evaluate some contexts, in their order."""
        opened = await asyncio.gather(*map(self._open, entries))
        contexts = [context for context in opened if isinstance(context, Recorded)]
        reruns = await self._variants.run(frozenset(), contexts)
        done = {
            context.entry.context_id: _identical(context, again)
            for context, again in zip(contexts, reruns, strict=True)
        }
        pairs = [
            (context, again.sealed())
            for context, again in zip(contexts, reruns, strict=True)
            if not _is_same(again, Rerun(context.core))
        ]
        cases = await self._cases(pairs)
        cases = await self._steady(cases)
        differing = [case for case in cases if not _is_same(case.new, case.former)]
        causes = await self._causes([case for case in differing if _WAVERING not in case.reasons])
        for case in cases:
            key = case.recorded.entry.context_id
            done[key] = self._evaluated(case, causes.get(key, ()))
        return [
            Evaluated(one) if isinstance(one, EvaluatedContext) else done[one.entry.context_id]
            for one in opened
        ]

    async def _open(self, entry: CohortEntry) -> Recorded | EvaluatedContext:
        """Return the records of a context; or why it cannot be assembled again."""
        stored = await self._records.get(entry.context_id)
        if stored is None:
            return _skipped(entry, "its record is not stored any more")
        if stored.record_hash != entry.record_hash:
            return _skipped(entry, "its record is another one than the cohort names")
        record = decode_record(stored)
        try:
            core = open_core(record)
            inner = tuple([one async for one in self._inner(core)])
        except RecordValueError as error:
            return _skipped(entry, str(error))
        if any(isinstance(value, Commitment) for value in core.inputs.values()):
            return _skipped(entry, "its record withholds the inputs")
        return Recorded(entry, record, core, inner)

    async def _inner(self, core: Core) -> AsyncIterator[Core]:
        for nested in core.contexts:
            stored = await self._records.get(nested.context_id)
            if stored is not None:
                inner = open_core(decode_record(stored))
                yield inner
                async for further in self._inner(inner):
                    yield further

    async def _cases(self, pairs: Sequence[tuple[Recorded, Rerun]]) -> list[_Case]:
        """Compare what differs with the record, if the former code still gives that."""
        if not pairs:
            return []
        contexts = [context for context, _ in pairs]
        controls = await self._variants.run(self._keys, contexts)
        cases = []
        for (context, new), control in zip(pairs, controls, strict=True):
            recorded = Rerun(context.core, context.record)
            if control.core is None:
                case = _Case(context, new, control, recorded, reasons=(_FAILING,))
            elif _is_same(control, recorded):
                case = _Case(context, new, control, recorded, reasons=control.reasons)
            else:
                definition = control.core.context.definition
                is_other = definition != context.core.context.definition
                reasons = (_OTHER_CODE if is_other else _UNSTEADY, *control.reasons)
                case = _Case(context, new, control, control.sealed(), "base", reasons)
            cases.append(case)
        return cases

    async def _steady(self, cases: Sequence[_Case]) -> list[_Case]:
        """Call the former code once more where it gave another text than the record has.

        If it gives a third one, taking a declaration back shows nothing, and what no changed
        declaration concerns is the same.
        """
        doubtful = [
            case
            for case in cases
            if case.compared_with == "base" and not _is_same(case.new, case.former)
        ]
        again = await self._variants.run(self._keys, [case.recorded for case in doubtful])
        wavering = {
            case.recorded.entry.context_id
            for case, once_more in zip(doubtful, again, strict=True)
            if not _is_same(once_more, case.former)
        }
        return [
            case._replace(
                new=case.new if self._suspects(case) else case.former,
                reasons=(_WAVERING, *case.control.reasons),
            )
            if case.recorded.entry.context_id in wavering
            else case
            for case in cases
        ]

    async def _causes(self, cases: Sequence[_Case]) -> dict[str, tuple[Cause, ...]]:
        """Find the declarations that cause differences, by taking them back one at a time.

        First those that differ themselves, then those that only name others which differ; and
        where changes hide each other, each is made alone.
        """
        causes: dict[str, list[Cause]] = {case.recorded.entry.context_id: [] for case in cases}
        suspects = [(case, self._suspects(case)) for case in cases]
        own, others = self._own, self._keys - self._own
        for keys, is_alone in ((own, False), (others, False), (own, True)):
            open_ = [pair for pair in suspects if not causes[pair[0].recorded.entry.context_id]]
            for key in sorted(keys):
                tried = [case for case, suspected in open_ if key in suspected]
                for case, cause in await self._tried(key, tried, is_alone=is_alone):
                    causes[case.recorded.entry.context_id].append(cause)
        return {key: tuple(found) for key, found in causes.items()}

    async def _tried(
        self, key: Declared, cases: Sequence[_Case], *, is_alone: bool
    ) -> list[tuple[_Case, Cause]]:
        """Return the cases whose difference a declaration causes, taken back or changed alone."""
        if not cases:
            return []
        if self._own == {key} and not is_alone:
            reruns: Sequence[Rerun] = [case.control for case in cases]
        else:
            taken_back = self._keys - {key} if is_alone else frozenset({key})
            reruns = await self._variants.run(taken_back, [case.recorded for case in cases])
        found = []
        for case, again in zip(cases, reruns, strict=True):
            is_undone = not is_alone and _is_same(again, case.former)
            before = case.former if is_alone else case.new
            # That others need what was taken back does not make it the cause.
            is_broken = again.core is None and before.core is not None
            if is_undone or not (is_broken or _is_same(again, before)):
                found.append((case, Cause(kind=key.kind, name=key.name, alone=is_undone)))
        return found

    def _suspects(self, case: _Case) -> set[Declared]:
        """Return the changed declarations that a context may depend on."""
        used = {Declared("context", case.recorded.core.context.name)}
        features: set[str] = set()
        cores = [core for core in (case.former.core, case.new.core) if core is not None]
        for core in (*cores, *case.recorded.inner):
            used |= {Declared("context", nested.name) for nested in core.contexts}
            for call in core.retrievals:
                used.add(Declared("retriever", call.retriever))
                if call.index is not None:
                    used.add(Declared("index", call.index.name))
            for read in core.features:
                for value in (read, *read.inputs):
                    window = value.window
                    features.add(value.feature if window is msgspec.UNSET else window.family)
        used |= {Declared("feature", name) for name in self._variants.upstream(features)}
        options = {key for key in self._keys if key.kind == "option"}
        # What failed has not said what it depends on.
        return set(self._keys) if case.new.core is None else (used | options) & self._keys

    def _evaluated(self, case: _Case, causes: tuple[Cause, ...]) -> Evaluated:
        new, former = case.new, case.former
        reasons = tuple(dict.fromkeys((*case.reasons, *new.reasons)))
        assert former.core is not None, "a record, or a control that has succeeded"
        if new.core is None:
            facts = {"status": "failed", "error": new.error, "causes": causes}
            return Evaluated(_context(case.recorded.entry, case.recorded.core, reasons, **facts))
        found = asdict(difference(former.core, new.core))
        reasons = tuple(dict.fromkeys((*reasons, *found.pop("reasons"))))
        status = "changed" if found["kinds"] else "identical"
        context = _context(
            case.recorded.entry,
            case.recorded.core,
            reasons,
            status=status,
            compared_with=case.compared_with,
            dead_letters=new.dead_letters,
            causes=causes,
            **found,
        )
        return Evaluated(context, self._sides(case) if found["kinds"] else None)

    def _sides(self, case: _Case) -> ChangedRecord:
        """Return both sides of a context, without what may not be kept."""
        before, after = [
            record.private() if self._is_private else record
            for record in (case.former.record, case.new.record)
            if record is not None
        ]
        return ChangedRecord(
            context_id=case.recorded.entry.context_id,
            before=msgspec.json.decode(export(before)),
            after=msgspec.json.decode(export(after)),
            diff=diff(open_core(before), open_core(after)),
        )


def _is_same(one: Rerun, other: Rerun) -> bool:
    """Return whether two assemblies differ in nothing; two that failed do so if in the same way."""
    if one.core is None or other.core is None:
        return one.core is other.core and one.error == other.error
    if not difference(other.core, one.core).kinds:
        return True
    # A record may write a value in another form than the one that was read.
    return one.record is None and not difference(other.core, one.sealed().core or one.core).kinds


def _identical(context: Recorded, again: Rerun) -> Evaluated:
    output, status = context.core.output, context.core.freshness.status
    facts = {
        "tokens_before": output.tokens,
        "tokens_after": output.tokens,
        "cost_before": output.cost_nano_usd,
        "cost_after": output.cost_nano_usd,
        "freshness_before": status,
        "freshness_after": status,
        "model": context.core.policy.model,
    }
    return Evaluated(
        _context(context.entry, context.core, again.reasons, status="identical", **facts)
    )


def _context(
    entry: CohortEntry, core: Core, reasons: tuple[str, ...], **facts: Any
) -> EvaluatedContext:
    return EvaluatedContext(
        context_id=entry.context_id,
        record_hash=entry.record_hash,
        name=core.context.name,
        created_at=core.created_at,
        fidelity="approximate" if reasons else "exact",
        reasons=reasons,
        **facts,
    )


def _skipped(entry: CohortEntry, problem: str) -> EvaluatedContext:
    return EvaluatedContext(
        context_id=entry.context_id,
        record_hash=entry.record_hash,
        name=entry.name,
        created_at=entry.created_at,
        status="skipped",
        error=problem,
    )
