"""Running the features that an event triggers: in order, retried, each failure its own."""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import Sequence
from datetime import datetime

import msgspec

from headwater.clock import Clock, to_micros
from headwater.deadline import Deadline, DeadlineError, Slot
from headwater.define import FeatureDef
from headwater.errors import HandlerTimeoutError
from headwater.offload import Offload, kept_inside
from headwater.ports import DeadLetter, Delivery, Handled
from headwater.registry import Registry
from headwater.values import ServiceEvent
from headwater.workspace import Turn, Workspace

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A feature that failed for an event, after how many attempts and with what."""

    feature: str
    error: str
    traceback: str
    attempts: int
    first_failed_at: datetime


class Result(msgspec.Struct, frozen=True, gc=False):
    """What an event's features did."""

    handled: Handled
    failures: Sequence[Failure] = ()


def pause(attempt: int) -> float:
    """Seconds to wait after a failed attempt: doubling, with jitter, bounded."""
    doubled: float = _FIRST_PAUSE * 2**attempt
    return min(_LONGEST_PAUSE, doubled) * random.uniform(0.5, 1.5)


class Compute:
    """Runs handlers inside a workspace."""

    def __init__(
        self, registry: Registry, offload: Offload, clock: Clock, handler_timeout: float
    ) -> None:
        self._registry = registry
        self._offload = offload
        self._clock = clock
        self.deadline = Deadline(handler_timeout)

    async def handle(self, workspace: Workspace, delivery: Delivery, slot: Slot) -> Result:
        """Runs every feature the event triggers, one after the other, in declared order."""
        event, began = delivery.event, time.perf_counter()
        updated: list[str] = []
        failures: list[Failure] = []
        retries = 0
        features = self._registry.touched_by(event.event_type, delivery.only)
        if delivery.only is not None and not features:
            failures.append(_undeclared(delivery.only, self._clock.now()))
        for feature in features:
            try:
                await self._run(workspace, feature, event, slot)
            except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
                attempts, failure = await self._retry(workspace, feature, event, slot, error)
                retries += attempts - 1
                if failure is not None:
                    failures.append(failure)
                    continue
            if feature.codec.kind != "none":
                updated.append(feature.name)
        failed = [failure.feature for failure in failures]
        took = time.perf_counter() - began
        handled = Handled(event, took, updated, failed, retries, triggered=bool(features))
        return Result(handled, failures)

    async def _retry(
        self,
        workspace: Workspace,
        feature: FeatureDef,
        event: ServiceEvent,
        slot: Slot,
        error: Exception,
    ) -> tuple[int, Failure | None]:
        """Runs a handler that failed again, with pauses; gives the attempts and what failed."""
        first_failed_at = self._clock.now()
        for attempt in range(feature.max_retries):
            await self._clock.sleep(pause(attempt))
            try:
                await self._run(workspace, feature, event, slot)
            except Exception as again:  # noqa: BLE001 - a user's handler may raise anything
                error = again
            else:
                return attempt + 2, None
        attempts = feature.max_retries + 1
        return attempts, _failure(feature, error, attempts, first_failed_at)

    async def _run(
        self, workspace: Workspace, feature: FeatureDef, event: ServiceEvent, slot: Slot
    ) -> None:
        """Runs the handler until its changes fit what other handlers of the batch did meanwhile."""
        entity_id = feature.entity.native_id(event.entity_id)
        moment = to_micros(event.timestamp)
        while True:
            turn = Turn(workspace, moment, self._clock.micros(), event.event_id)
            try:
                with slot, turn:
                    if feature.is_async:
                        value = await feature.function(entity_id, event)
                    else:
                        value = await self._offload.call(feature.function, entity_id, event)
                if feature.codec.kind != "none":
                    await turn.set(feature, event.entity_id, value)
            except DeadlineError as error:
                seconds = self.deadline.seconds
                raise HandlerTimeoutError(feature.name, event.entity_id, seconds) from error
            except (asyncio.CancelledError, SystemExit) as error:
                raise kept_inside(error, feature.name, event.entity_id) from error
            finally:
                changes = turn.close()
            if changes is not None:
                workspace.keep(changes)
                return


def _undeclared(feature: str, now: datetime) -> Failure:
    """The failure of a redriven event whose feature is gone: it must not be lost."""
    return Failure(feature, "the feature is no longer declared, or not for this event", "", 1, now)


def _failure(
    feature: FeatureDef, error: Exception, attempts: int, first_failed_at: datetime
) -> Failure:
    return Failure(
        feature.name,
        f"{type(error).__name__}: {error}",
        "".join(traceback.format_exception(error)),
        attempts,
        first_failed_at,
    )


def dead_letter(delivery: Delivery, partition: int, failure: Failure, now: datetime) -> DeadLetter:
    """The dead letter of an event for the feature that failed; the store gives it its id."""
    return DeadLetter(
        id="",
        event=delivery.event,
        feature=failure.feature,
        error=failure.error,
        traceback=failure.traceback,
        attempts=failure.attempts,
        partition=partition,
        seq=delivery.seq,
        first_failed_at=failure.first_failed_at,
        dead_at=now,
    )
