"""Assembling a context: run its function, fit its items, judge its freshness, keep the proof."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from headwater.contexts.budget import BudgetPolicy, Candidate, fit
from headwater.contexts.freshness import judge
from headwater.contexts.prices import cost_nano_usd, load_prices, own_rate
from headwater.contexts.record_builder import Asked, Made, context_of, core_of, lineage_of
from headwater.contexts.recorder import Recorder
from headwater.contexts.tokens import tokenizer_for
from headwater.core.clock import Clock, to_micros
from headwater.core.templates import as_text
from headwater.declarations import ContextDef, ContextItem, Overrides, reference
from headwater.declarations.registry import Registry
from headwater.errors import (
    ContextFailedError,
    ContextTimeoutError,
    FreshnessSLAError,
    HeadwaterError,
    InvalidInputError,
    RecordingError,
    UnknownReferenceError,
)
from headwater.features.batch_state import tracking
from headwater.features.read_tracking import (
    OnFailure,
    ReadTracker,
    TrackedContext,
    bind,
    calling,
    recordable,
    track_all,
    track_context,
)
from headwater.features.reader import Reader
from headwater.features.user_calls import Limits, Raising, is_mistake
from headwater.ports import RecordLog
from headwater.records.ids import new_context_id
from headwater.records.lineage import Context
from headwater.settings.schema import Settings, rates_of

_MILLISECOND = timedelta(milliseconds=1)
_INTERACTION = "interaction_ref"

Counted = Callable[[Context | FreshnessSLAError | RecordingError], None]
"""Told of every context that was assembled, and of every one that was refused afterwards."""


class Assembler:
    """Makes contexts, each with its record."""

    def __init__(
        self,
        registry: Registry,
        reader: Reader,
        records: RecordLog,
        limits: Limits,
        clock: Clock,
        settings: Settings,
        counted: Counted,
    ) -> None:
        self._registry = registry
        self._reader = reader
        self._recorder = Recorder(records, settings)
        self._limits = limits
        self._clock = clock
        self._settings = settings
        self._counted = counted
        self._rates = rates_of(settings.prices)
        self._loaded: set[str | None] = set()

    async def run(
        self,
        definition: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context:
        """Assembles a context and keeps its record."""
        bound, asked = _ask(definition, arguments, named, overrides)
        try:
            return await self._run(bound, asked)
        except HeadwaterError as error:
            if not is_mistake(error) or self._is_the_callers(error, asked):
                raise
            raise ContextFailedError(definition.name, error) from error

    async def _run(self, bound: inspect.BoundArguments, asked: Asked) -> Context:
        scope = ReadTracker()
        with OnFailure(partial(track_all, scope)):
            made = await self._make(bound, asked, scope)
            self._check_fresh(made)
            context = await self._keep(made)
        track_context(TrackedContext(context, scope.oldest, scope.incomplete, scope.provenance))
        self._counted(context)
        return context

    def _check_fresh(self, made: Made) -> None:
        definition = made.asked.definition
        if made.verdict.violations and definition.freshness_strict:
            refusal = FreshnessSLAError(definition.name, made.verdict.violations)
            self._counted(refusal)
            raise refusal

    def _is_the_callers(self, error: HeadwaterError, asked: Asked) -> bool:
        """Says whether an error is about an argument that is no id of the entity it is to name."""
        for entity in self._registry.entities.values():
            for given in asked.inputs.values():
                try:
                    entity.text_id(given)
                except InvalidInputError as refusal:
                    if str(refusal) == str(error):
                        return True
        return False

    async def warm_up(self) -> None:
        """Loads what the declared contexts will need, so that the first one is as quick as others.

        It takes half a second, and so is done in a thread. What could never be recorded is refused.
        """
        if self._registry.contexts:
            self._recorder.check()
        for definition in self._registry.contexts.values():
            await self._load(definition.model)

    async def _load(self, model: str | None) -> None:
        if model not in self._loaded:
            await asyncio.to_thread(self._load_now, model)
            self._loaded.add(model)

    def _load_now(self, model: str | None) -> None:
        tokenizer_for(model).load()
        if model is not None and own_rate(model, self._rates) is None:
            load_prices(model)

    async def _make(self, bound: inspect.BoundArguments, asked: Asked, scope: ReadTracker) -> Made:
        """Everything about a context but its record."""
        definition = asked.definition
        await self._load(definition.model)
        started_at, began = self._clock.now(), time.perf_counter()
        with tracking(scope):
            items = await self._resolved(await self._given(bound, asked), asked)
            _track_sources(items, scope)
        scope.close()
        tokenizer = tokenizer_for(definition.model)
        candidates = [Candidate(i.content, i.priority, i.required, i.truncate) for i in items]
        fitted = fit(candidates, asked.policy, tokenizer)
        now = self._clock.now()
        return Made(
            asked=asked,
            scope=scope,
            items=items,
            tokenizer=tokenizer,
            fitted=fitted,
            verdict=judge(scope, asked.sla_ms, now),
            cost_nano_usd=cost_nano_usd(definition.model, fitted.tokens, now, self._rates),
            started_at=started_at,
            assembly_us=round((time.perf_counter() - began) * 1_000_000),
            now=now,
        )

    async def _given(self, bound: inspect.BoundArguments, asked: Asked) -> list[ContextItem]:
        """The items that the function gives."""
        definition = asked.definition
        failed = Raising(partial(ContextFailedError, definition.name))
        with failed, calling(definition, asked.inputs):
            given = await self._limits.call(definition, bound, ContextTimeoutError)
        items = given if isinstance(given, list | tuple) else [given]
        return [_item(definition, item) for item in items]

    async def _resolved(self, items: Sequence[ContextItem], asked: Asked) -> Sequence[ContextItem]:
        """The items as literal text; what their templates name is read once for all of them."""
        names = {
            name for item in items if item.parsed is not None for name in item.parsed.references
        }
        texts = await self._texts(sorted(names), asked) if names else {}
        return [
            item
            if item.parsed is None
            else msgspec.structs.replace(item, content=item.parsed.render(texts))
            for item in items
        ]

    async def _texts(self, names: Sequence[str], asked: Asked) -> dict[str, str]:
        """How features read in a text, each for the entity that it belongs to."""
        by_entity: dict[str, list[str]] = {}
        for name in names:
            id_field = self._id_field(name, asked)
            by_entity.setdefault(id_field, []).append(name)
        rows = await asyncio.gather(
            *(self._reader.read(own, [asked.inputs[field]]) for field, own in by_entity.items())
        )
        return {
            name: "" if value.value is None else as_text(value.value)
            for (row,) in rows
            for name, value in row.items()
        }

    def _id_field(self, name: str, asked: Asked) -> str:
        """The parameter that says whose feature it is."""
        definition, features = asked.definition, self._registry.features
        if name not in features:
            owner = f"a template of context {definition.name!r}"
            raise UnknownReferenceError(owner, "feature", name, features, definition.location)
        id_field = features[name].entity.id_field
        if id_field not in asked.inputs:
            raise InvalidInputError(
                f"context {definition.name!r}: a template names {name!r}, so the function needs a "
                f"parameter {id_field!r} that says whose {name} it is"
            )
        return id_field

    async def _keep(self, made: Made) -> Context:
        """Seals and keeps the record."""
        lineage = lineage_of(made)
        context_id = new_context_id(to_micros(made.now) // 1_000)
        core = core_of(made, lineage, context_id, self._settings.env)
        record = self._recorder.seal(core)
        try:
            recorded = await self._recorder.keep(core, record, made.scope.provenance)
        except RecordingError as unrecorded:
            self._counted(unrecorded)
            raise
        return context_of(made, lineage, record, recorded=recorded)


def _ask(
    definition: ContextDef,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    overrides: Overrides,
) -> tuple[inspect.BoundArguments, Asked]:
    """A call, refused before the function runs if it could not be recorded: or be proved."""
    given = dict(named)
    interaction_ref = overrides.interaction_ref
    parameters = definition.signature.parameters
    if _INTERACTION not in parameters:
        if _INTERACTION in given:
            interaction_ref = reference(given.pop(_INTERACTION))
    elif interaction_ref is not msgspec.UNSET and _INTERACTION not in _filled(
        parameters, arguments
    ):
        # The function sees what the record says.
        given.setdefault(_INTERACTION, interaction_ref)
    bound = bind(definition, arguments, given)
    if interaction_ref is msgspec.UNSET:
        interaction_ref = reference(bound.arguments.get(_INTERACTION))
    max_tokens, sla = overrides.max_tokens, overrides.freshness_sla
    if max_tokens is msgspec.UNSET:
        max_tokens = definition.max_tokens
    if sla is msgspec.UNSET:
        sla = definition.freshness_sla
    return bound, Asked(
        definition=definition,
        inputs=recordable(bound.arguments, "/inputs"),
        interaction_ref=None
        if interaction_ref is None
        else recordable(interaction_ref, "/interaction_ref"),
        policy=BudgetPolicy(
            max_tokens, definition.separator, definition.on_overflow, definition.backfill
        ),
        sla_ms=None if sla is None else sla // _MILLISECOND,
    )


def _filled(parameters: Mapping[str, inspect.Parameter], arguments: Sequence[Any]) -> list[str]:
    """The parameters that positional arguments fill."""
    by_place = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return by_place[: len(arguments)]


def _track_sources(items: Sequence[ContextItem], scope: ReadTracker) -> None:
    """Notes the contexts whose text was used here, but which were assembled elsewhere."""
    known = {note.context.context_id for note in scope.contexts}
    for source in (item.source for item in items):
        if isinstance(source, Context) and source.context_id not in known:
            known.add(source.context_id)
            track_context(_earlier(source))


def _earlier(context: Context) -> TrackedContext:
    """A context of before: as old as the oldest that it read was then, and all the time since."""
    lineage = context.lineage
    return TrackedContext(
        context,
        oldest=context.created_at - timedelta(milliseconds=lineage.stalest_ms or 0),
        incomplete=any(read.as_of is None for read in lineage.features)
        or any(search.failed for search in lineage.retrievers)
        or any(inner.freshness_status == "degraded" for inner in lineage.contexts),
        provenance={("feature", r.entity, r.feature, str(r.entity_id)) for r in lineage.features},
    )


def _item(definition: ContextDef, given: object) -> ContextItem:
    if isinstance(given, ContextItem):
        return given
    if isinstance(given, str):
        return ContextItem(given, required=True)
    raise InvalidInputError(
        f"context {definition.name!r} must return ContextItems or text, not {type(given).__name__}"
    )
