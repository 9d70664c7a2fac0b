"""Calling user functions, sync or async, with a time limit, our own errors and their texts."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from headwater.core.deadlines import Deadline, DeadlineError, Slot
from headwater.core.thread_calls import ThreadCall, ThreadsExhaustedError
from headwater.core.thread_offload import Offload
from headwater.core.tracebacks import chain_of, format_traceback
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Interceptor
from headwater.errors import (
    BackendError,
    DeclarationError,
    FeatureFailedError,
    FeatureValueError,
    FunctionRaisedError,
    HandlerTimeoutError,
    HeadwaterError,
    HungHandlerError,
    InvalidInputError,
    NotFoundError,
    ReplayWriteError,
)
from headwater.features.call_scope import CallScope, current_scope, enter, leave

_USAGE_ERRORS = (DeclarationError, InvalidInputError, NotFoundError)
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
# Messages about the store and about the feature's own value.
_WITHOUT_INPUTS = (BackendError, FeatureValueError, HandlerTimeoutError)


def is_mistake(error: HeadwaterError) -> bool:
    """Return whether code used the store wrongly, for example named an unknown feature.

    Inside a user function such an error is the function's fault, not its caller's.
    """
    return isinstance(error, _USAGE_ERRORS) and not isinstance(error, ReplayWriteError)


class FeatureCalls:
    """Runs feature functions with the entity id in the type that the entity annotates."""

    def __init__(self, offload: Offload, seconds: float, interceptors: Interceptor) -> None:
        self._offload = offload
        self.deadline = Deadline(seconds)
        self.call = interceptors.call("feature", self._call)

    async def _call(
        self,
        slot: Slot,
        scope: CallScope | None,
        feature: FeatureDef,
        entity_id: str,
        *rest: object,
    ) -> object:
        """Return the function's result; raise its errors as errors of the feature.

        The function runs in the given scope, or in the current one if there is none. With a scope,
        the caller has to be a coroutine of `run_concurrently`.
        """
        native_id = feature.entity.native_id(entity_id)
        try:
            if not feature.is_async:
                slot.task = None  # another task may resume this coroutine
                call = self._prepare(scope, feature, native_id, *rest)
                return await (self._offload.call(call) if scope is None else call)
            slot.label = (feature, entity_id, rest)
            token = enter(scope or current_scope())
            try:
                with slot:
                    return await feature.function(native_id, *rest)
            finally:
                leave(token)
        except DeadlineError as error:
            raise self._timed_out(feature.name, entity_id, error) from error
        except (asyncio.CancelledError, SystemExit) as error:
            if _is_cancelled_by_owner(error):
                raise
            problem = f"it raised {type(error).__name__}"
            raise FeatureFailedError(feature.name, entity_id, problem) from error
        except Exception as error:  # user code may raise anything
            if isinstance(error, HeadwaterError) and not is_mistake(error):
                raise
            raise FunctionRaisedError(feature.name, entity_id, error) from error

    def _prepare(
        self, scope: CallScope | None, feature: FeatureDef, *arguments: object
    ) -> ThreadCall[object]:
        context = copy_context()
        if scope is not None:
            context.run(enter, scope)
        seconds, function = self.deadline.seconds, feature.function
        return ThreadCall(self._offload, feature, seconds, context, function, *arguments)

    def _timed_out(self, name: str, entity_id: str, error: DeadlineError) -> FeatureFailedError:
        if isinstance(error, ThreadsExhaustedError):
            hung = self._offload.hung()
            return HungHandlerError(name, entity_id, hung.count(name), len(hung))
        return HandlerTimeoutError(name, entity_id, self.deadline.seconds)


def _is_cancelled_by_owner(error: BaseException) -> bool:
    """Return whether the owner of this task cancels it.

    Any other CancelledError or SystemExit comes from the user function, for example from a task
    that it awaited, and must not end the worker or the server.
    """
    task = asyncio.current_task()
    cancelled = task is not None and task.cancelling() > 0
    return cancelled and isinstance(error, asyncio.CancelledError)


class Raising:
    """Turns errors of user code into errors of ours; our own errors pass unchanged."""

    __slots__ = ("_translate",)

    def __init__(self, translate: Callable[[Exception], HeadwaterError]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, HeadwaterError):
            raise self._translate(error) from error


class Limited(Protocol):
    """A function as it was declared: its name for messages, and its own time limit, if any."""

    @property
    def name(self) -> str: ...

    @property
    def is_async(self) -> bool: ...

    @property
    def timeout(self) -> timedelta | None: ...


class LimitedCalls:
    """Runs functions of users, each with its time limit or a common one."""

    def __init__(self, offload: Offload, seconds: float) -> None:
        self._offload = offload
        self._seconds = seconds
        self._deadlines: dict[float, Deadline] = {}

    async def call(
        self,
        declared: Limited,
        function: Callable[[], Any],
        timeout_error: Callable[[str, float], HeadwaterError],
        convert: Callable[[Any], Any] = lambda result: result,
    ) -> Any:
        """Return the function's converted result; raise ``timeout_error`` if it takes too long.

        The function is that of the declaration, with its arguments. ``convert`` runs where the
        function ran, and within its time limit.
        """
        deadline = self._deadline(declared)
        try:
            return await self._run(deadline, declared, function, convert)
        except DeadlineError as error:
            raise timeout_error(declared.name, deadline.seconds) from error
        except (asyncio.CancelledError, SystemExit) as error:
            if _is_cancelled_by_owner(error):
                raise
            raise RuntimeError(f"the function raised {error!r}") from error

    def _deadline(self, declared: Limited) -> Deadline:
        timeout = declared.timeout
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        deadline = self._deadlines.get(seconds)
        if deadline is None:
            deadline = self._deadlines[seconds] = Deadline(seconds)
        return deadline

    async def _run(
        self,
        deadline: Deadline,
        declared: Limited,
        function: Callable[[], Any],
        convert: Callable[[Any], Any],
    ) -> Any:
        """Call an async function in this task, any other function in a thread."""

        def run() -> Any:
            return convert(function())

        if not declared.is_async:
            call = ThreadCall(self._offload, declared, deadline.seconds, copy_context(), run)
            result = await self._offload.call(call)
        with deadline.slot() as slot, slot:
            slot.label = (declared,)
            if declared.is_async:
                result = run()
            # A decorator may hide that the function is async; its result shows it.
            while inspect.isawaitable(result):
                result = convert(await result)
        return result


class FailureTexts:
    """Writes the errors of feature functions; if ``private``, some only by type and place.

    A function that assembles a context or searches fails with an error of ours whose message may
    contain their inputs. Its own exceptions are about the event, which the dead letter has anyway.
    """

    def __init__(self, *, private: bool) -> None:
        self._private = private

    def is_hidden(self, error: Exception) -> bool:
        """Return whether the message of an error must not be written."""
        return self._private and any(
            isinstance(raised, HeadwaterError) and not isinstance(raised, _WITHOUT_INPUTS)
            for raised in chain_of(error)
        )

    def message(self, error: Exception) -> str:
        """Return the type of an error and, unless it is hidden, its message."""
        name = type(error).__name__
        return name if self.is_hidden(error) else f"{name}: {error}"

    def traceback(self, error: Exception) -> str:
        """Return the traceback of an error from the user's function on."""
        if self.is_hidden(error):
            return format_traceback(error, private=True)
        # The message of a FeatureValueError says it all; its cause is in the codec.
        chain = not isinstance(error, FeatureValueError)
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames, chain=chain))


def own_error(feature: str, error: HeadwaterError) -> Exception:
    """Return what the function of a feature raised itself, or else the error of what it called.

    A function that reads another feature fails with the error of that feature.
    """
    if isinstance(error, FunctionRaisedError) and error.feature == feature:
        return error.raised
    return error
