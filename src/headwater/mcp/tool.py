"""A tool: what a model is told about it, the scope that it needs, and its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import mcp_types
import msgspec

from headwater.access.bounded_verbs import BoundedVerb
from headwater.errors import FieldError
from headwater.mcp.results import ResultFacts, ToolAnswer
from headwater.model.callers import AccessScope, Caller
from headwater.store.verbs.verb import Field, Verb, Verbs

REF = "#/$defs/{name}"

T = TypeVar("T", bound=msgspec.Struct)


class StoreTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool over a verb of the store."""

    name: str
    title: str
    scope: AccessScope
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[ToolAnswer]]
    is_read_only: bool = True
    context: str | None = None
    """The context that the tool assembles, if it assembles only one."""

    def is_for(self, caller: Caller) -> bool:
        """Return whether a caller may call the tool at all."""
        contexts = None if caller.limits is None or self.context is None else caller.limits.contexts
        return caller.may(self.scope) and (contexts is None or self.context in contexts)

    def listing(self) -> mcp_types.Tool:
        """Return the tool as clients see it."""
        return mcp_types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            annotations=mcp_types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.is_read_only,
                # A record is added, never changed. Repeating a call adds another.
                destructive_hint=False,
                idempotent_hint=self.is_read_only,
                open_world_hint=False,
            ),
        )


def verb_tool(
    group: Verbs,
    verb: Verb,
    title: str,
    facts: Callable[[Any], ResultFacts],
    limits: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> StoreTool:
    """Return the tool of a verb, which has its name, description, arguments, scope and bounds.

    ``limits`` are the default and the most of numbers of rows, where a model reads fewer.
    """
    names = {_name(field, verb): field for field in verb.fields.values()}
    given = msgspec.defstruct(
        "Arguments",
        [_argument(name, field, limits.get(name)) for name, field in names.items()],
        kw_only=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": verb.summary.partition("\n")[0]},
    )
    bounded = BoundedVerb(verb, group)

    async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
        sent = msgspec.structs.asdict(converted(arguments, given))
        named = {names[name].name: value for name, value in sent.items() if value is not None}
        value = await bounded.run(verb.received(named))
        return ToolAnswer(value=value, facts=facts(value))

    return StoreTool(
        name=verb.operation,
        title=title,
        scope=verb.scope,
        description=verb.summary,
        input_schema=schema_of(given),
        output_schema=schema_of(verb.answers),
        call=call,
    )


def _name(field: Field, verb: Verb) -> str:
    """Return the name of an argument; a path of the API has names that fit it."""
    return field.argument if field.name in verb.path_names else field.name


def _argument(name: str, field: Field, limit: tuple[int, int] | None) -> tuple[Any, ...]:
    if limit is not None:
        default, most = limit
        return name, Annotated[int, msgspec.Meta(ge=1, le=most)], default
    if field.is_required:
        return name, field.kind
    if field.default is None:
        return name, field.kind | None, None
    return name, field.kind, field.encode(field.default) if field.encode else field.default


def converted(arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Return the arguments of a call as a Struct; raise FieldError if they do not fit it."""
    for name in arguments:
        if name not in kind.__struct_fields__:
            raise FieldError.unknown("unknown argument", name, kind.__struct_fields__, name)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in arguments:
            raise FieldError(f"the argument {field.name!r} is required", field.name)
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise FieldError(f"invalid arguments: {error}") from error


def check_encodable(arguments: Mapping[str, Any]) -> None:
    """Raise FieldError if a value in the arguments could not be answered as JSON."""
    try:
        msgspec.json.encode(arguments)
    except (UnicodeEncodeError, RecursionError) as error:
        raise FieldError(
            "a text in the arguments has a lone surrogate, or they are nested too deeply; send "
            "plain JSON"
        ) from error


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of a Struct, with an object at its root as the protocol demands."""
    (root,), definitions = msgspec.json.schema_components([kind], ref_template=REF)
    own = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**own, "$defs": definitions} if definitions else own
