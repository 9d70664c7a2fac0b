"""Recorded contexts: search, verify, explain, replay and redact them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Meta

from headwater import errors
from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.model.admin import Copies, DecidedBy, Everywhere, Pointers, Reason
from headwater.model.bound_contexts import bound
from headwater.model.contexts import (
    MOST_BUCKETS,
    ContextCauses,
    ContextDiff,
    ContextHistogram,
    ContextPage,
    Replay,
    ReplayMode,
    VerificationReport,
)
from headwater.model.kinds import (
    ROWS,
    ContextId,
    ContextName,
    Cursor,
    EntityName,
    FeatureName,
    IndexName,
    Limit,
    Moment,
    RecordRef,
)
from headwater.model.lineage import ContextTrace, FreshnessStatus, PastContext
from headwater.model.values import LONGEST_ID
from headwater.records.document import (
    RecordDocument,
    export,
)
from headwater.records.record import Record
from headwater.store.verbs.outcomes import RECORDED, ContextOutcomeVerbs, Ref
from headwater.store.verbs.verb import Reply, Sent, Verbs, verb

ASSEMBLING = (
    errors.UnknownNameError,
    errors.EntityChangedError,
    errors.FeatureValueError,
    errors.FeatureFailedError,
    errors.ImmutableRecordError,
    errors.IndexMismatchError,
    errors.LooserOverrideError,
    errors.DurationError,
    errors.RecordValueError,
    errors.TokenBudgetError,
    errors.FreshnessSLAError,
    errors.RetrieverFailedError,
    errors.RerankFailedError,
    errors.ContextFailedError,
    errors.SignatureError,
    errors.EmbeddingError,
    errors.RecordingError,
    errors.RetrieverTimeoutError,
    errors.ContextTimeoutError,
)
# The timeout of a context may be as long.
ASSEMBLY_SECONDS = 3_600.0

Status = Annotated[
    FreshnessStatus, Meta(description="A freshness status.", examples=["guaranteed"])
]
SoughtEntity = Annotated[
    EntityName, Meta(description="The name of a declared entity; it needs ``entity_id`` as well.")
]
SoughtEntityId = Annotated[
    str, Meta(min_length=1, max_length=LONGEST_ID, description="An entity's id.", examples=["ada"])
]
SoughtDocument = Annotated[
    str,
    Meta(
        min_length=1, max_length=LONGEST_ID, description="A document's id.", examples=["shipping"]
    ),
]
SoughtChunk = Annotated[
    str, Meta(min_length=1, description="A chunk's id.", examples=["shipping#0"])
]
CallerName = Annotated[
    str, Meta(min_length=1, description="The name of the key that assembled it.", examples=["web"])
]
Prefix = Annotated[
    str,
    Meta(
        min_length=1,
        description="The beginning of a context id; or of a record hash, with ``sha256:`` or at "
        "least 8 digits.",
        examples=["01a1de13"],
    ),
]
SoughtScore = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_ID,
        description="The name of a score, alone or compared with a number or a flag: "
        "``helpful<3``, also with ``<=``, ``>``, ``>=``, ``=`` and ``!=``, or ``helpful=true``.",
        examples=["helpful<3"],
    ),
]
SoughtLabel = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_ID,
        description="The label of a score, after its name and ``=`` or alone.",
        examples=["tone=rude"],
    ),
]
AnswerModel = Annotated[
    str, Meta(min_length=1, description="The model that answered.", examples=["gpt-6-mini"])
]
SoughtError = Annotated[
    str,
    Meta(min_length=1, description="The type of an error.", examples=["RateLimitError"]),
]
Order = Annotated[
    Literal["newest", "oldest"],
    Meta(description="Which contexts come first.", examples=["oldest"]),
]
Buckets = Annotated[int, ROWS, Meta(ge=1, description="How many buckets at most.", examples=[24])]
OldestFirst = Annotated[
    bool,
    Sent(
        Order,
        lambda oldest_first: "oldest" if oldest_first else "newest",
        lambda order: order == "oldest",
        name="order",
    ),
]


class SoughtContexts(TypedDict, total=False):
    """The filters of contexts by what they used, and by their own fields."""

    feature: Annotated[FeatureRef, Sent(FeatureName, feature_name)] | None
    entity: SoughtEntity | None
    entity_id: Annotated[str | int, Sent(SoughtEntityId)] | None
    chunk: SoughtChunk | None
    document: SoughtDocument | None
    index: IndexName | None
    start: Moment | None
    end: Moment | None
    name: ContextName | None
    freshness_status: Annotated[str, Sent(Status)] | None
    caller: CallerName | None
    prefix: Prefix | None
    score: SoughtScore | None
    label: SoughtLabel | None
    answer_model: AnswerModel | None
    error: SoughtError | None


async def _redacted(
    verbs: RecordVerbs, ref: str, pointers: Sequence[str], **options: Any
) -> msgspec.Raw:
    return msgspec.Raw(export(await verbs.redact(ref, *pointers, **options)))


class RecordVerbs(ContextOutcomeVerbs):
    """``store.records``: search, verify, explain, replay and redact recorded contexts.

    ``ref`` is a context id, its first 8 or more characters, or a record hash.
    """

    async def get(self, ref: str) -> Record:
        """Return the record of a context.

        >>> record = await store.records.get(ctx.context_id)
        >>> record.record_hash == ctx.record_hash
        True
        """
        return await (await self._engine()).recorded.record_of(ref)

    # No context has the name of a path below /v1/contexts, because names have no hyphen.
    @verb(
        "GET",
        "/v1/contexts/by-provenance",
        scope="records",
        operation="find_contexts",
        raises=(errors.UnknownNameError,),
        applies_limits=True,
    )
    async def find(
        self,
        *,
        oldest_first: OldestFirst = False,
        limit: Limit = 100,
        cursor: Cursor | None = None,
        **filters: Unpack[SoughtContexts],
    ) -> ContextPage:
        """Return the recorded contexts that used all of these inputs, newest first.

        Indirect use counts: the inputs of computed features, of searches and of inner contexts.
        ``entity`` names the kind of entity that ``entity_id`` belongs to, ``index`` the index of
        the ``document``; alone, it finds the contexts that searched the index. The other filters
        are those of ``list_contexts``; without an input, one by outcome is needed. A page may have
        fewer contexts than the limit, or none, although more follow: read on while there is a
        ``next_cursor``.

        >>> await store.records.find(entity="User", entity_id="ada")
        <ContextPage contexts=1, the last page>
        """
        recorded = (await self._engine()).recorded
        query = recorded.query(**filters)
        return await recorded.find(query, limit, cursor, oldest_first=oldest_first)

    @verb(
        "GET",
        "/v1/contexts/by-time",
        scope="records",
        operation="count_contexts",
        applies_limits=True,
        most=MOST_BUCKETS,
    )
    async def histogram(
        self, *, buckets: Buckets = 60, **filters: Unpack[SoughtContexts]
    ) -> ContextHistogram:
        """Count recorded contexts over time, by freshness status, in intervals of equal width.

        The filters are those of ``list_contexts`` and ``records.find``. The widths of buckets are
        round, so there may be fewer of them. If ``counted_from`` is not None, there are too many
        contexts to count all of them; ask for less time.

        >>> await store.records.histogram(buckets=24)
        <ContextHistogram contexts=1, buckets=1>
        """
        recorded = (await self._engine()).recorded
        return await recorded.histogram(recorded.query(**filters), buckets)

    async def verify(
        self, ref: str, *, expect: str | None = None, signed: bool | None = None
    ) -> VerificationReport:
        """Check a stored record and its outcomes against their hashes and signatures.

        ``expect`` is the record hash that was handed out with the answer. A record that none of
        the configured keys signed fails; ``signed=False`` accepts it, and ``signed=True`` refuses
        it without keys, too.

        >>> (await store.records.verify(ctx.context_id, expect=ctx.record_hash)).ok
        True
        """
        return await (await self._engine()).recorded.verify(ref, expect, signed=signed)

    @verb(
        "GET",
        "/context/{id}/explain",
        scope="records",
        operation="explain_context",
        raises=RECORDED,
        applies_limits=True,
    )
    async def explain(self, ref: Ref) -> ContextTrace:
        """Explain a context: which items were kept and why, ages, latencies, tokens and cost.

        >>> trace = await store.records.explain(ctx.context_id)
        >>> [item.decision for item in trace.items]
        ['kept', 'kept']
        """
        return await (await self._engine()).recorded.explain(ref)

    @verb(
        "GET",
        "/v1/context/{id}/causes",
        scope="records",
        operation="read_causes",
        raises=RECORDED,
        applies_limits=True,
    )
    async def causes(self, ref: Ref) -> ContextCauses:
        """Return the events behind the values that a context read, as far as history has them.

        >>> found = await store.records.causes(ctx.context_id)
        >>> [cause.event.event_type for cause in found.causes]
        ['purchase']
        """
        return await (await self._engine()).recorded.causes(ref)

    @verb(
        "POST",
        "/v1/context/{id}/replay",
        scope="records",
        operation="replay_context",
        raises=(*ASSEMBLING, *RECORDED),
        seconds=ASSEMBLY_SECONDS,
    )
    async def replay(self, ref: Ref, mode: ReplayMode = "show") -> Replay:
        """Replay a recorded context: show its text, or assemble it again without recording it.

        ``show`` returns the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the feature values of that time, ``live`` with those of now. The last two
        need the scope ``assemble``, too, and a function that would write is refused.

        >>> await store.records.replay(ctx.context_id, "as_of")
        <Replay 'as_of' of ...: same text>
        """
        return await (await self._engine()).recorded.replay(ref, mode)

    @verb(
        "GET",
        "/v1/context/{id}/diff/{other}",
        scope="records",
        operation="diff_contexts",
        raises=RECORDED,
        applies_limits=True,
    )
    async def diff(
        self, before: Ref, after: Annotated[str, Sent(ContextId, name="other")]
    ) -> ContextDiff:
        """Compare two recorded contexts: items, decisions, values, results, rules and text.

        >>> other = await support("bob", "Where is my parcel?")
        >>> await store.records.diff(ctx.context_id, other.context_id)
        <ContextDiff ... → ...: other text, ... tokens>
        """
        return await (await self._engine()).recorded.diff(before, after)

    @verb(
        "POST",
        "/v1/record/{ref}/redact",
        scope="admin",
        operation="redact",
        changes="records.redact",
        target="ref",
        notes=("pointers", "everywhere"),
        reply=Reply(RecordDocument, _redacted, lambda document: document),
        raises=RECORDED,
    )
    async def redact(
        self,
        ref: RecordRef,
        *pointers: Annotated[str, Sent(Pointers)],
        reason: Reason,
        by: DecidedBy | None = None,
        everywhere: Everywhere = False,
    ) -> Record:
        """Erase values of a record permanently, all or none; hash and signature stay valid.

        With ``everywhere``, also erase them in every other place of the record and of its outcomes
        that discloses one of them, as a whole or inside a text.

        >>> record = await store.records.redact(
        ...     ctx.context_id, "/inputs/question", reason="requested by the customer"
        ... )
        >>> (await store.get_context_at(ctx.context_id)).inputs["question"] is None
        True
        """
        recorded = (await self._engine()).recorded
        return await recorded.redact(ref, pointers, reason, by, everywhere=everywhere)

    async def inner(self, ref: str) -> list[Record]:
        """Return the records of all contexts that were assembled inside this one, at any depth.

        >>> await store.records.inner(ctx.context_id)
        []
        """
        return await (await self._engine()).recorded.inner(ref)

    @verb(
        "POST",
        "/v1/record/{ref}/copies",
        scope="records",
        operation="find_copies",
        answer=Copies,
        raises=RECORDED,
    )
    async def copies(
        self, ref: RecordRef, *pointers: Annotated[str, Sent(Pointers)]
    ) -> dict[str, list[str]]:
        """Return where else values of a record occur: pointers by context id.

        The record itself, the records of its inner contexts, and the outcomes of all of them are
        searched, before a redaction. An outcome of the record is named ``outcomes/ID``, one of an
        inner context ``CONTEXT/outcomes/ID``.

        >>> await store.records.copies(ctx.context_id, "/features/0/value")
        {'...': [...]}
        """
        return await (await self._engine()).recorded.copies(ref, pointers)


class ContextReadVerbs(Verbs):
    """The part of a store that lists and reads recorded contexts."""

    @verb(
        "GET",
        "/v1/context/{id}",
        scope="records",
        operation="read_context",
        raises=RECORDED,
        applies_limits=True,
    )
    async def get_context_at(self, context_id: Ref) -> PastContext:
        """Return a recorded context with its lineage; withheld values are None.

        >>> (await store.get_context_at(ctx.context_id)).content == ctx.content
        True
        """
        context = await (await self._engine()).recorded.context(context_id)
        return bound(context, self._runtime.binding)

    @verb("GET", "/v1/contexts", scope="records", operation="list_contexts", applies_limits=True)
    async def list_contexts(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        limit: Limit = 100,
        *,
        name: ContextName | None = None,
        freshness_status: Annotated[str, Sent(Status)] | None = None,
        caller: CallerName | None = None,
        prefix: Prefix | None = None,
        score: SoughtScore | None = None,
        label: SoughtLabel | None = None,
        answer_model: AnswerModel | None = None,
        error: SoughtError | None = None,
        oldest_first: OldestFirst = False,
        cursor: Cursor | None = None,
    ) -> ContextPage:
        """Return the recorded contexts from ``start`` to before ``end``, newest first.

        ``caller`` is the name of the key that assembled them, ``prefix`` the beginning of a context
        id or of a record hash. ``score`` (``helpful<3``, ``helpful=true``), ``label`` (``rude`` or
        ``tone=rude``), ``answer_model`` and ``error`` each find contexts with such an outcome.
        ``cursor`` is the ``next_cursor`` of the previous page; new contexts do not shift pages. A
        page may have fewer contexts than the limit, or none, although more follow: read on while
        there is a ``next_cursor``.

        >>> await store.list_contexts(limit=10)
        <ContextPage contexts=1, the last page>
        """
        recorded = (await self._engine()).recorded
        query = recorded.query(
            start=start,
            end=end,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            prefix=prefix,
            score=score,
            label=label,
            answer_model=answer_model,
            error=error,
        )
        return await recorded.contexts(query, limit, cursor, oldest_first=oldest_first)


R_co = TypeVar("R_co", bound=RecordVerbs, covariant=True)


class SyncRecordVerbs(Blocking[R_co]):
    """The blocking form of recorded contexts."""

    get = blocking(RecordVerbs.get)
    find = blocking(RecordVerbs.find)
    histogram = blocking(RecordVerbs.histogram)
    verify = blocking(RecordVerbs.verify)
    explain = blocking(RecordVerbs.explain)
    causes = blocking(RecordVerbs.causes)
    replay = blocking(RecordVerbs.replay)
    diff = blocking(RecordVerbs.diff)
    redact = blocking(RecordVerbs.redact)
    copies = blocking(RecordVerbs.copies)
    inner = blocking(RecordVerbs.inner)
    add_outcome = blocking(RecordVerbs.add_outcome)
    outcomes = blocking(RecordVerbs.outcomes)
    outcome = blocking(RecordVerbs.outcome)
    redact_outcome = blocking(RecordVerbs.redact_outcome)
    import_outcomes = blocking(RecordVerbs.import_outcomes)
    export_outcomes = blocking(RecordVerbs.export_outcomes)
    sealed_outcomes = blocking(RecordVerbs.sealed_outcomes)
