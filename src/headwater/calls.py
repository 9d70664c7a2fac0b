"""Calling a user's function: sync or async, for a limited time, its failures its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from headwater.deadline import Deadline, DeadlineError, Slot
from headwater.define import FeatureDef
from headwater.errors import (
    FeatureFailedError,
    FunctionRaisedError,
    HandlerTimeoutError,
    HeadwaterError,
)
from headwater.offload import Offload


class Calls:
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
            # Only the one who runs this task may cancel it. Whatever else the function lets
            # through, such as the end of something it awaited, would end the worker in its place,
            # and the next worker after it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            problem = f"it raised {type(error).__name__}"
            raise FeatureFailedError(feature.name, entity_id, problem) from error
        except HeadwaterError:
            raise
        except Exception as error:  # the user's own: whatever it is, it is told with its feature
            raise FunctionRaisedError(feature.name, entity_id, error) from error


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


async def call_bound(
    offload: Offload, function: Callable[..., Any], bound: inspect.BoundArguments, *, is_async: bool
) -> Any:
    """What a function of any kind returns: an async one here, any other in a thread."""
    if is_async:
        given = function(*bound.args, **bound.kwargs)
    else:
        given = await offload.call(lambda: function(*bound.args, **bound.kwargs))
    # Decorators hide what they wrap: only what comes back says whether it is to be awaited.
    return await given if inspect.isawaitable(given) else given
