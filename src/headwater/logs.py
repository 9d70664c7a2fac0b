"""Structured logs: one JSON object, or one readable line on a terminal, per record.

Records are buffered and written at the borders of a batch, because a write for each event costs
more than the event. A warning or an error is written at once.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_RANK: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_BUFFERED_RECORDS = 512
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Log:
    """Collects records as finished lines and hands them to a stream."""

    def __init__(self) -> None:
        self._lines: list[str] = []
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

    def info_each(self, event: str, records: Iterable[dict[str, Any]]) -> None:
        """Records many of one kind at once, under one timestamp."""
        if self._rank > _RANK["info"]:
            return
        render = self._render
        head = {"timestamp": _now(), "level": "info", "event": event}
        lines = [render({**head, **fields}) for fields in records]
        with self._lock:
            self._lines += lines

    def _record(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        rank = _RANK[level]
        if rank < self._rank:
            return
        record = {"timestamp": _now(), "level": level, "event": event, **fields}
        line = self._render(record)
        with self._lock:
            self._lines.append(line)
        if rank >= _RANK["warning"] or len(self._lines) >= _BUFFERED_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._lock:
            lines, self._lines = self._lines, []
            if not lines:
                return
            stream = self._stream or sys.stderr
            try:
                stream.write("\n".join(lines) + "\n")
                stream.flush()
            except (OSError, ValueError):
                # Whoever read the log has gone (closed pipe, closed file), or its disk is full:
                # the work that is being logged must not stop for that.
                return


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_json(record: dict[str, Any]) -> str:
    return _encode(record).decode()


def _as_text(record: dict[str, Any]) -> str:
    head = f"{record.pop('timestamp')[11:23]} {record.pop('level'):<7} {record.pop('event')}"
    return " ".join([head, *(f"{name}={value}" for name, value in record.items())])


log = Log()
atexit.register(log.flush)
