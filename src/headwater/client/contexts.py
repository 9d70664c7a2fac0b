"""The verbs of a client that assemble contexts, and that read recorded ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headwater.client.records import RecordCalls, all_contexts
from headwater.client.server import Server
from headwater.core.json_values import plain
from headwater.model.contexts import (
    AssembleBody,
    ContextPage,
    ExternalBody,
    Mode,
    Overrides,
    RecordSummary,
    Replay,
)
from headwater.model.lineage import Context, PastContext
from headwater.records.record import Record


class ContextCalls:
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

    async def get_context_at(self, context_id: str) -> PastContext:
        """Return a recorded context with its lineage; withheld values are None.

        >>> (await client.get_context_at(ctx.context_id)).content == ctx.content
        True
        """
        return await self._server.get(PastContext, "/v1/context/{}", context_id)

    async def list_contexts(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        *,
        name: str | None = None,
        freshness_status: str | None = None,
        caller: str | None = None,
        prefix: str | None = None,
        oldest_first: bool = False,
        cursor: str | None = None,
    ) -> ContextPage:
        """Return the recorded contexts from ``start`` to before ``end``, newest first.

        ``cursor`` is the ``next_cursor`` of the previous page; ``iter_contexts`` follows it.

        >>> await client.list_contexts(limit=10)
        <ContextPage contexts=1, the last page>
        """
        return await self._server.get(
            ContextPage,
            "/v1/contexts",
            start=start,
            end=end,
            limit=limit,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            prefix=prefix,
            order="oldest" if oldest_first else None,
            cursor=cursor,
        )

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
