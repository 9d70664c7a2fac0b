"""The verbs of a client for recorded contexts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Unpack

from headwater.client.server import Server
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import UnknownContextError
from headwater.model.admin import Copies, PointersBody, RedactBody
from headwater.model.contexts import (
    LARGEST_PAGE,
    ContextCauses,
    ContextDiff,
    ContextFilters,
    ContextHistogram,
    ContextPage,
    Mode,
    RecordSummary,
    Replay,
    ReplayBody,
    VerificationReport,
)
from headwater.model.lineage import ContextTrace
from headwater.records.diff import diff
from headwater.records.document import RecordDocument, load
from headwater.records.ids import named
from headwater.records.record import Record, inner_contexts
from headwater.records.verify import checked_core, verify_record
from headwater.settings.schema import Settings


class RecordCalls:
    """``client.records``: search, explain, verify and compare recorded contexts.

    ``verify`` and ``diff`` download the records and work on them here, with the signing keys of the
    local settings: a server cannot prove its own records.
    """

    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._settings = settings

    async def get(self, ref: str) -> Record:
        """Return the record of a context.

        >>> record = await client.records.get(ctx.context_id)
        >>> record.record_hash == ctx.record_hash
        True
        """
        return load(await self._server.download("/v1/record/{}", ref))

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

        >>> await client.records.find(entity="User", entity_id="ada")
        <ContextPage contexts=1, the last page>
        """
        return await self._server.get(
            ContextPage,
            "/v1/contexts/by-provenance",
            feature=None if feature is None else feature_name(feature),
            order="oldest" if oldest_first else None,
            limit=limit,
            cursor=cursor,
            **filters,
        )

    async def histogram(
        self,
        *,
        buckets: int = 60,
        feature: FeatureRef | None = None,
        **filters: Unpack[ContextFilters],
    ) -> ContextHistogram:
        """Count recorded contexts over time, in at most ``buckets`` intervals of equal width.

        >>> await client.records.histogram(buckets=24)
        <ContextHistogram contexts=1, buckets=1>
        """
        return await self._server.get(
            ContextHistogram,
            "/v1/contexts/by-time",
            buckets=buckets,
            feature=None if feature is None else feature_name(feature),
            **filters,
        )

    def iter(
        self,
        *,
        feature: FeatureRef | None = None,
        oldest_first: bool = False,
        **filters: Unpack[ContextFilters],
    ) -> AsyncIterator[RecordSummary]:
        """Yield all recorded contexts that used all of these, newest first, page by page.

        >>> [found.name async for found in client.records.iter(entity_id="ada")]
        ['support']
        """
        return all_contexts(
            partial(self.find, feature=feature, oldest_first=oldest_first, **filters)
        )

    async def explain(self, ref: str) -> ContextTrace:
        """Explain a context: which items were kept and why, ages, latencies, tokens and cost.

        >>> trace = await client.records.explain(ctx.context_id)
        >>> [item.decision for item in trace.items]
        ['kept', 'kept']
        """
        return await self._server.get(ContextTrace, "/context/{}/explain", ref)

    async def causes(self, ref: str) -> ContextCauses:
        """Return the events behind the values that a context read, as far as history has them.

        >>> found = await client.records.causes(ctx.context_id)
        >>> [cause.event.event_type for cause in found.causes]
        ['purchase']
        """
        return await self._server.get(ContextCauses, "/v1/context/{}/causes", ref)

    async def verify(
        self, ref: str, *, expect: str | None = None, signed: bool | None = None
    ) -> VerificationReport:
        """Download a record, and check it here against its hashes and signature.

        ``expect`` is the record hash that was handed out with the answer. A record that none of
        the keys of the local settings signed fails; ``signed=False`` accepts it, and
        ``signed=True`` refuses it without keys, too.

        >>> (await client.records.verify(ctx.context_id, expect=ctx.record_hash)).ok
        True
        """
        is_required = signed is None and self._settings.signature_mode == "required"
        return verify_record(
            await self.get(ref),
            self._settings.signing_key,
            expect=named(ref) if expect is None else expect,
            signed=True if is_required else signed,
        )

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context on the server.

        ``show`` returns the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the feature values of that time, ``live`` with those of now.

        >>> await client.records.replay(ctx.context_id, "as_of")
        <Replay 'as_of' of ...: same text>
        """
        return await self._server.ask(
            Replay, "/v1/context/{}/replay", ref, body=ReplayBody(mode=mode)
        )

    async def diff(self, before: str, after: str) -> ContextDiff:
        """Download two records, and return their differences.

        >>> await client.records.diff(ctx.context_id, other.context_id)
        <ContextDiff ... → ...: other text, ... tokens>
        """
        one, two = await self.get(before), await self.get(after)
        return diff(checked_core(one), checked_core(two))

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        """Erase values of a record permanently, all or none; hash and signature stay valid.

        >>> record = await client.records.redact(
        ...     ctx.context_id, "/inputs/question", reason="requested by the customer"
        ... )
        """
        body = RedactBody(pointers=pointers, reason=reason, by=by, everywhere=everywhere)
        redacted = await self._server.post(RecordDocument, "/v1/record/{}/redact", ref, body=body)
        return await self.get(redacted.context_id)

    async def copies(self, ref: str, *pointers: str) -> dict[str, list[str]]:
        """Return where else values of a record occur: pointers by context id.

        >>> await client.records.copies(ctx.context_id, "/features/0/value")
        {'...': [...]}
        """
        found = await self._server.ask(
            Copies, "/v1/record/{}/copies", ref, body=PointersBody(pointers)
        )
        return {context_id: [*places] for context_id, places in found.copies.items()}

    async def inner(self, ref: str) -> list[Record]:
        """Return the records of all contexts that were assembled inside this one, at any depth.

        Those that were pruned, or that the key may not read, are left out.

        >>> await client.records.inner(ctx.context_id)
        []
        """
        found: dict[str, Record] = {}
        waiting = [*inner_contexts(await self.get(ref))]
        while waiting:
            context_id = waiting.pop(0).context_id
            if context_id in found:
                continue
            with suppress(UnknownContextError):  # it was pruned, or is not for this key
                found[context_id] = await self.get(context_id)
                waiting += inner_contexts(found[context_id])
        return list(found.values())


async def all_contexts(
    read_page: Callable[..., Awaitable[ContextPage]],
) -> AsyncIterator[RecordSummary]:
    """Yield the contexts of all pages; ``read_page`` gets ``limit`` and ``cursor``."""
    cursor: str | None = None
    while True:
        page = await read_page(limit=LARGEST_PAGE, cursor=cursor)
        for context in page.contexts:
            yield context
        cursor = page.next_cursor
        if cursor is None:
            return
