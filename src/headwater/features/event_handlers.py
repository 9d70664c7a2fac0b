"""Running the features that an event triggers: in order, each with its own retries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from headwater.core.clock import to_micros
from headwater.core.deadlines import Slot
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    BackendUnavailableError,
    HeadwaterError,
    RecordingError,
)
from headwater.features.batch_state import BatchState, StagedChanges
from headwater.features.call_scope import CallScope
from headwater.features.failure_texts import FailureTexts, own_error
from headwater.features.retries import CircuitBreakers, RetryBudget, backoff, is_permanent
from headwater.features.services import Services
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import with_own_payload
from headwater.ports import Delivery, Failure, Handled


class EventHandlers:
    """Runs the handlers of events on the state of a batch."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._calls = services.feature_calls
        self._clock = services.clock
        worker = services.settings.worker
        self._breakers = CircuitBreakers(worker.breaker_threshold)
        self._budget_micros = round(worker.retry_budget * 1_000_000)
        self._budgets: dict[int, RetryBudget] = {}
        self._texts = FailureTexts(private=services.settings.record.is_private)

    def close(self) -> None:
        """Close the circuit breakers."""
        self._breakers.close()

    async def handle(
        self, state: BatchState, delivery: Delivery, features: Sequence[FeatureDef], slot: Slot
    ) -> Handled:
        """Run the features that the event triggers, one after the other."""
        event, began = delivery.event, time.perf_counter()
        moment = to_micros(event.timestamp)
        updated: dict[str, None] = {}
        failures: list[Failure] = []
        retries = 0
        if delivery.only is not None and not features:
            failures.append(_undeclared(delivery.only, self._clock.now()))
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
        while attempts <= feature.max_retries and self._may_retry(feature, error, retry_until):
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

    def _may_retry(self, feature: FeatureDef, error: Exception, retry_until: int) -> bool:
        if is_permanent(error) or self._breakers.is_open(feature.series):
            return False
        return self._clock.monotonic() < retry_until

    async def _wait(self, partition: int, attempts: int, retry_until: int) -> None:
        """Wait before the next attempt, as long as the partition's retry budget allows."""
        budget = self._budgets.setdefault(partition, RetryBudget(self._budget_micros))
        now = self._clock.monotonic()
        micros = budget.spend(min(backoff(attempts - 1), retry_until - now), now)
        await self._clock.sleep(micros / 1_000_000)

    async def _attempt(
        self, state: BatchState, feature: FeatureDef, delivery: Delivery, moment: int, slot: Slot
    ) -> StagedChanges | Exception:
        """Run the handler, again if another handler of the batch wrote to the same entity.

        Return the changes that count from now on, or the handler's error.
        """
        # In the handler of another version than the one served, the name means its own values.
        variant = None if self._registry.features.get(feature.name) is feature else feature
        event = delivery.event
        while True:
            transaction = state.begin(delivery, moment, self._clock.micros())
            scope = CallScope(transaction, variant=variant)
            try:
                # Handlers may change the payload, also of a run that fails.
                own = with_own_payload(event)
                value = await self._calls.call(slot, scope, feature, event.entity_id, own)
                if feature.codec.kind != "none":
                    transaction.stage(feature, event.entity_id, value)
            except HeadwaterError as error:
                return _handler_error(feature, error)
            finally:
                changes = transaction.close()
            if changes is not None:
                transaction.apply(changes, feature)
                return changes


def _handler_error(feature: FeatureDef, error: HeadwaterError) -> Exception:
    """Return the handler's own error; raise an error that is not its fault."""
    cause = error.__cause__ if isinstance(error, RecordingError) else error
    if isinstance(cause, BackendUnavailableError):
        raise cause  # the batch runs again when the server is available
    return own_error(feature.name, error)


def _undeclared(feature: str, now: datetime) -> Failure:
    """Return the failure of a redriven event whose feature is gone: it must not be lost."""
    return Failure(
        feature, "no declared feature of this name is triggered by the event", "", 1, now
    )


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
