"""Groups of dead letters that have the same feature and the same kind of error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.core.error_patterns import error_pattern
from headwater.model.dead_letters import LetterGroup, LetterGroups
from headwater.ports import LetterSummary

MOST_GROUPED = 10_000
"""How many dead letters are grouped, the newest ones."""

MOST_GROUPS = 200
_SAMPLES = 20
_TYPES = 10


def group_letters(
    letters: Sequence[LetterSummary], total: int, name_of: Callable[[str], str]
) -> LetterGroups:
    """Return the groups of letters, which are given newest first."""
    found: dict[tuple[str, str], list[LetterSummary]] = {}
    for letter in letters:
        found.setdefault((letter.feature, error_pattern(letter.error)), []).append(letter)
    groups = [_group(name_of(series), error, some) for (series, error), some in found.items()]
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
        event_types=_distinct(letter.event_type for letter in letters)[:_TYPES],
        ids=[letter.id for letter in letters[:_SAMPLES]],
    )


def _distinct(names: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(names)]
