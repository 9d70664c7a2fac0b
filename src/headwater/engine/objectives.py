"""Objectives of features and contexts: how many of their results met them, and how fast they burn.

The error budget of an objective is what its target leaves: of a target of 0.99 one in a hundred
may miss it. A burn rate of 1 uses exactly that; one of 14.4 uses the budget of 30 days in two.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

from prometheus_client import Gauge

from headwater.core.clock import Clock
from headwater.core.durations import parse_duration
from headwater.core.metrics import TallyCounter
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Assemble, Call, Commit, Interceptor, Step
from headwater.declarations.registry import Registry
from headwater.errors import FreshnessSLAError
from headwater.features.schedule import REFRESH, due_of
from headwater.model.contexts import Overrides
from headwater.model.health import ObjectiveState
from headwater.model.lineage import Context
from headwater.ports import Handled, Outcome
from headwater.settings.groups import ObjectiveSettings
from headwater.settings.kinds import Objective

WINDOWS = {"5m": 300, "1h": 3_600}
"""The times in seconds over which results are counted, by their names."""
_STEP = 10

RESULTS = TallyCounter(
    "headwater_objective_total",
    "Results that an objective is about; `result` is `good` or `bad`.",
    ["kind", "name", "objective", "result"],
)


TARGETS = Gauge(
    "headwater_objective_target",
    "The share of results that shall be good.",
    ["kind", "name", "objective"],
)
RECENT = Gauge(
    "headwater_objective_recent",
    "Results of this process in the last five minutes and in the last hour; `result` is `good` or "
    "`bad`, `window` is `5m` or `1h`.",
    ["kind", "name", "objective", "window", "result"],
)


class Key(NamedTuple):
    """One objective: of a feature or a context, about its freshness or its latency."""

    kind: Literal["feature", "context"]
    name: str
    objective: Literal["freshness", "latency"]


class ObjectiveCounts(NamedTuple):
    """The targets of objectives, and their results by window and kind, of several processes."""

    targets: Mapping[Key, float]
    results: Mapping[tuple[Key, str, str], int]

    def states(self) -> list[ObjectiveState]:
        """Return the objectives, the fastest burning first."""
        states = [self._state(key, target) for key, target in self.targets.items()]
        return sorted(states, key=lambda state: (-(state.burn_rate or 0), state.kind, state.name))

    def _state(self, key: Key, target: float) -> ObjectiveState:
        bad, total = self._of(key, "1h")
        rates = [
            None if not total else round(bad / total / (1 - target), 2)
            for bad, total in (self._of(key, window) for window in WINDOWS)
        ]
        return ObjectiveState(
            kind=key.kind,
            name=key.name,
            objective=key.objective,
            target=target,
            total=total,
            bad=bad,
            burn_rate_5m=rates[0],
            burn_rate=rates[1],
        )

    def _of(self, key: Key, window: str) -> tuple[int, int]:
        good, bad = (self.results.get((key, window, result), 0) for result in ("good", "bad"))
        return bad, good + bad


NO_OBJECTIVES = ObjectiveCounts({}, {})


class _Recent:
    """The good and bad results of each ten seconds of the last hour."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, list[int]]] = deque(maxlen=WINDOWS["1h"] // _STEP)

    def add(self, *, is_good: bool) -> None:
        step = int(time.monotonic()) // _STEP
        if not self._steps or self._steps[-1][0] != step:
            self._steps.append((step, [0, 0]))
        self._steps[-1][1][not is_good] += 1

    def count(self, seconds: int, place: int) -> int:
        """Return how many were good (place 0) or bad (1) in so many last seconds."""
        first = (int(time.monotonic()) - seconds) // _STEP
        return sum(counts[place] for step, counts in list(self._steps) if step > first)


_recent: dict[Key, _Recent] = {}


def _register(key: Key, target: float) -> None:
    """Begin to count an objective, which several stores of this process may share."""
    counted = _recent.setdefault(key, _Recent())
    TARGETS.labels(*key).set(target)
    for window, seconds in WINDOWS.items():
        for place, result in enumerate(("good", "bad")):
            count = partial(counted.count, seconds, place)
            RECENT.labels(*key, window, result).set_function(count)


class Objectives(Interceptor):
    """Counts what an open store does against its objectives; without any, it costs nothing."""

    def __init__(self, settings: ObjectiveSettings, registry: Registry, clock: Clock) -> None:
        declared = {"feature": {*registry.features}, "context": {*registry.contexts}}
        self._limits = {
            key: seconds for key, seconds, _ in _stated(settings) if key.name in declared[key.kind]
        }
        self._features = {key.name for key in self._limits if key.kind == "feature"}
        self._contexts = {key.name for key in self._limits if key.kind == "context"}
        self._clock = clock
        for key, _, target in _stated(settings):
            if key in self._limits:
                _register(key, target)

    def assemble(self, inner: Assemble) -> Assemble:
        async def assemble(
            context: ContextDef,
            args: Sequence[Any],
            named: Mapping[str, Any],
            overrides: Overrides,
        ) -> Context:
            if context.name not in self._contexts:
                return await inner(context, args, named, overrides)
            freshness = Key("context", context.name, "freshness")
            with self._timing(Key("context", context.name, "latency")):
                try:
                    assembled = await inner(context, args, named, overrides)
                except FreshnessSLAError:
                    self._count(freshness, None)
                    raise
            self._count(freshness, (assembled.lineage.stalest_ms or 0) / 1_000)
            return assembled

        return assemble if self._contexts else inner

    def commit(self, inner: Commit) -> Commit:
        async def commit(outcome: Outcome) -> None:
            await inner(outcome)
            self._count_visible(outcome.handled)

        return commit if self._features else inner

    def call(self, step: Step, inner: Any) -> Any:
        return self._timed(inner) if step == "feature" and self._features else inner

    def _timed(self, inner: Call) -> Call:
        async def timed(slot: Any, scope: Any, feature: FeatureDef, *rest: Any) -> Any:
            if feature.name not in self._features:
                return await inner(slot, scope, feature, *rest)
            with self._timing(Key("feature", feature.name, "latency")):
                return await inner(slot, scope, feature, *rest)

        return timed

    @contextmanager
    def _timing(self, key: Key) -> Iterator[None]:
        """Count the time of what is inside, also if it fails; not if its caller gave it up."""
        began = time.perf_counter()
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._count(key, time.perf_counter() - began)
            raise
        self._count(key, time.perf_counter() - began)

    def _count_visible(self, handled: Iterable[Handled]) -> None:
        """Count how old events, and due times of schedules, were when their values were visible."""
        now = self._clock.now()
        for one in handled:
            event, failed = one.event, {failure.feature for failure in one.failures}
            for name in {*one.updated, *failed} & self._features:
                at = due_of(event).due if event.event_type == REFRESH else event.timestamp
                age = None if name in failed else (now - at).total_seconds()
                self._count(Key("feature", name, "freshness"), age)

    def _count(self, key: Key, taken: float | None) -> None:
        """Count one result that took so many seconds; None if it failed."""
        most = self._limits.get(key)
        if most is not None:
            is_good = taken is not None and taken <= most
            RESULTS.add(*key, "good" if is_good else "bad")
            _recent[key].add(is_good=is_good)


def _stated(settings: ObjectiveSettings) -> Iterator[tuple[Key, float, float]]:
    """Yield each objective of the settings, its limit in seconds and its target."""
    kinds: Sequence[tuple[Literal["feature", "context"], Mapping[str, Objective]]] = (
        ("feature", settings.features),
        ("context", settings.contexts),
    )
    for kind, objectives in kinds:
        for name, objective in objectives.items():
            if objective.freshness is not None:
                seconds = parse_duration(objective.freshness) / 1_000
                yield Key(kind, name, "freshness"), seconds, objective.target
            if objective.latency is not None:
                seconds = parse_duration(objective.latency) / 1_000
                yield Key(kind, name, "latency"), seconds, objective.target


def unknown_objectives(settings: ObjectiveSettings, registry: Registry) -> list[str]:
    """Return the settings about features and contexts that are not declared."""
    return [
        *(f"objectives.features.{n}" for n in sorted(settings.features.keys() - registry.features)),
        *(f"objectives.contexts.{n}" for n in sorted(settings.contexts.keys() - registry.contexts)),
    ]
