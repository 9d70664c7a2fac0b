"""Assembling a context: call its function, fit its items, check freshness, store the record."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, get_args

import msgspec

from headwater.contexts.budget import BudgetPolicy, Fitted
from headwater.contexts.counters import ModelCounters
from headwater.contexts.fitting import ItemFitter
from headwater.contexts.freshness import judge
from headwater.contexts.record_builder import AssemblyRequest, AssemblyResult, build_core
from headwater.contexts.record_builder import prepare as prepare_records
from headwater.contexts.recorder import Recorder
from headwater.contexts.requests import with_called_tools
from headwater.core.clock import to_micros
from headwater.core.prices import cost_nano_usd, custom_rate, load_prices
from headwater.declarations.contexts import ContextDef, Limit, reference
from headwater.declarations.items import ContextItem
from headwater.errors import (
    CallerLimitError,
    ContextFailedError,
    ContextTimeoutError,
    FreshnessSLAError,
    HeadwaterError,
    InvalidInputError,
    RecordingError,
    StoreLostError,
)
from headwater.features.call_scope import calling, current_reads, current_scope, tracking
from headwater.features.caller_limits import LimitedCaller, limited_caller
from headwater.features.ownership import Ownership
from headwater.features.read_tracking import HeldRecord, OnFailure, Reads, TrackedContext
from headwater.features.reader import Reader
from headwater.features.running_calls import UserCall, bind, recordable
from headwater.features.services import Services
from headwater.features.template_reads import ReferenceOwner, References
from headwater.features.user_calls import Raising, is_mistake
from headwater.messages.parts import ModelRequest
from headwater.model.callers import caller_name
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context, ContextLineage
from headwater.model.values import Part, TrackedFeature
from headwater.records.core import Core
from headwater.records.ids import new_context_id
from headwater.records.projection import live_context, violations_of
from headwater.records.record import Record
from headwater.settings.kinds import rates_of

_MILLISECOND = timedelta(milliseconds=1)
_INTERACTION = "interaction_ref"
_LIMITS = get_args(Limit)

Counted = Callable[[Context | FreshnessSLAError | RecordingError], None]
"""Called with every assembled context, and with the error of every refused one."""


class Assembler:
    """Assembles contexts and stores a record of each."""

    def __init__(
        self, services: Services, reader: Reader, counters: ModelCounters, counted: Counted
    ) -> None:
        self._registry = services.registry
        self._reader = reader
        self._references = References(services.registry, reader)
        self.recorder = Recorder(services)
        self._erasures = services.backends.erasures
        self._ownership = Ownership(services)
        self._fitter = ItemFitter(counters, services.interceptors)
        self.run = services.interceptors.assemble(self._run)
        self._calls = services.context_calls
        self._clock = services.clock
        self._catalog = services.catalog
        self._loss = reader.loss
        self._settings = services.settings
        self._counted = counted
        self.counters = counters
        self._rates = rates_of(services.settings.prices)
        self._loaded: set[str | None] = set()

    async def _run(
        self,
        definition: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context:
        """Assemble a context and store its record."""
        bound, request = _request(definition, arguments, named, overrides)
        try:
            return await self._run_bound(bound, request)
        except HeadwaterError as error:
            if not is_mistake(error) or self._is_invalid_id(error, request):
                raise
            raise ContextFailedError(definition.name, error) from error

    async def _run_bound(self, bound: inspect.BoundArguments, request: AssemblyRequest) -> Context:
        revision, limited = self._erasures.ledger.revision, limited_caller()
        reads = Reads(holds=True) if limited else Reads(current_scope().reads)
        if limited is not None:
            entities, name = self._registry.entities.values(), request.definition.name
            await limited.check_context(self._ownership, name, entities, request.inputs)
        with OnFailure(lambda: current_reads().track_all(reads)):
            try:
                result = await self._assemble(bound, request, reads, limited)
            finally:
                if limited is not None:
                    await _release(reads, limited, self._ownership)
            context_id = new_context_id(to_micros(result.created_at) // 1_000)
            core = build_core(result, context_id, self._settings.env, caller_name())
            if core.freshness.status == "refused":
                raise await self._refusal(core, reads, revision)
            request_sent = None if result.sent is None else result.sent.request
            context = await self._record(core, request_sent, reads, revision)
        if (outer := current_scope().reads) is not None:
            moments, broken = result.judgement.moments, result.judgement.broken_sla_ms
            facts = (moments.oldest, moments.incomplete, reads.provenance, reads.has_failed)
            outer.track_context(TrackedContext(context, *facts, broken_sla_ms=broken))
        self._counted(context)
        return context

    async def _refusal(self, core: Core, reads: Reads, since: int) -> FreshnessSLAError:
        """Record that a strict context was refused, and return the error."""
        record, recorded = self.recorder.seal(core), False
        with suppress(RecordingError):  # there is no context to hold back
            recorded = await self._store(core, record, reads, since)
        refusal = FreshnessSLAError(
            core.context.name, violations_of(core), core.context_id if recorded else None
        )
        self._counted(refusal)
        return refusal

    async def _record(
        self, core: Core, request: ModelRequest | None, reads: Reads, since: int
    ) -> Context:
        """Seal and store the record."""
        record = self.recorder.seal(core)
        try:
            recorded = await self._store(core, record, reads, since)
        except RecordingError as unrecorded:
            self._counted(unrecorded)
            raise
        return live_context(record, core, request, recorded=recorded)

    async def _store(self, core: Core, record: Record, reads: Reads, since: int) -> bool:
        """Store a record, or hold it; return False if that failed."""
        store = partial(self.recorder.store, core, record, reads.provenance, since)
        if reads.held is None:
            return await store()
        reads.held[core.context_id] = HeldRecord(reads.provenance, store)
        return True

    def _is_invalid_id(self, error: HeadwaterError, request: AssemblyRequest) -> bool:
        """Return True if an error says that an argument is not a valid id of its entity."""
        for entity in self._registry.entities.values():
            for value in request.inputs.values():
                try:
                    entity.text_id(value)
                except InvalidInputError as refusal:
                    if str(refusal) == str(error):
                        return True
        return False

    async def warm_up(self) -> None:
        """Load tokenizers, prices and types of the declared contexts, so the first call is fast.

        Loading takes half a second and runs in a thread. Raise `ConfigError` if the settings make
        recording impossible.
        """
        if self._registry.contexts:
            self.recorder.check()
            await asyncio.to_thread(prepare_records)
        for definition in self._registry.contexts.values():
            await self._load(definition.model)

    async def _load(self, model: str | None) -> None:
        if model not in self._loaded:
            await asyncio.to_thread(self._load_now, model)
            self._loaded.add(model)

    def _load_now(self, model: str | None) -> None:
        self.counters.load(model)
        if model is not None and custom_rate(model, self._rates) is None:
            load_prices(model)

    async def _assemble(
        self,
        bound: inspect.BoundArguments,
        request: AssemblyRequest,
        reads: Reads,
        limited: LimitedCaller | None,
    ) -> AssemblyResult:
        """Call the function and fit its items into the budget."""
        definition = request.definition
        await self._load(definition.model)
        if not self._catalog.is_declared and current_scope().past is None:
            # The defaults that the function reads are those of the catalog from its beginning on.
            await self._catalog.try_to_follow()
        started_at, began = self._clock.now(), time.perf_counter()
        with tracking(reads):
            returned = await self._call(bound, request)
            first = len(reads.features)
            items, missing = await self._render(returned, request)
            of_templates = range(first, len(reads.features))
            await self._track_sources(items, reads)
        reads.close()
        if limited is not None:
            # Nothing that the function has read reaches the caller, also not by an error below.
            await limited.check_provenance(self._ownership, reads.provenance)
        items = with_called_tools(items)
        kept = await self._fitter.fit(items, request.policy, definition)
        fitted = kept.fitted.without(missing)
        now = self._clock.now()
        used = _used(reads.features, of_templates, items, fitted)
        return AssemblyResult(
            request=request._replace(policy=kept.policy),
            reads=reads,
            used=used,
            items=items,
            tokenizer=kept.tokenizer,
            fitted=fitted,
            sent=kept.sent,
            groups=kept.groups,
            judgement=judge(
                reads,
                request.sla_ms,
                now,
                used=used,
                strict=definition.freshness_strict,
                loss=self._present_loss(definition),
            ),
            cost_nano_usd=cost_nano_usd(definition.model, fitted.tokens, now, self._rates),
            started_at=started_at,
            assembly_us=round((time.perf_counter() - began) * 1_000_000),
            created_at=now,
        )

    def _present_loss(self, definition: ContextDef) -> StoreLostError | None:
        """Return the loss of present values, which neither history nor external texts depend on."""
        is_declared = self._registry.contexts.get(definition.name) is definition
        return self._loss.known if is_declared and current_scope().past is None else None

    async def _call(
        self, bound: inspect.BoundArguments, request: AssemblyRequest
    ) -> list[ContextItem]:
        """Call the function and return its items."""
        definition = request.definition
        failed = Raising(partial(ContextFailedError, definition.name))
        with failed, calling(UserCall(definition, request.inputs)):
            function = partial(definition.function, *bound.args, **bound.kwargs)
            returned = await self._calls.call(definition, function, ContextTimeoutError)
        items = returned if isinstance(returned, list | tuple) else [returned]
        return [i if isinstance(i, ContextItem) else _item(definition, i) for i in items]

    async def _render(
        self, items: Sequence[ContextItem], request: AssemblyRequest
    ) -> tuple[Sequence[ContextItem], Set[int]]:
        """Return the items as literal text, and the places of those that a missing value empties.

        Each feature that a template names is read once.
        """
        templates = [item.parsed for item in items if item.parsed is not None]
        if not templates:
            return items, frozenset()
        names = {name for template in templates for name in template.references}
        owner = ReferenceOwner(f"context {request.definition.name!r}", request.definition.location)
        values = await self._references.read(sorted(names), request.inputs, owner)
        missing = {
            place
            for place, item in enumerate(items)
            if item.when_missing == "drop" and item.parsed and item.parsed.is_missing(values)
        }
        rendered = [
            item
            if item.parsed is None
            else msgspec.structs.replace(
                item, content="" if place in missing else item.parsed.render(values)
            )
            for place, item in enumerate(items)
        ]
        return rendered, missing

    async def _track_sources(self, items: Sequence[ContextItem], reads: Reads) -> None:
        """Track the contexts whose text was used here but which were assembled earlier."""
        context_ids = {tracked.context.context_id for tracked in reads.contexts}
        for source in [item.source for item in items]:
            if isinstance(source, Context) and source.context_id not in context_ids:
                context_ids.add(source.context_id)
                reads.track_context(_tracked(source))
                held = (reads.held or {}).get(source.context_id)
                stored = self.recorder.inherited
                reads.provenance |= held.provenance if held else await stored(source.context_id)


async def _release(reads: Reads, limited: LimitedCaller, ownership: Ownership) -> None:
    """Store the records of contexts inside, unless the caller may not have what was read.

    A function may have used them for something else before it failed.
    """
    held = reads.release()
    try:
        await limited.check_provenance(ownership, reads.provenance)
    except CallerLimitError:
        return
    for record in held:
        await record.store()


def _request(
    definition: ContextDef,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    overrides: Overrides,
) -> tuple[inspect.BoundArguments, AssemblyRequest]:
    """Bind a call's arguments; raise if a record could not hold them, before the function runs."""
    keywords = dict(named)
    interaction_ref = overrides.interaction_ref
    parameters = definition.signature.parameters
    if _INTERACTION not in parameters:
        if _INTERACTION in keywords:
            interaction_ref = reference(keywords.pop(_INTERACTION))
    elif interaction_ref is not msgspec.UNSET and _INTERACTION not in _filled(
        parameters, arguments
    ):
        # The function sees the reference that the record holds.
        keywords.setdefault(_INTERACTION, interaction_ref)
    bound = bind(definition, arguments, keywords)
    if interaction_ref is msgspec.UNSET:
        interaction_ref = reference(bound.arguments.get(_INTERACTION))
    max_tokens, sla = overrides.max_tokens, overrides.freshness_sla
    if max_tokens is msgspec.UNSET:
        max_tokens = definition.max_tokens
    if sla is msgspec.UNSET:
        sla = definition.freshness_sla
    return bound, AssemblyRequest(
        definition=definition,
        inputs=recordable(bound.arguments, "/inputs"),
        interaction_ref=None
        if interaction_ref is None
        else recordable(interaction_ref, "/interaction_ref"),
        policy=BudgetPolicy(
            max_tokens, definition.separator, definition.on_overflow, definition.backfill
        ),
        sla_ms=None if sla is None else sla // _MILLISECOND,
        set_by_call=tuple(
            limit for limit in _LIMITS if getattr(overrides, limit) is not msgspec.UNSET
        ),
    )


def _filled(parameters: Mapping[str, inspect.Parameter], arguments: Sequence[Any]) -> list[str]:
    """Return the parameters that positional arguments fill."""
    positional = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return positional[: len(arguments)]


def _used(
    features: Sequence[TrackedFeature],
    of_templates: range,
    items: Sequence[ContextItem],
    fitted: Fitted,
) -> list[bool]:
    """Return for each feature whether the text may depend on it.

    A feature is unused if only templates read it, and all their items were dropped.
    """
    emitted = {
        name
        for item, choice in zip(items, fitted.choices, strict=True)
        if item.parsed is not None and choice.decision != "dropped"
        for name in item.parsed.references
    }
    return [
        place not in of_templates or read.feature in emitted for place, read in enumerate(features)
    ]


def _tracked(context: Context) -> TrackedContext:
    """Return an earlier context with the time of the oldest value that it read."""
    lineage, violations = context.lineage, context.freshness_violations
    # An SLA other than that of the context is one that something inside has.
    inside = [v.sla_ms for v in violations if v.sla_ms not in (0, context.freshness_sla_ms)]
    return TrackedContext(
        context,
        oldest=context.created_at - timedelta(milliseconds=lineage.stalest_ms or 0),
        incomplete=is_incomplete(context),
        provenance=_provenance(lineage),
        has_failed=any(search.failed for search in lineage.retrievers),
        broken_sla_ms=min(inside, default=None),
    )


def is_incomplete(context: Context) -> bool:
    """Return whether something has no age: a missing or lost value, a default, a failed search."""
    lineage, violations = context.lineage, context.freshness_violations
    return (
        any(read.used and read.age_ms is None for read in lineage.features)
        or any(search.failed for search in lineage.retrievers)
        or any(violation.reason != "stale" for violation in violations)
        # Without an SLA it does not say why something inside is not fresh.
        or (
            not violations
            and any(inner.freshness_status == "degraded" for inner in lineage.contexts)
        )
    )


def _provenance(lineage: ContextLineage) -> set[Part]:
    """Return the features, chunks and documents that a context read."""
    parts: set[Part] = {
        ("feature", read.entity, read.feature, str(read.entity_id)) for read in lineage.features
    }
    for search in lineage.retrievers:
        index = search.index or ""
        if search.index is not None and search.index_version is not None:
            parts.add(("index", search.index, search.index_version))
        parts |= {("chunk", chunk.id) for chunk in search.results if chunk.id is not None}
        parts |= {
            ("document", index, chunk.document)
            for chunk in search.results
            if chunk.document is not None
        }
    return parts


def _item(definition: ContextDef, returned: object) -> ContextItem:
    if isinstance(returned, str):
        return ContextItem(returned, required=True)
    raise InvalidInputError(
        f"context {definition.name!r} must return ContextItems or text, "
        f"not {type(returned).__name__}"
    )
