"""Reports of backfills: plain values that commands print and servers send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from headwater.ports import DeadLetter

Phase = Literal["export", "copy", "replay", "install", "catch up", "join"]


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a phase of a backfill is; the total and the seconds left are None if unknown."""

    phase: Phase
    done: int = 0
    total: int | None = None
    seconds_left: float | None = None


OnProgress = Callable[[BackfillProgress], None]


class ReplayReport(msgspec.Struct, frozen=True):
    """The number of events, values and failed events of a replay.

    ``unstored`` counts, by feature, the values that handlers set on other features: they were seen
    by the handler that set them, and are not stored.
    """

    events: int = 0
    values: int = 0
    failures: int = 0
    unstored: Mapping[str, int] = {}


class BackfillStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far an unfinished backfill is.

    ``replayed`` and ``failures`` are of the replay of stored events, as far as its folder is on
    this machine; ``waiting`` counts the events since its start that the new version lacks.
    """

    feature: str
    version: int
    state: str
    created_at: datetime
    since: datetime | None
    replayed: int
    waiting: int
    joined: int
    partitions: int
    failures: Sequence[DeadLetter]


class BackfillReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill that is done: the version that it has made, and the replay of stored events.

    ``replayed`` is None if an earlier run of it has done that.
    """

    feature: str
    version: int | None
    """None if values were only added to history."""
    is_served: bool
    replayed: ReplayReport | None
    failures: Sequence[DeadLetter] = ()
    """The first hundred events that failed in the replay."""


class SwitchReport(msgspec.Struct, frozen=True):
    """The version of a feature that is served now, and the one that was before."""

    feature: str
    version: int
    before: int
