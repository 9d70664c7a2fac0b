"""Declared events: the class of their payload, the check against it, and events that have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from headwater.core.codec import PydanticModel, decode_custom, with_defaults
from headwater.errors import EventError
from headwater.errors.hints import Location, closest
from headwater.model.values import ServiceEvent, new_id

P_co = TypeVar("P_co", covariant=True)

_REFUSED = re.compile(r"(?s)(.*?)(?: - at (?:`key` in )?`\$(.*)`)?\Z")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NOT_ALLOWED = "Invalid enum value"
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
"""A step of a path: a field, an index, or any key of an object."""
DEFINED = "#/$defs/"
"""The beginning of a reference to the schema of a nested class."""

_CORRECT = "correct the payload"
_REDRIVE = "give new fields of the class a default, then redrive the dead letter"


class Event(msgspec.Struct, Generic[P_co], frozen=True, gc=False, repr_omit_defaults=True):
    """An event of a declared type, as a handler with ``event: Event[Purchase]`` gets it.

    Its payload is an instance of the declared class; all else is as in a ``ServiceEvent``.
    """

    event_type: str
    entity_id: str
    payload: P_co
    timestamp: datetime = msgspec.field(default_factory=partial(datetime.now, UTC))
    event_id: str = msgspec.field(default_factory=new_id)
    traceparent: str | UnsetType = UNSET


@runtime_checkable
class _PydanticErrors(Protocol):
    """The error of pydantic 2, which Headwater does not import."""

    def errors(self, *, include_url: bool) -> Sequence[dict[str, Any]]: ...


class EventDef(msgspec.Struct, frozen=True, eq=False):
    """A declared type of events and the class of their payload."""

    name: str
    payload: Any
    location: Location
    decoder: msgspec.json.Decoder[Any]
    leaves_defaults: bool
    """Whether a payload that msgspec made is without its defaults."""
    description: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the payload; schemas of nested classes are in its ``$defs``."""
        if isinstance(self.payload, type) and issubclass(self.payload, PydanticModel):
            schema = self.payload.model_json_schema()
        else:
            schema = msgspec.json.schema(self.payload, schema_hook=_custom_schema)
        definitions: dict[str, Any] = {}
        schema = _gathered(schema, definitions)
        if "$ref" in schema:
            own = schema["$ref"]
            schema = definitions[own.removeprefix(DEFINED)]
            if f'"{own}"' not in msgspec.json.encode(definitions).decode():
                del definitions[own.removeprefix(DEFINED)]  # it does not contain itself
        return {**schema, "$defs": definitions} if definitions else schema

    def check(self, raw: bytes, index: int | None = None) -> None:
        """Raise EventError if the JSON text of a payload does not fit the class."""
        try:
            self.decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise self._error(error, msgspec.json.decode(raw), _CORRECT, index) from error

    def typed(self, event: ServiceEvent, remedy: str = _REDRIVE) -> Event[Any]:
        """Return an event with an instance of the class; raise EventError if it does not fit."""
        try:
            payload = msgspec.convert(
                event.payload, self.payload, str_keys=True, dec_hook=decode_custom
            )
        except msgspec.ValidationError as error:
            raise self._error(error, event.payload, remedy) from error
        return Event(
            event.event_type,
            event.entity_id,
            with_defaults(payload) if self.leaves_defaults else payload,
            event.timestamp,
            event.event_id,
            event.traceparent,
        )

    def _error(
        self,
        error: msgspec.ValidationError,
        payload: dict[str, Any],
        remedy: str,
        index: int | None = None,
    ) -> EventError:
        """Return the error of a payload that does not fit, with the path of the field."""
        refused = _REFUSED.match(str(error))
        assert refused is not None, "the pattern matches any text"
        problem, path = refused[1], refused[2] or ""
        if missing := _MISSING.fullmatch(problem):
            # Fields that the class does not declare are allowed, so a wrong name is not refused.
            similar = None if path else closest(missing[1], payload)
            problem = "missing" if similar is None else f"missing; did you mean {similar!r}?"
            path += f".{missing[1]}"
        elif isinstance(error.__cause__, _PydanticErrors):
            first = error.__cause__.errors(include_url=False)[0]
            problem = first["msg"]
            path += "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
        elif problem.startswith(_NOT_ALLOWED) and (allowed := self._allowed(path)):
            problem = f"{problem}, not one of {allowed}"
        field = f"payload{path}"
        kind = self.payload.__name__
        return EventError(
            f"{field} does not fit {kind}, the schema of {self.name!r}: {problem}; {remedy}",
            index,
            field,
        )

    def _allowed(self, path: str) -> str:
        """Return the values that a part of a payload may have; empty if the schema has none."""
        from headwater.model.payload_schemas import SchemaPart  # noqa: PLC0415 - after an error only

        steps = [
            int(index) if index.isdigit() else name or index for name, index in _STEP.findall(path)
        ]
        return ", ".join(map(repr, SchemaPart(self.schema).at(steps).allowed))


def _custom_schema(kind: type) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know: any value, if it has none."""
    return kind.model_json_schema() if issubclass(kind, PydanticModel) else {}


def _gathered(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema without the schemas of nested classes, which are put into one table."""
    if isinstance(schema, list):
        return [_gathered(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = schema.get("$defs", {})
    definitions.update({name: _gathered(part, definitions) for name, part in inner.items()})
    return {name: _gathered(part, definitions) for name, part in schema.items() if name != "$defs"}
