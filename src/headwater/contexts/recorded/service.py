"""The verbs of evidence: each finds a recorded context and says, shows or changes one thing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.contexts.recorded.external import ExternalContext, definition_of
from headwater.contexts.recorded.replay import Mode, Replay
from headwater.contexts.recorded.rerun import (
    Assembly,
    Rehearse,
    Replayer,
    check_mode,
    current_replay,
)
from headwater.contexts.recorded.search import ContextSearch, named
from headwater.contexts.recorded.verification import decode_record, load_record, verify_record
from headwater.core.clock import Clock
from headwater.declarations import Overrides
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError
from headwater.ports import RecordLog
from headwater.records import projection
from headwater.records.core import Core
from headwater.records.diff import ContextDiff, diff
from headwater.records.lineage import Context, ContextTrace, PastContext
from headwater.records.record import Record, encode_disclosures, encode_redactions
from headwater.records.redaction import redact
from headwater.records.redaction_search import also_disclosed
from headwater.records.verify import VerificationReport
from headwater.settings.schema import Settings


class RecordedContexts:
    """What is known of contexts that were assembled before."""

    def __init__(
        self,
        records: RecordLog,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        assembly: Assembly,
        rehearse: Rehearse,
    ) -> None:
        self._records = records
        self._settings = settings
        self._clock = clock
        self._assembly = assembly
        self._replayer = Replayer(records, registry, clock, rehearse)
        finder = ContextSearch(records, settings)
        self._stored, self.contexts, self.find = finder.stored, finder.contexts, finder.find

    async def record(self, receipt: ExternalContext) -> Context:
        """Records a text that was assembled elsewhere."""
        given = receipt.interaction_ref
        overrides = Overrides(interaction_ref=msgspec.UNSET if given is None else given)
        run = current_replay() or self._assembly.run
        return await run(definition_of(receipt), (), receipt.inputs, overrides)

    async def context(self, ref: str) -> PastContext:
        """The context with this id, beginning of an id, or record hash."""
        return projection.past_context(*await self._opened(ref))

    async def explain(self, ref: str) -> ContextTrace:
        """Why that context is as it is."""
        return projection.explain(*await self._opened(ref))

    async def record_of(self, ref: str) -> Record:
        """Its record."""
        return decode_record(await self._stored(ref))

    async def _opened(self, ref: str) -> tuple[Record, Core]:
        """The record, and what it says."""
        return load_record(await self._stored(ref))

    async def verify(self, ref: str, expect: str | None, *, signed: bool) -> VerificationReport:
        """What holds of a record as it lies in the log."""
        expected = named(ref) if expect is None else expect
        stored = await self._stored(ref)
        return verify_record(stored, self._settings, expect=expected, signed=signed)

    async def redact(
        self, ref: str, pointers: Sequence[str], reason: str, by: str | None, *, everywhere: bool
    ) -> Record:
        """Erases values of a record, all or none; two who redact at once both succeed."""
        if not pointers:
            raise InvalidInputError("say which value is redacted, such as '/inputs/question'")
        while True:
            stored = await self._stored(ref)
            record, now = decode_record(stored), self._clock.now()
            others = also_disclosed(record, *pointers) if everywhere else ()
            redacted = redact(record, *pointers, *others, at=now, reason=reason, by=by)
            if await self._records.redact(
                stored.context_id,
                expected=stored.redactions,
                disclosures=encode_disclosures(redacted.disclosures),
                redactions=encode_redactions(redacted.redactions),
            ):
                return redacted

    async def diff(self, before: str, after: str) -> ContextDiff:
        """In what one context differs from another."""
        (_, one), (_, two) = await self._opened(before), await self._opened(after)
        return diff(one, two)

    async def replay(self, ref: str, mode: Mode) -> Replay:
        """The context once more."""
        check_mode(mode)
        _, core = await self._opened(ref)
        return await self._replayer.replay(core, mode)
