"""Dead letters of an open store: find, group and settle them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec.structs import replace

from headwater.core.error_patterns import error_pattern
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.errors import UnknownDeadLetterError
from headwater.features.call_scope import track_source, track_sources
from headwater.features.services import Services
from headwater.model.dead_letters import DeadLetter, LetterGroup, LetterGroups, SettledLetter
from headwater.model.values import EVERYTHING
from headwater.ports import DeadLetterQuery, LetterSummary

MOST_GROUPED = 10_000
"""How many dead letters are grouped, the newest ones."""

MOST_GROUPS = 200
_SAMPLES = 20
_TYPES = 10
_MOST_NOTED = 100

Action = Literal["redrive", "discard"]
_OUTCOMES: dict[Action, Literal["redriven", "discarded"]] = {
    "redrive": "redriven",
    "discard": "discarded",
}


class Letters:
    """The dead letters of a store, with the names that their features have now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stored = services.backends.dead_letters
        self._catalog = services.catalog
        self._grouped: tuple[object, LetterGroups] | None = None

    async def find(self, *, feature: FeatureRef | None = None, **query: Any) -> list[DeadLetter]:
        """Return the letters of a `DeadLetterQuery`."""
        series = None if feature is None else self._catalog.series_of(feature_name(feature))
        letters = await self._stored.letters(DeadLetterQuery(feature=series, **query))
        track_sources(self._services.registry.sources_of(letter.event for letter in letters))
        names = self._catalog.name_of
        return [replace(letter, feature=names(letter.feature)) for letter in letters]

    async def get(self, letter_id: str) -> DeadLetter:
        """Return one letter."""
        for letter in await self.find(ids=[letter_id]):
            return letter
        raise UnknownDeadLetterError(letter_id)

    async def groups(self) -> LetterGroups:
        """Return the newest letters by feature and kind of error."""
        track_source(*EVERYTHING)  # errors may name anything, and are not listed by entity
        total, newest = await self._stored.count(), await self._stored.summaries(1)
        # Ids grow, so letters with the same number and the same newest one are the same letters.
        state = (total, [letter.id for letter in newest], self._catalog.state)
        if self._grouped is None or self._grouped[0] != state:
            letters = await self._stored.summaries(MOST_GROUPED)
            names = self._catalog.name_of
            self._grouped = (state, await asyncio.to_thread(group_letters, letters, total, names))
        return self._grouped[1]

    async def settle(
        self, action: Action, ids: Sequence[str], *, partial: bool, **query: Any
    ) -> list[SettledLetter]:
        """Settle the named letters, all or none, or the letters that a query finds."""
        is_by_id = not any(value is not None for name, value in query.items() if name != "limit")
        letters: Sequence[str] = ids
        if not is_by_id or (partial and ids):  # without ids, a list has all letters
            letters = [letter.id for letter in await self.find(ids=ids or None, **query)]
        gone = {*ids}.difference(letters) if is_by_id else set[str]()
        if letters:
            settle = self._stored.redrive if action == "redrive" else self._stored.discard
            noted = await self._noted(letters)
            async with audited(
                self._services, f"dead_letters.{action}", ids=letters, letters=noted
            ):
                if letters is ids:
                    await settle(letters)
                else:
                    gone |= await _settle_rest(settle, letters)
        outcome = _OUTCOMES[action]
        return [
            SettledLetter(letter_id, "gone" if letter_id in gone else outcome)
            for letter_id in dict.fromkeys((*letters, *(ids if is_by_id else ())))
        ]

    async def _noted(self, ids: Sequence[str]) -> Sequence[dict[str, str]]:
        """Return for the audit log what the first letters are about.

        The log cannot be redacted, so it has a hash of the entity id, as for a forgotten entity.
        """
        letters = await self.find(ids=ids[:_MOST_NOTED], limit=_MOST_NOTED)
        return [
            {
                "id": letter.id,
                "feature": letter.feature,
                "event_type": letter.event.event_type,
                "event_id": letter.event.event_id,
                "entity_id_sha256": sha256(letter.event.entity_id.encode()).hexdigest(),
            }
            for letter in letters
        ]


async def _settle_rest(
    settle: Callable[[Sequence[str]], Awaitable[None]], ids: Sequence[str]
) -> set[str]:
    """Settle the letters that are still there; return the ones that another call settled first."""
    waiting, gone = dict.fromkeys(ids), set[str]()
    while waiting:
        try:
            await settle([*waiting])
            break
        except UnknownDeadLetterError as error:
            gone.add(error.letter_id)
            del waiting[error.letter_id]
    return gone


def group_letters(
    letters: Sequence[LetterSummary], total: int, name_of: Callable[[str], str]
) -> LetterGroups:
    """Return the groups of letters, which are given newest first."""
    by_error: dict[tuple[str, str], list[LetterSummary]] = {}
    for letter in letters:
        by_error.setdefault((letter.feature, error_pattern(letter.error)), []).append(letter)
    groups = [_group(name_of(series), error, some) for (series, error), some in by_error.items()]
    # The sort is stable, so that of equal groups the one with the newest letter is first.
    groups.sort(key=lambda group: -group.count)
    return LetterGroups(
        groups[:MOST_GROUPS],
        letters=max(total, len(letters)),
        grouped=len(letters),
        others=sum(group.count for group in groups[MOST_GROUPS:]),
    )


def _group(feature: str, error: str, letters: Sequence[LetterSummary]) -> LetterGroup:
    return LetterGroup(
        feature=feature,
        error=error,
        sample=letters[0].error,
        count=len(letters),
        attempts=sum(letter.attempts for letter in letters),
        first_failed_at=min(letter.first_failed_at for letter in letters),
        last_dead_at=max(letter.dead_at for letter in letters),
        event_types=[*dict.fromkeys(letter.event_type for letter in letters)][:_TYPES],
        ids=[letter.id for letter in letters[:_SAMPLES]],
    )
