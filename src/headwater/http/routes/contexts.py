"""Routes that assemble contexts and read recorded ones."""

from __future__ import annotations

from functools import partial

import msgspec

from headwater.access.errors import ScopeError
from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.declarations.contexts import overrides
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.contexts import (
    AssembleBody,
    Assembled,
    AssembleNamedBody,
    ExternalBody,
    Replay,
    ReplayBody,
    assembled,
)
from headwater.model.kinds import ContextId, ContextName
from headwater.model.lineage import ContextLineage
from headwater.store.feature_store import FeatureStore


class Contexts:
    """Assembles contexts and reads recorded ones."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        external = Route(
            "POST", "/v1/record", "assemble", self.record_external, documents=Assembled
        )
        return [*self._assembling(), *self._reading(), external]

    def _assembling(self) -> list[Route]:
        """Return the routes that assemble a context."""
        route = partial(Route, "POST", scope="assemble", documents=Assembled, applies_limits=True)
        return [
            route("/v1/contexts/{name}", function=self.assemble_context),
            route("/api/context/assemble", function=self.assemble),
        ]

    def _reading(self) -> list[Route]:
        """Return the routes that read a record."""
        route = partial(Route, "GET", scope="records", applies_limits=True)
        one = "/v1/context/{id}"
        replay = Route("POST", f"{one}/replay", "records", self.replay_context, documents=Replay)
        return [
            route(f"{one}/lineage", function=self.read_lineage, documents=ContextLineage),
            replay,
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
