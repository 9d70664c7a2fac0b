"""Parts of JSON Schemas that want a text where a file or an argument has a number or bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DECIMAL = "decimal"
"""The ``format`` of texts that are decimals."""
BASE64 = "base64"
"""The ``contentEncoding`` of texts that are bytes."""

_COMBINED = ("anyOf", "oneOf", "allOf")


class SchemaPart:
    """A part of the schema of a payload: the alternatives that one of its values may fit."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._nodes = list(self._alternatives(schema))

    def at(self, path: Sequence[str | int]) -> SchemaPart:
        """Return the part for a value in objects and lists."""
        part = self
        for place in path:
            part = part._inside(place)
        return part

    @property
    def is_decimal(self) -> bool:
        """Whether a text may be a decimal."""
        return any(node.get("format") == DECIMAL for node in self._nodes)

    @property
    def is_bytes(self) -> bool:
        """Whether a text may be the base64 of bytes."""
        return any(node.get("contentEncoding") == BASE64 for node in self._nodes)

    @property
    def allowed(self) -> list[Any]:
        """The values that it may have, if it is an enum or a literal."""
        return [value for node in self._nodes for value in node.get("enum", ())]

    def choose(self, value: Any, exact: Any) -> Any:
        """Return a value with its exact texts where decimals, or bytes for texts, are wanted."""
        if isinstance(value, dict) and isinstance(exact, dict):
            return {
                name: self._inside(name).choose(part, exact.get(name, part))
                for name, part in value.items()
            }
        if isinstance(value, list) and isinstance(exact, list):
            pairs = enumerate(zip(value, exact, strict=True))
            return [self._inside(number).choose(*pair) for number, pair in pairs]
        is_wanted = self.is_bytes if isinstance(value, str) else self.is_decimal
        return exact if is_wanted else value

    def _inside(self, place: str | int) -> SchemaPart:
        part = SchemaPart({"$defs": self._definitions})
        part._nodes = [
            inner for node in self._nodes for inner in self._alternatives(_child(node, place))
        ]
        return part

    def _alternatives(self, node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            yield from self._alternatives(self._definitions.get(name, {}))
        yield node
        for word in _COMBINED:
            for inner in node.get(word, ()):
                yield from self._alternatives(inner)


class PayloadSchemas:
    """The schemas of the payloads of declared types of events."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._parts: dict[tuple[str, ...], SchemaPart] = {}

    def part(self, event_type: str, *path: str) -> SchemaPart | None:
        """Return the part for a value in payloads of a type; None if the type has no schema."""
        if event_type not in self._schemas:
            return None
        key = (event_type, *path)
        if key not in self._parts:
            self._parts[key] = SchemaPart(self._schemas[event_type]).at(path)
        return self._parts[key]


def _child(node: Mapping[str, Any], place: str | int) -> Mapping[str, Any]:
    if isinstance(place, str):
        child = node.get("properties", {}).get(place, node.get("additionalProperties"))
    else:
        first = node.get("prefixItems", ())
        child = first[place] if place < len(first) else node.get("items")
    return child if isinstance(child, dict) else {}
