"""Contexts: assemble them, and record those that were assembled elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from headwater.core.json_values import plain
from headwater.model.bound_contexts import bound
from headwater.model.contexts import (
    Assembled,
    ExternalInputs,
    ExternalModel,
    InteractionRef,
    Overrides,
    TemplateVersion,
    Text,
    assembled,
)
from headwater.model.kinds import ExternalName
from headwater.model.lineage import Context
from headwater.store.verbs.records import (
    ASSEMBLING,
    ASSEMBLY_SECONDS,
    ContextReadVerbs,
    RecordVerbs,
)
from headwater.store.verbs.verb import Reply, Sent, verb

if TYPE_CHECKING:
    from headwater.model.contexts import Mode, Replay
    from headwater.records.record import Record


async def _recorded(verbs: ContextVerbs, **given: Any) -> Assembled:
    return assembled(await verbs.record_external(**given))


def _context(answer: Assembled) -> Context:
    return msgspec.convert(answer, Context, from_attributes=True)


class ContextVerbs(ContextReadVerbs):
    """The part of a store that assembles contexts and reads recorded ones."""

    records: RecordVerbs

    async def assemble(
        self, name: str, params: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Context:
        """Assemble a declared context by its name.

        ``params`` are converted to the annotated types and checked, as over HTTP: a number may be
        text, and a missing, unknown or invalid parameter raises `FieldError`. A client sends it
        again only if the server cannot have begun it, because every assembly is recorded.

        >>> await store.assemble("support", {"user_id": "ada", "question": "Where is it?"})
        <Context 'support' ...: ... tokens, guaranteed>
        """
        return await self._runtime.assemble_named(name, params, overrides or Overrides())

    @verb(
        "POST",
        "/v1/record",
        scope="assemble",
        operation="record_external",
        reply=Reply(Assembled, _recorded, _context),
        is_repeatable=False,
        raises=ASSEMBLING,
        seconds=ASSEMBLY_SECONDS,
    )
    async def record_external(
        self,
        *,
        name: ExternalName,
        content: Text,
        inputs: Annotated[Mapping[str, Any], Sent(ExternalInputs, plain)] | None = {},
        model: ExternalModel | None = None,
        version: TemplateVersion | None = None,
        interaction_ref: Annotated[Mapping[str, Any], Sent(InteractionRef, dict)] | None = None,
    ) -> Context:
        """Record a text that was assembled elsewhere, like a context that was assembled here.

        >>> recorded = await store.record_external(name="answer", content="Hello Ada")
        >>> (await store.get_context_at(recorded.context_id)).content
        'Hello Ada'
        """
        recorded = (await self._engine()).recorded
        context = await recorded.record(
            name, content, inputs or {}, model, version, interaction_ref
        )
        return bound(context, self._runtime.binding)

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
