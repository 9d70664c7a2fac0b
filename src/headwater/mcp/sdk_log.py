"""The log of the MCP SDK, as records of Headwater's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.core.logging import log
from headwater.core.tracebacks import format_traceback

_SDK = "mcp"


@contextmanager
def forwarded_sdk_log(*, private: bool) -> Iterator[None]:
    """Forward warnings and errors of the SDK; if ``private``, without the values in them."""
    logger, handler = logging.getLogger(_SDK), _SdkLogHandler(private=private)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _SdkLogHandler(logging.Handler):
    def __init__(self, *, private: bool) -> None:
        super().__init__(logging.WARNING)
        self._private = private

    def emit(self, record: logging.LogRecord) -> None:
        # The format of a message names the problem, its arguments may be sent by callers.
        fields = {"detail": str(record.msg) if self._private else record.getMessage()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["traceback"] = format_traceback(error, private=self._private)
        log.warning("mcp library warning", **fields)
