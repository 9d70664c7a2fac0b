"""Tracebacks, with or without the messages of exceptions."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and the members of groups, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        cause = current.__context__ if current.__cause__ is None else current.__cause__
        waiting += [*reversed(members), cause]


def format_traceback(error: BaseException, *, private: bool) -> str:
    """Return a traceback; if ``private``, only types and places.

    The message of an exception in user code may contain its arguments or the values it read.
    """
    return "".join(_places(error) if private else traceback.format_exception(error))


def _places(error: BaseException) -> Iterator[str]:
    for raised in chain_of(error):
        yield f"{type(raised).__module__}.{type(raised).__qualname__}\n"
        for frame, line in traceback.walk_tb(raised.__traceback__):
            yield f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}\n"
