"""Outcomes of recorded contexts: add, read and redact them."""

from __future__ import annotations

import asyncio
import re
import reprlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack

import msgspec

from headwater.backends.observed import count_outcome
from headwater.contexts.counters import ModelCounters
from headwater.contexts.recorded.verification import decode_outcome, view_outcome
from headwater.contexts.recorder import Recorder
from headwater.core.models import plain_name
from headwater.core.prices import BilledTokens, load_prices, usage_cost_nano_usd
from headwater.errors import (
    ImmutableRecordError,
    InvalidInputError,
    UnknownContextError,
    UnknownOutcomeError,
)
from headwater.features.call_scope import check_allowed_in_handler
from headwater.features.services import Services
from headwater.model.callers import caller_name
from headwater.model.new_outcomes import NewOutcome, facts_of
from headwater.model.outcomes import Outcome, OutcomeFacts, Response, Score
from headwater.ports import NO_DISCLOSURES, StoredOutcome, StoredRecord
from headwater.records.ids import new_context_id, spelled
from headwater.records.outcomes import (
    OutcomeCore,
    OutcomeRecord,
    check_facts,
    outcome_core,
    outcome_view,
    seal_outcome,
)
from headwater.records.record import Record, core_fields, encode_disclosures, encode_redactions
from headwater.records.redaction import copies_in, redact
from headwater.settings.kinds import usage_rates_of

_DATED = re.compile(r"[-@:](v?\d+|latest|preview)([-.:]v?\d+)*")
"""What providers put behind the name of a model: a date, a revision."""

MOST_OUTCOMES = 1_000
"""Outcomes of one context that are read at once."""
_AHEAD = timedelta(minutes=5)
"""How far the clock of a caller may be ahead."""
LABEL, _SOURCE = "label", "source"
_LOCAL_GRADES = ("exact", "estimate")
_NO_SCORE, _NO_RESPONSE = Score(name=""), Response()
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Outcomes:
    """The outcomes of the recorded contexts of a store.

    ``stored`` returns the record of a reference if the caller may read it.
    """

    def __init__(
        self,
        services: Services,
        recorder: Recorder,
        stored: Callable[[str], Awaitable[StoredRecord]],
        counters: ModelCounters,
    ) -> None:
        self._records = services.backends.records
        self._append = services.interceptors.call(
            "records.append_outcome", self._records.append_outcome
        )
        self._settings = services.settings
        self._clock = services.clock
        self._recorder = recorder
        self._registry = services.registry
        self._rates = usage_rates_of(services.settings.prices)
        self._has_prices = False
        self._stored = stored
        self._counters = counters

    async def add(self, ref: str, **given: Unpack[NewOutcome]) -> Outcome:
        """Seal and store an outcome of a context; one that is stored already is returned."""
        check_allowed_in_handler("add_outcome")
        facts, now = facts_of(given), self._clock.now()
        check_facts(facts)
        at, outcome_id = _checked(given.get("at"), now), given.get("outcome_id")
        if facts.actor is None:
            facts = msgspec.structs.replace(facts, actor=caller_name())
        context = await self._stored(ref)
        earlier = None if outcome_id is None else await self._records.outcome(spelled(outcome_id))
        if earlier is None:
            is_sent = given.get("as_sent") is not False
            grade = _grade(context, facts) if is_sent else None
            core = outcome_core(
                facts,
                outcome_id=_new_id(outcome_id),
                context_id=context.context_id,
                record_hash=context.record_hash,
                at=at,
                predicted=None if grade is None else context.tokens,
                cost_nano_usd=await self._cost(context, facts.response, at),
            )
            sealed = self._recorder.signed(seal_outcome(core), now)
            row = await self._row(sealed, core, facts, grade)
            try:
                earlier = await self._append(row)
            except ImmutableRecordError:  # the same request, sent twice at the same time
                earlier = await self._records.outcome(row.outcome_id)
            else:
                if earlier.outcome_hash == row.outcome_hash:
                    self._count(context, row)
                    if row.predicted is not None and context.model is not None:
                        self._counters.refresh_later(context.model)
                if earlier is row and self._settings.record.include_content:
                    return outcome_view(sealed, core)
        if earlier is None or earlier.context_id != context.context_id:
            # What another context has is not for callers of this one.
            raise InvalidInputError(
                "another context has an outcome with this id; each outcome belongs to one context"
            )
        return view_outcome(earlier)

    async def _cost(
        self, context: StoredRecord, response: Response | None, at: datetime
    ) -> int | None:
        """Return the price of an answer, or None if the price or the usage is unknown."""
        usage = None if response is None else response.usage
        if response is None or usage is None or usage.input is None:
            return None
        model = response.model or response.model_asked or context.model
        if model is not None and not self._has_prices:
            await asyncio.to_thread(load_prices, model)
            self._has_prices = True
        counts = (usage.input, usage.output, usage.cache_read, usage.cache_write)
        billed = BilledTokens(*(count or 0 for count in counts))
        return usage_cost_nano_usd(model, billed, at, self._rates)

    async def _row(
        self, sealed: OutcomeRecord, core: OutcomeCore, facts: OutcomeFacts, grade: str | None
    ) -> StoredOutcome:
        """Return an outcome as it is stored: with the columns that it is found by."""
        index = await self._recorder.index()
        kept = sealed if self._settings.record.include_content else sealed.private()
        score, response = facts.score or _NO_SCORE, facts.response or _NO_RESPONSE
        is_foreign = facts.source is not None and facts.source_id is not None
        return StoredOutcome(
            outcome_id=sealed.outcome_id,
            context_id=sealed.context_id,
            record_hash=sealed.record_hash,
            outcome_hash=sealed.outcome_hash,
            kind=facts.kind,
            at=core.at,
            name=score.name or None,
            value=None if score.value is None else float(score.value),
            flag=score.flag,
            label_key=None if score.label is None else index.key(LABEL, score.label),
            model=response.model or response.model_asked,
            error_type=response.error_type,
            # The provider's own count says nothing about the error of ours.
            predicted=core.predicted if grade in _LOCAL_GRADES else None,
            billed=_billed(facts),
            source_key=index.key(_SOURCE, str(facts.source), str(facts.source_id))
            if is_foreign
            else None,
            is_signed=sealed.signature is not None,
            core=sealed.core,
            disclosures=encode_disclosures(kept.disclosures),
            signature=None if sealed.signature is None else msgspec.json.encode(sealed.signature),
        )

    def _count(self, context: StoredRecord, row: StoredOutcome) -> None:
        declared = {declared.model for declared in self._registry.contexts.values()}
        model = context.model if context.model in declared else None
        count_outcome(row.kind, model, row.predicted, row.billed)

    async def of(self, ref: str, limit: int = MOST_OUTCOMES) -> list[Outcome]:
        """Return the outcomes of a context, the oldest first."""
        return await self.of_record(await self._stored(ref), limit)

    async def of_record(self, context: StoredRecord, limit: int = MOST_OUTCOMES) -> list[Outcome]:
        """Return the outcomes of a stored record, the oldest first."""
        if type(limit) is not int or not 1 <= limit <= MOST_OUTCOMES:
            raise InvalidInputError(f"limit is {limit!r}; give a number from 1 to {MOST_OUTCOMES}")
        return [
            view_outcome(stored)
            for stored in await self._records.outcomes([context.context_id], limit=limit)
        ]

    async def get(self, outcome_id: str) -> Outcome:
        """Return an outcome, if the caller may read its context."""
        return view_outcome(await self._found(outcome_id))

    async def redact(
        self, outcome_id: str, pointers: Sequence[str], reason: str, by: str | None
    ) -> Outcome:
        """Erase values of an outcome, all or none; concurrent redactions all succeed."""
        if not pointers:
            raise InvalidInputError("say which value to redact, such as '/response/messages/0'")
        while True:
            stored = await self._found(outcome_id)
            redacted = await self._redacted(stored, pointers, reason, by)
            if redacted is not None:
                return outcome_view(redacted)

    async def erase(
        self, context_id: str, reason: str, by: str | None, *, dry_run: bool = False
    ) -> int:
        """Erase every value of a context's outcomes; return how many outcomes had one.

        After its record, so that an outcome that is added meanwhile is stored without values.
        """
        count, last = 0, None
        while page := await self._records.outcomes([context_id], after=last):
            for stored in page:
                count += stored.disclosures != NO_DISCLOSURES
                if not dry_run:
                    await self._erase(stored, _disclosed, reason, by)
            last = page[-1].outcome_id
        return count

    async def redact_copies(
        self, record: Record, pointers: Sequence[str], reason: str, by: str | None
    ) -> None:
        """Erase values of a record wherever its outcomes disclose them."""
        for stored in await self.all_of([record.context_id]):
            copies = partial(copies_in, record=record, pointers=pointers)
            await self._erase(stored, copies, reason, by)

    async def _erase(
        self,
        stored: StoredOutcome,
        find: Callable[[OutcomeRecord], Sequence[str]],
        reason: str,
        by: str | None,
    ) -> None:
        """Erase the values of an outcome that are found, also if another redaction comes first."""
        current: StoredOutcome | None = stored
        while current is not None:
            pointers = await asyncio.to_thread(find, decode_outcome(current))
            if not pointers or await self._redacted(current, pointers, reason, by) is not None:
                return
            current = await self._records.outcome(stored.outcome_id)

    async def _redacted(
        self, stored: StoredOutcome, pointers: Sequence[str], reason: str, by: str | None
    ) -> OutcomeRecord | None:
        """Redact an outcome; return None if another redaction came first."""
        redacted = redact(
            decode_outcome(stored), *pointers, at=self._clock.now(), reason=reason, by=by
        )
        is_replaced = await self._records.redact_outcome(
            stored.outcome_id,
            expected=stored.redactions,
            disclosures=encode_disclosures(redacted.disclosures),
            redactions=encode_redactions(redacted.redactions),
        )
        return redacted if is_replaced else None

    async def all_of(self, context_ids: Collection[str]) -> list[StoredOutcome]:
        """Return all outcomes of these contexts as they are stored, the oldest first."""
        found: list[StoredOutcome] = []
        while True:
            after = found[-1].outcome_id if found else None
            page = await self._records.outcomes(context_ids, after=after, limit=MOST_OUTCOMES)
            found += page
            if len(page) < MOST_OUTCOMES:
                return found

    async def every(self, ref: str) -> list[Outcome]:
        """Return all outcomes of a context, the oldest first."""
        context = await self._stored(ref)
        return [view_outcome(stored) for stored in await self.all_of([context.context_id])]

    async def _found(self, outcome_id: str) -> StoredOutcome:
        stored = await self._records.outcome(spelled(outcome_id))
        if stored is None:
            raise UnknownOutcomeError(outcome_id)
        try:
            await self._stored(stored.context_id)
        except UnknownContextError:
            raise UnknownOutcomeError(outcome_id) from None
        return stored


def _disclosed(outcome: OutcomeRecord) -> list[str]:
    return [item.pointer for item in outcome.disclosures]


def _checked(at: datetime | None, now: datetime) -> datetime:
    """Return when an outcome came about."""
    if at is None:
        return now
    if at.tzinfo is None:
        raise InvalidInputError(f"at is {at}, without a time zone; write for example {at}+00:00")
    if at > now + _AHEAD:
        raise InvalidInputError(f"at is {at}, which is in the future; leave it out for now")
    return at


def _new_id(given: str | None) -> str:
    if given is None:
        return new_context_id()
    outcome_id = spelled(given)
    if _UUID.fullmatch(outcome_id) is None:
        raise InvalidInputError(
            f"outcome_id is {reprlib.repr(given)}; give a UUID, or leave it out"
        )
    return outcome_id


class _Counted(msgspec.Struct, frozen=True):
    """The field of a core that only records of messages have."""

    class Tokenizer(msgspec.Struct, frozen=True):
        counter: dict[str, Any] | None = None

    tokenizer: Tokenizer


def _grade(context: StoredRecord, facts: OutcomeFacts) -> str | None:
    """Return how a record counted the request that was answered; None if it counted none.

    It counted a text then, or for another model than the one that answered.
    """
    response = facts.response if facts.kind == "response" else None
    if response is None or not _is_of(context.model, response):
        return None
    core = core_fields(context.core, _Counted)
    counter = None if core is None else core.tokenizer.counter
    return None if counter is None else counter["grade"]


def _is_of(declared: str | None, response: Response) -> bool:
    """Return whether the declared model answered: it was asked for, or is named so with a date."""
    asked, answered = response.model_asked, response.model or response.model_asked
    if declared is None or answered is None:
        return True
    one, two = plain_name(declared), plain_name(answered)
    return one in (two, plain_name(asked or "")) or bool(
        two.startswith(one) and _DATED.fullmatch(two.removeprefix(one))
    )


def _billed(facts: OutcomeFacts) -> int | None:
    """Return the tokens of the input that a provider billed for an answer."""
    response = facts.response if facts.kind == "response" else None
    return None if response is None or response.usage is None else response.usage.input
