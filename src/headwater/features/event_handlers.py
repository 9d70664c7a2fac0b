"""Running the features that an event triggers: in order, each with its own retries."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import datetime

from prometheus_client import Gauge

from headwater.core.clock import to_micros
from headwater.core.deadlines import Slot
from headwater.core.logging import log
from headwater.core.metrics import TallyCounter
from headwater.core.retrying import backoff
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    BackendUnavailableError,
    ContextFailedError,
    DeclarationError,
    FunctionRaisedError,
    HeadwaterError,
    HungHandlerError,
    InvalidInputError,
    RecordingError,
    RetrieverFailedError,
    UnknownNameError,
)
from headwater.features.batch_state import BatchState, HandlerTransaction, StagedChanges
from headwater.features.call_scope import CallScope
from headwater.features.services import Services
from headwater.features.user_calls import FailureTexts, own_error
from headwater.features.window_states import WindowStates
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import ServiceEvent, with_own_payload
from headwater.ports import Delivery, Failure, Handled

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
_MICROS = 1_000_000
_WRAPPERS = (FunctionRaisedError, RetrieverFailedError, ContextFailedError)
_PERMANENT = (DeclarationError, HungHandlerError, InvalidInputError, UnknownNameError)
BREAKER_OPEN = Gauge(
    "headwater_circuit_breaker_open",
    "1 while the feature's circuit breaker in this process is open, 0 after it has "
    "closed; a breaker that never opened is not listed.",
    ["feature"],
)


LATE = TallyCounter(
    "headwater_window_late_total",
    "Contributions that were older than every window of their feature: they are in history only.",
    ["feature"],
)


class EventHandlers:
    """Runs the handlers of events on the state of a batch."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._calls = services.feature_calls
        self._clock = services.clock
        worker = services.settings.worker
        self._breakers = CircuitBreakers(worker.breaker_threshold)
        self._budget_micros = round(worker.retry_budget * _MICROS)
        self._budgets: dict[int, RetryBudget] = {}
        self._states = WindowStates(services.backends)
        self._texts = FailureTexts(private=services.settings.record.is_private)
        self.handle = services.interceptors.call("event", self._handle)

    def close(self) -> None:
        """Close the circuit breakers."""
        self._breakers.close()

    async def _handle(
        self, state: BatchState, delivery: Delivery, features: Sequence[FeatureDef], slot: Slot
    ) -> Handled:
        """Run the features that the event triggers, one after the other."""
        event, began = delivery.event, time.perf_counter()
        moment = to_micros(event.timestamp)
        updated: dict[str, None] = {}
        failures: list[Failure] = []
        retries = 0
        if delivery.only is not None and not features:
            # The feature of a redriven event is gone: the event must not be lost.
            problem = "no declared feature of this name is triggered by the event"
            failures.append(Failure(delivery.only, problem, "", 1, self._clock.now()))
        for feature in features:
            changes = await self._attempt(state, feature, delivery, moment, slot)
            if isinstance(changes, Exception):
                attempts, result = await self._retry(
                    state, feature, delivery, moment, slot, changes
                )
                retries += attempts - 1
                if isinstance(result, Failure):
                    failures.append(result)
                    continue
                changes = result
            if self._breakers.failures:
                self._breakers.record_success(feature.series)
            for _, series in changes:
                updated[series] = None
        took = time.perf_counter() - began
        names = self._registry.names_of(updated)
        return Handled(event, took, names, failures, retries, bool(features))

    async def _retry(
        self,
        state: BatchState,
        feature: FeatureDef,
        delivery: Delivery,
        moment: int,
        slot: Slot,
        error: Exception,
    ) -> tuple[int, StagedChanges | Failure]:
        """Run a failed handler again, with pauses; return the attempts, and changes or failure.

        No retry begins later than the retry budget after the first failure.
        """
        first_failed_at, attempts = self._clock.now(), 1
        retry_until = self._clock.monotonic() + self._budget_micros
        while (
            attempts <= feature.max_retries
            and not is_permanent(error)
            and not self._breakers.is_open(feature.series)
            and self._clock.monotonic() < retry_until
        ):
            await self._wait(state.partition, attempts, retry_until)
            result = await self._attempt(state, feature, delivery, moment, slot)
            attempts += 1
            if not isinstance(result, Exception):
                return attempts, result
            error = result
        if not is_permanent(error):
            self._breakers.record_failure(feature.series)
        return attempts, Failure(
            feature.series,
            self._texts.message(error),
            self._texts.traceback(error),
            attempts,
            first_failed_at,
        )

    async def _wait(self, partition: int, attempts: int, retry_until: int) -> None:
        """Wait before the next attempt, as long as the partition's retry budget allows."""
        budget = self._budgets.setdefault(partition, RetryBudget(self._budget_micros))
        now = self._clock.monotonic()
        pause = backoff(attempts - 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        micros = budget.spend(min(round(pause * _MICROS), retry_until - now), now)
        await self._clock.sleep(micros / _MICROS)

    async def _attempt(
        self, state: BatchState, feature: FeatureDef, delivery: Delivery, moment: int, slot: Slot
    ) -> StagedChanges | Exception:
        """Run the handler, again if another handler of the batch wrote to the same entity.

        Return the changes that count from now on, or the handler's error.
        """
        if state.finished:
            repeated = await state.repeat(delivery, feature.series)
            if repeated is not None:
                return repeated
        event = delivery.event
        turn: asyncio.Lock | None = None
        try:
            while True:
                transaction = state.begin(delivery, moment, self._clock.micros())
                try:
                    await self.run(transaction, feature, event, slot)
                except HeadwaterError as error:
                    return _handler_error(feature, error)
                finally:
                    changes = transaction.close()
                if changes is not None:
                    transaction.apply(changes, feature)
                    return changes
                if turn is None:
                    # Or each of many would run again whenever one of the others has ended.
                    queue = state.queue(transaction)
                    await queue.acquire()
                    turn = queue
        finally:
            if turn is not None:
                turn.release()

    async def run(
        self, transaction: HandlerTransaction, feature: FeatureDef, event: ServiceEvent, slot: Slot
    ) -> object:
        """Run the handler of a feature in a transaction; return what the handler returns."""
        # In the handler of another version than the one served, the name means its own values.
        variant = None if self._registry.features.get(feature.name) is feature else feature
        scope = CallScope(transaction, variant=variant)
        # Handlers may change the payload, also of a run that fails.
        own = with_own_payload(event)
        given = feature.event_as_taken(own) if feature.typed_events else own
        value = await self._calls.call(slot, scope, feature, event.entity_id, given)
        if feature.windows is not None:
            await self._contribute(transaction, feature, event.entity_id, value)
        elif feature.codec.kind != "none" and not (feature.is_implied and value is None):
            transaction.stage(feature, event.entity_id, value)
        return value

    async def _contribute(
        self, transaction: HandlerTransaction, feature: FeatureDef, entity_id: str, value: object
    ) -> None:
        """Fold what an event contributes into the windows of its entity; None is nothing."""
        if value is None:
            return
        contributed = transaction.contribute(feature, entity_id, value)
        if contributed == "unusable":
            states = await self._states.made_again(feature, [entity_id], transaction.now)
            contributed = transaction.contribute(feature, entity_id, value, states[entity_id])
        if contributed == "late":
            LATE.add(feature.name)


def _handler_error(feature: FeatureDef, error: HeadwaterError) -> Exception:
    """Return the handler's own error; raise an error that is not its fault."""
    cause = error.__cause__ if isinstance(error, RecordingError) else error
    if isinstance(cause, BackendUnavailableError):
        raise cause  # the batch runs again when the server is available
    return own_error(feature.name, error)


def dead_letters(
    delivery: Delivery, partition: int, failures: Sequence[Failure], now: datetime
) -> list[DeadLetter]:
    """Return the dead letters of an event for its failed features; the store adds id and group."""
    return [
        DeadLetter(
            id="",
            event=delivery.event,
            feature=failure.feature,
            error=failure.error,
            traceback=failure.traceback,
            attempts=failure.attempts,
            partition=partition,
            position=delivery.position,
            first_failed_at=failure.first_failed_at,
            dead_at=now,
        )
        for failure in failures
    ]


def is_permanent(error: Exception) -> bool:
    """Return whether a retry cannot help: a type, a name, an id or the call itself was refused."""
    while isinstance(error, _WRAPPERS):
        error = error.raised
    return isinstance(error, _PERMANENT)


class RetryBudget:
    """The time that a partition may still wait before retries, in microseconds.

    Waiting uses it up and all other time refills it, so a partition waits at most this long at
    once, and at most half of the time. Entities that wait at the same time use it once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._counted_until = 0

    def spend(self, pause: int, now: int) -> int:
        """Return how long a handler may wait from now on: less than asked if little is left."""
        if now > self._counted_until:
            self._left = min(self._most, self._left + now - self._counted_until)
            self._counted_until = now
        until = min(now + pause, self._counted_until + self._left)
        if until > self._counted_until:
            self._left -= until - self._counted_until
            self._counted_until = until
        return until - now


class CircuitBreakers:
    """A circuit breaker for each feature, which opens after ``threshold`` consecutive failures.

    While it is open, the feature's events get one attempt each; the first success closes it.
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold or math.inf
        self.failures: dict[str, int] = {}
        """The consecutive failures of each feature whose last event failed."""

    def is_open(self, feature: str) -> bool:
        return self.failures.get(feature, 0) >= self._threshold

    def record_failure(self, feature: str) -> None:
        """Count an event that failed although a retry might have helped."""
        failures = self.failures[feature] = self.failures.get(feature, 0) + 1
        if failures == self._threshold:
            BREAKER_OPEN.labels(feature).set(1)
            log.warning("circuit breaker opened", feature=feature, failures=failures)

    def record_success(self, feature: str) -> None:
        """Forget the failures of a feature."""
        failures = self.failures.pop(feature, 0)
        if failures >= self._threshold:
            BREAKER_OPEN.labels(feature).set(0)
            log.info("circuit breaker closed", feature=feature, failures=failures)

    def close(self) -> None:
        """Forget all failures: a store that is closed handles no event, so none fails any more."""
        for feature in filter(self.is_open, self.failures):
            BREAKER_OPEN.labels(feature).set(0)
        self.failures.clear()
