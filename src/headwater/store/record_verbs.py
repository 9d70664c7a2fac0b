"""The verbs of a store for recorded contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.features.call_scope import check_not_replaying
from headwater.features.caller_limits import limited_caller
from headwater.model.lineage import ContextTrace
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.model.contexts import (
        ContextCauses,
        ContextDiff,
        ContextFilters,
        ContextHistogram,
        ContextPage,
        Mode,
        Replay,
        VerificationReport,
    )
    from headwater.records.record import Record


class RecordVerbs:
    """``store.records``: search, verify, explain, replay and redact recorded contexts.

    ``ref`` is a context id, its first 8 or more characters, or a record hash.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def get(self, ref: str) -> Record:
        """Return the record of a context.

        >>> record = await store.records.get(ctx.context_id)
        >>> record.record_hash == ctx.record_hash
        True
        """
        return await (await self._runtime.open()).recorded.record_of(ref)

    async def find(
        self,
        *,
        feature: FeatureRef | None = None,
        oldest_first: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Unpack[ContextFilters],
    ) -> ContextPage:
        """Return the recorded contexts that used all of these, newest first.

        Indirect use counts: the inputs of computed features, of searches and of inner contexts.
        ``entity`` names the kind of entity that ``entity_id`` belongs to, ``index`` the index of
        the ``document``; alone, it finds the contexts that searched the index. The other filters
        are those of ``list_contexts``.

        >>> await store.records.find(entity="User", entity_id="ada")
        <ContextPage contexts=1, the last page>
        """
        from headwater.contexts.recorded import ContextQuery  # noqa: PLC0415 - loaded with the engine

        recorded = (await self._runtime.open()).recorded
        query = ContextQuery(None if feature is None else feature_name(feature), **filters)
        return await recorded.find(query, limit, cursor, oldest_first=oldest_first)

    async def histogram(
        self,
        *,
        buckets: int = 60,
        feature: FeatureRef | None = None,
        **filters: Unpack[ContextFilters],
    ) -> ContextHistogram:
        """Count recorded contexts over time, in at most ``buckets`` intervals of equal width.

        The filters are those of ``list_contexts`` and ``records.find``.

        >>> await store.records.histogram(buckets=24)
        <ContextHistogram contexts=1, buckets=1>
        """
        from headwater.contexts.recorded import ContextQuery  # noqa: PLC0415 - loaded with the engine

        recorded = (await self._runtime.open()).recorded
        query = ContextQuery(None if feature is None else feature_name(feature), **filters)
        return await recorded.histogram(query, buckets)

    async def verify(
        self, ref: str, *, expect: str | None = None, signed: bool | None = None
    ) -> VerificationReport:
        """Check a stored record against its hashes and signature.

        ``expect`` is the record hash that was handed out with the answer. A record that none of
        the configured keys signed fails; ``signed=False`` accepts it, and ``signed=True`` refuses
        it without keys, too.

        >>> (await store.records.verify(ctx.context_id, expect=ctx.record_hash)).ok
        True
        """
        return await (await self._runtime.open()).recorded.verify(ref, expect, signed=signed)

    async def explain(self, ref: str) -> ContextTrace:
        """Explain a context: which items were kept and why, ages, latencies, tokens and cost.

        >>> trace = await store.records.explain(ctx.context_id)
        >>> [item.decision for item in trace.items]
        ['kept', 'kept']
        """
        return await (await self._runtime.open()).recorded.explain(ref)

    async def causes(self, ref: str) -> ContextCauses:
        """Return the events behind the values that a context read, as far as history has them.

        >>> found = await store.records.causes(ctx.context_id)
        >>> [cause.event.event_type for cause in found.causes]
        ['purchase']
        """
        return await (await self._runtime.open()).recorded.causes(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context.

        ``show`` returns the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the feature values of that time, ``live`` with those of now. The last two
        are not recorded, and a function that would write is refused.

        >>> await store.records.replay(ctx.context_id, "as_of")
        <Replay 'as_of' of ...: same text>
        """
        limited = limited_caller()
        if limited is not None and mode not in ("show", "reassemble"):
            raise limited.refuse(f"a replay with the mode {mode!r}")
        return await (await self._runtime.open()).recorded.replay(ref, mode)

    async def diff(self, before: str, after: str) -> ContextDiff:
        """Return the differences between two recorded contexts.

        >>> other = await support("bob", "Where is my parcel?")
        >>> await store.records.diff(ctx.context_id, other.context_id)
        <ContextDiff ... → ...: other text, ... tokens>
        """
        return await (await self._runtime.open()).recorded.diff(before, after)

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        """Erase values of a record permanently, all or none; hash and signature stay valid.

        With ``everywhere``, also erase them in every other place of the record that discloses one
        of them, as a whole or inside a text.

        >>> record = await store.records.redact(
        ...     ctx.context_id, "/inputs/question", reason="requested by the customer"
        ... )
        >>> (await store.get_context_at(ctx.context_id)).inputs["question"] is None
        True
        """
        check_not_replaying("redact")
        engine = await self._runtime.open()
        async with audited(engine, "records.redact", ref, pointers=pointers, everywhere=everywhere):
            return await engine.recorded.redact(ref, pointers, reason, by, everywhere=everywhere)

    async def inner(self, ref: str) -> list[Record]:
        """Return the records of all contexts that were assembled inside this one, at any depth.

        >>> await store.records.inner(ctx.context_id)
        []
        """
        return await (await self._runtime.open()).recorded.inner(ref)

    async def copies(self, ref: str, *pointers: str) -> dict[str, list[str]]:
        """Return where else values of a record occur: pointers by context id.

        The record itself and the records of its inner contexts are searched, before a redaction.

        >>> await store.records.copies(ctx.context_id, "/features/0/value")
        {'...': [...]}
        """
        return await (await self._runtime.open()).recorded.copies(ref, pointers)


class SyncRecordVerbs(Blocking[RecordVerbs]):
    """``store.sync.records``."""

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
