"""The stack of another thread, for logs."""

from __future__ import annotations

import sys
import traceback

_MAX_FRAMES = 20


def stack_of(thread: int, caller: str) -> str:
    """Return the stack of a thread, from the function on that was called by a file of ours."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    called = max((i for i, each in enumerate(stack) if each.filename == caller), default=-1) + 1
    return "".join(traceback.format_list(stack[called:] or stack)[-_MAX_FRAMES:])
