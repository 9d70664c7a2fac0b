"""Running the features that an event triggers: in order, retried, each failure its own."""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from headwater.clock import Clock
from headwater.define import FeatureDef
from headwater.errors import HandlerTimeoutError
from headwater.offload import Offload
from headwater.ports import DeadLetter, Delivery, Handled
from headwater.registry import Registry
from headwater.values import ServiceEvent
from headwater.workspace import Turn, Workspace, taking

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0


class Failure(msgspec.Struct, frozen=True):
    """A feature that failed for an event, after how many attempts and with what."""

    feature: str
    error: str
    traceback: str
    attempts: int
    first_failed_at: datetime


class Result(msgspec.Struct, frozen=True):
    """What an event's features did."""

    handled: Handled
    failures: Sequence[Failure] = ()


def pause(attempt: int) -> float:
    """Seconds to wait after a failed attempt: doubling, with jitter, bounded."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.5)


class Compute:
    """Runs handlers inside a workspace."""

    def __init__(
        self, registry: Registry, offload: Offload, clock: Clock, handler_timeout: float
    ) -> None:
        self._registry = registry
        self._offload = offload
        self._clock = clock
        self._timeout = handler_timeout

    async def handle(self, workspace: Workspace, delivery: Delivery) -> Result:
        """Runs every feature the event triggers, one after the other, in declared order."""
        event, began = delivery.event, time.perf_counter()
        updated: list[str] = []
        failures: list[Failure] = []
        retries = 0
        for feature in self._registry.touched_by(event.event_type, delivery.only):
            attempts, failure = await self._retry(workspace, feature, event)
            retries += attempts - 1
            if failure is not None:
                failures.append(failure)
            elif feature.codec.kind != "none":
                updated.append(feature.name)
        handled = Handled(
            event,
            time.perf_counter() - began,
            updated,
            [failure.feature for failure in failures],
            retries,
        )
        return Result(handled, failures)

    async def _retry(
        self, workspace: Workspace, feature: FeatureDef, event: ServiceEvent
    ) -> tuple[int, Failure | None]:
        first_failed_at: datetime | None = None
        attempt = 0
        while True:
            try:
                await self._run(workspace, feature, event)
                return attempt + 1, None
            except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
                first_failed_at = first_failed_at or self._clock.now()
                if attempt >= feature.max_retries:
                    return attempt + 1, _failure(feature, error, attempt + 1, first_failed_at)
            await self._clock.sleep(pause(attempt))
            attempt += 1

    async def _run(self, workspace: Workspace, feature: FeatureDef, event: ServiceEvent) -> None:
        """Runs the handler until its changes fit what other handlers of the batch did meanwhile."""
        while True:
            turn = Turn(workspace, event.timestamp, self._clock.now(), event.event_id)
            try:
                with taking(turn):
                    value = await self._call(feature, event)
                if feature.codec.kind != "none":
                    await turn.set(feature, event.entity_id, value)
                changes = turn.close()
            finally:
                turn.abandon()
            if changes is not None:
                workspace.keep(changes)
                return

    async def _call(self, feature: FeatureDef, event: ServiceEvent) -> object:
        entity_id = feature.entity.native_id(event.entity_id)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                if feature.is_async:
                    return await feature.function(entity_id, event)
                return await self._offload.call(feature.function, entity_id, event)
        except TimeoutError as error:
            if limit.expired():
                raise HandlerTimeoutError(feature.name, event.entity_id, self._timeout) from error
            raise


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
    """The dead letter of an event for the feature that could not handle it; the store gives the id."""
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


Handle = Callable[[Workspace, Delivery], Awaitable[Result]]
