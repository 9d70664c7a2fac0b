"""Structured logs: one JSON object, or one readable line on a terminal, per record.

Records are buffered and written at the borders of a batch, because a write for each event costs
more than the event. A warning or an error is written at once.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from headwater.errors import BackendError, BackendUnavailableError

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_RANK: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_BUFFERED_RECORDS = 512
# Longer than anybody waits before trying again; who is silent for longer has stopped trying.
_FORGOTTEN_SECONDS = 60.0
_encode_lines = msgspec.json.Encoder(enc_hook=str).encode_lines


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """What every record begins with; a kind that is written often adds fields of its own."""

    timestamp: str
    level: Level
    event: str


class Log:
    """Collects records as finished lines and hands them to a stream."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._lock = threading.Lock()
        self._stream: TextIO | None = None
        self._rank = _RANK["info"]
        self._render = _as_json

    def configure(self, level: Level, style: Format, stream: TextIO | None = None) -> None:
        """Chooses level, form and stream; without a stream, records go to standard error."""
        self.flush()
        terminal = (stream or sys.stderr).isatty()
        self._rank = _RANK[level]
        self._render = (
            _as_text if style == "console" or (style == "auto" and terminal) else _as_json
        )
        self._stream = stream

    def debug(self, event: str, **fields: Any) -> None:
        self._record("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._record("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._record("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._record("error", event, fields)

    def info_each(self, records: Iterable[LogRecord]) -> None:
        """Records many at once, which are made only if they are wanted."""
        if self._rank > _RANK["info"]:
            return
        text = self._render(list(records))
        with self._lock:
            self._texts.append(text)

    def _record(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        rank = _RANK[level]
        if rank < self._rank:
            return
        record = {"timestamp": timestamp(), "level": level, "event": event, **fields}
        text = self._render([record])
        with self._lock:
            self._texts.append(text)
        if rank >= _RANK["warning"] or len(self._texts) >= _BUFFERED_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._lock:
            text, self._texts = "".join(self._texts), []
            if not text:
                return
            stream = self._stream or sys.stderr
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):
                # Whoever read the log has gone (closed pipe, closed file), or its disk is full:
                # the work that is being logged must not stop for that.
                return


def timestamp() -> str:
    """The present moment as records carry it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_json(records: Sequence[object]) -> str:
    return _encode_lines(records).decode()


def _as_text(records: Sequence[object]) -> str:
    return "".join(map(_line, records))


def _line(record: object) -> str:
    fields = msgspec.to_builtins(record, enc_hook=str)
    head = f"{fields.pop('timestamp')[11:23]} {fields.pop('level'):<7} {fields.pop('event')}"
    return " ".join([head, *(f"{name}={value}" for name, value in fields.items())]) + "\n"


log = Log()
atexit.register(log.flush)


class Outage:
    """Says once that a server is away and once that it is back, however many try it how often.

    Those who share one are known by name; it lasts until all of them have come through.
    """

    def __init__(self, part: str) -> None:
        self._part = part
        self._since = 0.0
        self._trying: dict[str | int, float] = {}
        self._said: set[str] = set()

    def tell(
        self,
        level: Literal["warning", "error"],
        problem: str,
        error: BackendError,
        who: str | int,
        **fields: Any,
    ) -> None:
        """Records what somebody could not do, unless the reason is known."""
        now = time.monotonic()
        if not self._lasts(now):
            self._since = now
            self._trying.clear()
            self._said.clear()
        self._trying[who] = now
        reason = "away" if isinstance(error, BackendUnavailableError) else f"{problem}: {error}"
        if reason not in self._said:
            self._said.add(reason)
            write = log.error if level == "error" else log.warning
            write(problem, error=str(error), **fields)

    def over(self, who: str | int) -> None:
        """Takes note that somebody came through."""
        if self._trying.pop(who, None) is None:
            return
        now = time.monotonic()
        if not self._lasts(now):
            log.info("back after an outage", part=self._part, seconds=round(now - self._since, 1))
            log.flush()

    def _lasts(self, now: float) -> bool:
        return any(now - tried < _FORGOTTEN_SECONDS for tried in self._trying.values())
