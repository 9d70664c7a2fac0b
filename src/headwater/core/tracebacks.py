"""Tracebacks, with or without the messages of exceptions, and stacks of other threads."""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_HEADWATER = str(Path(__file__).parents[1])
_PLACE = re.compile(r'^  File "(.+)", line (\d+), in .+(?:\n    (.+))?$', re.MULTILINE)


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


_MAX_FRAMES = 20


def stack_of(thread: int, caller: str) -> str:
    """Return the stack of a thread, from the function on that was called by a file of ours."""
    frame = _frame_of(thread)
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    called = max((i for i, entry in enumerate(stack) if entry.filename == caller), default=-1) + 1
    return "".join(traceback.format_list(stack[called:] or stack)[-_MAX_FRAMES:])


def _frame_of(thread: int) -> FrameType | None:
    """Return where a thread is.

    In some releases of Python, a garbage collection meanwhile blocks the interpreter for ever
    (CPython issue 106883).
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    finally:
        if is_collecting:
            gc.enable()


def last_line(text: str) -> str:
    """Return the last place in a traceback, not of a library, with its code; empty if none."""
    places = _PLACE.findall(text)
    if not places:
        return ""
    foreign = ("site-packages", _HEADWATER)
    own = [place for place in places if not any(folder in place[0] for folder in foreign)]
    file, number, code = (own or places)[-1]
    return f"{file}:{number}: {code.strip()}" if code else f"{file}:{number}"
