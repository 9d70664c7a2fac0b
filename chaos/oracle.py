"""The expected state after a run, computed from the acknowledged events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any

import msgspec

from chaos.features import EMPTY, Chain, contribution, extended, note
from chaos.fleet import SECOND_GROUP
from chaos.next_features import Run
from chaos.plan import CHAINED, Step
from chaos.producer import Intruder
from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.batch import NO_FEATURE
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import MALFORMED
from headwater.settings.schema import Settings

FIRST_GROUP = Settings().worker.consumer_group

Letter = tuple[str, str, str]
"""A consumer group, an event id or the token of a malformed entry, and the feature that failed."""

_DOOMED = {
    "raise": "raises",
    "broken": "breaks",
    "relapse": "breaks",
    "hang": "hangs",
    "stick": "sticks",
    "block": "blocks",
    "exit": "exits",
    "kill": "kills",
}
_WINDOWS = [f"stepped_{aggregate}_7d" for aggregate in ("count", "sum", "max", "last3")]
"""Windows that are longer than a run; the audit compares the shorter ones with history."""
_MOST_LETTERS = 1_000_000
_MOST_CHUNKS = 100

_CAUSES = """
SELECT cause, count(*) FROM feature_history WHERE feature = '{feature}'
GROUP BY cause HAVING count(*) > 1
"""
_CAUSE_COUNT = "SELECT count(*) FROM feature_history WHERE feature = '{feature}'"
_EVENTS = "SELECT event_id, count(*) FROM events GROUP BY event_id HAVING count(*) > 1"
_EVENT_COUNT = "SELECT count(*) FROM events"


class Expected:
    """The effects of the acknowledged events, each applied once and in order."""

    def __init__(self) -> None:
        self.events = 0
        self.chains: dict[str, Chain] = {}
        self.given: Counter[str] = Counter()
        self.filled: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.notes: dict[str, str] = {}
        """The last event that wrote the document of each account."""
        self.letters: Counter[Letter] = Counter()
        self.types: dict[str, str] = {}
        """The types of the events that must fail."""

    def take(self, step: Step) -> None:
        self.events += 1
        if step.event_type in CHAINED:
            before = self.chains.get(step.entity_id, EMPTY)
            self.chains[step.entity_id] = extended(before, step.payload["number"], step.event_id)
        elif step.event_type == "gift":
            self.given[step.entity_id] += 1
            self.filled[step.payload["pot"]] += 1
        elif step.event_type == "coin":
            self.filled[step.entity_id] += 1
        elif step.event_type == "note":
            self.noted[step.entity_id] += 1
            self.notes[step.entity_id] = step.event_id
        if step.event_type in _DOOMED:
            self.letters[FIRST_GROUP, step.event_id, _DOOMED[step.event_type]] += 1
            self.types[step.event_id] = step.event_type


class Tally(msgspec.Struct):
    """The differences of one feature, in events."""

    lost: int = 0
    doubled: int = 0
    reordered: int = 0


class Breaker(msgspec.Struct, frozen=True):
    """Failed events by the state of the circuit breaker, which their attempts show."""

    opened: int
    """Events that got one attempt, because the breaker was open."""
    closed: int
    """Events that were retried again after the feature had recovered."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of a comparison; ``violations`` describes each difference."""

    tallies: Mapping[str, Tally]
    """By consumer group and feature."""
    letters_expected: int
    letters_found: int
    breaker: Breaker
    differences: int
    violations: list[str]


class Oracle:
    """Compares the content of a store, as both consumer groups see it, with the expected state."""

    def __init__(
        self,
        first: FeatureStore,
        second: FeatureStore,
        expected: Expected,
        required: Mapping[str, int],
        *,
        is_cluster: bool,
        uncertain: Collection[Letter] = (),
    ) -> None:
        self._first = first
        self._second = second
        self._expected = expected
        self._required = required
        self._is_cluster = is_cluster
        self._uncertain = uncertain
        """The dead letters that may be missing, or be there twice."""
        self._tallies: dict[str, Tally] = {}
        self._violations: list[str] = []

    async def judge(self, intruder: Intruder) -> Verdict:
        """Compare everything; call it when no event is pending."""
        expected, first, second = self._expected, self._first, self._second
        for store, group, feature in (
            (first, FIRST_GROUP, "chain"),
            (second, SECOND_GROUP, "seen"),
        ):
            tally = self._tally(group, feature)
            found = await _values(store, feature, expected.chains)
            self._compare_chains(tally, f"the {feature} of", found)
        for feature, counts in self._counted():
            tally = self._tally(FIRST_GROUP, feature)
            found = await _values(first, feature, counts)
            for entity_id, count in counts.items():
                self._count(tally, f"{feature} of {entity_id}", count, found[entity_id] or 0)
        await self._compare_windows()
        await self._compare_notes()
        self._compare_runs(await _values(first, "deployed", self._required))
        await self._compare_history()
        letters = await first.dead_letters.list(limit=_MOST_LETTERS)
        wanted = self._compare_letters(Counter(map(named, letters)), intruder)
        differences = [*await _differences(first), *await _differences(second)]
        self._violations += [f"online and history differ: {each}" for each in differences]
        return Verdict(
            self._tallies,
            wanted,
            len(letters),
            self._breaker(letters),
            len(differences),
            self._violations,
        )

    def _counted(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        yield "given", self._expected.given
        yield "noted", self._expected.noted
        if not self._is_cluster:
            # On a cluster, writes to another partition do not check the version of the entity.
            yield "filled", self._expected.filled

    def _tally(self, group: str, feature: str) -> Tally:
        return self._tallies.setdefault(f"{group}: {feature}", Tally())

    def _compare_chains(self, tally: Tally, what: str, found: Mapping[str, Chain | None]) -> None:
        for account, wanted in self._expected.chains.items():
            own = found[account] or EMPTY
            if own[0] != wanted[0]:
                self._count(tally, f"{what} {account}", wanted[0], own[0])
            elif own != wanted:
                tally.reordered += 1
                self._violations.append(f"{what} {account} is {own}, not {wanted}")

    def _compare_runs(self, found: Mapping[str, Run | None]) -> None:
        """Compare the events that the deployed feature handled in a row with the required ones."""
        tally = self._tally(FIRST_GROUP, "deployed")
        for account, required in self._required.items():
            newest = self._expected.chains[account][1]
            first, last = found[account] or (newest + 1, newest)
            if first > required or last != newest:
                tally.lost += max(0, first - required) + abs(newest - last)
                self._violations.append(
                    f"deployed of {account} has the events from {first} to {last} in a row, "
                    f"not from {required} to {newest}"
                )

    async def _compare_windows(self) -> None:
        """Compare windows with the events of each account, which are numbered from 1."""
        tally = self._tally(FIRST_GROUP, "stepped")
        rows = await self._first.get_features(_WINDOWS, list(self._expected.chains))
        for account, (count, _, _) in self._expected.chains.items():
            found = [rows[account][name] for name in _WINDOWS]
            values = [contribution(number) for number in range(1, count + 1)]
            self._count(tally, f"stepped of {account}", count, found[0])
            if found[0] == count and found != [count, fsum(values), values[-1], values[-3:]]:
                tally.reordered += 1
                self._violations.append(f"the windows of {account} are {found}")

    async def _compare_notes(self) -> None:
        """Compare the documents of the index; each event made one version."""
        tally = self._tally(FIRST_GROUP, "documents of noted")
        for account, event_id in self._expected.notes.items():
            stored = await self._first.indexes.get_document("notes", account)
            found = 0 if stored is None else stored.version
            wanted = self._expected.noted[account]
            self._count(tally, f"the document of {account}", wanted, found)
            if found == wanted and (stored is None or stored.text != note(event_id)):
                tally.reordered += 1
                self._violations.append(f"the document of {account} is not that of {event_id}")
        chunks = await self._first.search("notes", "note", mode="text", top_k=_MOST_CHUNKS)
        texts: dict[str | None, list[str]] = {}
        for chunk in sorted(chunks, key=lambda chunk: chunk.position or 0):
            texts.setdefault(chunk.document, []).append(chunk.text)
        notes = {account: note(event_id) for account, event_id in self._expected.notes.items()}
        if {account: "\n\n".join(own) for account, own in texts.items()} != notes:
            self._violations.append(f"the chunks of the index are {texts}")

    def _count(self, tally: Tally, what: str, wanted: int, found: int) -> None:
        tally.lost += max(0, wanted - found)
        tally.doubled += max(0, found - wanted)
        if found != wanted:
            self._violations.append(f"{what} has {found} events, not {wanted}")

    async def _compare_history(self) -> None:
        expected = self._expected
        chained = sum(count for count, _, _ in expected.chains.values())
        await self._compare_log("the event log", expected.events, _EVENT_COUNT, _EVENTS)
        for feature, wanted in (
            ("chain", chained),
            ("seen", chained),
            ("stepped", chained),
            ("given", expected.given.total()),
            ("noted", expected.noted.total()),
            ("deployed", None),
        ):
            queries = (query.format(feature=feature) for query in (_CAUSE_COUNT, _CAUSES))
            await self._compare_log(f"the history of {feature}", wanted, *queries)

    async def _compare_log(self, what: str, wanted: int | None, count: str, repeated: str) -> None:
        offline = (await runtime_of(self._first).open()).backends.offline
        twice = (await offline.query(repeated, {})).rows
        ((found,),) = (await offline.query(count, {})).rows
        self._violations += [f"{what} has {event_id} {times} times" for event_id, times in twice]
        if wanted is not None and found != wanted:
            self._violations.append(f"{what} has {found} events, not {wanted}")

    def _compare_letters(self, found: Counter[Letter], intruder: Intruder) -> int:
        """Compare the dead letters; return how many there should be."""
        names = {token for _, token, feature in found if feature == NO_FEATURE}
        malformed = rejected(intruder.sent | (intruder.unsure & names))
        wanted = self._expected.letters + malformed
        for group, token, feature in (found - wanted).keys() - self._uncertain:
            self._violations.append(f"unexpected dead letter of {token} for {feature} in {group}")
        for group, token, feature in (wanted - found).keys() - self._uncertain:
            self._violations.append(f"no dead letter of {token} for {feature} in {group}")
        return wanted.total()

    def _breaker(self, letters: Sequence[DeadLetter]) -> Breaker:
        attempts = Counter(
            (self._expected.types.get(letter.event.event_id), letter.attempts)
            for letter in letters
            if letter.feature == "breaks"
        )
        breaker = Breaker(opened=attempts["broken", 1], closed=attempts["relapse", 2])
        if not breaker.opened:
            self._violations.append("the circuit breaker of breaks did not open")
        if not breaker.closed:
            self._violations.append("the circuit breaker of breaks did not close")
        return breaker


async def _values(store: FeatureStore, feature: str, entity_ids: Iterable[str]) -> dict[str, Any]:
    rows = await store.get_features([feature], list(entity_ids))
    return {entity_id: row[feature] for entity_id, row in rows.items()}


async def _differences(store: FeatureStore) -> Sequence[object]:
    return (await store.admin.audit()).differences


def named(letter: DeadLetter) -> Letter:
    if letter.event.event_type != MALFORMED:
        return letter.group, letter.event.event_id, letter.feature
    token = re.search(r"malformed-\d+", str(letter.event.payload["fields"]))
    return letter.group, token[0] if token else "?", letter.feature


def rejected(tokens: Iterable[str]) -> Counter[Letter]:
    """Return the dead letters of malformed entries."""
    groups = (FIRST_GROUP, SECOND_GROUP)
    return Counter((group, token, NO_FEATURE) for token in tokens for group in groups)


def expect(steps: Iterable[Step]) -> Expected:
    """Return the state expected after these events."""
    expected = Expected()
    for step in steps:
        expected.take(step)
    return expected
