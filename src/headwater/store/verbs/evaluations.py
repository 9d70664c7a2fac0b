"""Evaluations: what other code would have made of recorded contexts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from msgspec import Meta

from headwater import errors
from headwater.core.blocking import Blocking, blocking
from headwater.model.evaluations import (
    ChangeKind,
    ComparedContext,
    EvaluatedPage,
    EvaluationList,
    EvaluationReport,
    Fidelity,
    FrozenCohort,
    OnEvaluated,
    Status,
)
from headwater.model.kinds import ContextId, Cursor, Limit
from headwater.store.verbs.verb import Sent, Verbs, verb

if TYPE_CHECKING:
    from headwater.contexts.evaluation.answers import AnswerOptions
    from headwater.ports.runner import Runner
    from headwater.store.evaluation_run import RunOptions
    from headwater.store.evaluations import Evaluations

CohortName = Annotated[str, Meta(description="The name of a cohort.", examples=["last-month"])]
RunId = Annotated[
    str, Meta(description="The id of a run of the cohort.", examples=["5f0c1a9be2d4"])
]
SoughtKind = Annotated[
    ChangeKind, Meta(description="Only contexts that differ in this way.", examples=["lost"])
]
SoughtCause = Annotated[
    str,
    Meta(
        description="Only contexts with a difference that this declaration caused, such as "
        "``feature churn_risk``; ``unexplained`` for those of none.",
        examples=["feature churn_risk"],
    ),
]
SoughtFidelity = Annotated[
    Fidelity, Meta(description="Only contexts of this fidelity.", examples=["exact"])
]
SoughtStatus = Annotated[
    Status, Meta(description="Only contexts with this status.", examples=["changed"])
]
_UNKNOWN = (errors.UnknownEvaluationError,)


class ChosenContexts(TypedDict, total=False):
    """Which recorded contexts a cohort has: those that match, or those of a list of ids."""

    context: str | None
    start: datetime | None
    end: datetime | None
    where: Mapping[str, str]
    score: str | None
    ids: Collection[str] | None
    sample: int | None
    stratify_by: str | None
    seed: int
    skip_missing: bool


class EvaluationVerbs(Verbs):
    """``store.evaluations``: recorded contexts, assembled again with other code."""

    def _evaluations(self) -> Evaluations:
        from headwater.store.evaluations import Evaluations  # noqa: PLC0415 - loads the engine

        return Evaluations(self._runtime)

    @verb("GET", "/v1/evaluations", scope="records", operation="list_evaluations")
    async def list(self, *, limit: Limit = 100) -> EvaluationList:
        """Return cohorts and the runs of each, newest first.

        >>> await store.evaluations.list()
        <EvaluationList cohorts=1>
        """
        return await self._evaluations().listed(limit)

    @verb(
        "GET",
        "/v1/evaluations/{cohort}",
        scope="records",
        operation="read_evaluation",
        raises=_UNKNOWN,
    )
    async def report(self, cohort: CohortName, run_id: RunId | None = None) -> EvaluationReport:
        """Return what a run of a cohort found, by default of the one that was started last.

        Until a run is finished, its summary is of the contexts that are done, and there are no
        gates.

        >>> report = await store.evaluations.report("last-month")
        >>> report.summary.changed, report.summary.identical
        (1, 0)
        """
        return await self._evaluations().report(cohort, run_id)

    @verb(
        "GET",
        "/v1/evaluations/{cohort}/{run_id}/contexts",
        scope="records",
        operation="list_evaluated_contexts",
        raises=_UNKNOWN,
    )
    async def changes(
        self,
        cohort: CohortName,
        run_id: RunId,
        *,
        kind: SoughtKind | None = None,
        cause: SoughtCause | None = None,
        fidelity: SoughtFidelity | None = None,
        status: SoughtStatus = "changed",
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> EvaluatedPage:
        """Return the contexts of a run that changed, in the order of the cohort.

        With another ``status`` those that are identical, or that failed or were skipped, with the
        error. All filters must match. ``cursor`` is the ``next_cursor`` of the page before.

        >>> run_id = (await store.evaluations.report("last-month")).run.run_id
        >>> await store.evaluations.changes("last-month", run_id, kind="edited")
        <EvaluatedPage contexts=1, the last page>
        """
        matched = {"kind": kind, "cause": cause, "fidelity": fidelity, "status": status}
        return await self._evaluations().changes(cohort, run_id, matched, limit, cursor)

    @verb(
        "GET",
        "/v1/evaluations/{cohort}/{run_id}/contexts/{id}",
        scope="records",
        operation="read_evaluated_context",
        raises=(*_UNKNOWN, errors.UnknownContextError, errors.DamagedRecordError),
    )
    async def context(
        self,
        cohort: CohortName,
        run_id: RunId,
        context_id: Annotated[str, Sent(ContextId, name="id")],
    ) -> ComparedContext:
        """Return a context of a run, and both sides of it if it changed.

        The sides are withheld if values of the record were redacted since, or the record is gone.

        >>> run_id = (await store.evaluations.report("last-month")).run.run_id
        >>> compared = await store.evaluations.context("last-month", run_id, ctx.context_id)
        >>> compared.before.name, compared.diff.tokens_delta
        ('support', 0)
        """
        return await self._evaluations().context(cohort, run_id, context_id)

    async def freeze(
        self,
        cohort: str,
        *,
        file: str | Path | None = None,
        replaces: bool = False,
        **chosen: Unpack[ChosenContexts],
    ) -> FrozenCohort:
        """Write recorded contexts, and the code of the features file, to the file of a cohort.

        ``where`` has a ``status``, ``model``, ``caller``, ``label``, ``answer_model`` or ``error``.
        A ``sample`` is determined by the ``seed``, and proportional to ``model``, ``status``,
        ``caller`` or an input such as ``input.language`` if ``stratify_by`` names it. ``ids`` that
        are not recorded raise, unless they are to be skipped.

        >>> await store.evaluations.freeze("october", context="support", sample=100)
        <FrozenCohort 'october': contexts=1>
        """
        from headwater.contexts.evaluation.freezing import CohortChoice  # noqa: PLC0415 - loads the engine

        choice = CohortChoice(**chosen)
        return await self._evaluations().freeze(cohort, choice, file=file, replaces=replaces)

    async def run(
        self,
        cohort: str,
        *,
        file: str,
        base: str = "",
        options: RunOptions | None = None,
        runner: Runner | None = None,
        again: bool = False,
        baseline: Path | None = None,
        answers: AnswerOptions | None = None,
        progress: OnEvaluated | None = None,
    ) -> EvaluationReport:
        """Assemble the contexts of a cohort again with the present code, on what was known then.

        ``file`` is the features file of this store, which other processes load, and ``base`` that
        of the former code, if it is not the one that the cohort keeps. Nothing is written to the
        store. A run that was interrupted continues; with ``again`` it begins anew. ``baseline`` is
        a file of changes that gates accept. ``answers`` are functions that answer both sides of the
        contexts whose text changed, and score them.

        >>> frozen = await store.evaluations.freeze("october", file="features.py")
        >>> (await store.evaluations.run("october", file="features.py")).summary.contexts
        1
        """
        return await self._evaluations().run(
            cohort,
            file=file,
            base=base,
            options=options,
            runner=runner,
            again=again,
            baseline=baseline,
            answers=answers,
            progress=progress,
        )


class SyncEvaluationVerbs(Blocking[EvaluationVerbs]):
    """The blocking form of evaluations."""

    list = blocking(EvaluationVerbs.list)
    report = blocking(EvaluationVerbs.report)
    changes = blocking(EvaluationVerbs.changes)
    context = blocking(EvaluationVerbs.context)
    freeze = blocking(EvaluationVerbs.freeze)
    run = blocking(EvaluationVerbs.run)
