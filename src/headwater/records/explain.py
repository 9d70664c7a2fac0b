"""What a record says, in the words of lineage: a past context, and why it is as it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.records.core import Commitment, Core, FeatureRead, Item, Retrieval, Violation
from headwater.records.lineage import (
    ContextLineage,
    ContextTrace,
    FeatureLineage,
    FreshnessViolation,
    ItemLineage,
    ItemTrace,
    NestedLineage,
    PastContext,
    ResultTrace,
    RetrieverLineage,
    RetrieverTrace,
)
from headwater.records.record import Record
from headwater.records.sealing import commitments
from headwater.records.signing import statement_of

_UNFRESH = {"stale": "too old", "missing": "missing", "default": "defaulted"}


def past_context(record: Record, core: Core) -> PastContext:
    """The context that a record, and its core as it opens, is of."""
    return PastContext(
        content=_shown(core.output.content),
        context_id=core.context_id,
        record_hash=record.record_hash,
        content_hash=core.output.content_hash,
        name=core.context.name,
        version=core.context.version,
        created_at=core.created_at,
        environment=core.environment,
        model=core.policy.model,
        inputs=_all_shown(core.inputs),
        interaction_ref=_reference(core),
        tokens=core.output.tokens,
        cost_nano_usd=core.output.cost_nano_usd,
        freshness_status=core.freshness.status,
        freshness_violations=_violations(core),
        freshness_sla_ms=core.freshness.sla_ms,
        lineage=_lineage(core),
        meta={
            "recorded": True,
            "overflow": core.output.overflow,
            "exact": core.tokenizer.exact,
            "freshness_violations": _violations(core),
            "freshness_sla_ms": core.freshness.sla_ms,
        },
        signed_by=_signer(record),
        withheld=withheld(record),
        redacted=_redacted(record),
    )


def explain(record: Record, core: Core) -> ContextTrace:
    """Why that context is as it is."""
    policy, output = core.policy, core.output
    return ContextTrace(
        context_id=core.context_id,
        record_hash=record.record_hash,
        content_hash=output.content_hash,
        name=core.context.name,
        version=core.context.version,
        definition=core.context.definition,
        created_at=core.created_at,
        environment=core.environment,
        versions=msgspec.structs.asdict(core.versions),
        model=policy.model,
        inputs=_all_shown(core.inputs),
        interaction_ref=_reference(core),
        content=_shown(output.content),
        summary=_summary(core),
        items=[_item_trace(item) for item in core.items],
        features=[_feature(read) for read in core.features],
        retrievers=[_retriever_trace(call, core) for call in core.retrievals],
        contexts=_nested(core),
        tokens=output.tokens,
        max_tokens=policy.max_tokens,
        overflow=output.overflow,
        separator=policy.separator,
        on_overflow=policy.on_overflow,
        backfill=policy.backfill,
        tokenizer=core.tokenizer.name,
        exact=core.tokenizer.exact,
        margin_percent=core.tokenizer.margin_percent,
        cost_nano_usd=output.cost_nano_usd,
        freshness_status=core.freshness.status,
        freshness_violations=_violations(core),
        freshness_sla_ms=core.freshness.sla_ms,
        freshness_strict=policy.freshness_strict,
        stalest_ms=core.freshness.stalest_ms,
        started_at=core.timing.started_at,
        assembly_ms=core.timing.assembly_us / 1000,
        signed_by=_signer(record),
        withheld=withheld(record),
        redacted=_redacted(record),
    )


def withheld(record: Record) -> list[str]:
    """The pointers of everything that the record only commits to."""
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    tree = msgspec.json.decode(record.core)
    return [pointer for pointer, _ in commitments(tree) if pointer not in disclosed]


def _redacted(record: Record) -> list[str]:
    return [note.pointer for note in record.redactions]


def _signer(record: Record) -> str | None:
    return None if record.signature is None else statement_of(record.signature).key_id


def _shown(value: Any) -> Any:
    return None if isinstance(value, Commitment) else value


def _all_shown(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _shown(value) for name, value in values.items()}


def _reference(core: Core) -> dict[str, Any] | None:
    return None if core.interaction_ref is None else _all_shown(core.interaction_ref)


def _lineage(core: Core) -> ContextLineage:
    output = core.output
    return ContextLineage(
        features=[_feature(read) for read in core.features],
        retrievers=[RetrieverLineage(**_retriever(call, core)) for call in core.retrievals],
        contexts=_nested(core),
        items=[ItemLineage(**_item(item)) for item in core.items],
        items_provided=len(core.items),
        items_included=output.items_kept + output.items_truncated,
        items_dropped=output.items_dropped,
        items_truncated=output.items_truncated,
        tokens=output.tokens,
        max_tokens=core.policy.max_tokens,
        cost_nano_usd=output.cost_nano_usd,
        stalest_ms=core.freshness.stalest_ms,
        assembly_ms=core.timing.assembly_us / 1000,
    )


def _feature(read: FeatureRead) -> FeatureLineage:
    return FeatureLineage(**_all_shown(msgspec.structs.asdict(read)))


def _retriever(call: Retrieval, core: Core) -> dict[str, Any]:
    return {
        "retriever": call.retriever,
        "arguments": _shown(call.arguments),
        "count": call.count,
        "latency_ms": call.latency_us / 1000,
        "cache_hit": call.cache_hit,
        "searched_at": call.searched_at,
        "age_ms": call.age_ms,
        "fresh": _was_fresh(call, core) if call.fresh is None else call.fresh,
        "failed": call.failed,
    }


def _was_fresh(call: Retrieval, core: Core) -> bool:
    """What an early record says of a search between the lines."""
    sla_ms = core.freshness.sla_ms
    return sla_ms is None or (call.age_ms <= sla_ms and not _rests_on_nothing(call, core))


def _rests_on_nothing(call: Retrieval, core: Core) -> bool:
    """Says whether some call of this retriever read something that has no age."""
    return any(
        found.kind == "retrieval" and found.name == call.retriever and found.reason != "stale"
        for found in core.freshness.violations
    )


def _retriever_trace(call: Retrieval, core: Core) -> RetrieverTrace:
    return RetrieverTrace(
        **_retriever(call, core),
        index=None if call.index is None else call.index.name,
        index_version=None if call.index is None else call.index.version,
        results=[
            ResultTrace(id=_shown(found.id), score=found.score, content=_shown(found.content))
            for found in call.results
        ],
    )


def _nested(core: Core) -> list[NestedLineage]:
    return [NestedLineage(**msgspec.structs.asdict(nested)) for nested in core.contexts]


def _violations(core: Core) -> list[FreshnessViolation]:
    return [_violation(violation) for violation in core.freshness.violations]


def _violation(violation: Violation) -> FreshnessViolation:
    return FreshnessViolation(**_all_shown(msgspec.structs.asdict(violation)))


def _item(item: Item) -> dict[str, Any]:
    return {name: _shown(getattr(item, name)) for name in ItemLineage.__struct_fields__}


def _item_trace(item: Item) -> ItemTrace:
    kept = None if item.decision == "dropped" else item.content
    return ItemTrace(
        **_item(item),
        content=_shown(item.content),
        emitted=_shown(item.emitted if item.decision == "truncated" else kept),
        truncate=item.truncate,
        source_kind=item.source.kind,
        source_ref=_shown(item.source.ref),
        why=_why(item),
    )


def _why(item: Item) -> str:
    more = f"max_tokens had to be {item.short_by} higher to keep it whole"
    match item.reason:
        case "required":
            return "kept, because it is required"
        case "fits":
            return f"kept, because its {item.tokens} tokens fit"
        case "shortened":
            return f"shortened from {item.tokens} to {item.emitted_tokens} tokens; {more}"
        case "outranked":
            return f"dropped, because one of higher priority did not fit either; {more}"
        case _:
            return f"dropped, because its {item.tokens} tokens did not fit; {more}"


def _summary(core: Core) -> str:
    """The whole verdict in a sentence."""
    output = core.output
    budget = "no budget" if core.policy.max_tokens is None else f"of {core.policy.max_tokens}"
    counts = f"{output.items_kept} kept, {output.items_truncated} shortened"
    return (
        f"{output.tokens} tokens ({budget}), {len(core.items)} items: {counts}, "
        f"{output.items_dropped} dropped; freshness {core.freshness.status}{_unfresh(core)}"
    )


def _unfresh(core: Core) -> str:
    """What was not as fresh as asked, counted by why."""
    counted: Counter[str] = Counter(violation.reason for violation in core.freshness.violations)
    told = [f"{counted[reason]} {said}" for reason, said in _UNFRESH.items() if counted[reason]]
    return f" ({', '.join(told)})" if told else ""
