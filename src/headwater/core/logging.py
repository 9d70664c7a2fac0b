"""Structured logs: through Python's logging in a library, as lines on a stream in a server.

As a library Headwater logs to ``logging.getLogger("headwater")`` and writes to no stream; only
advice about the configuration becomes a Python warning if logging has no handlers. The
command line installs a faster sink: it formats records itself, as JSON or for a terminal, buffers
them, and writes once per batch, because one write per event costs more than the event.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, TextIO

import msgspec

from headwater.core.short_repr import printable
from headwater.core.tracebacks import format_traceback
from headwater.errors import BackendError, BackendUnavailableError
from headwater.errors.hints import shortened

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_RANK: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Longer than any pause between retries: a part that is silent for longer has stopped trying.
_FORGET_SECONDS = 60.0
# Long enough for a traceback. Messages of functions contain whole documents sometimes.
_LONGEST_FIELD = 20_000
# Frames between the call of `log.info` and that of the logger.
_CALLER_LEVEL = 4
_LOGGER = logging.getLogger("headwater")
_LOGGER.addHandler(logging.NullHandler())
_encode_lines = msgspec.json.Encoder(enc_hook=str).encode_lines


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """The first fields of every record; frequent kinds of records add their own."""

    timestamp: str
    level: Level
    event: str


class Sink(Protocol):
    """A destination of log records."""

    def is_enabled(self, level: Level) -> bool: ...

    def write(self, level: Level, event: str, fields: Mapping[str, Any]) -> None: ...

    def write_each(self, records: Iterable[LogRecord]) -> None: ...

    def is_seen(self) -> bool:
        """Return whether records have a destination."""

    def flush(self) -> None: ...


class LoggingSink:
    """Passes records to ``logging.getLogger("headwater")``, with their fields as attributes."""

    def is_enabled(self, level: Level) -> bool:
        return _LOGGER.isEnabledFor(_RANK[level])

    def write(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        extra = {"event": event, **fields}
        message = _Message(event, fields)
        _LOGGER.log(_RANK[level], message, extra=extra, stacklevel=_CALLER_LEVEL)

    def write_each(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            fields = msgspec.structs.asdict(record)
            level, event = fields.pop("level"), fields.pop("event")
            del fields["timestamp"]  # logging adds its own
            self.write(level, event, fields)

    def is_seen(self) -> bool:
        handlers = (*_LOGGER.handlers, *logging.getLogger().handlers)
        return not all(isinstance(handler, logging.NullHandler) for handler in handlers)

    def flush(self) -> None:
        """Do nothing: handlers of logging flush themselves."""


class _Message:
    """The text of a record, formatted only if a handler needs it."""

    def __init__(self, event: str, fields: Mapping[str, Any]) -> None:
        self._event = event
        self._fields = fields

    def __str__(self) -> str:
        return " ".join([self._event, *_pairs(self._fields)])


class StreamSink:
    """Collects records as formatted lines and writes them to a stream.

    Without a stream, records go to standard error. Only records of ``write_each`` are buffered.
    """

    def __init__(self, level: Level, style: Format, stream: TextIO | None) -> None:
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._stream = stream
        self._rank = _RANK[level]
        is_terminal = (stream or sys.stderr).isatty()
        is_text = style == "console" or (style == "auto" and is_terminal)
        self._render = _as_text if is_text else _as_json

    def is_enabled(self, level: Level) -> bool:
        return _RANK[level] >= self._rank

    def write(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        record = {"timestamp": timestamp(), "level": level, "event": event, **fields}
        text = self._render([record])
        with self._lock:
            self._lines.append(text)
        self.flush()

    def write_each(self, records: Iterable[LogRecord]) -> None:
        text = self._render(list(records))
        with self._lock:
            self._lines.append(text)

    def is_seen(self) -> bool:
        return True

    def flush(self) -> None:
        """Write the buffered lines."""
        with self._lock:
            text, self._lines = "".join(self._lines), []
            if not text:
                return
            stream = self._stream or sys.stderr
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):
                # The pipe or file is closed, or the disk is full. A log that cannot be written
                # must not stop the work that is logged.
                return


class Log:
    """The log of this process."""

    def __init__(self) -> None:
        self._sink: Sink = LoggingSink()

    def configure(self, level: Level, style: Format, stream: TextIO | None = None) -> None:
        """Write records to a stream, or to standard error, instead of to ``logging``."""
        self.use(StreamSink(level, style, stream))

    def use(self, sink: Sink) -> None:
        """Write records to a sink."""
        self.flush()
        self._sink = sink

    def use_logging(self) -> None:
        """Pass records to ``logging.getLogger("headwater")``, which is the default."""
        self.flush()
        self._sink = LoggingSink()

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def advise(self, event: str, **fields: Any) -> None:
        """Log a warning about the configuration, which a script without logging shows as well."""
        self._write("warning", event, fields)
        self.show("; ".join([event, *(f"{name}: {value}" for name, value in fields.items())]))

    def show(self, text: str) -> None:
        """Warn a script without logging once of what its log would have."""
        if not self._sink.is_seen():
            # No line of ours stands below it.
            warnings.warn_explicit(printable(text), UserWarning, "headwater", 1, registry=_SHOWN)

    def info_each(self, records: Iterable[LogRecord]) -> None:
        """Log many records, which are created only if the level is enabled."""
        if self._sink.is_enabled("info"):
            self._sink.write_each(records)

    def _write(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        if self._sink.is_enabled(level):
            cut = {name: _cut(value) for name, value in fields.items()}
            self._sink.write(level, event, cut)

    def flush(self) -> None:
        """Write the buffered records."""
        self._sink.flush()


def _cut(value: Any) -> Any:
    return shortened(value, _LONGEST_FIELD) if isinstance(value, str) else value


def timestamp() -> str:
    """Return the current time in the format of records."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_json(records: Sequence[object]) -> str:
    return _encode_lines(records).decode()


def _as_text(records: Sequence[object]) -> str:
    return "".join(map(_line, records))


def _line(record: object) -> str:
    fields = msgspec.to_builtins(record, enc_hook=str)
    head = f"{fields.pop('timestamp')[11:23]} {fields.pop('level'):<7} {fields.pop('event')}"
    return " ".join([head, *_pairs(fields)]) + "\n"


def _pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}={printable(str(value))}" for name, value in fields.items())


_SHOWN: dict[str | tuple[str, type[Warning], int], int] = {}
log = Log()
atexit.register(log.flush)


class _Failing(NamedTuple):
    since: float
    latest: float
    error: Exception


class Outage:
    """Logs the start and the end of an outage once, although many callers retry many times.

    Callers that share an outage have names; it lasts until all of them have succeeded.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._since = 0.0
        self._failing: dict[str | int, _Failing] = {}
        self._logged: set[str] = set()

    def report(
        self,
        level: Literal["warning", "error"],
        problem: str,
        error: Exception,
        who: str | int,
        **fields: Any,
    ) -> None:
        """Log the failure of a caller, unless the same failure was logged in this outage."""
        now = time.monotonic()
        if not self._is_ongoing(now):
            self._since = now
            self._failing.clear()
            self._logged.clear()
        before = self._failing.get(who)
        self._failing[who] = _Failing(before.since if before else now, now, error)
        key = "unavailable" if isinstance(error, BackendUnavailableError) else f"{problem}: {error}"
        if key not in self._logged:
            self._logged.add(key)
            write = log.error if level == "error" else log.warning
            write(problem, error=str(error), **fields)

    def recovered(self, who: str | int) -> None:
        """Record the success of a caller; log the end of the outage after the last one."""
        if self._failing.pop(who, None) is None:
            return
        now = time.monotonic()
        if not self._is_ongoing(now):
            log.info("back after an outage", part=self._part, seconds=round(now - self._since, 1))
            log.flush()

    @contextmanager
    def reporting(
        self, level: Literal["warning", "error"], problem: str, who: str | int
    ) -> Iterator[None]:
        """Report an error of a backend in the code inside, which is not raised, or its success."""
        try:
            yield
        except BackendError as error:
            self.report(level, problem, error, who)
        else:
            self.recovered(who)

    def lasting(self, callers: Iterable[str | int], seconds: float) -> Exception | None:
        """Return the error of one of the callers that has failed for so long, if there is one."""
        failing = (self._failing[who] for who in callers if who in self._failing)
        return next((each.error for each in failing if each.latest - each.since > seconds), None)

    @property
    def is_ongoing(self) -> bool:
        """Whether a caller failed lately and has not succeeded since."""
        return self._is_ongoing(time.monotonic())

    def _is_ongoing(self, now: float) -> bool:
        return any(now - each.latest < _FORGET_SECONDS for each in self._failing.values())


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
