"""Carrying results from a thread back to the event loops that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a future is to be given."""

    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def send(answers: Iterable[Answer]) -> None:
    """Gives every future its answer, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.future.get_loop(), []).append(answer)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, group)
        except RuntimeError:
            continue  # the loop was closed meanwhile, so nobody waits any more


def _settle(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue  # whoever waited was cancelled
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future cannot carry StopIteration; it would end the coroutine that awaits it.
            future.set_exception(RuntimeError(f"the function raised StopIteration: {error}"))
        else:
            future.set_exception(error)
