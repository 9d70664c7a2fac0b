"""Routes that assemble contexts and read recorded ones."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.access.errors import ScopeError
from headwater.api.contexts import (
    AssembleBody,
    Assembled,
    AssembleNamedBody,
    ExternalBody,
    ReplayBody,
    assembled,
)
from headwater.api.json_values import plain
from headwater.api.kinds import (
    ContextId,
    ContextName,
    Cursor,
    EntityName,
    FeatureName,
    IndexName,
    Limit,
    Moment,
)
from headwater.contexts.recorded import ContextPage
from headwater.contexts.recorded.causes import ContextCauses
from headwater.contexts.recorded.replay import Replay
from headwater.core.callers import current_caller
from headwater.core.codec import encode_custom
from headwater.core.values import LONGEST_ID
from headwater.declarations import overrides
from headwater.http.responses import ApiResponse
from headwater.http.routes import Route
from headwater.records.lineage import ContextLineage, ContextTrace, FreshnessStatus, PastContext
from headwater.store.feature_store import FeatureStore

Status = Annotated[
    FreshnessStatus, msgspec.Meta(description="A freshness status.", examples=["guaranteed"])
]
SoughtEntityId = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=LONGEST_ID, description="An entity's id.", examples=["ada"]
    ),
]
SoughtDocument = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=LONGEST_ID, description="A document's id.", examples=["shipping"]
    ),
]
SoughtChunk = Annotated[
    str, msgspec.Meta(min_length=1, description="A chunk's id.", examples=["shipping#0"])
]

CallerName = Annotated[
    str,
    msgspec.Meta(
        min_length=1, description="The name of the key that assembled it.", examples=["web"]
    ),
]


class Contexts:
    """Assembles contexts and reads recorded ones."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v1/contexts/{name}",
                "assemble",
                self.assemble_context,
                documents=Assembled,
                applies_limits=True,
            ),
            Route(
                "POST",
                "/api/context/assemble",
                "assemble",
                self.assemble,
                documents=Assembled,
                applies_limits=True,
            ),
            Route("GET", "/v1/contexts", "records", self.list_contexts, applies_limits=True),
            # No context has this name, because names have no hyphen.
            Route(
                "GET",
                "/v1/contexts/by-provenance",
                "records",
                self.find_contexts,
                applies_limits=True,
            ),
            Route(
                "GET",
                "/v1/context/{id}",
                "records",
                self.read_context,
                documents=PastContext,
                applies_limits=True,
            ),
            Route(
                "GET",
                "/v1/context/{id}/lineage",
                "records",
                self.read_lineage,
                documents=ContextLineage,
                applies_limits=True,
            ),
            Route(
                "GET",
                "/context/{id}/explain",
                "records",
                self.explain_context,
                documents=ContextTrace,
                applies_limits=True,
            ),
            Route(
                "GET",
                "/v1/context/{id}/causes",
                "records",
                self.read_causes,
                applies_limits=True,
            ),
            Route(
                "POST",
                "/v1/context/{id}/replay",
                "records",
                self.replay_context,
                documents=Replay,
            ),
            Route("POST", "/v1/record", "assemble", self.record_external, documents=Assembled),
        ]

    async def assemble_context(self, name: ContextName, body: AssembleBody) -> ApiResponse:
        """Assemble a context and record it."""
        changed = overrides(body.max_tokens, body.freshness_sla, body.interaction_ref)
        return _json(assembled(await self._store.assemble(name, body.params, changed)))

    async def assemble(self, body: AssembleNamedBody) -> ApiResponse:
        """Assemble and record the context that the body names, for the UI."""
        return await self.assemble_context(body.context, body)

    async def list_contexts(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        limit: Limit = 100,
        name: ContextName | None = None,
        freshness_status: Status | None = None,
        caller: CallerName | None = None,
        cursor: Cursor | None = None,
    ) -> ContextPage:
        """List recorded contexts from ``start`` until before ``end``, newest first."""
        return await self._store.list_contexts(
            start,
            end,
            limit,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            cursor=cursor,
        )

    async def find_contexts(
        self,
        feature: FeatureName | None = None,
        entity: EntityName | None = None,
        entity_id: SoughtEntityId | None = None,
        chunk: SoughtChunk | None = None,
        document: SoughtDocument | None = None,
        index: IndexName | None = None,
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> ContextPage:
        """List recorded contexts that used all of these inputs, newest first."""
        return await self._store.records.find(
            feature=feature,
            entity=entity,
            entity_id=entity_id,
            chunk=chunk,
            document=document,
            index=index,
            limit=limit,
            cursor=cursor,
        )

    async def read_context(self, id: ContextId) -> ApiResponse:
        """Read a recorded context with its lineage."""
        return _json(await self._store.get_context_at(id))

    async def read_lineage(self, id: ContextId) -> ApiResponse:
        """Read only the lineage of a recorded context."""
        return _json((await self._store.get_context_at(id)).lineage)

    async def explain_context(self, id: ContextId) -> ApiResponse:
        """Explain the decisions behind a recorded context."""
        return _json(await self._store.records.explain(id))

    async def read_causes(self, id: ContextId) -> ContextCauses:
        """Read the events behind the values that a recorded context read."""
        return await self._store.records.causes(id)

    async def replay_context(self, id: ContextId, body: ReplayBody) -> ApiResponse:
        """Replay a recorded context: show its text, or assemble it again without recording it.

        The modes ``as_of`` and ``live`` run its function, so they need the scope ``assemble``, too.
        """
        caller = current_caller()
        if body.mode in ("as_of", "live") and caller is not None and not caller.may("assemble"):
            raise ScopeError(caller, "assemble")
        return _json(await self._store.replay(id, body.mode))

    async def record_external(self, body: ExternalBody) -> ApiResponse:
        """Record a text that was assembled elsewhere, like a context that was assembled here."""
        recorded = await self._store.record_external(
            name=body.name,
            content=body.content,
            inputs=body.inputs,
            model=body.model,
            version=body.version,
            interaction_ref=body.interaction_ref,
        )
        return _json(assembled(recorded))


def _json(value: msgspec.Struct) -> ApiResponse:
    return ApiResponse(msgspec.json.encode(plain(value), enc_hook=encode_custom))
