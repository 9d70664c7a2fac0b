"""Calling a user's function: sync or async, for a limited time, its failures its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from headwater.core.deadlines import Deadline, DeadlineError, Slot
from headwater.core.thread_offload import Offload
from headwater.declarations import ContextDef, RetrieverDef
from headwater.declarations.features import FeatureDef
from headwater.errors import (
    DeclarationError,
    FeatureFailedError,
    FunctionRaisedError,
    HandlerTimeoutError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    ReplayWriteError,
)

_MISTAKES = (DeclarationError, InvalidInputError, NotFoundError)


def is_mistake(error: HeadwaterError) -> bool:
    """Says whether code that uses the store did something wrong, such as to name what is not there.

    Inside of a function that is the function's doing, and the one who called it can do nothing
    about it.
    """
    return isinstance(error, _MISTAKES) and not isinstance(error, ReplayWriteError)


class FeatureCalls:
    """Runs feature functions with the entity's id in the type that its class annotates."""

    def __init__(self, offload: Offload, seconds: float) -> None:
        self._offload = offload
        self.deadline = Deadline(seconds)

    async def call(self, slot: Slot, feature: FeatureDef, entity_id: str, *rest: object) -> object:
        """What the function returns; whatever it raises comes out as one of our own errors."""
        native_id = feature.entity.native_id(entity_id)
        try:
            with slot:
                if feature.is_async:
                    return await feature.function(native_id, *rest)
                slot.pause()
                return await self._offload.call(slot.run, feature.function, native_id, *rest)
        except DeadlineError as error:
            if slot.thread:
                self._offload.lose(slot.thread)
            raise HandlerTimeoutError(feature.name, entity_id, self.deadline.seconds) from error
        except (asyncio.CancelledError, SystemExit) as error:
            if _from_outside(error):
                raise
            problem = f"it raised {type(error).__name__}"
            raise FeatureFailedError(feature.name, entity_id, problem) from error
        except Exception as error:  # the user's own: whatever it is, it is told with its feature
            if isinstance(error, HeadwaterError) and not is_mistake(error):
                raise
            raise FunctionRaisedError(feature.name, entity_id, error) from error


def _from_outside(error: BaseException) -> bool:
    """Says whether the one who runs this task cancels it, as nobody else may.

    Whatever else a function lets through, such as the end of something that it awaited, would end
    the worker or the server in its place, and the next one after it.
    """
    task = asyncio.current_task()
    cancelled = task is not None and task.cancelling() > 0
    return cancelled and isinstance(error, asyncio.CancelledError)


class Raising:
    """Around a user's code: what it raises comes out as one of our own errors, ours as it is."""

    __slots__ = ("_ours",)

    def __init__(self, ours: Callable[[Exception], HeadwaterError]) -> None:
        self._ours = ours

    def __enter__(self) -> None:
        """Begins; nothing is needed for it."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, HeadwaterError):
            raise self._ours(error) from error


def _as_it_is(given: Any) -> Any:
    return given


class ContextCalls:
    """Runs the functions of contexts and retrievers, each for as long as it may."""

    def __init__(self, offload: Offload, seconds: float) -> None:
        self._offload = offload
        self._seconds = seconds
        self._deadlines: dict[float, Deadline] = {}

    async def call(
        self,
        declared: ContextDef | RetrieverDef,
        bound: inspect.BoundArguments,
        overdue: Callable[[str, float], HeadwaterError],
        take: Callable[[Any], Any] = _as_it_is,
    ) -> Any:
        """What the function returns, of whatever kind it is; ``overdue`` if that takes too long.

        ``take`` is what is done with it in the place where the function ran, and within its time.
        """
        deadline = self._deadline(declared)
        with deadline.slot() as slot:
            try:
                with slot:
                    return await self._run(slot, declared, bound, take)
            except DeadlineError as error:
                if slot.thread:
                    self._offload.lose(slot.thread)
                raise overdue(declared.name, deadline.seconds) from error
            except (asyncio.CancelledError, SystemExit) as error:
                if _from_outside(error):
                    raise
                raise RuntimeError(f"the function raised {error!r}") from error

    def _deadline(self, declared: ContextDef | RetrieverDef) -> Deadline:
        own = declared.timeout
        seconds = self._seconds if own is None else own.total_seconds()
        deadline = self._deadlines.get(seconds)
        if deadline is None:
            deadline = self._deadlines[seconds] = Deadline(seconds)
        return deadline

    async def _run(
        self,
        slot: Slot,
        declared: ContextDef | RetrieverDef,
        bound: inspect.BoundArguments,
        take: Callable[[Any], Any],
    ) -> Any:
        """Calls an async function here, any other in a thread."""
        function = declared.function
        if declared.is_async:
            given = take(function(*bound.args, **bound.kwargs))
        else:
            slot.pause()
            given = await self._offload.call(
                slot.run, lambda: take(function(*bound.args, **bound.kwargs))
            )
        # Decorators hide what they wrap: only what comes back says whether it is to be awaited.
        while inspect.isawaitable(given):
            given = take(await given)
        return given
