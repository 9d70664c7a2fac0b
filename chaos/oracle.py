"""The expected state after a run, computed from the acknowledged events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from chaos.features import EMPTY, Chain, extended
from chaos.plan import CHAINED, Step
from chaos.producer import Intruder
from headwater import FeatureStore
from headwater.core.values import MALFORMED
from headwater.declarations.runtime import runtime_of
from headwater.engine.batch import NO_FEATURE
from headwater.ports import DeadLetter

Letter = tuple[str, str]
"""An event id, or the token of a malformed entry, and the feature that failed."""

_DOOMED = {"raise": "raises", "hang": "hangs", "stick": "sticks", "exit": "exits", "kill": "kills"}
_MOST_LETTERS = 1_000_000

_CAUSES = """
SELECT cause, count(*) FROM feature_history WHERE feature IN ('chain', 'given')
GROUP BY cause HAVING count(*) > 1
"""
_CAUSE_COUNT = "SELECT count(*) FROM feature_history WHERE feature IN ('chain', 'given')"
_EVENTS = "SELECT event_id, count(*) FROM events GROUP BY event_id HAVING count(*) > 1"
_EVENT_COUNT = "SELECT count(*) FROM events"


class Expected:
    """The effects of the acknowledged events, each applied once and in order."""

    def __init__(self) -> None:
        self.events = 0
        self.causes = 0
        self.chains: dict[str, Chain] = {}
        self.given: Counter[str] = Counter()
        self.filled: Counter[str] = Counter()
        self.letters: Counter[Letter] = Counter()

    def take(self, step: Step) -> None:
        self.events += 1
        if step.event_type in CHAINED:
            before = self.chains.get(step.entity_id, EMPTY)
            self.chains[step.entity_id] = extended(before, step.payload["number"], step.event_id)
            self.causes += 1
        elif step.event_type == "gift":
            self.given[step.entity_id] += 1
            self.filled[step.payload["pot"]] += 1
            self.causes += 1
        elif step.event_type == "coin":
            self.filled[step.entity_id] += 1
        if step.event_type in _DOOMED:
            self.letters[step.event_id, _DOOMED[step.event_type]] += 1


class Verdict(msgspec.Struct, frozen=True):
    """The result of a comparison; ``violations`` describes each difference."""

    lost: int
    doubled: int
    reordered: int
    letters_expected: int
    letters_found: int
    differences: int
    violations: list[str]


class Oracle:
    """Compares the content of a store with the expected state."""

    def __init__(self, store: FeatureStore, expected: Expected) -> None:
        self._store = store
        self._expected = expected
        self._violations: list[str] = []
        self._lost = self._doubled = self._reordered = 0

    async def judge(self, intruder: Intruder) -> Verdict:
        """Compare everything; call it when no event is pending."""
        expected = self._expected
        self._compare_chains(await self._values("chain", expected.chains))
        for feature, counts in (("given", expected.given), ("filled", expected.filled)):
            self._compare_counts(feature, counts, await self._values(feature, counts))
        await self._compare_log("history", expected.causes, _CAUSE_COUNT, _CAUSES)
        await self._compare_log("the event log", expected.events, _EVENT_COUNT, _EVENTS)
        letters = Counter(map(_named, await self._store.dead_letters.list(limit=_MOST_LETTERS)))
        arrived = {token for token in intruder.unsure if (token, NO_FEATURE) in letters}
        malformed = Counter((token, NO_FEATURE) for token in intruder.sent | arrived)
        self._compare_letters(letters, expected.letters + malformed)
        audit = await self._store.admin.audit()
        for difference in audit.differences:
            self._violations.append(f"online and history differ: {difference}")
        return Verdict(
            self._lost,
            self._doubled,
            self._reordered,
            expected.letters.total() + malformed.total(),
            letters.total(),
            len(audit.differences),
            self._violations,
        )

    async def _values(self, feature: str, entity_ids: Collection[str]) -> dict[str, Any]:
        rows = await self._store.get_features([feature], list(entity_ids))
        return {entity_id: row[feature] for entity_id, row in rows.items()}

    def _compare_chains(self, found: Mapping[str, Chain | None]) -> None:
        for account, wanted in self._expected.chains.items():
            own = found[account] or EMPTY
            if own[0] != wanted[0]:
                self._count(f"the chain of {account}", wanted[0], own[0])
            elif own != wanted:
                self._reordered += 1
                self._violations.append(f"the chain of {account} is {own}, not {wanted}")

    def _compare_counts(
        self, feature: str, wanted: Mapping[str, int], found: Mapping[str, int | None]
    ) -> None:
        for entity_id, count in wanted.items():
            self._count(f"{feature} of {entity_id}", count, found[entity_id] or 0)

    def _count(self, what: str, wanted: int, found: int) -> None:
        self._lost += max(0, wanted - found)
        self._doubled += max(0, found - wanted)
        if found != wanted:
            self._violations.append(f"{what} has {found} events, not {wanted}")

    async def _compare_log(self, what: str, wanted: int, count: str, repeated: str) -> None:
        offline = (await runtime_of(self._store).open()).backends.offline
        twice = (await offline.query(repeated, {})).rows
        ((found,),) = (await offline.query(count, {})).rows
        self._violations += [f"{what} has {event_id} {times} times" for event_id, times in twice]
        if found != wanted:
            self._violations.append(f"{what} has {found} events, not {wanted}")

    def _compare_letters(self, found: Counter[Letter], wanted: Counter[Letter]) -> None:
        for token, feature in found - wanted:
            self._violations.append(f"unexpected dead letter of {token} for {feature}")
        for token, feature in wanted - found:
            self._violations.append(f"no dead letter of {token} for {feature}")


def _named(letter: DeadLetter) -> Letter:
    if letter.event.event_type != MALFORMED:
        return letter.event.event_id, letter.feature
    token = re.search(r"malformed-\d+", str(letter.event.payload["fields"]))
    return token[0] if token else "?", letter.feature


def expect(steps: Iterable[Step]) -> Expected:
    """Return the state expected after these events."""
    expected = Expected()
    for step in steps:
        expected.take(step)
    return expected
