"""An assembled context as its record tells it, and as the one who asked for it sees it. Pure."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from headwater.contexts.budget import BudgetPolicy, Choice, Fitted
from headwater.contexts.freshness import Verdict, age_ms, feature_reason, reason
from headwater.contexts.tokens import Tokenizer
from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.declarations import Chunk, ContextDef, ContextItem
from headwater.errors import RecordValueError
from headwater.features.read_tracking import ReadTracker, TrackedRetrieval
from headwater.records import core as crs
from headwater.records.lineage import (
    Context,
    ContextLineage,
    FeatureLineage,
    ItemLineage,
    NestedLineage,
    RetrieverLineage,
)
from headwater.records.record import Record

_RECORDED = (datetime, date, timedelta, Decimal, UUID, bytes)


class Asked(NamedTuple):
    """One call of a context: what it is called with, and under which rules."""

    definition: ContextDef
    inputs: Mapping[str, Any]
    interaction_ref: Mapping[str, Any] | None
    policy: BudgetPolicy
    sla_ms: int | None


class Made(NamedTuple):
    """What came of a call, before it is kept."""

    asked: Asked
    scope: ReadTracker
    items: Sequence[ContextItem]
    tokenizer: Tokenizer
    fitted: Fitted
    verdict: Verdict
    cost_nano_usd: int | None
    started_at: datetime
    assembly_us: int
    now: datetime


def lineage_of(made: Made) -> ContextLineage:
    """Everything that went into a context, and what it took."""
    decisions = [choice.decision for choice in made.fitted.choices]
    return ContextLineage(
        features=list(_features(made)),
        retrievers=list(_retrievers(made)),
        contexts=[
            NestedLineage(
                context_id=context.context_id,
                record_hash=context.record_hash,
                name=context.name,
                freshness_status=context.freshness_status,
            )
            for context, *_ in made.scope.contexts
        ],
        items=list(map(_item_lineage, made.items, made.fitted.choices)),
        items_provided=len(decisions),
        items_included=len(decisions) - decisions.count("dropped"),
        items_dropped=decisions.count("dropped"),
        items_truncated=decisions.count("truncated"),
        tokens=made.fitted.tokens,
        max_tokens=made.asked.policy.max_tokens,
        cost_nano_usd=made.cost_nano_usd,
        stalest_ms=made.verdict.stalest_ms,
        assembly_ms=made.assembly_us / 1000,
    )


def _features(made: Made) -> Iterator[FeatureLineage]:
    sla_ms, now = made.asked.sla_ms, made.now
    for note in made.scope.features:
        yield FeatureLineage(
            feature=note.feature.name,
            entity=note.feature.entity.name,
            entity_id=note.entity_id,
            value=note.value.value,
            as_of=note.value.as_of,
            written_at=note.value.written_at,
            age_ms=age_ms(note.value.as_of, now),
            source=note.value.source,
            fresh=feature_reason(note, sla_ms, now) is None,
        )


def _retrievers(made: Made) -> Iterator[RetrieverLineage]:
    sla_ms, now = made.asked.sla_ms, made.now
    for note in made.scope.retrievals:
        yield RetrieverLineage(
            retriever=note.retriever,
            arguments=note.arguments,
            count=len(note.chunks),
            latency_ms=note.latency_us / 1000,
            cache_hit=note.cache_hit,
            searched_at=note.searched_at,
            age_ms=_age(note, now),
            fresh=reason(note.oldest, sla_ms, now) is None,
            failed=note.failed,
        )


def _age(note: TrackedRetrieval, now: datetime) -> int:
    return age_ms(note.oldest or note.searched_at, now) or 0


def _item_lineage(item: ContextItem, choice: Choice) -> ItemLineage:
    return ItemLineage(
        decision=choice.decision,
        reason=choice.reason,
        priority=item.priority,
        required=item.required,
        section=item.section,
        tokens=choice.tokens,
        emitted_tokens=choice.emitted_tokens,
        short_by=choice.short_by,
    )


def core_of(made: Made, lineage: ContextLineage, context_id: str, environment: str) -> crs.Core:
    """What the context's record says."""
    asked, fitted, definition = made.asked, made.fitted, made.asked.definition
    return crs.Core(
        context_id=context_id,
        created_at=made.now,
        environment=environment,
        versions=_versions(),
        context=crs.Definition(
            name=definition.name, version=definition.version, definition=definition.definition
        ),
        inputs=dict(asked.inputs),
        interaction_ref=None if asked.interaction_ref is None else dict(asked.interaction_ref),
        policy=crs.Policy(
            max_tokens=asked.policy.max_tokens,
            separator=asked.policy.separator,
            on_overflow=asked.policy.on_overflow,
            backfill=asked.policy.backfill,
            model=definition.model,
            freshness_sla_ms=asked.sla_ms,
            freshness_strict=definition.freshness_strict,
        ),
        tokenizer=crs.TokenizerInfo(
            name=made.tokenizer.name,
            exact=made.tokenizer.exact,
            margin_percent=made.tokenizer.margin_percent,
        ),
        items=tuple(map(_item, made.items, fitted.choices)),
        features=tuple(map(_feature, lineage.features)),
        retrievals=tuple(map(_retrieval, made.scope.retrievals, lineage.retrievers)),
        contexts=tuple(
            crs.NestedContext(**msgspec.structs.asdict(nested)) for nested in lineage.contexts
        ),
        freshness=crs.Freshness(
            status=made.verdict.status,
            sla_ms=asked.sla_ms,
            stalest_ms=made.verdict.stalest_ms,
            violations=tuple(
                crs.Violation(**msgspec.structs.asdict(violation))
                for violation in made.verdict.violations
            ),
        ),
        output=crs.Output(
            content=fitted.content,
            tokens=fitted.tokens,
            items_kept=lineage.items_included - lineage.items_truncated,
            items_dropped=lineage.items_dropped,
            items_truncated=lineage.items_truncated,
            cost_nano_usd=made.cost_nano_usd,
            overflow=fitted.overflow,
        ),
        timing=crs.Timing(started_at=made.started_at, assembly_us=made.assembly_us),
    )


@cache
def _versions() -> crs.Versions:
    return crs.Versions(
        headwater=version("headwater"),
        python=platform.python_version(),
        tokenizer=version("splintr-rs"),
    )


def _item(item: ContextItem, choice: Choice) -> crs.Item:
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
    )


def _source(item: ContextItem) -> crs.ItemSource:
    source = item.source
    if isinstance(source, Chunk):
        return crs.ItemSource(kind="retrieval", ref=source.id)
    if isinstance(source, Context):
        return crs.ItemSource(kind="context", ref=source.context_id)
    if source is not None:
        return crs.ItemSource(kind="other", ref=source)
    return crs.ItemSource(kind="literal" if item.parsed is None else "template")


def _feature(read: FeatureLineage) -> crs.FeatureRead:
    fields = msgspec.structs.asdict(read)
    return crs.FeatureRead(**fields | {"value": _recorded(read.value)})


def _recorded(value: Any) -> Any:
    """A feature's value as a record gives it back: exactly, or as JSON tells it.

    A feature may be of any type that JSON can tell; a record knows fewer, and those exactly.
    """
    told = msgspec.to_builtins(value, builtin_types=_RECORDED)
    return told if told == value or not _comes_back(value) else value


def _comes_back(value: Any) -> bool:
    try:
        back: bool = from_tagged(to_tagged(value)) == value
    except RecordValueError:
        return False
    return back


def _retrieval(note: TrackedRetrieval, call: RetrieverLineage) -> crs.Retrieval:
    return crs.Retrieval(
        retriever=note.retriever,
        arguments=dict(note.arguments),
        index=None,
        results=tuple(map(_result, note.chunks)),
        count=len(note.chunks),
        searched_at=note.searched_at,
        age_ms=call.age_ms,
        cache_hit=note.cache_hit,
        latency_us=note.latency_us,
        fresh=call.fresh,
        failed=call.failed,
    )


def _result(chunk: Chunk) -> crs.Result:
    score = None if chunk.score is None else crs.decimal_text(chunk.score)
    return crs.Result(id=chunk.id, score=score, content=chunk.text)


def context_of(made: Made, lineage: ContextLineage, record: Record, *, recorded: bool) -> Context:
    """The context as the one who asked for it sees it."""
    fitted, verdict = made.fitted, made.verdict
    return Context(
        content=fitted.content,
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        name=made.asked.definition.name,
        created_at=made.now,
        tokens=fitted.tokens,
        cost_nano_usd=made.cost_nano_usd,
        freshness_status=verdict.status,
        freshness_violations=verdict.violations,
        freshness_sla_ms=made.asked.sla_ms,
        interaction_ref=made.asked.interaction_ref,
        lineage=lineage,
        meta={
            "recorded": recorded,
            "overflow": fitted.overflow,
            "exact": made.tokenizer.exact,
            "freshness_violations": verdict.violations,
            "freshness_sla_ms": made.asked.sla_ms,
        },
    )
