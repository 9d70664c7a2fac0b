"""Outcomes that are exchanged with other systems: import what they know, export what we do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from headwater.contexts.recorded.imports import Sought, Unreadable, read_outcomes
from headwater.contexts.recorded.otlp import to_otlp
from headwater.contexts.recorded.outcomes import Outcomes
from headwater.errors import (
    CallerLimitError,
    ImmutableRecordError,
    InvalidInputError,
    NotFoundError,
    UnknownOutcomeError,
)
from headwater.model.outcomes import ImportFormat, ImportProblem, OutcomeImport
from headwater.records.ids import new_context_id

_AT_ONCE = 32
_MOST_PROBLEMS = 100
_REFUSALS = (InvalidInputError, NotFoundError, CallerLimitError, ImmutableRecordError)


class OutcomeExchange:
    """Imports and exports the outcomes of recorded contexts."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    async def import_text(self, text: str, file_format: ImportFormat) -> OutcomeImport:
        """Store the outcomes in a text; lines that cannot be stored are reported."""
        read = await asyncio.to_thread(read_outcomes, text, file_format)
        counts: Counter[str] = Counter()
        problems = [ImportProblem(*each) for each in read if isinstance(each, Unreadable)]
        found = [each for each in read if isinstance(each, Sought)]
        for start in range(0, len(found), _AT_ONCE):
            part = found[start : start + _AT_ONCE]  # which share a commit
            for result in await asyncio.gather(*map(self._store, part)):
                if isinstance(result, ImportProblem):
                    problems.append(result)
                else:
                    counts[result] += 1
        problems.sort(key=lambda each: each.line)
        return OutcomeImport(
            added=counts["added"],
            known=counts["known"],
            failed=len(problems),
            problems=problems[:_MOST_PROBLEMS],
        )

    async def _store(self, sought: Sought) -> Literal["added", "known"] | ImportProblem:
        given = sought.given
        try:
            if "outcome_id" not in given:
                given = {**given, "outcome_id": new_context_id()}
            elif await self._is_known(given["outcome_id"]):
                return "known"
            stored = await self._outcomes.add(sought.context_id, **given)
        except _REFUSALS as error:
            return ImportProblem(sought.line, str(error))
        return "added" if stored.outcome_id == given["outcome_id"] else "known"

    async def _is_known(self, outcome_id: str) -> bool:
        try:
            await self._outcomes.get(outcome_id)
        except UnknownOutcomeError:
            return False
        return True

    async def export(self, refs: Sequence[str]) -> str:
        """Return the outcomes of contexts as lines of OTLP in JSON."""
        lines = [line for ref in refs for line in to_otlp(await self._outcomes.every(ref))]
        return "".join(f"{line.decode()}\n" for line in lines)
