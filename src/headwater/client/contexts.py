"""The verbs of a client that assemble contexts, and that read recorded ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack

from headwater.client.server import Server
from headwater.core.json_values import plain
from headwater.errors import UnknownContextError
from headwater.model.admin import RedactBody
from headwater.model.contexts import (
    LARGEST_PAGE,
    AssembleBody,
    ContextDiff,
    ContextPage,
    ExternalBody,
    Mode,
    Overrides,
    RecordSummary,
    Replay,
    ReplayBody,
    VerificationReport,
)
from headwater.model.lineage import Context
from headwater.records.diff import diff
from headwater.records.document import RecordDocument, load
from headwater.records.ids import named
from headwater.records.record import Record, inner_contexts
from headwater.records.verify import checked_core, verify_record
from headwater.settings.schema import Settings
from headwater.store.verbs.records import ContextReadVerbs, RecordVerbs, SoughtContexts


class RecordCalls(RecordVerbs):
    """``client.records``: search, explain, verify and compare recorded contexts.

    ``verify`` and ``diff`` download the records and work on them here, with the signing keys of the
    local settings: a server cannot prove its own records.
    """

    def __init__(self, server: Server, settings: Settings) -> None:
        super().__init__(server)
        self._server = server
        self._settings = settings

    async def get(self, ref: str) -> Record:
        """Return the record of a context.

        >>> record = await client.records.get(ctx.context_id)
        >>> record.record_hash == ctx.record_hash
        True
        """
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


class ContextCalls(ContextReadVerbs):
    """The part of a client that assembles contexts and reads recorded ones."""

    _server: Server
    records: RecordCalls

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        """Assemble a declared context by its name.

        It is sent again only if the server cannot have begun it, because every assembly is
        recorded.

        >>> await client.assemble("support", {"user_id": "ada", "question": "Where is it?"})
        <Context 'support' ...: ... tokens, guaranteed>
        """
        body = _body(params, overrides or Overrides())
        return await self._server.post(Context, "/v1/contexts/{}", name, body=body)

    async def record_external(
        self,
        *,
        name: str,
        content: str,
        inputs: Mapping[str, Any] | None = None,
        model: str | None = None,
        version: str | None = None,
        interaction_ref: Mapping[str, Any] | None = None,
    ) -> Context:
        """Record a text that was assembled elsewhere, like a context that was assembled here.

        >>> recorded = await client.record_external(name="answer", content="Hello Ada")
        >>> (await client.get_context_at(recorded.context_id)).content
        'Hello Ada'
        """
        body = ExternalBody(
            name=name,
            content=content,
            inputs=plain(dict(inputs or {})),
            model=model,
            version=version,
            interaction_ref=None if interaction_ref is None else dict(interaction_ref),
        )
        return await self._server.post(Context, "/v1/record", body=body)

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

    async def get_record(self, ref: str) -> Record:
        """Return the record of a context: by context id, its first 8 characters or record hash.

        >>> (await client.get_record(ctx.context_id)).record_hash == ctx.record_hash
        True
        """
        return await self.records.get(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context on the server; ``client.records.replay`` describes the modes.

        >>> await client.replay(ctx.context_id, "reassemble")
        <Replay 'reassemble' of ...: same text>
        """
        return await self.records.replay(ref, mode)


def _body(params: Mapping[str, Any], overrides: Overrides) -> AssembleBody:
    sla, reference = overrides.freshness_sla, overrides.interaction_ref
    return AssembleBody(
        params=plain(dict(params)),
        interaction_ref=dict(reference) if isinstance(reference, Mapping) else reference,
        max_tokens=overrides.max_tokens,
        freshness_sla=f"{sla.total_seconds()}s" if isinstance(sla, timedelta) else sla,
    )
