"""The core of a record, built from what an assembly requested, read and decided. Pure."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from itertools import repeat
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from headwater.contexts.budget import BudgetPolicy, Choice, Fitted
from headwater.contexts.freshness import (
    Judgement,
    age_ms,
    judge_value,
    search_reason,
    search_sla,
)
from headwater.contexts.requests import SentRequest, item_message
from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.core.codec import encode_custom
from headwater.core.tokens import Tokenizer
from headwater.declarations.contexts import ContextDef
from headwater.declarations.items import Chunk, ContextItem
from headwater.errors import RecordValueError
from headwater.features.read_tracking import (
    FeatureKey,
    Reads,
    SeenReads,
    TrackedContext,
    TrackedRetrieval,
)
from headwater.features.running_calls import IMMUTABLE
from headwater.model.lineage import Context, NestedLineage
from headwater.model.values import Part, TrackedFeature
from headwater.records import core as crs
from headwater.records.sealing import prepare as prepare_sealing

_Verdict = tuple[datetime | None, bool]
_SourceFields = tuple[Literal["entity", "index", "other"], str, str | None]

_LITERAL = crs.ItemSource(kind="literal")
_RECORDED_TYPES = (datetime, date, timedelta, Decimal, UUID, bytes)


class AssemblyRequest(NamedTuple):
    """One call of a context: its arguments, and the rules that hold for this call."""

    definition: ContextDef
    inputs: Mapping[str, Any]
    interaction_ref: Mapping[str, Any] | None
    policy: BudgetPolicy
    sla_ms: int | None
    set_by_call: tuple[str, ...]
    """The limits that the call set itself."""


class AssemblyResult(NamedTuple):
    """The items that a call returned, the values it read, and the text fitted to the budget."""

    request: AssemblyRequest
    reads: Reads
    used: Sequence[bool]
    items: Sequence[ContextItem]
    tokenizer: Tokenizer
    fitted: Fitted
    sent: SentRequest | None
    """How the items are sent, if the context is messages."""
    groups: Sequence[int | None]
    """The group of each item of a text; empty if there is none."""
    judgement: Judgement
    cost_nano_usd: int | None
    started_at: datetime
    assembly_us: int
    created_at: datetime


def build_core(
    result: AssemblyResult, context_id: str, environment: str, caller: str | None
) -> crs.Core:
    """Return the core of the record of an assembly."""
    request, fitted, definition = result.request, result.fitted, result.request.definition
    sla_ms, now, sent = request.sla_ms, result.created_at, result.sent
    features = [
        _feature(read, sla_ms, now, verdict, used=used)
        for read, verdict, used in zip(
            result.reads.features, result.judgement.values, result.used, strict=True
        )
    ]
    return crs.Core(
        context_id=context_id,
        created_at=now,
        environment=environment,
        versions=_versions(),
        context=crs.Definition(
            name=definition.name, version=definition.version, definition=definition.definition
        ),
        inputs=dict(request.inputs),
        interaction_ref=None if request.interaction_ref is None else dict(request.interaction_ref),
        caller=caller,
        policy=crs.Policy(
            max_tokens=request.policy.max_tokens,
            separator=request.policy.separator,
            on_overflow=request.policy.on_overflow,
            backfill=request.policy.backfill,
            model=definition.model,
            freshness_sla_ms=sla_ms,
            freshness_strict=definition.freshness_strict,
            set_by_call=request.set_by_call,
            max_output=UNSET if definition.max_output is None else definition.max_output,
        ),
        tokenizer=crs.TokenizerInfo(
            name=result.tokenizer.name,
            exact=result.tokenizer.exact,
            margin_percent=result.tokenizer.margin_percent,
            counter=UNSET if sent is None else sent.counter,
        ),
        items=_items(result),
        features=tuple(features),
        retrievals=tuple(_retrieval(call, result) for call in result.reads.retrievals),
        contexts=tuple(map(_nested, result.reads.contexts)),
        sources=tuple(_sources(result.reads, features)),
        freshness=result.judgement.freshness,
        output=crs.Output(
            cost_nano_usd=result.cost_nano_usd,
            losses=UNSET if sent is None else sent.losses,
            **output_facts(fitted),
        ),
        timing=crs.Timing(started_at=result.started_at, assembly_us=result.assembly_us),
    )


def prepare() -> None:
    """Load what the first record of a process would wait for."""
    prepare_sealing(crs.Core)
    _versions()


@cache
def _versions() -> crs.Versions:
    return crs.Versions(
        headwater=version("headwater"),
        python=platform.python_version(),
        tokenizer=version("splintr-rs"),
    )


def output_facts(fitted: Fitted) -> dict[str, Any]:
    """Return the fields of an output that a fit decides."""
    decisions = [choice.decision for choice in fitted.choices]
    return {
        "content": fitted.content,
        "tokens": fitted.tokens,
        "items_kept": decisions.count("kept"),
        "items_dropped": decisions.count("dropped"),
        "items_truncated": decisions.count("truncated"),
        "overflow": fitted.overflow,
    }


def _items(result: AssemblyResult) -> tuple[crs.Item, ...]:
    offered, choices = result.items, result.fitted.choices
    if result.sent is None:
        if not result.groups:
            return tuple(map(_item, offered, choices))
        groups = [UNSET if group is None else group for group in result.groups]
        return tuple(map(_item, offered, choices, repeat(UNSET), groups))
    draft = result.sent.draft
    messages = map(item_message, offered, draft.envelope.layout.roles, draft.groups)
    return tuple(map(_item, offered, choices, messages))


def _item(
    item: ContextItem,
    choice: Choice,
    message: crs.ItemMessage | UnsetType = UNSET,
    group: int | UnsetType = UNSET,
) -> crs.Item:
    return crs.Item(
        content=item.content,
        emitted=choice.emitted if choice.decision == "truncated" else None,
        priority=item.priority,
        required=item.required,
        truncate=item.truncate,
        section=item.section,
        source=_source(item),
        tokens=choice.tokens,
        emitted_tokens=choice.emitted_tokens,
        decision=choice.decision,
        reason=choice.reason,
        short_by=choice.short_by,
        message=message,
        group=group,
    )


def _source(item: ContextItem) -> crs.ItemSource:
    source = item.source
    if isinstance(source, Chunk):
        return crs.ItemSource(kind="retrieval", ref=source.id)
    if isinstance(source, Context):
        return crs.ItemSource(kind="context", ref=source.context_id)
    if source is not None:
        return crs.ItemSource(kind="other", ref=source)
    template = item.parsed
    return _LITERAL if template is None else crs.ItemSource(kind="template", ref=template.text)


def _feature(
    read: TrackedFeature, sla_ms: int | None, now: datetime, verdict: _Verdict, *, used: bool
) -> crs.FeatureRead:
    facts = _value_facts(read, sla_ms, now, verdict)
    if not read.value.inputs:
        return crs.FeatureRead(**facts, used=used)
    inputs = [crs.FeatureInput(**inner) for inner in _input_facts(read, facts["sla_ms"], now)]
    return crs.FeatureRead(**facts, used=used, inputs=tuple(inputs))


def _input_facts(
    read: TrackedFeature, sla_ms: int | None, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield the fields of all inputs of a value, directly and through other inputs.

    An input that is judged by several SLAs has an entry for each.
    """
    seen = SeenReads()
    pending = [(inner, sla_ms) for inner in read.value.inputs]
    for tracked, inherited in pending:
        sla = inherited if tracked.sla_ms is None else tracked.sla_ms
        if seen.add(tracked, sla):
            yield _value_facts(tracked, sla, now, judge_value(tracked, sla, now))
            pending += [(inner, sla) for inner in tracked.value.inputs]


def _value_facts(
    read: TrackedFeature, sla_ms: int | None, now: datetime, verdict: _Verdict
) -> dict[str, Any]:
    """Return the fields that a value has in a record, read by the context or as an input."""
    value, (current_at, fresh) = read.value, verdict
    return {
        "feature": read.feature,
        "entity": read.entity,
        "entity_id": read.entity_id,
        "value": recorded_value(value.value),
        "as_of": value.as_of,
        "written_at": value.written_at,
        "source": value.source,
        "rule": value.rule,
        "current_at": None if current_at == value.as_of else current_at,
        "age_ms": age_ms(current_at, now),
        "sla_ms": sla_ms if read.sla_ms is None else read.sla_ms,
        "fresh": fresh,
        "window": value.window or UNSET,
    }


def recorded_value(value: Any) -> Any:
    """Return a feature's value if a record restores it exactly, otherwise its JSON form.

    A feature may have any type that JSON can express; a record restores fewer types.
    """
    if type(value) in IMMUTABLE:
        return value
    json_form = msgspec.to_builtins(value, builtin_types=_RECORDED_TYPES, enc_hook=encode_custom)
    if json_form != value:
        with suppress(RecordValueError):
            if from_tagged(to_tagged(value)) == value:
                return value
    return json_form


def _retrieval(call: TrackedRetrieval, result: AssemblyResult) -> crs.Retrieval:
    sla_ms, now = result.request.sla_ms, result.created_at
    return crs.Retrieval(
        retriever=call.retriever,
        arguments=dict(call.arguments),
        index=None if call.searched is None else crs.IndexRead(**asdict(call.searched)),
        results=tuple([_result(chunk, kept=call.read is not None) for chunk in call.chunks]),
        count=len(call.chunks),
        searched_at=call.searched_at,
        age_ms=age_ms(call.oldest or call.searched_at, now) or 0,
        cache_hit=call.cache_hit,
        latency_us=call.latency_us,
        sla_ms=search_sla(call, sla_ms),
        fresh=search_reason(call, sla_ms, now) is None,
        failed=call.failed,
        kept=UNSET if call.read is None else _kept(call.chunks, call.read, result.reads.features),
    )


def _kept(
    chunks: Sequence[Chunk], read: Set[FeatureKey], features: Sequence[TrackedFeature]
) -> crs.KeptResults:
    keys = [(value.entity, value.feature, value.entity_id) for value in features]
    return crs.KeptResults(
        metadata=[chunk.metadata for chunk in chunks],
        features=tuple(place for place, key in enumerate(keys) if key in read),
    )


def _result(chunk: Chunk, *, kept: bool) -> crs.Result:
    score = None if chunk.score is None else crs.decimal_text(chunk.score)
    origin = crs.ChunkOrigin(
        document=chunk.document,
        position=chunk.position,
        content_hash=chunk.content_hash,
        version=chunk.version,
        indexed_at=chunk.indexed_at,
    )
    is_known = origin != _NO_ORIGIN if kept else chunk.document or chunk.content_hash
    return crs.Result(
        id=chunk.id, score=score, content=chunk.text, origin=origin if is_known else None
    )


_NO_ORIGIN = crs.ChunkOrigin(
    document=None, position=None, content_hash=None, version=None, indexed_at=None
)


def _nested(tracked: TrackedContext) -> NestedLineage:
    context = tracked.context
    return NestedLineage(
        context_id=context.context_id,
        record_hash=context.record_hash,
        name=context.name,
        freshness_status=context.freshness_status,
    )


def _sources(reads: Reads, features: Sequence[crs.FeatureRead]) -> list[crs.Source]:
    """Return what was read and is not listed otherwise, here or by the contexts inside."""
    values = [value for read in features for value in (read, *read.inputs)]
    listed: set[object] = {("entity", value.entity, value.entity_id) for value in values}
    listed |= {
        ("index", retrieval.searched.name, None)
        for retrieval in reads.retrievals
        if retrieval.searched
    }
    inside = {part for context in reads.contexts for part in context.provenance}
    sources = {_source_of(part) for part in reads.provenance - inside}
    unlisted = {source for source in sources - listed if source is not None}
    return [
        crs.Source(kind=kind, name=name, entity_id=entity_id)
        for kind, name, entity_id in sorted(
            unlisted, key=lambda source: (source[:2], source[2] or "")
        )
    ]


def _source_of(part: Part) -> _SourceFields | None:
    """Return a part of the provenance as a record lists it; None if another part implies it."""
    match part:
        case ("feature", entity, _, entity_id) | ("entity", entity, entity_id):
            return "entity", entity, entity_id
        case ("index", index, _) | ("document", index, _) if index:
            return "index", index, None
        case ("other", source):
            return "other", source, None
    return None
