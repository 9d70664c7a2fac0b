"""Objectives of features and contexts: how many of their results met them, and how fast they burn.

The error budget of an objective is what its target leaves: of a target of 0.99 one in a hundred
may miss it. A burn rate of 1 uses exactly that; one of 14.4 uses the budget of 30 days in two.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from prometheus_client import Gauge

from headwater.contexts.assembler import is_incomplete
from headwater.core.clock import EPOCH, Clock
from headwater.core.durations import parse_duration
from headwater.core.logging import Outage
from headwater.core.metrics import TallyCounter
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Assemble, Call, Commit, Interceptor, Step
from headwater.declarations.registry import Registry
from headwater.errors import (
    CallerLimitError,
    FreshnessSLAError,
    InvalidInputError,
    NotFoundError,
)
from headwater.errors.hints import nearest
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.features.schedule import REFRESH, due_of, last_due
from headwater.model.admin import ConsumerLag
from headwater.model.contexts import Overrides
from headwater.model.health import ObjectiveState
from headwater.model.lineage import Context
from headwater.ports import BatchOutcome, Cache, Cached, Handled
from headwater.settings.groups import ObjectiveSettings
from headwater.settings.kinds import Objective

WINDOWS = {"5m": 300, "1h": 3_600}
"""The times in seconds over which results are counted, by their names."""
_STEP = 10
_KINDS = {
    "on_demand": "computed on demand",
    "template": "a template",
    "stored": "written by others",
    "scheduled": "a query",
}
# A run is noted at most this long after its end, see `RefreshOutcomes`.
_NOTING = timedelta(seconds=20)
# The request was wrong, not its answer.
_OF_CALLERS = (CallerLimitError, InvalidInputError, NotFoundError)

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


_Kind = Literal["feature", "context"]
_About = Literal["freshness", "latency"]


class ObjectiveKey(NamedTuple):
    """One objective: of a feature or a context, about its freshness or its latency."""

    kind: _Kind
    name: str
    objective: _About


class ObjectiveCounts(NamedTuple):
    """The targets of objectives, and their results by window and kind, of several processes."""

    targets: Mapping[ObjectiveKey, float]
    results: Mapping[tuple[ObjectiveKey, str, str], int]

    def plus(self, results: Mapping[tuple[ObjectiveKey, str, str], int]) -> ObjectiveCounts:
        """Return these with more results."""
        return self._replace(results=Counter(self.results) + Counter(results))

    def states(self) -> list[ObjectiveState]:
        """Return the objectives, the fastest burning first."""
        states = [self._state(key, target) for key, target in self.targets.items()]
        return sorted(states, key=lambda state: (-(state.burn_rate or 0), state.kind, state.name))

    def _state(self, key: ObjectiveKey, target: float) -> ObjectiveState:
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

    def _of(self, key: ObjectiveKey, window: str) -> tuple[int, int]:
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


_recent: dict[ObjectiveKey, _Recent] = {}
_NOTED = timedelta(minutes=1)
_decode = msgspec.json.Decoder(list[tuple[ObjectiveKey, str, str, int]]).decode


def _register(key: ObjectiveKey, target: float) -> None:
    """Begin to count an objective, which several stores of this process may share."""
    counted = _recent.setdefault(key, _Recent())
    TARGETS.labels(*key).set(target)
    for result in ("good", "bad"):
        RESULTS.add(*key, result, count=0)  # a series that began at one has no rate
    for window, seconds in WINDOWS.items():
        for place, result in enumerate(("good", "bad")):
            count = partial(counted.count, seconds, place)
            RECENT.labels(*key, window, result).set_function(count)


async def note_counts(notes: Cache, clock: Clock, worker: str) -> None:
    """Keep the results of a worker in the store, for the overview of servers, until cancelled."""
    outage = Outage("objectives")
    while True:
        with outage.reporting("warning", "results of objectives not noted; retrying", "worker"):
            counts = [
                (key, window, result, counted.count(seconds, place))
                for key, counted in _recent.items()
                for window, seconds in WINDOWS.items()
                for place, result in enumerate(("good", "bad"))
            ]
            value = Cached(msgspec.json.encode(counts), clock.micros())
            await notes.put(f"objectives:{worker}", value, _NOTED)
        await asyncio.sleep(_STEP)


async def noted_counts(
    notes: Cache, workers: Iterable[str]
) -> Mapping[tuple[ObjectiveKey, str, str], int]:
    """Return the results that workers keep in the store: those that no server reports."""
    results = Counter[tuple[ObjectiveKey, str, str]]()
    for stored in await asyncio.gather(*(notes.get(f"objectives:{name}") for name in workers)):
        for key, window, result, count in _decode(stored.value) if stored else ():
            results[key, window, result] += count
    return results


class Objectives(Interceptor):
    """Counts what an open store does against its objectives; without any, it costs nothing."""

    def __init__(self, settings: ObjectiveSettings, registry: Registry, clock: Clock) -> None:
        self._limits = {key: seconds for key, seconds, _ in _stated(settings)}
        self._targets = {key: target for key, _, target in _stated(settings)}
        self._features = {key.name for key in self._limits if key.kind == "feature"}
        self._contexts = {key.name for key in self._limits if key.kind == "context"}
        self._registry = registry
        self._clock = clock
        self._counted: set[ObjectiveKey] = set()
        self._revision = -1
        self._follow_declarations()

    def _follow_declarations(self) -> None:
        """Begin to count the objectives of what was declared, also after the store was opened."""
        revision = self._registry.revision + len(self._registry.contexts)
        if revision != self._revision:
            self._revision = revision
            for key, target in self._targets.items():
                if why_uncounted(key, self._registry) is None:
                    _register(key, target)
                    self._counted.add(key)

    def assemble(self, inner: Assemble) -> Assemble:
        async def assemble(
            context: ContextDef,
            args: Sequence[Any],
            named: Mapping[str, Any],
            overrides: Overrides,
        ) -> Context:
            if context.name not in self._contexts:
                return await inner(context, args, named, overrides)
            freshness = ObjectiveKey("context", context.name, "freshness")
            with self._timing(ObjectiveKey("context", context.name, "latency")):
                try:
                    assembled = await inner(context, args, named, overrides)
                except (asyncio.CancelledError, *_OF_CALLERS):
                    raise
                except BaseException:
                    self._count(freshness, None)
                    raise
            age = (assembled.lineage.stalest_ms or 0) / 1_000
            self._count(freshness, None if is_incomplete(assembled) else age)
            return assembled

        return assemble if self._contexts else inner

    def commit(self, inner: Commit) -> Commit:
        async def commit(outcome: BatchOutcome) -> None:
            await inner(outcome)
            self._count_visible(outcome.handled)

        return commit if self._features else inner

    def call(self, step: Step, inner: Any) -> Any:
        return self._timed(inner) if step == "feature" and self._features else inner

    def _timed(self, inner: Call) -> Call:
        async def timed(slot: Any, scope: Any, feature: FeatureDef, *rest: Any) -> Any:
            if feature.name not in self._features:
                return await inner(slot, scope, feature, *rest)
            with self._timing(ObjectiveKey("feature", feature.name, "latency")):
                return await inner(slot, scope, feature, *rest)

        return timed

    @contextmanager
    def _timing(self, key: ObjectiveKey) -> Iterator[None]:
        """Count the time of the block; an error has missed the limit, a refusal has not.

        What its caller gave up, or asked for wrongly, is not counted.
        """
        began = time.perf_counter()
        try:
            yield
        except (asyncio.CancelledError, *_OF_CALLERS):
            raise
        except FreshnessSLAError:
            self._count(key, time.perf_counter() - began)
            raise
        except BaseException:
            self._count(key, None)
            raise
        self._count(key, time.perf_counter() - began)

    def _count_visible(self, handled: Iterable[Handled]) -> None:
        """Count how old events, and due times of schedules, were when their values were visible."""
        now = self._clock.now()
        for one in handled:
            event, failed = one.event, self._failed(one)
            for name in {*one.updated, *failed} & self._features:
                at = due_of(event).due if event.event_type == REFRESH else event.timestamp
                age = None if name in failed else (now - at).total_seconds()
                self._count(ObjectiveKey("feature", name, "freshness"), age)

    async def count_waiting(self, lags: Sequence[ConsumerLag], notes: Cache) -> None:
        """Count what is too late already, although nothing commits it: one call in ten seconds.

        That is one result for each partition whose oldest event waits for longer than the limit,
        and one for a schedule whose last due time has passed by the limit without a run.
        """
        now, outcomes = self._clock.now(), RefreshOutcomes(notes, self._clock)
        for key in sorted(self._counted):
            if key[::2] != ("feature", "freshness"):
                continue
            feature, limit = self._registry.feature(key.name), self._limits[key]
            before, late = now - timedelta(seconds=limit), 0
            if feature.triggers:
                late = sum(1 for lag in lags if lag.oldest_at and lag.oldest_at < before)
            elif feature.refresh:
                due = last_due(feature, before - _NOTING)
                ended = (await outcomes.read([key.name]))[key.name]
                late = ended.succeeded_at is not None and (
                    max(ended.succeeded_at, ended.failed_due or EPOCH) < due
                )
            for _ in range(late):
                self._count(key, None)

    def _failed(self, handled: Handled) -> Set[str]:
        """Return the names of the features that failed, of those whose results are counted.

        A handler fails under the series of its version, which the name means if it is served; a
        tick fails under the name.
        """
        failed = {failure.feature for failure in handled.failures}
        if not failed or handled.event.event_type == REFRESH:
            return failed
        features = self._registry.features
        return {n for n in self._features & features.keys() if features[n].series in failed}

    def _count(self, key: ObjectiveKey, taken: float | None) -> None:
        """Count one result that took so many seconds; None if it failed."""
        self._follow_declarations()
        if key in self._counted:
            is_good = taken is not None and taken <= self._limits[key]
            RESULTS.add(*key, "good" if is_good else "bad")
            _recent[key].add(is_good=is_good)


def _stated(settings: ObjectiveSettings) -> Iterator[tuple[ObjectiveKey, float, float]]:
    """Yield each objective of the settings, its limit in seconds and its target."""
    kinds: Sequence[tuple[_Kind, Mapping[str, Objective]]] = (
        ("feature", settings.features),
        ("context", settings.contexts),
    )
    for kind, objectives in kinds:
        for name, objective in objectives.items():
            if objective.freshness is not None:
                seconds = parse_duration(objective.freshness) / 1_000
                yield ObjectiveKey(kind, name, "freshness"), seconds, objective.target
            if objective.latency is not None:
                seconds = parse_duration(objective.latency) / 1_000
                yield ObjectiveKey(kind, name, "latency"), seconds, objective.target


def why_uncounted(key: ObjectiveKey, registry: Registry) -> str | None:
    """Return why nothing can ever count for an objective, and the remedy; None if something can."""
    if key.kind == "context":
        return None if key.name in registry.contexts else _unknown(key.name, registry.contexts)
    feature = registry.features.get(key.name)
    if feature is None:
        return _unknown(key.name, registry.features)
    if feature.window is not None:
        return f"events count for its family; set objectives.features.{feature.window.family}"
    what = _KINDS.get(feature.mode, "triggered and without a value")
    if key.objective == "latency":
        is_called = feature.mode not in ("template", "stored") and feature.sql is None
        return None if is_called else f"it is {what}, so it calls no function; leave it out"
    if feature.mode in ("triggered", "scheduled") and feature.codec.kind != "none":
        return None
    return f"it is {what}, so no commit makes it visible; set that of a context that reads it"


def _unknown(name: str, names: Iterable[str]) -> str:
    return f"the features file declares no such name; {nearest(name, names)}"


def uncounted_objectives(settings: ObjectiveSettings, registry: Registry) -> Mapping[str, str]:
    """Return the settings that nothing can ever count for, each with the reason and the remedy."""
    return {
        f"objectives.{key.kind}s.{key.name}.{key.objective}": why
        for key, _, _ in _stated(settings)
        if (why := why_uncounted(key, registry)) is not None
    }
