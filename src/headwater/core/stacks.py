"""The stack of another thread, for logs."""

from __future__ import annotations

import gc
import sys
import traceback
from types import FrameType

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
