"""Routes that assemble contexts, and read the lineage of recorded ones."""

from __future__ import annotations

from functools import partial

import msgspec

from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.declarations.contexts import overrides
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.contexts import (
    AssembleBody,
    Assembled,
    AssembleNamedBody,
    assembled,
)
from headwater.model.kinds import ContextId, ContextName
from headwater.model.lineage import ContextLineage
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.outcomes import RECORDED
from headwater.store.verbs.records import ASSEMBLING


class Contexts:
    """Assembles contexts, and reads the lineage of recorded ones."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        route = partial(
            Route,
            "POST",
            scope="assemble",
            documents=Assembled,
            applies_limits=True,
            raises=ASSEMBLING,
        )
        return [
            route("/v1/contexts/{name}", function=self.assemble_context),
            route("/api/context/assemble", function=self.assemble),
            Route(
                "GET",
                "/v1/context/{id}/lineage",
                "records",
                self.read_lineage,
                documents=ContextLineage,
                applies_limits=True,
                raises=RECORDED,
            ),
        ]

    async def assemble_context(self, name: ContextName, body: AssembleBody) -> ApiResponse:
        """Assemble a context and record it."""
        changed = overrides(body.max_tokens, body.freshness_sla, body.interaction_ref)
        return _json(assembled(await self._store.assemble(name, body.params, changed)))

    async def assemble(self, body: AssembleNamedBody) -> ApiResponse:
        """Assemble and record the context that the body names, for the UI."""
        return await self.assemble_context(body.context, body)

    async def read_lineage(self, id: ContextId) -> ApiResponse:
        """Read only the lineage of a recorded context."""
        return _json((await self._store.get_context_at(id)).lineage)


def _json(value: msgspec.Struct) -> ApiResponse:
    return ApiResponse(msgspec.json.encode(plain(value), enc_hook=encode_custom))
