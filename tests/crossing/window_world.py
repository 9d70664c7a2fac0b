"""A store with families of windows, the contributions that it accepted, and what was observed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from headwater import FeatureStore
from headwater.core.clock import from_micros, to_micros
from headwater.errors import EventConflictError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.crossing.window_features import (
    AGGREGATES,
    Contribution,
    Declared,
    contributed,
    declare,
    described,
    expected,
    members,
)

USERS = ("u1", "u2")


class Clock(ManualClock):
    """A clock that can be set back, while its monotonic time goes on."""

    _back = timedelta(0)

    def set_back(self, by: timedelta) -> None:
        self._now -= by
        self._back += by

    def monotonic(self) -> int:
        return to_micros(self._now + self._back)


class Event(NamedTuple):
    """A purchase."""

    event_id: str
    user_id: str
    at: datetime
    payload: dict[str, Any]


class Served(NamedTuple):
    """The values that were read of a user at a moment."""

    user_id: str
    at: datetime
    declared: Declared
    values: dict[str, Any]


class Assembled(NamedTuple):
    """A recorded context."""

    user_id: str
    at: datetime
    declared: Declared
    context_id: str
    content: str


@dataclass
class Accepted:
    """What a store has accepted, and what it should have made of it."""

    events: list[Event] = field(default_factory=list)
    waiting: list[Event] = field(default_factory=list)
    letters: list[Event] = field(default_factory=list)
    contributions: dict[tuple[str, str], list[Contribution]] = field(default_factory=dict)
    """By user and family."""
    erased: dict[str, datetime | None] = field(default_factory=dict)
    """Users, and since when they may return; None if they may not."""

    def admits(self, user_id: str, at: datetime) -> bool:
        since = self.erased.get(user_id, datetime.min.replace(tzinfo=UTC))
        return since is not None and at > since

    def drain(self, now: datetime, *, cured: bool) -> None:
        for event in self.waiting:
            for family in AGGREGATES:
                if family == "items" and event.payload["bad"] and not cured:
                    self.letters.append(event)
                else:
                    self.contribute(family, event, now)
        self.waiting = []

    def redrive(self, now: datetime) -> None:
        for event in self.letters:
            self.contribute("items", event, now)
        self.letters = []

    def contribute(self, family: str, event: Event, now: datetime) -> None:
        value = contributed(family, event.payload)
        if value is None:
            return
        rows = self.contributions.setdefault((event.user_id, family), [])
        # Later than all that were written before, also if the clock was set back.
        written_at = max([to_micros(now), *(row.written_at + 1 for row in rows)])
        rows.append(Contribution(to_micros(event.at), written_at, value))

    def replay(self, family: str, now: datetime) -> None:
        """Make the contributions of all events again; imported ones, which are of none, stay."""
        for (_, other), made in self.contributions.items():
            if other == family:
                made[:] = [one for one in made if one.is_imported]
        for event in self.events:
            self.contribute(family, event, now)

    def of(self, user_id: str, family: str) -> list[Contribution]:
        return self.contributions.get((user_id, family), [])

    def forget(self, user_id: str, since: datetime | None) -> None:
        self.erased[user_id] = since
        for family in AGGREGATES:
            self.contributions.pop((user_id, family), None)
        for kept in (self.events, self.letters):
            kept[:] = [event for event in kept if event.user_id != user_id]


class World:
    """A store and everything that was observed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.replace(ingest={"future_tolerance": "3d", "dedup_window": "90d"})
        # Behind the clock of Redis by more than programs let pass.
        self.clock = Clock(datetime.now(UTC).replace(microsecond=0) - timedelta(days=90))
        self.declared = Declared()
        self.accepted = Accepted()
        self.served: list[Served] = []
        self.assembled: list[Assembled] = []
        self.published = self.imported = 0
        self.latest = self.switched = self.clock.now()
        self.recorded: set[tuple[int, str | None]] = set()
        """What the families selected when contexts were recorded."""
        self.folder = Path(settings.home).parent
        self.store = self._open()

    def _open(self) -> FeatureStore:
        store = FeatureStore(settings=self.settings, clock=self.clock)
        self.summary = declare(store, self.declared)
        return store

    async def deploy(self, declared: Declared) -> None:
        """Start another process with this features file in place of the present one."""
        await self.store.close()
        self.declared = declared
        self.store = self._open()

    async def drain(self) -> None:
        await self.store.drain()
        self.accepted.drain(self.clock.now(), cured=self.declared.cured)

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def set_back(self, seconds: float) -> None:
        """Set the clock back; what was observed later than now is not known at its time any more.

        Values are written at times that were read at before.
        """
        self.latest = max(self.latest, self.clock.now())
        self.clock.set_back(timedelta(seconds=seconds))
        now = self.clock.now()
        self.served = [each for each in self.served if each.at < now]
        self.assembled = [each for each in self.assembled if each.at < now]

    async def publish(self, event: Event) -> None:
        publishing = self.store.publish(
            "buy", event.user_id, event.payload, timestamp=event.at, event_id=event.event_id
        )
        if not self.accepted.admits(event.user_id, event.at):
            with pytest.raises(EventConflictError, match="erased"):
                await publishing
            return
        await publishing
        if event not in self.accepted.events:
            self.accepted.events.append(event)
            self.accepted.waiting.append(event)

    async def import_rows(self, family: str, user_id: str, rows: Sequence[tuple[int, Any]]) -> None:
        """Import contributions, twice, and some of them are equal."""
        now, self.imported = self.clock.now(), self.imported + 1
        file = self.folder / f"import{self.imported}.csv"
        with file.open("w", newline="", encoding="utf-8") as opened:
            lines = csv.writer(opened)
            lines.writerow(["user_id", "timestamp", "value"])
            for ago, value in rows:
                at = now - timedelta(seconds=ago)
                lines.writerow([user_id, at.isoformat(), as_text(value)])
        for _ in range(2):
            await self.store.history.import_file(file, [family])
        self.accepted.contributions.setdefault((user_id, family), []).extend(
            Contribution(to_micros(now) - ago * 1_000_000, to_micros(now), value, is_imported=True)
            for ago, value in rows
            if self.accepted.admits(user_id, now - timedelta(seconds=ago))
        )

    async def backfill(self, family: str) -> None:
        """Replay all events for a family that takes all of them, and serve the result."""
        self.wait(max(0.0, (self.latest - self.clock.now()).total_seconds()) + 1)
        await self.drain()
        await self.store.backfills.run(family)
        await self.store.backfills.switch(family)
        self.switched = self.clock.now()
        self.accepted.replay(family, self.clock.now())
        self.wait(11)  # the version before is not kept fresh any more
        await self.drain()

    async def forget(self, user_id: str, *, may_return: bool) -> None:
        await self.drain()
        await self.store.admin.forget("User", user_id, reason="a test", allow_return=may_return)
        self.accepted.forget(user_id, self.clock.now() if may_return else None)
        self.served = [each for each in self.served if each.user_id != user_id]
        self.assembled = [each for each in self.assembled if each.user_id != user_id]
        self.wait(1)

    # What is observed after each step

    async def observe(self) -> None:
        """Read all features; they must be what brute force makes of the contributions."""
        self.wait(0.001)  # a write of this very moment would count as known
        now, names = self.clock.now(), members(self.declared)
        rows = await self.store.get_feature_values(names, USERS)
        for user_id, row in zip(USERS, rows, strict=True):
            values = {name: row[name].value for name in names}
            for family in AGGREGATES:
                self._check_values(user_id, family, values, now, "online")
                self._check_times(user_id, family, row, now)
            if self._is_known(user_id, now):
                self.served.append(Served(user_id, now, self.declared, values))
        self.wait(0.001)

    def _check_values(
        self, user_id: str, family: str, values: dict[str, Any], moment: datetime, where: str
    ) -> None:
        rows = self.accepted.of(user_id, family)
        if where == "as_of":
            rows = [row for row in rows if row.at <= to_micros(moment)]
        for name, fits in expected(self.declared, family, rows, moment).items():
            assert fits(values[name]), (
                f"{name} of {user_id} is {values[name]!r} {where} at {moment}; contributions:\n"
                + "\n".join(f"{from_micros(row.at)} {row.value!r}" for row in rows)
            )

    def _check_times(self, user_id: str, family: str, row: Any, now: datetime) -> None:
        for name in members(self.declared, [family]):
            value = row[name]
            if value.source == "online":
                assert value.as_of == now, name

    def _is_known(self, user_id: str, moment: datetime) -> bool:
        """Return False if values were written or switched later, before the clock was set back."""
        if moment <= self.switched:
            return False
        rows = [row for family in AGGREGATES for row in self.accepted.of(user_id, family)]
        return all(row.written_at < to_micros(moment) for row in rows)

    async def assemble(self, user_id: str) -> None:
        """Record a context, whose text must have the values that a reader gets."""
        self.wait(0.001)
        now = self.clock.now()
        context = await self.summary(user_id)
        values = (await self.store.get_features(members(self.declared), [user_id]))[user_id]
        assert context.content == described(values)
        explained = await self.store.records.explain(context.context_id)
        recorded = {read.feature: read.value for read in explained.features}
        assert recorded == values
        self.recorded.add(_selection(self.declared))
        if self._is_known(user_id, now):
            made = Assembled(user_id, now, self.declared, context.context_id, context.content)
            self.assembled.append(made)
        self.wait(0.001)

    # What must stay true of everything that was observed

    async def check(self, *, exported: bool, audited: bool) -> None:
        """Compare what was served with what is known, and history with brute force."""
        folder = self.folder / "exported" if exported else None
        if folder is not None:
            # An export of before its features were declared has not got them.
            self.wait(max(0.0, (self.latest - self.clock.now()).total_seconds()) + 1)
            await self.store.history.export(folder)
        await self._check_known(folder)
        await self._check_as_of(folder)
        for each in self.assembled:
            if each.declared._replace(cured=self.declared.cured) != self.declared:
                continue  # other code reads other features
            replay = await self.store.replay(each.context_id, "as_of")
            assert replay.content == each.content, replay.fidelity
        # A record does not say what its windows selected: an audit takes what they select now.
        if audited and self.recorded <= {_selection(self.declared)}:
            report = await self.store.admin.audit()
            assert report.differences == []
            assert report.served.differences == []

    async def _check_known(self, folder: Path | None) -> None:
        names = members(self.declared)
        frame = [{"user_id": each.user_id, "timestamp": each.at} for each in self.served]
        found = await self.store.get_historical_features(frame, names, known=True, exported=folder)
        for row, served in zip(found, self.served, strict=True):
            compared = served.values.keys() & {*names}
            if _selection(served.declared) != _selection(self.declared):
                compared -= {*members(served.declared, ["cards"])}
            for name in compared:
                assert row[name] == served.values[name], (
                    f"{name} of {served.user_id} was served as {served.values[name]!r} at"
                    f" {served.at}, and is known as {row[name]!r}"
                )

    async def _check_as_of(self, folder: Path | None) -> None:
        names = members(self.declared)
        frame = [
            {"user_id": user_id, "timestamp": moment}
            for user_id in USERS
            for moment in self._moments(user_id)
            if folder is None or moment <= self.clock.now()
        ]
        found = await self.store.get_historical_features(frame, names, exported=folder)
        for row in found:
            for family in AGGREGATES:
                self._check_values(row["user_id"], family, row, row["timestamp"], "as_of")

    def _moments(self, user_id: str) -> list[datetime]:
        """Return times at which values change: of contributions, and when windows leave them."""
        times = {row.at for family in AGGREGATES for row in self.accepted.of(user_id, family)}
        moments = {self.clock.now()}
        for at in sorted(times)[-6:]:
            for span in (timedelta(0), timedelta(minutes=1), timedelta(minutes=10)):
                moment = from_micros(at) + span
                moments |= {moment, moment - timedelta(microseconds=1)}
        return sorted(moments)


def _selection(declared: Declared) -> tuple[int, str | None]:
    """Return what decides which contributions count, and under which keys."""
    return declared.max_keys, declared.kind


def as_text(value: Any) -> str:
    """Return a contribution as a cell of a CSV file."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
