"""The verbs of a client that assemble contexts, and that read recorded ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack

from headwater.client.server import Server, ServerVerbs, sending
from headwater.core.blocking import SyncLoop
from headwater.core.json_values import plain
from headwater.errors import UnknownContextError
from headwater.model.bound_contexts import Binding, bound
from headwater.model.contexts import (
    LARGEST_PAGE,
    AssembleBody,
    ContextDiff,
    ContextPage,
    Overrides,
    RecordSummary,
    VerificationReport,
)
from headwater.model.lineage import Context, PastContext
from headwater.model.new_outcomes import NewOutcome, sendable
from headwater.model.outcomes import Outcome
from headwater.records.diff import diff
from headwater.records.document import load
from headwater.records.ids import named, new_context_id
from headwater.records.record import Record, inner_contexts
from headwater.records.verify import checked_core, verify_record
from headwater.settings.schema import Settings
from headwater.store.verbs.contexts import ContextVerbs
from headwater.store.verbs.records import RecordVerbs, SoughtContexts


class RecordCalls(ServerVerbs, RecordVerbs):
    """``client.records``: search, explain, verify and compare recorded contexts.

    ``verify`` and ``diff`` download the records and work on them here, with the signing keys of the
    local settings: a server cannot prove its own records.
    """

    def __init__(self, server: Server, settings: Settings) -> None:
        super().__init__(server)
        self._settings = settings

    @sending(RecordVerbs.get)
    async def get(self, ref: str) -> Record:
        return load(await self._server.download("/v1/record/{}", ref))

    def iter(
        self,
        *,
        oldest_first: bool = False,
        **filters: Unpack[SoughtContexts],
    ) -> AsyncIterator[RecordSummary]:
        """Yield all recorded contexts that used all of these, newest first, page by page.

        >>> [found.name async for found in client.records.iter(entity_id="ada")]
        ['support']
        """
        return all_contexts(partial(self.find, oldest_first=oldest_first, **filters))

    @sending(RecordVerbs.verify)
    async def verify(
        self, ref: str, *, expect: str | None, signed: bool | None
    ) -> VerificationReport:
        is_required = signed is None and self._settings.signature_mode == "required"
        record = await self.get(ref)
        return verify_record(
            record,
            self._settings.signing_key,
            expect=named(ref) if expect is None else expect,
            signed=True if is_required else signed,
            outcomes=await self.sealed_outcomes(record.context_id),
        )

    @sending(RecordVerbs.diff)
    async def diff(self, before: str, after: str) -> ContextDiff:
        one, two = await self.get(before), await self.get(after)
        return diff(checked_core(one), checked_core(two))

    @sending(RecordVerbs.redact)
    async def redact(self, ref: str, pointers: Sequence[str], **options: Any) -> Record:
        redacted = await super().redact(ref, *pointers, **options)
        return await self.get(redacted.context_id)

    @sending(RecordVerbs.add_outcome)
    async def add_outcome(self, ref: str, given: NewOutcome | None = None) -> Outcome:
        # With an id a request whose answer was lost is sent again and stored once.
        body = {"outcome_id": new_context_id(), **sendable(given or {})}
        path = "/v1/context/{}/outcomes"
        return await self._server.post(Outcome, path, ref, body=body, is_repeatable=True)

    @sending(RecordVerbs.inner)
    async def inner(self, ref: str) -> list[Record]:
        records: dict[str, Record] = {}
        waiting = [*inner_contexts(await self.get(ref))]
        while waiting:
            context_id = waiting.pop(0).context_id
            if context_id in records:
                continue
            with suppress(UnknownContextError):  # it was pruned, or is not for this key
                records[context_id] = await self.get(context_id)
                waiting += inner_contexts(records[context_id])
        return list(records.values())


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


class ContextCalls(ServerVerbs, ContextVerbs):
    """The part of a client that assembles contexts and reads recorded ones."""

    records: RecordCalls
    sync_loop: SyncLoop | None = None
    """The loop of the blocking client that this one works for."""

    @property
    def _binding(self) -> Binding:
        return Binding(self.records, self.sync_loop, asyncio.get_running_loop())

    @sending(ContextVerbs.record_external)
    async def record_external(self, **given: Any) -> Context:
        return bound(await super().record_external(**given), self._binding)

    @sending(ContextVerbs.get_context_at)
    async def get_context_at(self, context_id: str) -> PastContext:
        return bound(await super().get_context_at(context_id), self._binding)

    @sending(ContextVerbs.assemble)
    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None
    ) -> Context:
        body = _body(params, overrides or Overrides())
        context = await self._server.post(Context, "/v1/contexts/{}", name, body=body)
        return bound(context, self._binding)

    def iter_contexts(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        name: str | None = None,
        freshness_status: str | None = None,
        caller: str | None = None,
        prefix: str | None = None,
        oldest_first: bool = False,
    ) -> AsyncIterator[RecordSummary]:
        """Yield all recorded contexts from ``start`` to before ``end``, newest first, in pages.

        >>> [context.name async for context in client.iter_contexts()]
        ['support']
        """
        return all_contexts(
            partial(
                self.list_contexts,
                start,
                end,
                name=name,
                freshness_status=freshness_status,
                caller=caller,
                prefix=prefix,
                oldest_first=oldest_first,
            )
        )


def _body(params: Mapping[str, Any], overrides: Overrides) -> AssembleBody:
    sla, reference = overrides.freshness_sla, overrides.interaction_ref
    return AssembleBody(
        params=plain(dict(params)),
        interaction_ref=dict(reference) if isinstance(reference, Mapping) else reference,
        max_tokens=overrides.max_tokens,
        freshness_sla=f"{sla.total_seconds()}s" if isinstance(sla, timedelta) else sla,
    )
