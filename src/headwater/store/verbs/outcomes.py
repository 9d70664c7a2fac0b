"""Outcomes of recorded contexts: answers, scores, corrections and errors."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from msgspec import Meta

from headwater import errors
from headwater.model.admin import DecidedBy, Pointers, Reason
from headwater.model.kinds import (
    ContextId,
    Limit,
    OutcomeId,
    RecordRef,
)
from headwater.model.new_outcomes import NewOutcome
from headwater.model.outcomes import (
    ContextOutcomes,
    ImportFormat,
    Outcome,
    OutcomeExport,
    OutcomeImport,
)
from headwater.records.document import (
    OutcomeDocuments,
    outcome_document,
    outcome_of,
)
from headwater.records.outcomes import OutcomeRecord
from headwater.store.verbs.verb import Reply, Sent, Verbs, verb

RECORDED = (errors.UnknownContextError, errors.AmbiguousRefError, errors.DamagedRecordError)
Ref = Annotated[str, Sent(ContextId, name="id")]
ContextIds = Annotated[
    list[RecordRef],
    Meta(
        min_length=1,
        description="Ids or hashes of contexts.",
        examples=[["01a1de13-6731-767b-b9ee-76ce545fa0ef"]],
    ),
]
ImportedText = Annotated[
    str,
    Meta(
        description="Scores of Langfuse as JSON, OTLP as JSON, or a table as CSV.",
        examples=["context_id,score,value\n01a1de13-6731-767b-b9ee-76ce545fa0ef,helpful,4\n"],
    ),
]
_FORMAT = Meta(description="The format of the text.", examples=["csv"])
OutcomeRef = Annotated[str, Sent(OutcomeId, name="id")]


async def _sealed_outcomes(verbs: ContextOutcomeVerbs, **arguments: Any) -> OutcomeDocuments:
    outcomes = await verbs.sealed_outcomes(**arguments)
    return OutcomeDocuments(list(map(outcome_document, outcomes)))


def _outcomes_of(answer: OutcomeDocuments) -> list[OutcomeRecord]:
    return list(map(outcome_of, answer.outcomes))


class ContextOutcomeVerbs(Verbs):
    """The part of ``store.records`` about what became of contexts."""

    @verb(
        "POST",
        "/v1/context/{id}/outcomes",
        scope="outcomes",
        operation="add_outcome",
        changes="outcomes.add",
        is_logged=False,
        creates=True,
        raises=(*RECORDED, errors.ImmutableRecordError, errors.RecordValueError),
        applies_limits=True,
    )
    async def add_outcome(self, ref: Ref, **given: Unpack[NewOutcome]) -> Outcome:
        """Store what became of a context: an answer, a score, a correction or an error.

        Give exactly one of ``answer``, ``score``, ``correction`` and ``error``. An answer and a
        correction are text, messages or a `Response`; a score is a name with one of ``value``,
        ``label``, ``flag`` and ``text``, or a `Score`; an error is the name of its type. Outcomes
        are never changed: a later one can say more. The same ``source`` and ``source_id``, or
        ``outcome_id``, are stored once. A client sends it again if the connection is lost.

        >>> answer = await store.records.add_outcome(
        ...     ctx.context_id, answer="It arrives on Friday.", model="gpt-4o"
        ... )
        >>> await store.records.add_outcome(ctx.context_id, score="helpful", value=4, judge="human")
        <Outcome 'score' ... of ...>
        """
        return await (await self._engine()).recorded.outcomes.add(ref, **given)

    @verb(
        "GET",
        "/v1/context/{id}/outcomes",
        scope="records",
        operation="list_outcomes",
        answer=ContextOutcomes,
        raises=RECORDED,
        applies_limits=True,
    )
    async def outcomes(self, ref: Ref, *, limit: Limit = 1_000) -> list[Outcome]:
        """Return the outcomes of a context, the oldest first; withheld values are None.

        >>> await store.records.outcomes(ctx.context_id)
        []
        """
        return await (await self._engine()).recorded.outcomes.of(ref, limit)

    @verb(
        "GET",
        "/v1/outcomes/{id}",
        scope="records",
        operation="read_outcome",
        raises=(errors.UnknownOutcomeError, errors.DamagedRecordError),
        applies_limits=True,
    )
    async def outcome(self, outcome_id: OutcomeRef) -> Outcome:
        """Return an outcome by its id.

        >>> added = await ctx.add_outcome(correction="It arrives on Monday.")
        >>> await store.records.outcome(added.outcome_id)
        <Outcome 'correction' ... of ...>
        """
        return await (await self._engine()).recorded.outcomes.get(outcome_id)

    @verb(
        "POST",
        "/v1/outcomes/{id}/redact",
        scope="admin",
        operation="redact_outcome",
        changes="outcomes.redact",
        target="id",
        notes=("pointers",),
        raises=(errors.UnknownOutcomeError, errors.DamagedRecordError),
    )
    async def redact_outcome(
        self,
        outcome_id: OutcomeRef,
        *pointers: Annotated[str, Sent(Pointers)],
        reason: Reason,
        by: DecidedBy | None = None,
    ) -> Outcome:
        """Erase values of an outcome permanently, all or none; hash and signature stay valid.

        >>> added = await ctx.add_outcome(answer="It arrives on Friday.")
        >>> redacted = await store.records.redact_outcome(
        ...     added.outcome_id, "/response/messages/0", reason="requested by the customer"
        ... )
        >>> redacted.redacted
        ['/response/messages/0']
        """
        outcomes = (await self._engine()).recorded.outcomes
        return await outcomes.redact(outcome_id, pointers, reason, by)

    @verb(
        "POST",
        "/v1/outcomes/import",
        scope="outcomes",
        operation="import_outcomes",
        changes="outcomes.import",
        notes=("format",),
        max_bytes="max_upload_bytes",
        applies_limits=True,
    )
    async def import_outcomes(
        self, text: ImportedText, *, format: Annotated[ImportFormat, _FORMAT]
    ) -> OutcomeImport:
        """Store the outcomes in a text of another system: scores of Langfuse, OTLP or CSV.

        What was imported before is not stored again. Lines that are not outcomes of a context that
        the caller may read are reported, and all others are stored. A text has up to 5,000
        outcomes.

        >>> table = f"context_id,score,value\\n{ctx.context_id},helpful,4\\n"
        >>> await store.records.import_outcomes(table, format="csv")
        <OutcomeImport added=1 known=0 failed=0>
        """
        return await (await self._engine()).recorded.exchange.import_text(text, format)

    @verb(
        "POST",
        "/v1/outcomes/export",
        scope="records",
        operation="export_outcomes",
        answer=OutcomeExport,
        raises=RECORDED,
        applies_limits=True,
    )
    async def export_outcomes(self, *refs: Annotated[str, Sent(ContextIds, list)]) -> str:
        """Return the outcomes of contexts as lines of OTLP in JSON, by the GenAI conventions.

        An answer is a span, a score an event ``gen_ai.evaluation.result``; the trace has the digits
        of the context's id. ``import_outcomes`` reads them again.

        >>> await ctx.add_outcome(score="helpful", value=4)
        <Outcome 'score' ... of ...>
        >>> (await store.records.export_outcomes(ctx.context_id)).count("gen_ai.evaluation.result")
        1
        """
        return await (await self._engine()).recorded.exchange.export(refs)

    @verb(
        "GET",
        "/v1/record/{ref}/outcomes",
        scope="records",
        operation="read_outcome_documents",
        reply=Reply(OutcomeDocuments, _sealed_outcomes, _outcomes_of),
        raises=RECORDED,
        applies_limits=True,
    )
    async def sealed_outcomes(self, ref: RecordRef) -> list[OutcomeRecord]:
        """Return all outcomes of a context as they were sealed, to verify or export them.

        >>> await store.records.sealed_outcomes(ctx.context_id)
        []
        """
        return await (await self._engine()).recorded.sealed_outcomes(ref)
