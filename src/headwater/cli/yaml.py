"""YAML for what a record's document holds: text, whole numbers, truth, null, lists and mappings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from headwater.core.canonical_json import JsonError, parse

_HEADING = (
    "# For people to read. What is verified is the JSON document, whose core is what was hashed.\n"
)
_INDENT = "  "
# Longer ones have to be announced.
_LONGEST_KEY = 1_000
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Words that one version of YAML or another reads as something else than text.
_TAKEN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def for_people(document: bytes) -> str:
    """A record's document with its core laid open; only the JSON has the text that was hashed."""
    told = parse(document)
    with suppress(JsonError):  # a core that was damaged is shown as it is
        told["core"] = parse(told["core"])
    return _HEADING + to_yaml(told)


def to_yaml(value: object) -> str:
    """The document of a value; it reads back equal with YAML 1.1 and 1.2."""
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: object, indent: str) -> Iterator[str]:
    """A value that stands on lines of its own."""
    match value:
        case dict() if value:
            for key, item in value.items():
                name = _key(key)
                if len(name) > _LONGEST_KEY:
                    yield f"{indent}? {name}"
                    name = ""
                yield from _entry(f"{indent}{name}:", item, indent)
        case list() | tuple() if value:
            for item in value:
                yield from _entry(f"{indent}-", item, indent)
        case _:
            yield indent + _scalar(value)


def _entry(head: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list | tuple) and item:
        yield head
        yield from _lines(item, indent + _INDENT)
    elif isinstance(item, str) and _fits_block(item):
        yield f"{head} |{'' if item.endswith(chr(10)) else '-'}"
        for line in item.removesuffix("\n").split("\n"):
            yield (indent + _INDENT + line) if line else ""
    else:
        yield f"{head} {_scalar(item)}"


def _fits_block(text: str) -> bool:
    """Says whether lines can stand as they are: nothing in them is invisible or trimmed."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0])
        and bool(lines[-1])
        and lines[0][0] != " "
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )


def _key(key: object) -> str:
    if isinstance(key, str) and _WORD.fullmatch(key) and key.lower() not in _TAKEN:
        return key
    return _scalar(key)


def _scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f'"{"".join(map(_escaped, value))}"'
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
    raise TypeError(f"a record's document holds no {type(value).__name__}")


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"
