"""Choosing recorded contexts, and freezing them into the file of a cohort."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater.contexts.evaluation.cohort import CohortWriter, Signed
from headwater.contexts.evaluation.sampling import Drawn, Sample, shares
from headwater.contexts.recorded import ContextQuery
from headwater.contexts.recorded.search import Listing
from headwater.contexts.recorded.service import RecordedContexts
from headwater.contexts.recorded.verification import load_record
from headwater.core.canonical_json import canonical, to_tagged
from headwater.errors import DamagedRecordError, InvalidInputError, UnknownContextError
from headwater.errors.hints import nearest, quoted
from headwater.model.contexts import LARGEST_PAGE, RecordSummary
from headwater.model.evaluations import CohortEntry, CohortHeader, FrozenCohort
from headwater.ports import RecordLog, StoredRecord
from headwater.records.core import Commitment, Core

INPUT = "input."
"""The beginning of a name that divides contexts by one of their inputs."""
FILTERS = {
    "status": "freshness_status",
    "caller": "caller",
    "label": "label",
    "answer_model": "answer_model",
    "error": "error",
    "model": "model",
}
"""What contexts may be chosen by, and the names of those filters elsewhere."""
_STRATA: Mapping[str, Callable[[RecordSummary], str | None]] = {
    "model": lambda summary: summary.model,
    "status": lambda summary: summary.freshness_status,
    "caller": lambda summary: summary.caller,
}
_AT_ONCE = 64
"""Records that are read together."""
_SHOWN = 5
_UNDECLARED = "not declared"
_EXTERNAL = "assembled elsewhere"
_DAMAGED = "damaged"
_GONE = "gone"
_MISSING = "not recorded"


class CohortChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which recorded contexts a cohort has: those of a search, or of a list of ids."""

    context: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    where: Mapping[str, str] = {}
    score: str | None = None
    ids: Collection[str] | None = None
    sample: int | None = None
    stratify_by: str | None = None
    seed: int = 0
    skip_missing: bool = False

    def check(self) -> None:
        """Raise InvalidInputError if an option is invalid, or given without another one."""
        for name in self.where:
            if name not in FILTERS:
                raise InvalidInputError(
                    f"contexts cannot be chosen by {quoted(name)}; {nearest(name, FILTERS)}"
                )
        if self.ids is not None and (
            self.where or self.context or self.start or self.end or self.score
        ):
            raise InvalidInputError(
                "a list of ids chooses the contexts; leave out the other filters: context, since, "
                "until, where and score"
            )
        if self.sample is not None and self.sample < 1:
            raise InvalidInputError(f"sample is {self.sample}; give a number from 1 on")
        stratum = self.stratify_by
        if stratum is not None and not (
            stratum in _STRATA or stratum.removeprefix(INPUT) not in ("", stratum)
        ):
            raise InvalidInputError(
                f"contexts cannot be divided by {quoted(stratum)}; give {', '.join(_STRATA)}, or "
                "an input such as input.language"
            )
        if stratum is not None and self.sample is None:
            raise InvalidInputError("stratify_by divides a sample; give its size with sample, too")

    def query(self) -> ContextQuery:
        """Return the search for the contexts; the model of a context is not part of it."""
        others = {FILTERS[name]: text for name, text in self.where.items() if name != "model"}
        named: dict[str, Any] = {"name": self.context, "score": self.score, **others}
        return ContextQuery(start=self.start, end=self.end, **named)

    def described(self) -> dict[str, Any]:
        """Return the options for the header of the file, except absent ones."""
        options = msgspec.to_builtins(self) | {"ids": len(self.ids or ())}
        seeds = {"seed"} if self.sample else set()
        return {name: value for name, value in options.items() if value or name in seeds}


class Freezing:
    """Writes the contexts of a choice into the file of a cohort."""

    def __init__(
        self, recorded: RecordedContexts, records: RecordLog, declared: Collection[str]
    ) -> None:
        self._recorded = recorded
        self._records = records
        self._declared = declared
        self._left_out: Counter[str] = Counter()
        self._missing: list[str] = []

    async def freeze(
        self,
        path: Path,
        header: CohortHeader,
        choice: CohortChoice,
        signed: Signed,
        *,
        replaces: bool,
    ) -> FrozenCohort:
        """Write the file, as a whole or not at all."""
        counts: dict[str, Counter[str]] = {
            "contexts": Counter(),
            "models": Counter(),
            "statuses": Counter(),
        }
        moments: list[datetime] = []
        with CohortWriter(path, header, replaces=replaces) as writer:
            async for stored, core in self._opened(self._chosen(choice)):
                writer.add(_entry(stored, core))
                counts["contexts"][stored.name] += 1
                counts["models"][stored.model or "none"] += 1
                counts["statuses"][stored.freshness_status] += 1
                at = stored.created_at
                moments = [min([at, *moments]), max([at, *moments])]
            if self._missing and not choice.skip_missing:
                raise _unknown(self._missing)
            if not moments:
                raise _nothing(self._left_out)
            cohort = writer.seal(signed)
        return FrozenCohort(
            name=header.name,
            path=str(path),
            cohort_hash=cohort.seal.cohort_hash,
            is_signed=cohort.seal.signature is not None,
            count=cohort.seal.count,
            start=moments[0],
            end=moments[-1],
            left_out=dict(self._left_out),
            **{kind: dict(counter.most_common()) for kind, counter in counts.items()},
        )

    async def _chosen(self, choice: CohortChoice) -> AsyncIterator[Drawn]:
        """Yield the contexts of a choice, the oldest first; those of a list in its order."""
        if choice.sample is None:
            async for summary in self._found(choice):
                yield Drawn(summary.created_at, summary.context_id)
            return
        parts: dict[str, int] | None = None
        if choice.stratify_by is not None:
            sizes: Counter[str] = Counter()
            async for stratum, _ in self._by_stratum(choice):
                sizes[stratum] += 1
            parts = shares(sizes, choice.sample)
        sample = Sample(choice.seed, choice.sample, parts)
        # They are read a second time, because only then the share of each stratum is known.
        self._left_out.clear()
        self._missing.clear()
        async for stratum, context in self._by_stratum(choice):
            sample.add(stratum, context)
        for context in sample.contexts():
            yield context

    async def _by_stratum(self, choice: CohortChoice) -> AsyncIterator[tuple[str, Drawn]]:
        by = choice.stratify_by or ""
        if not by.startswith(INPUT):
            of = _STRATA.get(by)
            async for summary in self._found(choice):
                stratum = None if of is None else of(summary)
                yield stratum or "", Drawn(summary.created_at, summary.context_id)
            return
        drawn = (Drawn(each.created_at, each.context_id) async for each in self._found(choice))
        async for stored, core in self._opened(drawn, is_counted=False):
            value = core.inputs.get(by.removeprefix(INPUT))
            is_known = not isinstance(value, Commitment)
            stratum = canonical(to_tagged(value)).decode() if is_known else "withheld"
            yield stratum, Drawn(stored.created_at, stored.context_id)

    async def _found(self, choice: CohortChoice) -> AsyncIterator[RecordSummary]:
        model = choice.where.get("model")
        found = self._searched(choice.query()) if choice.ids is None else self._listed(choice.ids)
        async for summary in found:
            if summary.name not in self._declared:
                self._left_out[_UNDECLARED] += 1
            elif model in (None, summary.model):
                yield summary

    async def _searched(self, query: ContextQuery) -> AsyncIterator[RecordSummary]:
        order = Listing(LARGEST_PAGE, reverse=True)
        async for summary, is_listed in self._recorded.examined(query, order):
            if is_listed:
                yield summary

    async def _listed(self, refs: Collection[str]) -> AsyncIterator[RecordSummary]:
        seen: set[str] = set()
        for ref in refs:
            try:
                stored = await self._recorded.stored(ref)
            except UnknownContextError:
                self._missing.append(ref)
                self._left_out[_MISSING] += 1
                continue
            if stored.context_id not in seen:
                seen.add(stored.context_id)
                yield stored

    async def _opened(
        self, contexts: AsyncIterator[Drawn], *, is_counted: bool = True
    ) -> AsyncIterator[tuple[StoredRecord, Core]]:
        """Yield the records of contexts that can be assembled again."""
        batch: list[Drawn] = []
        async for context in contexts:
            batch.append(context)
            if len(batch) == _AT_ONCE:
                for opened in await self._open(batch, is_counted=is_counted):
                    yield opened
                batch = []
        for opened in await self._open(batch, is_counted=is_counted):
            yield opened

    async def _open(
        self, batch: list[Drawn], *, is_counted: bool
    ) -> list[tuple[StoredRecord, Core]]:
        opened = []
        gets = (self._records.get(context.context_id) for context in batch)
        for stored in await asyncio.gather(*gets):
            reason = _GONE
            if stored is not None:
                try:
                    _, core = load_record(stored)
                except DamagedRecordError:
                    reason = _DAMAGED
                else:
                    # Only a text that another program assembled has no function.
                    if core.context.definition is not None:
                        opened.append((stored, core))
                        continue
                    reason = _EXTERNAL
            self._left_out[reason] += is_counted
        return opened


def _entry(stored: StoredRecord, core: Core) -> CohortEntry:
    inputs = core.inputs.items()
    return CohortEntry(
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        name=stored.name,
        created_at=stored.created_at,
        inputs={name: value for name, value in inputs if not isinstance(value, Commitment)},
    )


def _unknown(refs: list[str]) -> InvalidInputError:
    shown = ", ".join(map(quoted, refs[:_SHOWN]))
    more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
    verb = "is" if len(refs) == 1 else "are"
    return InvalidInputError(
        f"{shown}{more} {verb} not recorded in this store; give context ids or record hashes of "
        "it, or leave out those that are missing with --skip-missing"
    )


def _nothing(left_out: Mapping[str, int]) -> InvalidInputError:
    reasons = ", ".join(f"{number} {reason}" for reason, number in left_out.items())
    left = f" that can be assembled again (left out: {reasons})" if reasons else ""
    return InvalidInputError(
        f"no recorded context{left} matches, so there is no cohort; `headwater context list` "
        "lists what is recorded"
    )
