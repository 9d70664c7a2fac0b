"""The verbs of a store that assemble contexts, and that read recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.declarations.context_arguments import bind_parameters
from headwater.features.call_scope import check_allowed_in_handler
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context
from headwater.store.verbs.records import ContextReadVerbs, RecordVerbs

if TYPE_CHECKING:
    from headwater.model.contexts import Mode, Replay
    from headwater.records.record import Record


class ContextVerbs(ContextReadVerbs):
    """The part of ``FeatureStore`` that assembles contexts and reads recorded ones."""

    records: RecordVerbs

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        """Assemble a declared context by its name.

        ``params`` are converted to the annotated types and checked, as over HTTP: a number may be
        text, and a missing, unknown or invalid parameter raises `FieldError`.

        >>> await store.assemble("support", {"user_id": "ada", "question": "Where is it?"})
        <Context 'support' ...: ... tokens, guaranteed>
        """
        definition = self._runtime.registry.context(name)
        bound, options = bind_parameters(definition, params, overrides or Overrides())
        return await self._runtime.assemble(definition, bound.args, bound.kwargs, options)

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

        >>> recorded = await store.record_external(name="answer", content="Hello Ada")
        >>> (await store.get_context_at(recorded.context_id)).content
        'Hello Ada'
        """
        check_allowed_in_handler("record_external")
        from headwater.contexts.recorded import ExternalContext  # noqa: PLC0415 - loaded with the engine

        recorded = (await self._runtime.open()).recorded
        external = ExternalContext(name, content, inputs or {}, model, version, interaction_ref)
        return await recorded.record(external)

    async def get_record(self, ref: str) -> Record:
        """Return the record of a context: by context id, its first 8 characters or record hash.

        >>> (await store.get_record(ctx.context_id)).record_hash == ctx.record_hash
        True
        """
        return await self.records.get(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context; ``store.records.replay`` describes the modes.

        >>> await store.replay(ctx.context_id, "reassemble")
        <Replay 'reassemble' of ...: same text>
        """
        return await self.records.replay(ref, mode)
