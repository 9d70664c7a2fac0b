"""Checks of a running store: health, workers, lag, schedules, dead letters, breakers, contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Literal, NamedTuple

from headwater.core.clock import MICROSECOND
from headwater.core.durations import format_duration
from headwater.core.schedules import Schedule
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.declarations.series import undeclared_entities
from headwater.engine.last_hour import Samples, by_context
from headwater.engine.objectives import uncounted_objectives
from headwater.engine.worker.contention import ContendedEntity, read_contended
from headwater.errors import EntityChangedError, HeadwaterError, IndexKeyChangedError
from headwater.features.refresh_outcomes import RefreshOutcome, RefreshOutcomes
from headwater.model.admin import ConsumerGroup, ConsumerLag
from headwater.model.catalog import CatalogState
from headwater.model.dead_letters import LetterGroups
from headwater.model.health import Concern, Finding, Findings, Health, ObjectiveState
from headwater.store.feature_store import FeatureStore

_LATE_SECONDS = 60.0
_SLOW_SECONDS = 5.0
_SLOWER_THAN_OTHERS = 5
_MISSED_RUNS = 2
_GRACE = timedelta(minutes=1)
_DEGRADED_PERCENT = 1.0
_GROUPS_SHOWN = 5
# The rates at which the budget of 30 days lasts for two and for five days.
_BURNS_FAST = 14.4
_BURNS = 6.0
_FEWEST_MISSES = 5
_FEW = 100


class Workload(NamedTuple):
    """The state of a running store at a moment."""

    at: datetime
    health: Sequence[Health]
    lags: Sequence[ConsumerLag]
    groups: Sequence[ConsumerGroup]
    letters: LetterGroups
    refreshes: Mapping[str, RefreshOutcome]
    """Of all scheduled features, or of all that the store has if none are declared here."""
    misplaced: Sequence[str] = ()
    """What is wrong with features whose values belong to another entity than the declared one."""
    contended: Sequence[ContendedEntity] = ()
    index_key: str = ""
    """Why records cannot be searched, if they were made with another `record.index_key`."""

    @property
    def waiting(self) -> int:
        """How many events wait, in all partitions."""
        return sum(lag.waiting for lag in self.lags)

    def age(self, moment: datetime | None) -> float:
        """Return the seconds since a moment; not negative, as the server's clock may be ahead."""
        return 0.0 if moment is None else max(0.0, (self.at - moment).total_seconds())


async def observe(store: FeatureStore, health: Sequence[Health]) -> Workload:
    """Read the state of a store that can be opened."""
    engine = await runtime_of(store).open()
    index_key = ""
    try:
        await engine.recorded.check_index_key()
    except IndexKeyChangedError as error:
        index_key = str(error)
    registry, state = engine.registry, await engine.catalog.follow()
    # Without a features file, the store alone tells which features there are.
    scheduled = [feature.name for feature in registry.scheduled()]
    refreshed = scheduled if registry.entities else list(state.features)
    return Workload(
        at=store.clock.now(),
        health=health,
        lags=await store.admin.lag(),
        groups=await store.admin.groups(),
        letters=await store.dead_letters.groups(),
        refreshes=await RefreshOutcomes(engine.backends.notes, engine.clock).read(refreshed),
        contended=await read_contended(engine),
        misplaced=_misplaced(registry, state) if registry.entities else [],
        index_key=index_key,
    )


def _misplaced(registry: Registry, state: CatalogState) -> list[str]:
    problems = []
    for feature in registry.features.values():
        if feature.window is not None:  # its family is misplaced with it
            continue
        try:
            feature.check_stored()
        except EntityChangedError as error:
            problems.append(str(error))
    for entity, features in undeclared_entities(state, registry.entities).items():
        names = ", ".join(features)
        problems.append(
            f"the entity {entity}, which has values of {names}, is not declared; if its class was "
            f"renamed, keep the stored name with `@entity(store, name={entity!r})`; otherwise "
            "remove these features with `headwater features drop`"
        )
    return problems


def unobserved(store: FeatureStore, health: Sequence[Health]) -> Workload:
    """Return the state of a store of which nothing is known but the health."""
    nothing = LetterGroups([], letters=0, grouped=0, others=0)
    return Workload(store.clock.now(), health, [], [], nothing, {})


async def findings(store: FeatureStore, open_breakers: Sequence[str] | None) -> list[Finding]:
    """Examine the work of a store that can be opened."""
    try:
        workload = await observe(store, await store.admin.health())
    except HeadwaterError as error:
        report = Findings("workload", f"consumer group {store.settings.worker.consumer_group}")
        report.error("store", str(error), "see the message; `headwater doctor` changes nothing")
        _add_breakers(open_breakers, report)
        return report.all
    return judge(store, workload, open_breakers)


def judge(
    store: FeatureStore,
    workload: Workload,
    open_breakers: Sequence[str] | None,
    samples: Samples = (),
) -> list[Finding]:
    """Return what is right and wrong with the work of a store; ``samples`` are of the last hour."""
    report = Findings("workload", f"consumer group {store.settings.worker.consumer_group}")
    for part in workload.health:
        if part.ok:
            report.ok("health", f"{part.name} can be read and written", part.name)
        else:
            remedy = "see the message" if part.needed else "events are still accepted meanwhile"
            concern = Concern(subject=part.name, summary="is not ready", detail=part.detail)
            report.concern("error", "health", part.detail, remedy, concern, part.name)
    _add_partitions(workload, report)
    _add_oldest(workload, report)
    _add_slow_partition(workload, report)
    _add_contended(workload, report)
    _add_groups(workload, report)
    _add_schedules(store, workload, report)
    for problem in workload.misplaced:
        what, _, remedy = problem.partition("; ")
        report.warning("entities", what, remedy)
    if workload.index_key:
        what, _, remedy = workload.index_key.partition("; ")
        report.error("index key", what, remedy, "HEADWATER_RECORD_INDEX_KEY")
    _add_dead_letters(workload.letters, report)
    _add_breakers(open_breakers, report)
    _add_contexts(samples, report)
    _add_objectives(store, report)
    return report.all


def judge_objectives(objectives: Sequence[ObjectiveState]) -> list[Finding]:
    """Return the objectives that use their error budget too fast."""
    report = Findings("workload", "the processes of this server")
    for state in objectives:
        rate, now = state.burn_rate or 0.0, state.burn_rate_5m or 0.0
        if rate < _BURNS or now < 1 or state.bad < _FEWEST_MISSES:
            continue
        concern = Concern(
            subject=f"The {state.objective} of {state.kind} {state.name}",
            summary=f"burns its error budget {rate:.3g} times too fast",
            detail=f"{state.bad:,} of {state.total:,} missed it in the last hour; the target is "
            f"{100 * state.target:.6g} % good",
        )
        severity: Literal["error", "warning"] = "error" if rate >= _BURNS_FAST else "warning"
        found = f"{concern.subject} {concern.summary}: {concern.detail}"
        remedy = "see the slowest handlers and the lag; or correct the objective in [objectives]"
        report.concern(severity, "objectives", found, remedy, concern)
    return report.all


def _add_objectives(store: FeatureStore, report: Findings) -> None:
    """Warn about objectives that nothing can ever count for."""
    registry = runtime_of(store).registry
    if registry.features:
        for setting, why in uncounted_objectives(store.settings.objectives, registry).items():
            what, _, remedy = why.partition("; ")
            report.warning("objectives", f"{setting} is never counted: {what}", remedy)


def _add_partitions(workload: Workload, report: Findings) -> None:
    partitions, waiting = workload.lags, workload.waiting
    unowned = [partition for partition in partitions if partition.owner is None]
    if not unowned:
        owners = len({partition.owner for partition in partitions})
        workers = "1 worker has" if owners == 1 else f"{owners} workers have"
        report.ok("partitions", f"{workers} all {len(partitions)}")
        return
    number = f"{len(unowned)} of {len(partitions)}"
    concern = Concern(
        subject=f"{number} partitions",
        summary="have no worker",
        detail=waiting_text(waiting) if waiting else "No event waits yet",
    )
    if waiting:
        problem = f"{number} have no worker, and {waiting_text(waiting)}"
        remedy = "start `headwater worker FILE`, or see the logs of the workers"
        report.concern("error", "partitions", problem, remedy, concern)
    else:
        problem = f"{number} have no worker; nothing waits yet"
        remedy = "start `headwater serve FILE` or `headwater worker FILE`"
        report.concern("warning", "partitions", problem, remedy, concern)


def _add_oldest(workload: Workload, report: Findings) -> None:
    oldest = min((lag.oldest_at for lag in workload.lags if lag.oldest_at), default=None)
    if oldest is None:
        report.ok("lag", "no event waits")
        return
    seconds, waiting = workload.age(oldest), waiting_text(workload.waiting)
    shown = f"{waiting}, the oldest for {shown_duration(seconds)}"
    if seconds <= _LATE_SECONDS:
        report.ok("lag", shown)
        return
    concern = Concern(
        subject=waiting,
        summary=f"for up to {shown_duration(seconds)}",
        detail="Features that these events trigger are older than that",
        page="events",
        since=oldest,
    )
    remedy = "add workers, or look for slow handlers in `headwater lag`"
    report.concern("warning", "lag", shown, remedy, concern)


def _add_slow_partition(workload: Workload, report: Findings) -> None:
    """Add the partition whose oldest event waits much longer than those of the others."""
    ages = {lag.partition: workload.age(lag.oldest_at) for lag in workload.lags if lag.owner}
    if len(ages) <= 1:
        return
    slowest = max(ages, key=lambda partition: ages[partition])
    seconds = ages.pop(slowest)
    others = median(ages.values())
    if not (seconds > _SLOW_SECONDS and seconds > _SLOWER_THAN_OTHERS * others):
        return
    lag = workload.lags[slowest]
    concern = Concern(
        subject=f"partition {slowest}",
        summary=f"waits {shown_duration(seconds)}, others {shown_duration(others)}",
        detail=f"{waiting_text(lag.waiting)} for worker {lag.owner}",
        page="events",
        since=lag.oldest_at,
    )
    problem = f"{concern.subject} {concern.summary}; {concern.detail}"
    remedy = (
        "look for a slow handler, or for one entity with most of the events, in `headwater lag`"
    )
    report.concern("warning", "slow partition", problem, remedy, concern)


def _add_contended(workload: Workload, report: Findings) -> None:
    """Add the entities to which handlers of several partitions write at once."""
    for contended in workload.contended:
        named = f"{contended.entity} {contended.entity_id}".strip()
        ago = shown_duration(workload.age(contended.at))
        concern = Concern(
            subject=named,
            summary=f"is written by several partitions at once: {contended.conflicts:,} conflicts",
            detail=f"Handlers that write to it take turns, the last time {ago} ago",
            page="events",
        )
        problem = f"{concern.subject} {concern.summary}, the last time {ago} ago"
        remedy = (
            "let handlers wait for slow things before they read it, or publish an event about it, "
            "whose handler runs in its own partition"
        )
        report.concern("warning", "contention", problem, remedy, concern)


def _add_groups(workload: Workload, report: Findings) -> None:
    """Add the consumer groups without workers that hold back events."""
    for group in workload.groups:
        seconds = workload.age(group.oldest_at)
        if group.workers or not group.waiting or seconds < _LATE_SECONDS:
            continue
        concern = Concern(
            subject=group.name,
            summary=f"has no workers; {waiting_text(group.waiting)} for it",
            detail=f"The oldest has been kept for {shown_duration(seconds)}",
            since=group.oldest_at,
        )
        problem = f"{concern.subject} {concern.summary}"
        remedy = f"start its workers, or run `headwater groups drop {group.name}`"
        report.concern("warning", "consumer groups", problem, remedy, concern)


def _add_schedules(store: FeatureStore, workload: Workload, report: Findings) -> None:
    scheduled = runtime_of(store).registry.scheduled()
    schedules = {feature.name: feature.refresh for feature in scheduled}
    is_late = False
    for feature, outcome in workload.refreshes.items():
        concern = _late(feature, schedules.get(feature), outcome, workload)
        if concern is not None:
            is_late = True
            problem = f"{concern.subject} {concern.summary}: {concern.detail}"
            remedy = f"correct the error, then run `headwater refresh {feature}`"
            report.concern("warning", "schedules", problem, remedy, concern)
    if workload.refreshes and not schedules:
        others = "no other" if is_late else "no"
        report.unknown(
            "schedules",
            f"{others} refresh fails; the schedules in the features file say if one is late",
            "pass --file FILE, or ask a running server: `headwater doctor --url URL`",
        )
    elif workload.refreshes and not is_late:
        number = "1 feature is" if len(schedules) == 1 else f"{len(schedules)} features are"
        report.ok("schedules", f"{number} refreshed in time")


def _late(
    feature: str, schedule: Schedule | None, outcome: RefreshOutcome, workload: Workload
) -> Concern | None:
    page, params = "store", {"card": f"feature:{feature}"}
    if outcome.failing_since is not None:
        return Concern(
            subject=feature,
            summary=f"refresh fails since {outcome.failing_since:%d %b %H:%M} UTC",
            detail=outcome.error,
            page=page,
            params=params,
            since=outcome.succeeded_at or outcome.failing_since,
        )
    if schedule is None or outcome.succeeded_at is None:
        return None
    due = workload.at - _GRACE
    for _ in range(_MISSED_RUNS):
        due = schedule.last_due(feature, due - MICROSECOND)
    if outcome.succeeded_at >= due:
        return None
    seconds = workload.age(outcome.succeeded_at)
    return Concern(
        subject=feature,
        summary=f"has not been refreshed for {shown_duration(seconds)}",
        detail=f"It is due {schedule.words}",
        page=page,
        params=params,
        since=outcome.succeeded_at,
    )


def _add_dead_letters(letters: LetterGroups, report: Findings) -> None:
    if not letters.letters:
        report.ok("dead letters", "none")
    for group in letters.groups[:_GROUPS_SHOWN]:
        report.concern(
            "warning",
            "dead letters",
            f"{group.count:,}, of {group.feature}: {group.sample}",
            "read the errors with `headwater dlq list`, then redrive or discard them; until then "
            'values with freshness="caught_up" that lack these events are not fresh',
            Concern(
                subject="1 dead letter" if group.count == 1 else f"{group.count:,} dead letters",
                summary=f"of `{group.feature}`",
                detail=group.sample,
                page="dead-letters",
                params={"feature": group.feature, "error": group.error},
                since=group.first_failed_at,
            ),
        )


def _add_breakers(open_breakers: Sequence[str] | None, report: Findings) -> None:
    if open_breakers is None:
        report.unknown(
            "circuit breakers",
            "they are in the memory of the workers",
            "ask a running server: `headwater doctor --url URL`",
        )
    elif open_breakers:
        names = ", ".join(sorted(open_breakers))
        report.concern(
            "warning",
            "circuit breakers",
            f"open for {names}: their events get one attempt each",
            "read their errors with `headwater dlq list`; a success closes the breaker",
            Concern(
                subject=names,
                summary="keeps failing" if len(open_breakers) == 1 else "keep failing",
                detail="Events get one attempt each until one succeeds",
                page="dead-letters",
                params={"feature": open_breakers[0]} if len(open_breakers) == 1 else {},
            ),
        )
    else:
        report.ok("circuit breakers", "all closed")


def _add_contexts(samples: Samples, report: Findings) -> None:
    """Add the contexts of which many were not fresh in the last hour."""
    for name, counts in by_context(samples).items():
        percent = 100 * counts.degraded / counts.total
        if percent < _DEGRADED_PERCENT:
            continue
        noun = "context" if counts.total == 1 else "contexts"
        degraded = f"{percent:.0f} %" if counts.total >= _FEW else str(counts.degraded)
        concern = Concern(
            subject=name,
            summary=f"was not fresh in {degraded} of {counts.total:,} {noun}",
            detail="An input was older than its SLA allows, missing or a default",
            page="records",
            params={"name": name, "freshness_status": "degraded"},
        )
        problem = f"{concern.subject} {concern.summary} of the last hour"
        remedy = "see which inputs with `headwater context list` and `headwater context explain`"
        report.concern("warning", "contexts", problem, remedy, concern)


def waiting_text(number: int) -> str:
    """Return how many events wait, as a clause."""
    return "1 event waits" if number == 1 else f"{number:,} events wait"


def shown_duration(seconds: float) -> str:
    """Format seconds for people, without a false precision."""
    return format_duration(round(seconds * 1_000 if seconds < 1 else round(seconds) * 1_000))
