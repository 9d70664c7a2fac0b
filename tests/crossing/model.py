"""What a store should serve, in plain Python: sums, last values and versions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.crossing.features import (
    CACHED,
    RECENT,
    SLA,
    WAITING_SLA,
    Declared,
    entry,
    in_euros,
)

KEPT_FRESH = timedelta(seconds=10)
"""For how long the version before a switch is kept fresh."""


class Event(NamedTuple):
    """A purchase."""

    event_id: str
    user_id: str
    amount: int
    at: datetime
    bad: bool
    received_at: datetime
    """When the store accepted it, by its own clock."""


class Timed(NamedTuple):
    """A value and its time."""

    at: datetime
    value: Any


@dataclass
class Version:
    """A version of ``total``."""

    sums: dict[str, int]
    declared: Declared | None = None
    """The features file of the backfill which made it."""
    replaced_at: datetime | None = None
    is_retired: bool = False


class Erasure(NamedTuple):
    """When a user was erased, and whether later events may begin it anew."""

    at: datetime
    may_return: bool


@dataclass
class UserState:
    """The values of a user that events and writes have left."""

    last: Timed | None = None
    recent: Timed | None = None
    amount: Timed | None = None
    score: Timed | None = None
    reused: int | None = None


class Model:
    """The state of a store after the steps of a program."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.events: list[Event] = []
        """All events that the store has, in the order in which they were accepted."""
        self.accepted = 0
        self.waiting: list[Event] = []
        self.letters: list[tuple[int, Event]] = []
        """The dead letters, each with the version that could not handle it."""
        self.versions = {1: Version({})}
        self.active = 1
        self._served = {1}
        self._newest = 1
        self.users: dict[str, UserState] = {}
        self.erasures: dict[str, Erasure] = {}
        self.documents: dict[str, Timed] = {}
        self.directory: dict[str, int] = {}
        """What a system outside of the store has about users."""
        self.looked_up: dict[str, Timed] = {}
        """What was found in it, as far as it is cached."""
        self.first_received: datetime | None = None
        """When the store got its first event or tick."""
        self.lacks_events = False
        """Whether some were pruned, so that a backfill would be wrong."""
        self.has_run = False
        """Whether a worker has run the schedules."""

    @property
    def unserved(self) -> int | None:
        """The version of a backfill that was never served."""
        return next((each for each in self.versions if each not in self._served), None)

    def admits(self, user_id: str, at: datetime) -> bool:
        """Return whether something of this time may begin a user anew, if it was erased."""
        erasure = self.erasures.get(user_id)
        return erasure is None or (erasure.may_return and at > erasure.at)

    def is_erased(self, user_id: str) -> bool:
        """Return whether a user was erased and has not returned."""
        return user_id in self.erasures and user_id not in self.users

    def accept(self, event: Event) -> None:
        self.accepted += 1
        self.first_received = self.first_received or event.received_at
        self.events.append(event)
        self.waiting.append(event)

    def drain(self, now: datetime, received_at: datetime) -> None:
        """Handle all waiting events, and run the schedules that are due."""
        self.has_run = True
        self.first_received = self.first_received or received_at
        for version in self.versions.values():
            replaced_at = version.replaced_at
            if replaced_at is not None and now >= replaced_at + KEPT_FRESH:
                version.is_retired = True
        for event in self.waiting:
            self._handle(event, now)
        self.waiting = []

    def _handle(self, event: Event, now: datetime) -> None:
        user = self.user(event.user_id)
        for number, version in self.versions.items():
            if not version.is_retired and not self._count(version, event):
                self.letters.append((number, event))
        if user.last is None or event.at >= user.last.at:
            user.last = Timed(event.at, event.amount)
        user.recent = Timed(now, event.at)
        since = user.amount.at if user.amount else event.at
        user.amount = Timed(max(since, event.at), event.amount)
        if self.declared.reused:
            user.reused = event.amount

    def user(self, user_id: str) -> UserState:
        """Return a user, who may be new."""
        return self.users.setdefault(user_id, UserState())

    def _count(self, version: Version, event: Event) -> bool:
        """Add an event to the sum of its user; return False if that fails."""
        if event.bad and not self.declared.cured:
            return False
        before = version.sums.get(event.user_id, self.declared.default)
        version.sums[event.user_id] = before + self.declared.weight * event.amount
        return True

    def index(self, document: str, text: Timed) -> None:
        """Index a document, unless it is already there as of a later time."""
        before = self.documents.get(document)
        if before is None or text.at >= before.at:
            self.documents[document] = text

    def set_score(self, user_id: str, value: Timed) -> None:
        user = self.user(user_id)
        if user.score is None or value.at >= user.score.at:
            user.score = value

    def redrive(self) -> None:
        """Handle the events of all dead letters."""
        for number, event in self.letters:
            assert self._count(self.versions[number], event)
        self.letters = []

    def backfill(self) -> None:
        """Make a version from all events."""
        version = Version({}, self.declared)
        for event in self.events:
            self._count(version, event)
        self._newest += 1
        self.versions[self._newest] = version

    def has_other(self, declared: Declared) -> bool:
        """Return whether a version that is kept fresh was made by another file."""
        return any(
            version.declared not in (None, declared)
            for number, version in self.versions.items()
            if number != self.active and not version.is_retired
        )

    def cancel(self) -> None:
        """Give up the version that was never served."""
        number = self.unserved
        assert number is not None
        del self.versions[number]
        self.letters = [each for each in self.letters if each[0] != number]

    def switch(self, number: int, now: datetime) -> None:
        self.versions[self.active].replaced_at = now
        self.versions[number].replaced_at = None
        self.active = number
        self._served.add(number)

    def forget(self, user_id: str, erasure: Erasure) -> None:
        self.erasures[user_id] = erasure
        self.events = [each for each in self.events if each.user_id != user_id]
        self.waiting = [each for each in self.waiting if each.user_id != user_id]
        self.letters = [each for each in self.letters if each[1].user_id != user_id]
        self.users.pop(user_id, None)
        self.directory.pop(user_id, None)
        self.looked_up = {}
        for version in self.versions.values():
            version.sums.pop(user_id, None)

    def expected(self, user_id: str, now: datetime) -> dict[str, Any]:
        """Return the values that follow from the steps alone."""
        user = self.users.get(user_id, UserState())
        total = self.versions[self.active].sums.get(user_id, self.declared.default)
        recent = user.recent.value if user.recent and now < user.recent.at + RECENT else None
        tier = None if recent is None else "gold" if total > 9 else "silver"
        return {
            "total": total,
            "last": user.last.value if user.last else None,
            "recent": recent,
            "score": user.score.value if user.score else None,
            "price": self._price(user.amount.value if user.amount else None),
            "logged": (total, now),
            "tier": tier,
            "aged": None if recent is None else (now - recent).seconds,
            "reused": user.reused,
            "line": "new" if tier is None else f"{tier} {total}",
        }

    def _price(self, amount: int | None) -> float | None:
        if amount is None:
            return None
        return 100 * amount if self.declared.unit == "cents" else in_euros(100 * amount)

    def look_up(self, user_id: str, now: datetime) -> str:
        """Return what a search of the directory finds, which is cached."""
        cached = self.looked_up.get(user_id)
        if cached is None or now >= cached.at + CACHED:
            cached = Timed(now, entry(user_id, self.directory.get(user_id)))
            self.looked_up[user_id] = cached
        return str(cached.value)

    def violations(self, user_id: str, now: datetime) -> set[tuple[str, str]]:
        """Return why the card of a user is not fresh: the names of what it read, and reasons."""
        user = self.users.get(user_id, UserState())
        dated = {"last": user.last, "price": user.amount, "recent": user.amount}
        found = {"look_up": self.looked_up[user_id], "score": user.score, **dated}
        if user.recent is None or now >= user.recent.at + RECENT:
            found["recent"] = None
        reasons = {(name, "missing") for name, value in found.items() if value is None}
        reasons |= {
            (name, "stale") for name, value in found.items() if value and now > value.at + SLA
        }
        if any(each == self.active and event.user_id == user_id for each, event in self.letters):
            reasons.add((self.declared.total, "dead_letter"))
        elif any(now > event.received_at + WAITING_SLA for event in self.waiting):
            reasons.add((self.declared.total, "stale"))
        if not self.has_run:
            reasons.add(("scores", "never_ran"))
        return reasons

    def prune_events(self, before: datetime) -> None:
        """Remove the events that the store accepted before a moment."""
        if self.first_received is not None and self.first_received < before:
            self.lacks_events = True
        self.events = [each for each in self.events if each.received_at >= before]
