"""Values of windows in history: the contributions of one entity, folded from moment to moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headwater.windows.plan import Member, WindowPlan
from headwater.windows.state import WindowState, evaluate, fold, new_state


class Contribution(NamedTuple):
    """What an event contributed, and from when on that counts: its time, or that of its writing."""

    visible_from: int
    at: int
    written_at: int
    value: Any
    key: str | None = None


class EntityReplay:
    """The state of one entity, which moves forward in time.

    With contributions that are visible from their writing on, it is the one that was online.
    """

    def __init__(self, plan: WindowPlan, members: Sequence[Member]) -> None:
        self._plan = plan
        self._members = members
        self._tiles: list[int] = []
        self._values: list[Any] = []
        self.state: WindowState | None = None
        """None if nothing was added."""

    def add(self, contribution: Contribution) -> None:
        """Fold a contribution, in the order in which contributions become visible."""
        now, at, written_at, value, key = contribution
        if self.state is None:
            self.state = new_state(self._plan, now)
        if fold(self._plan, self.state, value, key, at, written_at, now):
            self._tiles = []

    def values(self, moment: int) -> list[Any]:
        """Return the values of the members at a moment, which none of the next ones precedes."""
        tiles = [window.first_tile(moment) for window in self._plan.windows]
        if tiles != self._tiles:
            self._tiles = tiles
            self._values = evaluate(self._plan, self.state, self._members, moment)
        return self._values


def oldest_counted(plan: WindowPlan, moment: int) -> int:
    """Return the time of the oldest contribution that may count at a moment."""
    return min(window.first_tile(moment) * window.hop for window in plan.windows)


def values_at(
    plan: WindowPlan,
    members: Sequence[Member],
    contributions: Iterable[Contribution],
    moments: Iterable[int],
) -> Iterator[list[Any]]:
    """Yield the values of members at moments; both these and contributions are in order."""
    replay, left = EntityReplay(plan, members), iter(contributions)
    waiting = next(left, None)
    for moment in moments:
        oldest = oldest_counted(plan, moment)
        while waiting is not None and waiting.visible_from <= moment:
            if waiting.at >= oldest:
                replay.add(waiting)
            waiting = next(left, None)
        yield replay.values(moment)
