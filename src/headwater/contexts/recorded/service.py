"""The operations on recorded contexts, as the store offers them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from headwater.contexts.assembler import Assembler
from headwater.contexts.budget import added_tokens
from headwater.contexts.recorded.causes import causes_of
from headwater.contexts.recorded.external import ExternalContext, definition_of
from headwater.contexts.recorded.histogram import Histograms
from headwater.contexts.recorded.rerun import Replayer, check_mode
from headwater.contexts.recorded.search import ContextQuery, ContextSearch
from headwater.contexts.recorded.verification import decode_record, load_record, verify_stored
from headwater.contexts.recorded.visibility import Visibility
from headwater.core.tokens import tokenizer_for
from headwater.errors import InvalidInputError
from headwater.features.call_scope import current_replay
from headwater.features.caller_limits import limited_caller
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.model.contexts import (
    ContextCauses,
    ContextDiff,
    Mode,
    Overrides,
    Replay,
    VerificationReport,
)
from headwater.model.lineage import Context, ContextTrace, PastContext
from headwater.records import projection
from headwater.records.core import Commitment, Core, Item
from headwater.records.diff import diff
from headwater.records.ids import named
from headwater.records.projection import CountedTokens
from headwater.records.record import (
    Record,
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
        self._replayer = Replayer(services, reader)
        search = ContextSearch(
            *(self._records, services.backends.catalog, self._settings),
            Visibility(self._records, services.registry),
        )
        self._stored, self.contexts, self.find = search.stored, search.contexts, search.find
        self.beginning, self.check_index_key = search.beginning, search.check_index_key
        self.histogram, self.query = Histograms(self._records, search).histogram, ContextQuery

    async def record(self, external: ExternalContext) -> Context:
        """Record a text that another program assembled."""
        reference = external.interaction_ref
        overrides = Overrides(interaction_ref=msgspec.UNSET if reference is None else reference)
        run = current_replay() or self._assembler.run
        return await run(definition_of(external), (), external.inputs, overrides)

    async def context(self, ref: str) -> PastContext:
        """Return a recorded context with its lineage."""
        return projection.past_context(*await self._opened(ref))

    async def explain(self, ref: str) -> ContextTrace:
        """Return the explanation of a context."""
        record, core = await self._opened(ref)
        features = self._registry.features.items()
        templates = {
            name: feature.template for name, feature in features if feature.template is not None
        }
        return await asyncio.to_thread(explained, record, core, templates)

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
        return verify_stored(stored, self._settings, expect=expected, signed=signed)

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
            if await self._records.redact(
                stored.context_id,
                expected=stored.redactions,
                disclosures=encode_disclosures(redacted.disclosures),
                redactions=encode_redactions(redacted.redactions),
            ):
                return redacted

    async def copies(self, ref: str, pointers: Sequence[str]) -> dict[str, list[str]]:
        """Return where else values occur: pointers by context, this one and those inside it."""
        record = decode_record(await self._stored(ref))
        places_of = {record.context_id: await asyncio.to_thread(also_disclosed, record, *pointers)}
        for inner in await self._inner(record):
            places_of[inner.context_id] = await asyncio.to_thread(
                copies_in, inner, record, pointers
            )
        return {context_id: places for context_id, places in places_of.items() if places}

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
        """Replay a context."""
        limited = limited_caller()
        if limited is not None and mode not in ("show", "reassemble"):
            raise limited.refuse(f"a replay with the mode {mode!r}")
        check_mode(mode)
        _, core = await self._opened(ref)
        return await self._replayer.replay(core, mode)


def explained(record: Record, core: Core, templates: Templates) -> ContextTrace:
    """Return the explanation of a record; it blocks, because it counts the tokens of all texts."""
    counted = CountedTokens(_widths(core), _short_by(core))
    return projection.explain(record, core, templates, counted)


def _widths(core: Core) -> Sequence[int | None]:
    """Return the tokens that each item adds to the text; None where they cannot be counted."""
    added = _added(core, [_emitted(item) for item in core.items])
    if added is None or sum(added) != core.output.tokens:
        return [None] * len(core.items)
    decided = zip(core.items, added, strict=True)
    return [None if item.decision == "dropped" else tokens for item, tokens in decided]


def _emitted(item: Item) -> str | Commitment | None:
    if item.decision == "dropped":
        return ""
    return item.emitted if item.decision == "truncated" else item.content


def _added(core: Core, texts: Sequence[str | Commitment | None]) -> list[int] | None:
    """Return the tokens that each text adds; None if one is withheld or the tokenizer changed."""
    disclosed = [text for text in texts if isinstance(text, str)]
    tokenizer, recorded = tokenizer_for(core.policy.model), core.tokenizer
    if len(disclosed) < len(texts) or tokenizer.name != recorded.name:
        return None
    return added_tokens(disclosed, core.policy.separator, tokenizer)


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
    needed = -(-tokens * (100 + core.tokenizer.margin_percent) // 100)
    return max(0, needed - budget, *short)
