"""The views of a record: a live context, a past context and its explanation. Pure.

All of them are projections of the same core, so they agree in every field that they share. A value
that the core only commits to is None in a view, and its pointer is listed in ``withheld``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from headwater.messages.composing import compose
from headwater.messages.parts import Grade, ModelRequest, Part, Tool
from headwater.messages.texts import Layout, Place, layout, part_of
from headwater.model.lineage import (
    ChunkLineage,
    Context,
    ContextLineage,
    ContextTrace,
    CountTrace,
    FeatureLineage,
    FreshnessViolation,
    InputLineage,
    ItemLineage,
    ItemTrace,
    LossTrace,
    MessageTrace,
    PastContext,
    ResultTrace,
    RetrieverLineage,
    RetrieverTrace,
)
from headwater.records.core import (
    NOT_COUNTED,
    Commitment,
    Core,
    FeatureInput,
    FeatureRead,
    Item,
    ItemMessage,
    Loss,
    Result,
    Retrieval,
    disclosed,
)
from headwater.records.record import Record
from headwater.records.sealing import commitments
from headwater.records.signing import statement_of
from headwater.records.spans import ItemReads, SpanFinder, Templates

_MILLISECOND = timedelta(milliseconds=1)


class CountedTokens(NamedTuple):
    """The tokens that each item adds to the text, and the missing ones to keep all items."""

    widths: Sequence[int | None]
    short_by: int | None


_VIOLATION_WORDS = {"stale": "too old", "missing": "missing", "default": "defaulted"}


def live_context(
    record: Record, core: Core, request: ModelRequest | None, *, recorded: bool
) -> Context:
    """Return the context that was just assembled; `recorded` is False if storing it failed."""
    facts = _context_facts(record, core)
    return Context(**facts, **_body(core, facts, recorded=recorded), request=request)


def past_context(record: Record, core: Core) -> PastContext:
    """Return the context of a stored record and its opened core."""
    facts = _context_facts(record, core)
    return PastContext(
        **facts,
        **_record_facts(record, core),
        **_body(core, facts, recorded=True),
        request=request_of(core),
    )


def explain(
    record: Record, core: Core, templates: Templates, counted: CountedTokens
) -> ContextTrace:
    """Return the explanation of a stored record: every item, read and rule, with reasons.

    ``templates`` are those of the declared features.
    """
    policy, finder = core.policy, SpanFinder(core, templates)
    numbers = recorded_layout(core).numbers
    return ContextTrace(
        **_context_facts(record, core),
        **_record_facts(record, core),
        request=request_of(core),
        definition=core.context.definition,
        versions=msgspec.structs.asdict(core.versions),
        summary=_summary(core),
        warnings=warnings_of(core),
        items=[
            _item_trace(item, finder.reads_of(item), width, number)
            for item, width, number in zip(core.items, counted.widths, numbers, strict=True)
        ],
        features=list(map(_feature, core.features)),
        retrievers=[_retriever_trace(call, core.created_at) for call in core.retrievals],
        contexts=list(core.contexts),
        max_tokens=policy.max_tokens,
        short_by=counted.short_by,
        overflow=core.output.overflow,
        separator=policy.separator,
        on_overflow=policy.on_overflow,
        backfill=policy.backfill,
        tokenizer=core.tokenizer.name,
        exact=core.tokenizer.exact,
        margin_percent=core.tokenizer.margin_percent,
        count=_count(core, counted.widths),
        losses=[LossTrace(**msgspec.structs.asdict(loss)) for loss in _losses(core)],
        freshness_strict=policy.freshness_strict,
        stalest_ms=core.freshness.stalest_ms,
        started_at=core.timing.started_at,
        assembly_ms=core.timing.assembly_us / 1000,
    )


def violations_of(core: Core) -> list[FreshnessViolation]:
    """Return the freshness violations of a context."""
    return [
        FreshnessViolation(**_disclosed_values(msgspec.structs.asdict(violation)))
        for violation in core.freshness.violations
    ]


def warnings_of(core: Core) -> list[str]:
    """Return what should be looked at: losses, and a budget of which most stayed unused."""
    return [*map(_lost, _losses(core)), *_unused_budget(core)]


def _lost(loss: Loss) -> str:
    if loss.name == NOT_COUNTED:
        return f"{loss.provider} did not count the tokens, so they are estimated"
    place = "a part" if loss.item is None else f"item {loss.item}"
    return f"{loss.provider} cannot be sent {place} as it was declared: {loss.name}"


def _unused_budget(core: Core) -> list[str]:
    """Return a warning if an item that did not fit left most of the budget unused."""
    output, budget = core.output, core.policy.max_tokens
    if not output.items_dropped or budget is None:
        return []
    if 2 * output.tokens * (100 + core.tokenizer.margin_percent) > 100 * budget:
        return []
    dropped = [
        place
        for place, item in enumerate(core.items)
        if item.decision == "dropped" and item.reason != "missing"
    ]
    first = next((place for place in dropped if core.items[place].reason == "over_budget"), None)
    if first is None:  # another item was shortened to the rest of the budget
        return []
    item, others, remedies = core.items[first], len(dropped) - 1, ["shorten the item"]
    consequence, whose = "", f"its {item.tokens} tokens"
    if (group := group_of(item)) is not None:
        members = [core.items[place] for place in dropped if group_of(core.items[place]) == group]
        others = len(dropped) - len(members)
        whose = f"the {sum(member.tokens for member in members)} tokens of its group"
    elif not item.truncate:
        remedies.append("give it truncate=True")
    if others and core.policy.backfill:
        consequence = f", and neither did {others} more"
    elif others:
        consequence = f", so {others} of lower priority were dropped too"
        remedies.append("declare the context with backfill=True")
    return [
        f"{output.tokens} of {budget} tokens are used: item {first} did not fit with {whose}"
        f"{consequence}; {', '.join(remedies)}, or raise max_tokens"
    ]


def request_of(core: Core) -> ModelRequest | None:
    """Return what a model is sent; None without messages, or if one of them is withheld."""
    parts: list[Part | Tool | None] = []
    for item in core.items:
        message = item.message
        if message is msgspec.UNSET:
            return None
        text = item.content if item.emitted is None else item.emitted
        data: Any = message.data
        if item.decision == "dropped":
            parts.append(None)
        elif not isinstance(text, str) or type(data) is Commitment:
            return None
        else:
            part = part_of(message.kind, text, data)
            parts.append(msgspec.structs.replace(part, cache=True) if message.cache else part)
    if not parts:
        return None
    composed = compose(recorded_layout(core), parts, core.policy.separator)
    reserve = core.policy.max_output
    return ModelRequest(
        messages=composed.messages,
        tools=composed.tools,
        model=core.policy.model,
        max_output=None if reserve is msgspec.UNSET else reserve,
        cache_key=core.context.name,
    )


def withheld(record: Record) -> list[str]:
    """Return the pointers of all values that the record only commits to."""
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    tree = msgspec.json.decode(record.core)
    return [pointer for pointer, _ in commitments(tree) if pointer not in disclosed]


def _context_facts(record: Record, core: Core) -> dict[str, Any]:
    """Return the fields of `ContextFacts`."""
    reference, reserve = disclosed(core.interaction_ref), core.policy.max_output
    return {
        "content": disclosed(core.output.content),
        "context_id": core.context_id,
        "record_hash": record.record_hash,
        "content_hash": record.content_hash,
        "name": core.context.name,
        "created_at": core.created_at,
        "tokens": core.output.tokens,
        "cost_nano_usd": core.output.cost_nano_usd,
        "freshness_status": core.freshness.status,
        "freshness_violations": violations_of(core),
        "freshness_sla_ms": core.freshness.sla_ms,
        "interaction_ref": None if reference is None else _disclosed_values(reference),
        "model": core.policy.model,
        "max_output": None if reserve is msgspec.UNSET else reserve,
    }


def _record_facts(record: Record, core: Core) -> dict[str, Any]:
    """Return the fields that `RecordFacts` adds."""
    signature = record.signature
    return {
        "version": core.context.version,
        "environment": core.environment,
        "caller": core.caller,
        "inputs": _disclosed_values(core.inputs),
        "signed_by": None if signature is None else statement_of(signature).key_id,
        "withheld": withheld(record),
        "redacted": [redaction.pointer for redaction in record.redactions],
    }


def _body(core: Core, facts: Mapping[str, Any], *, recorded: bool) -> dict[str, Any]:
    """Return the fields that live and past contexts share, besides those of `ContextFacts`."""
    grade, source = _graded(core)
    return {
        "lineage": _lineage(core),
        "meta": {
            "recorded": recorded,
            "overflow": core.output.overflow,
            "exact": grade == "exact",
            "grade": grade,
            "count_source": source,
            "warnings": warnings_of(core),
            "freshness_violations": facts["freshness_violations"],
            "freshness_sla_ms": core.freshness.sla_ms,
        },
    }


def _disclosed_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: disclosed(value) for name, value in values.items()}


def _lineage(core: Core) -> ContextLineage:
    output = core.output
    return ContextLineage(
        features=list(map(_feature, core.features)),
        retrievers=[_retriever(call, core.created_at) for call in core.retrievals],
        contexts=list(core.contexts),
        items=list(map(_item, core.items)),
        items_provided=len(core.items),
        items_included=output.items_kept + output.items_truncated,
        items_dropped=output.items_dropped,
        items_truncated=output.items_truncated,
        tokens=output.tokens,
        max_tokens=core.policy.max_tokens,
        cost_nano_usd=output.cost_nano_usd,
        stalest_ms=core.freshness.stalest_ms,
        assembly_ms=core.timing.assembly_us / 1000,
        caller=core.caller,
    )


def _feature(read: FeatureRead) -> FeatureLineage:
    facts = _value_facts(read)
    facts["inputs"] = [InputLineage(**_value_facts(inner)) for inner in read.inputs]
    return FeatureLineage(**facts)


def _value_facts(read: FeatureInput) -> dict[str, Any]:
    facts = msgspec.structs.asdict(read)
    facts["entity_id"], facts["value"] = disclosed(read.entity_id), disclosed(read.value)
    if read.current_at is None:
        facts["current_at"] = read.as_of
    return facts


def _retriever(call: Retrieval, now: datetime) -> RetrieverLineage:
    results = [ChunkLineage(**_result_facts(result, now)) for result in call.results]
    return RetrieverLineage(**_call_facts(call), results=results)


def _retriever_trace(call: Retrieval, now: datetime) -> RetrieverTrace:
    kept = [] if call.kept is msgspec.UNSET else disclosed(call.kept.metadata) or []
    results = [
        ResultTrace(
            **_result_facts(result, now), content=disclosed(result.content), metadata=metadata
        )
        for result, metadata in zip_longest(call.results, kept[: len(call.results)])
    ]
    return RetrieverTrace(**_call_facts(call), results=results)


def _call_facts(call: Retrieval) -> dict[str, Any]:
    facts = {
        "retriever": call.retriever,
        "arguments": disclosed(call.arguments),
        "count": call.count,
        "latency_ms": call.latency_us / 1000,
        "cache_hit": call.cache_hit,
        "searched_at": call.searched_at,
        "age_ms": call.age_ms,
        "sla_ms": call.sla_ms,
        "fresh": call.fresh,
        "failed": call.failed,
    }
    if call.index is None:
        return facts
    index = call.index
    return facts | {
        "index": index.name,
        "index_version": index.version,
        "embedder": index.embedder,
        "mode": index.mode,
        "query": disclosed(index.query),
        "filters": disclosed(index.filters),
    }


def _result_facts(result: Result, now: datetime) -> dict[str, Any]:
    facts, origin = {"id": disclosed(result.id), "score": result.score}, result.origin
    if origin is None:
        return facts
    indexed_at = origin.indexed_at
    return facts | {
        "document": disclosed(origin.document),
        "position": origin.position,
        "content_hash": disclosed(origin.content_hash),
        "version": origin.version,
        "indexed_at": indexed_at,
        "age_ms": None if indexed_at is None else max(0, -((indexed_at - now) // _MILLISECOND)),
    }


def _item(item: Item) -> ItemLineage:
    return ItemLineage(
        decision=item.decision,
        reason=item.reason,
        priority=item.priority,
        required=item.required,
        section=None if item.section is None else disclosed(item.section),
        tokens=item.tokens,
        emitted_tokens=item.emitted_tokens,
        short_by=item.short_by,
    )


def recorded_layout(core: Core) -> Layout:
    """Return the messages of a record; items that do not say are of the user."""
    messages = [item.message for item in core.items]
    return layout(
        Place("user", None) if message is msgspec.UNSET else Place(message.role, message.turn)
        for message in messages
    )


def _count(core: Core, widths: Sequence[int | None]) -> CountTrace:
    """Return how tokens were counted; what no item adds is the envelope."""
    grade, source = _graded(core)
    if core.tokenizer.counter is msgspec.UNSET:
        return CountTrace(grade=grade, source=source, envelope_tokens=0)
    kept = zip(core.items, widths, strict=True)
    added = [width for item, width in kept if item.decision != "dropped"]
    known = [width for width in added if width is not None]
    envelope = core.output.tokens - sum(known) if len(known) == len(added) else None
    return CountTrace(grade=grade, source=source, envelope_tokens=envelope)


def _graded(core: Core) -> tuple[Grade, str]:
    """Return how tokens were counted, and by what."""
    tokenizer, counter = core.tokenizer, core.tokenizer.counter
    if counter is msgspec.UNSET:
        return "exact" if tokenizer.exact else "estimate", tokenizer.name
    return counter.grade, counter.source


def _losses(core: Core) -> Sequence[Loss]:
    return () if core.output.losses is msgspec.UNSET else core.output.losses


def _item_trace(item: Item, origins: ItemReads, width: int | None, number: int) -> ItemTrace:
    kept = None if item.decision == "dropped" else item.content
    return ItemTrace(
        **msgspec.structs.asdict(_item(item)),
        content=disclosed(item.content),
        emitted=disclosed(item.emitted if item.decision == "truncated" else kept),
        truncate=item.truncate,
        source_kind=item.source.kind,
        source_ref=disclosed(item.source.ref),
        why=_why(item),
        reads=list(origins.reads),
        spans=list(origins.spans),
        width=width,
        message=_message_trace(item.message, number),
    )


def _message_trace(message: ItemMessage | msgspec.UnsetType, number: int) -> MessageTrace | None:
    if message is msgspec.UNSET:
        return None
    return MessageTrace(
        kind=message.kind,
        role=message.role,
        number=None if number < 0 else number,
        turn=message.turn,
        group=message.group,
        cache=message.cache,
        image=disclosed(message.data),
    )


def _why(item: Item) -> str:
    more = f"max_tokens would have to be {item.short_by} higher to keep it whole"
    match item.reason:
        case "required":
            return f"kept, because {'it' if item.required else 'an item of its group'} is required"
        case "fits":
            return f"kept, because its {item.tokens} tokens fit"
        case "shortened":
            return f"shortened from {item.tokens} to {item.emitted_tokens} tokens; {more}"
        case "missing":
            return "left out, because a feature in its template has no value"
        case "outranked":
            return f"dropped, because an item of higher priority did not fit; {more}"
        case _:
            is_alone = group_of(item) is None
            whose = f"its {item.tokens} tokens" if is_alone else "all items of its group"
            return f"dropped, because {whose} did not fit; {more}"


def group_of(item: Item) -> int | None:
    """Return the number that the items which were kept or dropped together have in common."""
    if item.message is not msgspec.UNSET:
        return item.message.group
    return None if item.group is msgspec.UNSET else item.group


def _summary(core: Core) -> str:
    """Return a summary of the budget, the items and the freshness in one sentence."""
    output = core.output
    reasons: Counter[str] = Counter(violation.reason for violation in core.freshness.violations)
    words = [f"{reasons[why]} {word}" for why, word in _VIOLATION_WORDS.items() if reasons[why]]
    budget = "no budget" if core.policy.max_tokens is None else f"of {core.policy.max_tokens}"
    counts = f"{output.items_kept} kept, {output.items_truncated} shortened"
    return (
        f"{output.tokens} tokens ({budget}), {len(core.items)} items: {counts}, "
        f"{output.items_dropped} dropped; freshness {core.freshness.status}"
        + (f" ({', '.join(words)})" if words else "")
    )
