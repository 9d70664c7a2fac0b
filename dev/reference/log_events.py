"""The log records: levels and fields from the source, meanings from `log_events.toml`.

A line of the file is ``"event".level = "meaning"``. Where a call passes ``**fields``, a line
``"event".fields = [...]`` names them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from dev.reference.source import calls, classes
from dev.reference.tables import IncompleteReferenceError, code, table

MEANINGS = Path(__file__).with_suffix(".toml")

_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error"}
# Advice is a warning, also of Python if logging has no handlers.
_LEVELS["advise"] = "warning"


class LogEvent(NamedTuple):
    """A kind of log record; with ``has_more``, it has fields that the source does not name."""

    event: str
    level: str
    fields: tuple[str, ...]
    has_more: bool = False


def events() -> Iterator[str]:
    """Yield the table of all log records, in the order of the meanings."""
    read = msgspec.toml.decode(MEANINGS.read_bytes(), type=dict[str, dict[str, str | list[str]]])
    more = {event: tuple(texts.pop("fields", ())) for event, texts in read.items()}
    meanings = {(event, level): t for event, texts in read.items() for level, t in texts.items()}
    logged = _merged()
    for event, level in sorted(logged.keys() ^ meanings.keys()):
        has = "no meaning" if (event, level) in logged else "a meaning, but is never logged"
        raise _wrong(f"log event {event!r} with the level {level} has {has}")
    for each in logged.values():
        if each.has_more != bool(more[each.event]):
            raise _wrong(f"log event {each.event!r} needs {'' if each.has_more else 'no '}`fields`")
    return table(
        ("event", "level", "fields", "meaning"),
        (
            (code(event), level, code(*logged[event, level].fields, *more[event]), str(meaning))
            for (event, level), meaning in meanings.items()
        ),
    )


def _wrong(problem: str) -> IncompleteReferenceError:
    return IncompleteReferenceError(f"{problem}: correct dev/reference/{MEANINGS.name}")


def _merged() -> dict[tuple[str, str], LogEvent]:
    merged: dict[tuple[str, str], LogEvent] = {}
    kinds = _kinds()
    for call in calls():
        for found in _logged(call, kinds):
            key = found.event, found.level
            same = merged.get(key, found)
            fields = tuple(dict.fromkeys(same.fields + found.fields))
            merged[key] = LogEvent(*key, fields, same.has_more or found.has_more)
    return merged


def _logged(call: ast.Call, kinds: dict[str, tuple[str, ...]]) -> Iterator[LogEvent]:
    named = tuple(keyword.arg for keyword in call.keywords if keyword.arg)
    match call:
        case ast.Call(
            func=ast.Attribute(ast.Name("log" | "logger"), level),
            args=[ast.Constant(str(event)), *_],
        ) if level in _LEVELS:
            yield LogEvent(event, _LEVELS[level], named, len(named) < len(call.keywords))
        case ast.Call(
            func=ast.Attribute(_, "report" | "reporting"),
            args=[ast.Constant(str(level)), ast.Constant(str(event)), *_],
        ):
            yield LogEvent(event, level, (*named, "error"))
        case ast.Call(
            func=ast.Name(kind), args=[_, ast.Constant(str(level)), ast.Constant(str(event)), *_]
        ) if kind in kinds:
            yield LogEvent(event, level, kinds[kind])
        case ast.Call(func=ast.Attribute(_, "_retry"), args=[_, ast.Constant(str(event)), *_]):
            yield LogEvent(event, "error", ("error",))
        case ast.Call(func=ast.Name("PartitionTasks"), args=[_, ast.Constant(str(event)), *_]):
            yield LogEvent(event, "warning", ("partition", "error"))


def _kinds() -> dict[str, tuple[str, ...]]:
    """Return the fields of the classes of frequent records."""
    kinds: dict[str, tuple[str, ...]] = {"LogRecord": ()}
    for each in classes():
        match each:
            case ast.ClassDef(name, [ast.Name(base)], _, body) if base in kinds:
                own = [line.target for line in body if isinstance(line, ast.AnnAssign)]
                names = tuple(target.id for target in own if isinstance(target, ast.Name))
                kinds[name] = kinds[base] + names
    return kinds
