"""The evaluations of a store: cohorts of recorded contexts, and runs of them."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from headwater.backends.runners.choice import runner_of
from headwater.contexts.evaluation.answers import AnswerOptions, answer_changed
from headwater.contexts.evaluation.freezing import CohortChoice, Freezing
from headwater.contexts.evaluation.gates import conclude
from headwater.contexts.evaluation.results import RunFolder, cohorts_in, find_run, runs_of
from headwater.contexts.evaluation.summary import cause_labels, summarize
from headwater.contexts.recorded.service import explained
from headwater.errors import (
    InvalidInputError,
    NotFoundError,
    UnknownContextError,
    UnknownEvaluationError,
)
from headwater.errors.hints import quoted
from headwater.messages.parts import TextPart
from headwater.model.evaluations import (
    CohortHeader,
    CohortSeal,
    ComparedContext,
    EvaluatedContext,
    EvaluatedPage,
    EvaluationList,
    EvaluationReport,
    FrozenCohort,
    ListedCohort,
    ListedRun,
    OnEvaluated,
)
from headwater.ports.runner import Runner
from headwater.records.document import load
from headwater.records.record import Redaction
from headwater.records.verify import checked_core
from headwater.store.base_code import KeptCode, kept_code
from headwater.store.evaluation_run import RunOptions, evaluate
from headwater.store.runtime import Runtime

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SEAL_BYTES = 8_192
"""More than the last line of a cohort has."""
_FAILED = "failed: an error of a function, shown with each context that failed"
_NEVER = datetime.min.replace(tzinfo=UTC)


class Evaluations:
    """The cohorts and runs in the folder of evaluations."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def folder(self) -> Path:
        """The folder of cohorts and runs."""
        return Path(self._runtime.settings.eval.folder)

    def cohort(self, name: str) -> Path:
        """Return the file of a cohort."""
        return self.folder / f"{name}.cohort"

    async def freeze(
        self,
        name: str,
        choice: CohortChoice,
        *,
        file: str | Path | None = None,
        replaces: bool = False,
    ) -> FrozenCohort:
        """Write the contexts of a choice and the present code to the file of a cohort.

        Without the features file, the cohort has no code, and evaluations need to be given it.
        """
        path, runtime = self.cohort(name), self._runtime
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{quoted(name)} is not a valid name of a cohort; use letters, digits, dots, "
                "hyphens and underscores, such as october or support-v2"
            )
        choice.check()
        if choice.context is not None:
            runtime.registry.context(choice.context)
        kept = KeptCode("", {}) if file is None else kept_code(file)
        header = CohortHeader(
            name=name,
            created_at=runtime.clock.now(),
            chosen=choice.described(),
            features=kept.features,
            code=kept.code,
        )
        engine = await runtime.open()
        freezing = Freezing(engine.recorded, engine.backends.records, runtime.registry.contexts)
        signed = engine.assembler.recorder.signed
        return await freezing.freeze(path, header, choice, signed, replaces=replaces)

    def run_folder(self, name: str, run_id: str) -> RunFolder:
        """Return the folder of a run of a cohort."""
        return RunFolder(self.folder / name / run_id)

    async def run(
        self,
        name: str,
        *,
        file: str,
        base: str,
        options: RunOptions | None,
        runner: Runner | None,
        again: bool,
        baseline: Path | None,
        answers: AnswerOptions | None,
        progress: OnEvaluated | None,
    ) -> EvaluationReport:
        """Evaluate a cohort with the code of a features file, or continue that.

        Answers that were asked for earlier stay in the report.
        """
        path = self.cohort(name)
        if not path.exists():
            raise UnknownEvaluationError("cohort", name, cohorts_in(self.folder))
        folder = await evaluate(
            self._runtime,
            path,
            file=file,
            base=base,
            options=options or RunOptions(),
            runner=runner or runner_of(self._runtime.settings.runner),
            again=again,
            progress=progress,
        )
        before, gates = folder.report, self._runtime.settings.eval.gates
        answered = None if before is None else before.answers
        if answers is not None:
            answered = await answer_changed(folder, answers, self._recorded_answer, progress)
        report = await asyncio.to_thread(conclude, folder, gates, baseline, answered)
        finished_at = self._runtime.clock.now() if before is None else before.run.finished_at
        report = replace(report, run=replace(report.run, finished_at=finished_at))
        folder.finish(report)
        return report

    async def _recorded_answer(self, context_id: str) -> str | None:
        """Return the text of the first recorded answer to a context, if there is one."""
        engine = await self._runtime.open()
        try:
            outcomes = await engine.recorded.outcomes.of(context_id)
        except NotFoundError:
            return None
        responses = [outcome.response for outcome in outcomes if outcome.kind == "response"]
        texts = (
            "".join(part.content for part in message.parts if isinstance(part, TextPart))
            for response in responses
            if response is not None
            for message in response.messages
        )
        return next(filter(None, texts), None)

    async def listed(self, limit: int) -> EvaluationList:
        """Return the cohorts and the runs of each, newest first, at most so many of both."""
        return await asyncio.to_thread(self._list, limit)

    def _list(self, limit: int) -> EvaluationList:
        cohorts = [_listed(name, self.cohort(name)) for name in cohorts_in(self.folder)]
        cohorts.sort(key=lambda cohort: cohort.created_at or _NEVER, reverse=True)
        shown = [
            replace(
                cohort, runs=[*islice(map(_listed_run, runs_of(self.folder, cohort.name)), limit)]
            )
            for cohort in cohorts[:limit]
        ]
        return EvaluationList(cohorts=shown, more=len(cohorts) - len(shown))

    async def report(self, cohort: str, run_id: str | None) -> EvaluationReport:
        """Return the report of a run, or of the finished part."""
        return await asyncio.to_thread(self._report, cohort, run_id)

    def _report(self, cohort: str, run_id: str | None) -> EvaluationReport:
        folder = find_run(self.folder, cohort, run_id)
        report = folder.report or EvaluationReport(
            run=folder.run, summary=summarize(folder.contexts()), gates=[]
        )
        # Messages of functions may quote values that were redacted since; those of single contexts
        # are shown where that can be checked.
        reasons = Counter[str]()
        for reason, count in report.summary.reasons.items():
            reasons[_FAILED if reason.startswith("failed: ") else reason] += count
        return replace(report, summary=replace(report.summary, reasons=dict(reasons)))

    async def changes(
        self, cohort: str, run_id: str, matched: Mapping[str, Any], limit: int, cursor: str | None
    ) -> EvaluatedPage:
        """Return a page of the contexts of a run that match; None matches all."""
        folder = await asyncio.to_thread(find_run, self.folder, cohort, run_id)
        page = await asyncio.to_thread(_page, folder, matched, limit, cursor)
        shown = [await self._disclosed(context) for context in page.contexts]
        return replace(page, contexts=shown)

    async def context(self, cohort: str, run_id: str, context_id: str) -> ComparedContext:
        """Return a context of a run, and both sides of it if it changed and may be shown."""
        folder = await asyncio.to_thread(find_run, self.folder, cohort, run_id)
        context = await asyncio.to_thread(_find, folder, context_id)
        if context.status != "changed":
            return ComparedContext(context=await self._disclosed(context))
        changed = await asyncio.to_thread(folder.changed, context.context_id)
        if changed is None:
            return ComparedContext(context=context, withheld="the run has not kept its sides")
        before, after = (
            load(msgspec.json.encode(side)) for side in (changed.before, changed.after)
        )
        if withheld := await self._withheld(context, before.redactions):
            return ComparedContext(context=context, withheld=withheld)
        features = self._runtime.registry.features.items()
        templates = {name: each.template for name, each in features if each.template is not None}
        one, two = [
            replace(
                await asyncio.to_thread(explained, side, checked_core(side), templates), outcomes=[]
            )
            for side in (before, after)
        ]
        return ComparedContext(context=context, before=one, after=two, diff=changed.diff)

    async def _disclosed(self, context: EvaluatedContext) -> EvaluatedContext:
        """Return a context without the error of a function, which may quote redacted values."""
        withheld = await self._withheld(context) if context.status == "failed" else ""
        return replace(context, error=withheld) if withheld else context

    async def _withheld(self, context: EvaluatedContext, known: Collection[Redaction] = ()) -> str:
        """Return why values of a context are not shown: redactions that its run did not know of.

        What the run kept is a copy, which no redaction reaches.
        """
        recorded = (await self._runtime.open()).recorded
        try:
            record = await recorded.record_of(context.context_id)
        except UnknownContextError:
            return "its record is not stored any more, so what may be shown of it is unknown"
        later = [each for each in record.redactions if each not in known]
        if not later:
            return ""
        return (
            f"values of its record were redacted at {later[-1].redacted_at}, because: "
            f"{later[-1].reason}; run the evaluation again to compare what is left of it"
        )


def _listed(name: str, file: Path) -> ListedCohort:
    """Return a cohort without its runs; that it is as it was sealed is not checked."""
    try:
        with file.open("rb") as lines:
            first = lines.readline()
            lines.seek(max(0, lines.seek(0, os.SEEK_END) - _SEAL_BYTES))
            *_, last = lines.read().splitlines() or [b""]
        header = msgspec.json.decode(first, type=CohortHeader)
        count = msgspec.json.decode(last, type=CohortSeal).count
    except (FileNotFoundError, msgspec.MsgspecError):
        return ListedCohort(name=name, created_at=None, contexts=None, chosen=None, runs=())
    return ListedCohort(
        name=name, created_at=header.created_at, contexts=count, chosen=header.chosen, runs=()
    )


def _listed_run(folder: RunFolder) -> ListedRun:
    run, report = folder.run, folder.report
    listed = ListedRun(
        run_id=run.run_id, file=run.file, contexts=run.count, started_at=run.started_at
    )
    if report is None:
        return listed
    return replace(
        listed,
        finished_at=report.run.finished_at,
        changed=report.summary.changed,
        failed=report.summary.failed,
        passed=all(gate.passed for gate in report.gates),
    )


def _page(
    folder: RunFolder, matched: Mapping[str, Any], limit: int, cursor: str | None
) -> EvaluatedPage:
    contexts = folder.contexts()
    if cursor is not None and all(context.context_id != cursor for context in contexts):
        raise InvalidInputError(f"no context {cursor!r} in this run; leave out the cursor")
    rows = [*islice((each for each in contexts if _matches(each, **matched)), limit + 1)]
    more = rows[limit - 1].context_id if len(rows) > limit else None
    return EvaluatedPage(contexts=rows[:limit], next_cursor=more)


def _matches(
    context: EvaluatedContext,
    *,
    kind: str | None,
    cause: str | None,
    fidelity: str | None,
    status: str,
) -> bool:
    return (
        context.status == status
        and (kind is None or kind in context.kinds)
        and (cause is None or cause in cause_labels(context))
        and (fidelity is None or fidelity == context.fidelity)
    )


def _find(folder: RunFolder, context_id: str) -> EvaluatedContext:
    for context in folder.contexts():
        if context.context_id == context_id:
            return context
    raise UnknownContextError(context_id)
