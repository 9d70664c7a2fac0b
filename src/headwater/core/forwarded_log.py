"""Warnings and errors that other libraries log, forwarded to Headwater's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.core.tracebacks import format_traceback

Forward = Callable[[logging.LogRecord, dict[str, Any]], None]
"""Logs a record of a library with the fields that were made from it."""


@contextmanager
def forwarded_log(name: str, forward: Forward, *, private: bool) -> Iterator[None]:
    """Forward the records of a logger; if ``private``, without the values in them."""
    logger, handler = logging.getLogger(name), _ForwardingHandler(forward, private=private)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _ForwardingHandler(logging.Handler):
    def __init__(self, forward: Forward, *, private: bool) -> None:
        super().__init__(logging.WARNING)
        self._forward = forward
        self._private = private

    def emit(self, record: logging.LogRecord) -> None:
        # The format of a message names the problem; its arguments may come from callers.
        fields = {"detail": str(record.msg) if self._private else record.getMessage()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["traceback"] = format_traceback(error, private=self._private)
        self._forward(record, fields)
