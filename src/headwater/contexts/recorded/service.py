"""The operations on recorded contexts, as the store offers them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.contexts.assembler import Assembler
from headwater.contexts.budget import added_to_messages, added_tokens, request_tokens
from headwater.contexts.recorded.exchange import OutcomeExchange
from headwater.contexts.recorded.external import ExternalContext, definition_of
from headwater.contexts.recorded.histogram import Histograms
from headwater.contexts.recorded.outcomes import Outcomes
from headwater.contexts.recorded.replay import Replayer, check_mode, first_needed
from headwater.contexts.recorded.search import ContextQuery, ContextSearch, Visibility
from headwater.contexts.recorded.verification import (
    decode_outcome,
    decode_record,
    load_record,
    verify_stored,
)
from headwater.contexts.requests import recorded_candidates, recorded_envelope, tokenizer_of
from headwater.core.clock import MICROSECOND, from_micros
from headwater.core.encodings import is_known
from headwater.declarations.meanings import meanings_during, named_at
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.features.call_scope import check_allowed_in_handler, current_replay
from headwater.features.caller_limits import limited_caller, requesting_caller
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.history.backfill.steps import KEPT_FRESH
from headwater.history.one_value import CausedRow, events_behind
from headwater.model.admin import OUTCOMES
from headwater.model.catalog import CatalogEntry, CatalogState
from headwater.model.contexts import (
    ContextCauses,
    ContextDiff,
    Mode,
    Overrides,
    Replay,
    ValueCause,
    VerificationReport,
)
from headwater.model.lineage import Context, ContextTrace, PastContext
from headwater.model.values import UNDATED
from headwater.ports import HistoryRow, OfflineStore
from headwater.records import projection
from headwater.records.core import Commitment, Core, FeatureInput, disclosed
from headwater.records.diff import diff
from headwater.records.ids import named
from headwater.records.outcomes import OutcomeRecord
from headwater.records.projection import CountedTokens
from headwater.records.record import (
    Record,
    Sealed,
    encode_disclosures,
    encode_redactions,
    inner_contexts,
)
from headwater.records.redaction import also_disclosed, copies_in, redact
from headwater.records.spans import Templates
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS
from headwater.retrieval.retrievers import CACHED_SEARCHES


class RecordedContexts:
    """The recorded contexts of a store.

    Every method takes a reference: a context id, the beginning of an id, or a record hash.
    """

    def __init__(self, services: Services, reader: Reader, assembler: Assembler) -> None:
        self._records = services.backends.records
        self._offline = services.backends.offline
        self._catalog = services.catalog
        self._cache = services.backends.cache
        self._registry = services.registry
        self._settings = services.settings
        self._clock = services.clock
        self._assembler = assembler
        self._replayer = Replayer(services, reader, assembler.counters)
        search = ContextSearch(
            *(self._records, services.backends.catalog, self._settings),
            Visibility(self._records, services),
        )
        self._stored, self.contexts, self.find = search.stored, search.contexts, search.find
        self.stored, self.examined = search.stored, search.examined
        self.outcomes = Outcomes(services, assembler.recorder, self._stored, assembler.counters)
        self.exchange = OutcomeExchange(self.outcomes)
        self.beginning, self.check_index_key = search.beginning, search.check_index_key
        self.histogram, self.query = Histograms(self._records, search).histogram, ContextQuery

    async def record(
        self,
        name: str,
        content: str,
        inputs: Mapping[str, Any],
        model: str | None,
        version: str | None,
        reference: Mapping[str, Any] | None,
    ) -> Context:
        """Record a text that another program assembled."""
        check_allowed_in_handler("record_external")
        external = ExternalContext(name, content, inputs, model, version, reference)
        overrides = Overrides(interaction_ref=msgspec.UNSET if reference is None else reference)
        run = current_replay() or self._assembler.run
        return await run(definition_of(external), (), external.inputs, overrides)

    async def context(self, ref: str) -> PastContext:
        """Return a recorded context with its lineage."""
        stored = await self._stored(ref)
        context = projection.past_context(*load_record(stored))
        return replace(context, outcomes=await self.outcomes.of_record(stored))

    async def explain(self, ref: str) -> ContextTrace:
        """Return the explanation of a context."""
        stored = await self._stored(ref)
        record, core = load_record(stored)
        features = self._registry.features.items()
        templates = {
            name: feature.template for name, feature in features if feature.template is not None
        }
        trace = await asyncio.to_thread(explained, record, core, templates)
        return replace(trace, outcomes=await self.outcomes.of_record(stored))

    async def causes(self, ref: str) -> ContextCauses:
        """Return the events behind the values that a context read."""
        _, core = await self._opened(ref)
        catalog = await self._catalog.follow()
        return await causes_of(core, self._registry, catalog, self._offline)

    async def record_of(self, ref: str) -> Record:
        """Return the record of a context."""
        return decode_record(await self._stored(ref))

    async def _opened(self, ref: str) -> tuple[Record, Core]:
        """Return a record and its opened core."""
        return load_record(await self._stored(ref))

    async def verify(
        self, ref: str, expect: str | None, *, signed: bool | None
    ) -> VerificationReport:
        """Verify a record as it is stored in the log."""
        expected = named(ref) if expect is None else expect
        stored = await self._stored(ref)
        outcomes = await self.outcomes.all_of([stored.context_id])
        return verify_stored(stored, self._settings, outcomes, expect=expected, signed=signed)

    async def redact(
        self, ref: str, pointers: Sequence[str], reason: str, by: str | None, *, everywhere: bool
    ) -> Record:
        """Erase values of a record, all or none; concurrent redactions all succeed."""
        if not pointers:
            raise InvalidInputError("say which value to redact, such as '/inputs/question'")
        # A search may have returned the value, and would return it again from the cache. A text
        # can be guessed from its embedding.
        await self._cache.drop(CACHED_SEARCHES, CACHED_EMBEDDINGS)
        return await self.redact_values(ref, pointers, reason, by, everywhere=everywhere)

    async def redact_values(
        self, ref: str, pointers: Sequence[str], reason: str, by: str | None, *, everywhere: bool
    ) -> Record:
        """Do the same, and leave the caches to the caller."""
        while True:
            stored = await self._stored(ref)
            record, now = decode_record(stored), self._clock.now()
            others = (
                await asyncio.to_thread(also_disclosed, record, *pointers) if everywhere else ()
            )
            redacted = redact(record, *pointers, *others, at=now, reason=reason, by=by)
            if everywhere:
                # First the outcomes: if that fails, the record still has the value to search for.
                await self.outcomes.redact_copies(record, pointers, reason, by)
            if await self._records.redact(
                stored.context_id,
                expected=stored.redactions,
                disclosures=encode_disclosures(redacted.disclosures),
                redactions=encode_redactions(redacted.redactions),
            ):
                return redacted

    async def copies(self, ref: str, pointers: Sequence[str]) -> dict[str, list[str]]:
        """Return where else values occur: pointers by context, this one and those inside it.

        An outcome of it is named ``outcomes/ID``, one of an inner one ``CONTEXT/outcomes/ID``.
        """
        record = decode_record(await self._stored(ref))
        places_of = {record.context_id: await asyncio.to_thread(also_disclosed, record, *pointers)}
        others: dict[str, Sealed] = {inner.context_id: inner for inner in await self._inner(record)}
        for stored in await self.outcomes.all_of([record.context_id, *others]):
            of = "" if stored.context_id == record.context_id else f"{stored.context_id}/"
            others[f"{of}{OUTCOMES}{stored.outcome_id}"] = decode_outcome(stored)
        for name, other in others.items():
            places_of[name] = await asyncio.to_thread(copies_in, other, record, pointers)
        return {name: places for name, places in places_of.items() if places}

    async def sealed_outcomes(self, ref: str) -> list[OutcomeRecord]:
        """Return the outcomes of a context as they were sealed."""
        stored = await self._stored(ref)
        return [decode_outcome(each) for each in await self.outcomes.all_of([stored.context_id])]

    async def inner(self, ref: str) -> list[Record]:
        """Return the stored records of all contexts inside this one, at any depth."""
        return await self._inner(decode_record(await self._stored(ref)))

    async def _inner(self, record: Record) -> list[Record]:
        records: dict[str, Record] = {}
        waiting = [*inner_contexts(record)]
        while waiting:
            context_id = waiting.pop(0).context_id
            stored = None if context_id in records else await self._records.get(context_id)
            if stored is not None:
                records[context_id] = decode_record(stored)
                waiting += inner_contexts(records[context_id])
        return list(records.values())

    async def diff(self, before: str, after: str) -> ContextDiff:
        """Compare two contexts."""
        (_, one), (_, two) = await self._opened(before), await self._opened(after)
        return diff(one, two)

    async def replay(self, ref: str, mode: Mode) -> Replay:
        """Replay a context; to run its function takes the scope of its assembly."""
        check_mode(mode)
        caller, limited = requesting_caller(), limited_caller()
        if caller is not None and mode not in ("show", "reassemble"):
            caller.check("assemble")
            if limited is not None:
                raise limited.refuse(f"a replay with the mode {mode!r}")
        _, core = await self._opened(ref)
        return await self._replayer.replay(core, mode)


def explained(record: Record, core: Core, templates: Templates) -> ContextTrace:
    """Return the explanation of a record; it blocks, because it counts the tokens of all texts."""
    counted = CountedTokens(_widths(core), _short_by(core))
    return projection.explain(record, core, templates, counted)


def _widths(core: Core) -> Sequence[int | None]:
    """Return the tokens that each item adds to the text; None where they cannot be counted."""
    emitted = [
        item.emitted if item.decision == "truncated" else item.content for item in core.items
    ]
    kept = zip(core.items, emitted, strict=True)
    added = _added(core, ["" if item.decision == "dropped" else text for item, text in kept])
    is_text = core.tokenizer.counter is msgspec.UNSET
    if added is None or (is_text and sum(added) != core.output.tokens):
        return [None] * len(core.items)
    decided = zip(core.items, added, strict=True)
    return [None if item.decision == "dropped" else tokens for item, tokens in decided]


def _added(core: Core, texts: Sequence[str | Commitment | None]) -> list[int] | None:
    """Return the tokens that each text adds; None if one is withheld or the tokenizer changed."""
    disclosed = [text for text in texts if isinstance(text, str)]
    tokenizer, recorded = tokenizer_of(core), core.tokenizer
    if len(disclosed) < len(texts) or not is_known(recorded.name):
        return None
    if recorded.counter is msgspec.UNSET:
        return added_tokens(disclosed, core.policy.separator, tokenizer)
    candidates, layout = recorded_candidates(core, disclosed), projection.recorded_layout(core)
    return added_to_messages(candidates, layout, core.policy.separator, tokenizer)


def _short_by(core: Core) -> int | None:
    """Return the number of tokens by which the budget was too small to keep all items whole."""
    budget, tokens = core.policy.max_tokens, core.output.tokens
    if budget is None:
        return 0
    short = [item.short_by for item in core.items if item.short_by]
    if len(short) > 1 and core.policy.backfill:
        # Each number assumes the same other items, so all together need more than the largest.
        added = _added(core, [item.content for item in core.items])
        if added is None:
            return None
        tokens = sum(added)
        if (envelope := recorded_envelope(core)) is not None:
            candidates, separator = recorded_candidates(core), core.policy.separator
            tokens = request_tokens(candidates, separator, tokenizer_of(core), envelope)
    needed = -(-tokens * (100 + core.tokenizer.margin_percent) // 100)
    return max(0, needed - budget, *short)


MOST_VALUES = 100
"""Values of one context whose causes are looked up: each is a read of history."""

_SAME_MOMENT = 100
"""Rows of one value and one moment that are compared with the recorded one."""


class _StoredValue(NamedTuple):
    """A stored value by the columns of history; one of the series has it.

    Of a window, it is the last contribution that had been folded, ``since`` when one counted.
    """

    series: tuple[str, ...]
    entity_id: str
    as_of: datetime
    written_at: datetime
    since: datetime | None = None


class _Place(NamedTuple):
    """The place of a value in a core."""

    read: int
    input: int | None


async def causes_of(
    core: Core, registry: Registry, catalog: CatalogState, offline: OfflineStore
) -> ContextCauses:
    """Return the causes of all values that a context read, from history and the event log.

    They are not part of the record: history may have been pruned, or written again by a backfill.
    """
    places: dict[_StoredValue | None, list[_Place]] = {}
    for place, value in _values(core):
        if value.written_at is not None:
            as_of = value.as_of or from_micros(UNDATED)
            stored = _stored(core, value, as_of, value.written_at, registry, catalog)
            places.setdefault(stored, []).append(place)
    sought = [stored for stored in places if stored is not None][:MOST_VALUES]
    rows = await asyncio.gather(*(_row(offline, stored) for stored in sought))
    row_of = {stored: row for stored, row in zip(sought, rows, strict=True) if row is not None}
    types = {trigger for feature in registry.features.values() for trigger in feature.triggers}
    caused = [CausedRow(stored.entity_id, row) for stored, row in row_of.items()]
    events = await events_behind(offline, caused, types)
    causes = [
        ValueCause(read=at.read, input=at.input, cause=row.cause, event=event)
        for (stored, row), event in zip(row_of.items(), events, strict=True)
        for at in places[stored]
    ]
    return ContextCauses(
        context_id=core.context_id, causes=causes, is_complete=len(row_of) == len(places)
    )


def _values(core: Core) -> Iterator[tuple[_Place, FeatureInput]]:
    for at, read in enumerate(core.features):
        yield _Place(at, None), read
        for number, inner in enumerate(read.inputs):
            yield _Place(at, number), inner


def _stored(
    core: Core,
    value: FeatureInput,
    as_of: datetime,
    written_at: datetime,
    registry: Registry,
    catalog: CatalogState,
) -> _StoredValue | None:
    """Return where history has a stored value; None if that is withheld or unknown."""
    window = None if value.window is msgspec.UNSET else value.window
    name = value.feature if window is None else window.family
    began, ended = core.timing.started_at, core.created_at
    entity_id, owner = disclosed(value.entity_id), named_at(catalog, name, began)
    series: list[str | None] = []
    if isinstance(owner, CatalogEntry):
        # A process may have served the version before for a moment longer.
        during = meanings_during(owner.meanings, began - KEPT_FRESH, ended)
        series = [meaning.series for meaning in during]
    elif owner is None and name in registry.features:
        series = [registry.features[name].series]
    stored_series = tuple(dict.fromkeys(stored for stored in series if stored is not None))
    return (
        _StoredValue(stored_series, entity_id, as_of, written_at, first_needed(value))
        if stored_series and entity_id is not None
        else None
    )


async def _row(offline: OfflineStore, stored: _StoredValue) -> HistoryRow | None:
    start, end = stored.since or stored.as_of, stored.as_of + MICROSECOND
    for series in reversed(stored.series):
        (rows,) = await offline.rows(
            series, [stored.entity_id], start=start, end=end, limit=_SAME_MOMENT
        )
        for row in rows:
            if row.written_at == stored.written_at:
                return row
    return None
