"""Assembling a context: run its function, fit its items, judge its freshness, keep the proof."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from headwater.canonical import to_tagged
from headwater.clock import Clock
from headwater.contexts import Chunk, ContextDef, ContextItem, Overrides
from headwater.errors import (
    ContextFailedError,
    FreshnessSLAError,
    HeadwaterError,
    InvalidInputError,
    RecordingError,
)
from headwater.fit import Candidate, Choice, Fitted, fit
from headwater.fit import Policy as FitPolicy
from headwater.freshness import Verdict, age_ms, is_fresh, judge
from headwater.lineage import (
    Context,
    ContextLineage,
    FeatureLineage,
    FreshnessViolation,
    ItemLineage,
    NestedLineage,
    RetrieverLineage,
)
from headwater.logs import log
from headwater.offload import Offload
from headwater.ports import RecordLog, StoredRecord
from headwater.prices import cost_nano_usd
from headwater.record import core as crs
from headwater.record.ids import ContextIds
from headwater.record.parts import Record, encode_disclosures, encode_redactions
from headwater.record.sealing import seal
from headwater.record.signing import Keyring, parse_keyring, sign
from headwater.registry import Registry
from headwater.scope import Scope, current_scope
from headwater.serve import Reader, as_text
from headwater.settings import Settings
from headwater.tokens import Tokenizer, tokenizer_for
from headwater.workspace import noting

_MILLISECOND = timedelta(milliseconds=1)

Counted = Callable[[Context], None]
"""Told of every context that was assembled."""


class _Asked(NamedTuple):
    """One call of a context: what it is called with, and under which rules."""

    definition: ContextDef
    inputs: Mapping[str, Any]
    interaction_ref: Mapping[str, Any] | None
    policy: FitPolicy
    sla_ms: int | None


class _Made(NamedTuple):
    """What came of a call, before it is kept."""

    asked: _Asked
    scope: Scope
    items: Sequence[ContextItem]
    tokenizer: Tokenizer
    fitted: Fitted
    verdict: Verdict
    cost: int | None
    started_at: datetime
    assembly_us: int
    now: datetime


class Assembler:
    """Makes contexts, each with its record."""

    def __init__(
        self,
        registry: Registry,
        reader: Reader,
        records: RecordLog,
        offload: Offload,
        clock: Clock,
        settings: Settings,
        counted: Counted,
    ) -> None:
        self._registry = registry
        self._reader = reader
        self._records = records
        self._offload = offload
        self._clock = clock
        self._settings = settings
        self._counted = counted
        self._ids = ContextIds()
        self._keyring = _keyring(settings)

    async def run(
        self,
        definition: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context:
        """Assembles a context and keeps its record."""
        asked = _asked(definition, arguments, named, overrides)
        started_at, began = self._clock.now(), time.perf_counter()
        scope = Scope()
        with noting(scope):
            items = await self._items(asked)
        tokenizer = tokenizer_for(definition.model)
        fitted = fit([_candidate(item) for item in items], asked.policy, tokenizer)
        now = self._clock.now()
        verdict = judge(scope, asked.sla_ms, now)
        if verdict.violations and definition.freshness_strict:
            raise FreshnessSLAError(definition.name, verdict.violations)
        took = round((time.perf_counter() - began) * 1_000_000)
        prices = {model: int(rate) for model, rate in self._settings.prices.items()}
        cost = cost_nano_usd(definition.model, fitted.tokens, now, prices)
        made = _Made(asked, scope, items, tokenizer, fitted, verdict, cost, started_at, took, now)
        context = await self._keep(made)
        outer = current_scope()
        if outer is not None:
            outer.note_context(context)
        self._counted(context)
        return context

    async def _items(self, asked: _Asked) -> list[ContextItem]:
        """What the function gives, with its templates resolved."""
        definition = asked.definition
        call = definition.signature.bind(**_unpacked(definition.signature, asked.inputs))
        try:
            if definition.is_async:
                given = await definition.function(*call.args, **call.kwargs)
            else:
                given = await self._offload.call(
                    lambda: definition.function(*call.args, **call.kwargs)
                )
        except HeadwaterError:
            raise
        except Exception as error:
            raise ContextFailedError(definition.name, error) from error
        items = _listed(definition, given)
        return await asyncio.gather(*(self._resolved(item, asked) for item in items))

    async def _resolved(self, item: ContextItem, asked: _Asked) -> ContextItem:
        """The item as literal text; each reference is read for the entity it belongs to."""
        template = item.parsed
        if template is None or not template.references:
            text = item.content if template is None else template.render({})
            return msgspec.structs.replace(item, content=text)
        names = list(dict.fromkeys(template.references))
        entity = self._registry.one_entity(names)
        if entity.id_field not in asked.inputs:
            raise InvalidInputError(
                f"context {asked.definition.name!r}: the template {item.content!r} needs a "
                f"parameter {entity.id_field!r}, which says whose {', '.join(names)} it is"
            )
        (row,) = await self._reader.read(names, [asked.inputs[entity.id_field]])
        texts = {
            name: "" if value.value is None else as_text(value.value) for name, value in row.items()
        }
        return msgspec.structs.replace(item, content=template.render(texts))

    async def _keep(self, made: _Made) -> Context:
        """Seals and keeps the record; a log that fails does not fail the assembly."""
        context_id = self._ids.new(int(made.now.timestamp() * 1000))
        record = self._sealed(made, context_id)
        problem = ""
        try:
            await self._records.append(_stored(record, made, self._settings), self._keys(made))
        except HeadwaterError as error:
            problem = str(error)
            log.error("context not recorded", context_id=context_id, error=problem)
            if self._settings.record.required:
                raise RecordingError(context_id, problem) from error
        return _context(made, record, recorded=not problem)

    def _sealed(self, made: _Made, context_id: str) -> Record:
        record = seal(_core(made, context_id, self._settings.env))
        mode = self._settings.signature_mode
        if mode == "required" or (mode == "optional" and self._keyring.signer is not None):
            record = sign(record, self._keyring, made.now)
        return record

    def _keys(self, made: _Made) -> set[bytes]:
        """What the record can be found by: hashes, so that nothing is in clear."""
        keys = {
            find_key(self._settings, "feature", note.feature.name, note.entity_id)
            for note in made.scope.features
        }
        keys |= {
            find_key(self._settings, "feature", note.feature.name) for note in made.scope.features
        }
        return keys | {
            find_key(self._settings, "chunk", chunk.id)
            for note in made.scope.retrievals
            for chunk in note.chunks
            if chunk.id is not None
        }


def find_key(settings: Settings, *parts: str) -> bytes:
    """A keyed hash of what a record was made of."""
    key = settings.record.index_key or settings.signing_key or "headwater"
    return hmac.digest(key.encode(), "\0".join(parts).encode(), "sha256")[:16]


def _keyring(settings: Settings) -> Keyring:
    return parse_keyring("" if settings.signature_mode == "off" else settings.signing_key)


def _asked(
    definition: ContextDef,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    overrides: Overrides,
) -> _Asked:
    given = dict(named)
    reference = overrides.interaction_ref
    if "interaction_ref" in given and "interaction_ref" not in definition.signature.parameters:
        reference = given.pop("interaction_ref")
    try:
        bound = definition.signature.bind(*arguments, **given)
    except TypeError as error:
        raise InvalidInputError(f"context {definition.name!r}: {error}") from error
    bound.apply_defaults()
    inputs = dict(bound.arguments)
    # Refused before the function runs: what cannot be recorded cannot be proved.
    for name, value in inputs.items():
        to_tagged(value, f"/inputs/{name}")
    for name, value in (reference or {}).items():
        to_tagged(value, f"/interaction_ref/{name}")
    unset = msgspec.UNSET
    max_tokens = definition.max_tokens if overrides.max_tokens is unset else overrides.max_tokens
    sla = definition.freshness_sla if overrides.freshness_sla is unset else overrides.freshness_sla
    policy = FitPolicy(
        max_tokens if isinstance(max_tokens, int) else None,
        definition.separator,
        definition.on_overflow,
        definition.backfill,
    )
    sla_ms = sla // _MILLISECOND if isinstance(sla, timedelta) else None
    return _Asked(definition, inputs, reference, policy, sla_ms)


def _unpacked(signature: inspect.Signature, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in inputs.items()
        if signature.parameters[name].kind
        not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }


def _listed(definition: ContextDef, given: object) -> list[ContextItem]:
    items: list[ContextItem] = []
    for item in given if isinstance(given, list | tuple) else [given]:
        if isinstance(item, str):
            items.append(ContextItem(item, required=True))
        elif isinstance(item, ContextItem):
            items.append(item)
        else:
            raise InvalidInputError(
                f"context {definition.name!r} must return ContextItems or text, not "
                f"{type(item).__name__}"
            )
    return items


def _candidate(item: ContextItem) -> Candidate:
    return Candidate(item.content, item.priority, item.required, item.truncate)


def _core(made: _Made, context_id: str, environment: str) -> crs.Core:
    asked, fitted, definition = made.asked, made.fitted, made.asked.definition
    decisions = [choice.decision for choice in fitted.choices]
    return crs.Core(
        context_id=context_id,
        created_at=made.now,
        environment=environment,
        versions=crs.Versions(
            headwater=version("headwater"),
            python=platform.python_version(),
            tokenizer=version("splintr-rs"),
        ),
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
        tokenizer=crs.Tokenizer(
            name=made.tokenizer.name,
            exact=made.tokenizer.exact,
            margin_percent=made.tokenizer.margin_percent,
        ),
        items=tuple(map(_item, made.items, fitted.choices)),
        features=tuple(_feature(read) for read in _features(made)),
        retrievals=_retrievals(made),
        contexts=tuple(
            crs.NestedContext(
                context_id=nested.context_id, record_hash=nested.record_hash, name=nested.name
            )
            for nested in made.scope.contexts
        ),
        freshness=crs.Freshness(
            status=made.verdict.status,
            sla_ms=asked.sla_ms,
            stalest_ms=made.verdict.stalest_ms,
            violations=tuple(map(_violation, made.verdict.violations)),
        ),
        output=crs.Output(
            content=fitted.content,
            tokens=fitted.tokens,
            items_kept=decisions.count("kept"),
            items_dropped=decisions.count("dropped"),
            items_truncated=decisions.count("truncated"),
            cost_nano_usd=made.cost,
            overflow=fitted.overflow,
        ),
        timing=crs.Timing(started_at=made.started_at, assembly_us=made.assembly_us),
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
        return crs.ItemSource(kind="other", ref=source if isinstance(source, str) else repr(source))
    return crs.ItemSource(kind="literal" if item.parsed is None else "template")


def _features(made: _Made) -> list[FeatureLineage]:
    return [
        FeatureLineage(
            feature=note.feature.name,
            entity=note.feature.entity.name,
            entity_id=note.entity_id,
            value=note.value.value,
            as_of=note.value.as_of,
            written_at=note.value.written_at,
            age_ms=note.value.age_ms(made.now),
            source=note.value.source,
            fresh=is_fresh(note, made.asked.sla_ms, made.now),
        )
        for note in made.scope.features
    ]


def _feature(read: FeatureLineage) -> crs.FeatureRead:
    return crs.FeatureRead(**msgspec.structs.asdict(read))


def _retrievals(made: _Made) -> tuple[crs.Retrieval, ...]:
    return tuple(
        crs.Retrieval(
            retriever=note.retriever,
            arguments=dict(note.arguments),
            index=None,
            results=tuple(map(_result, note.chunks)),
            count=len(note.chunks),
            searched_at=note.searched_at,
            age_ms=age_ms(note, made.now),
            cache_hit=note.cache_hit,
            latency_us=note.latency_us,
        )
        for note in made.scope.retrievals
    )


def _result(chunk: Chunk) -> crs.Result:
    score = None if chunk.score is None else crs.decimal_text(chunk.score)
    return crs.Result(id=chunk.id, score=score, content=chunk.text)


def _violation(violation: FreshnessViolation) -> crs.Violation:
    return crs.Violation(**msgspec.structs.asdict(violation))


def _stored(record: Record, made: _Made, settings: Settings) -> StoredRecord:
    kept = record if settings.record.include_content else record.private()
    return StoredRecord(
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        name=made.asked.definition.name,
        created_at=made.now,
        freshness_status=made.verdict.status,
        core=record.core,
        disclosures=encode_disclosures(kept.disclosures),
        signature=None if record.signature is None else msgspec.json.encode(record.signature),
        redactions=encode_redactions(record.redactions),
    )


def _context(made: _Made, record: Record, *, recorded: bool) -> Context:
    fitted, scope, verdict = made.fitted, made.scope, made.verdict
    decisions = [choice.decision for choice in fitted.choices]
    lineage = ContextLineage(
        features=_features(made),
        retrievers=[
            RetrieverLineage(
                retriever=note.retriever,
                arguments=note.arguments,
                count=len(note.chunks),
                latency_ms=note.latency_us / 1000,
                cache_hit=note.cache_hit,
                searched_at=note.searched_at,
                age_ms=age_ms(note, made.now),
                fresh=made.asked.sla_ms is None or age_ms(note, made.now) <= made.asked.sla_ms,
            )
            for note in scope.retrievals
        ],
        contexts=[
            NestedLineage(
                context_id=nested.context_id,
                record_hash=nested.record_hash,
                name=nested.name,
                freshness_status=nested.freshness_status,
            )
            for nested in scope.contexts
        ],
        items=list(map(_item_lineage, made.items, fitted.choices)),
        items_provided=len(decisions),
        items_included=len(decisions) - decisions.count("dropped"),
        items_dropped=decisions.count("dropped"),
        items_truncated=decisions.count("truncated"),
        tokens=fitted.tokens,
        max_tokens=made.asked.policy.max_tokens,
        cost_nano_usd=made.cost,
        stalest_ms=verdict.stalest_ms,
        assembly_ms=made.assembly_us / 1000,
    )
    return Context(
        content=fitted.content,
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        name=made.asked.definition.name,
        tokens=fitted.tokens,
        cost_nano_usd=made.cost,
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
