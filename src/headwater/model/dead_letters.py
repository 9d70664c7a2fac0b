"""Dead letters: events that could not be handled, and requests about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr
from headwater.core.tables import Tabular
from headwater.model.values import ServiceEvent


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """An event that a feature could not handle, with the error and all data for a redrive."""

    id: str
    event: ServiceEvent
    feature: str
    error: str
    traceback: str
    attempts: int
    partition: int
    position: str
    first_failed_at: datetime
    dead_at: datetime
    group: str = ""

    @property
    def target(self) -> str:
        """The consumer group and feature of a redrive, as they are stored with its event."""
        return f"{self.group}/{self.feature}"

    __repr__ = short_repr("id", "feature", "error", "attempts", "dead_at")


class LetterGroup(msgspec.Struct, frozen=True):
    """Dead letters of one feature whose errors have one pattern.

    ``sample`` is the newest error as it was raised, and ``ids`` are the newest letters.
    """

    feature: str
    error: str
    sample: str
    count: int
    attempts: int
    first_failed_at: datetime
    last_dead_at: datetime
    event_types: Sequence[str]
    ids: Sequence[str]


class LetterGroups(msgspec.Struct, Tabular, frozen=True):
    """The groups of the newest dead letters, those with the most letters first.

    ``letters`` is the number of all dead letters and ``grouped`` of those that were examined;
    ``others`` are in groups that are not listed.
    """

    groups: Sequence[LetterGroup]
    letters: int
    grouped: int
    others: int

    def rows(self) -> Sequence[LetterGroup]:
        return self.groups


MOST_LETTERS = 10_000
LetterId = Annotated[str, Meta(description="The id of a dead letter.", examples=["17"])]
LetterIdList = Annotated[
    str, Meta(description="Only the letters with these ids, by comma.", examples=["17,18"])
]
LetterCursor = Annotated[
    str, Meta(description="The id of the last letter of the page before.", examples=["17"])
]
ErrorFilter = Annotated[
    str,
    Meta(
        description="Only letters whose error is of this kind, the ``error`` of a group.",
        examples=["KeyError: 'item'"],
    ),
]
NewestFirst = Annotated[
    bool,
    Meta(description="Whether the newest come first; otherwise the oldest do.", examples=[True]),
]


class DeadLetterList(msgspec.Struct, frozen=True):
    """Dead letters, the oldest first."""

    dead_letters: Sequence[DeadLetter]


class SettledLetter(msgspec.Struct, frozen=True):
    """What happened to a dead letter; ``gone`` if another call settled it first."""

    id: str
    outcome: Literal["redriven", "discarded", "gone"]


class SettledLetters(msgspec.Struct, frozen=True):
    """What happened to each dead letter, the oldest first."""

    dead_letters: Sequence[SettledLetter]
