"""Verbs: a signature with its route, scope, audit action, bounds and errors, declared once.

A store runs a verb, a client sends it, and its route, its part of the OpenAPI document, its entry
in the audit log and its refusal during a replay are derived from the declaration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from headwater.core.progress import with_bar
from headwater.errors import HeadwaterError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.model.callers import AccessScope
from headwater.model.kinds import ROWS
from headwater.model.problems import ProgressStep

if TYPE_CHECKING:
    from headwater.engine.engine import Engine
    from headwater.store.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")
G = TypeVar("G", bound="Verbs")

Arguments = Mapping[str, Any]
LONG_AT_ONCE = 16
"""How many requests for a long verb one process runs at the same time."""
BodyLimit = Literal["max_body_bytes", "max_upload_bytes"]
"""The settings of ``http`` that limit bodies."""


class Sent(NamedTuple):
    """How an argument is sent that is more than JSON here, as ``Annotated[Here, Sent(…)]``."""

    kind: Any
    encode: Callable[[Any], Any] = str
    decode: Callable[[Any], Any] | None = None
    name: str | None = None
    """Its name in the API, if another."""


class Reply(NamedTuple):
    """What a server answers, where that is more than the result."""

    kind: Any
    make: Callable[..., Coroutine[Any, Any, Any]]
    """Runs the verb of a group with arguments by name, and returns the answer."""
    result: Callable[[Any], Any]
    """Returns the result of an answer that a client got."""
    absent: type[HeadwaterError] | None = None
    """The error that stands for the result None."""
    is_pending: Callable[[Any], bool] | None = None
    """Returns whether the work of an answer goes on, which makes its status 202."""


class Field(NamedTuple):
    """An argument as it is sent."""

    argument: str
    name: str
    """Its name in the API."""
    kind: Any
    default: Any
    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def absent(self) -> Any:
        """What stands for it where it is not given."""
        return None if self.is_required else self.default


class Executor(Protocol):
    """Runs verbs: an open store does, and a server that they are sent to."""

    async def run(self, verb: Verb, group: Verbs, arguments: Arguments) -> Any: ...


class Verbs:
    """A group of verbs."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._runtime = cast("Runtime", executor)
        """The store in whose process a verb runs."""

    async def _engine(self) -> Engine:
        return await self._runtime.open()


@dataclass(frozen=True, eq=False, kw_only=True)
class Verb:
    """The declaration of a verb, and the decorator of the async method of `Verbs` that is one."""

    method: Literal["GET", "POST", "PUT", "DELETE"] = field(kw_only=False)
    path: str = field(kw_only=False)
    scope: AccessScope
    operation: str
    """Its name in the API."""
    changes: str | None = None
    """The action in the audit log; None if it changes nothing, so that it may be repeated."""
    target: str | None = None
    """The argument that the audit log names as the action's target, by its name in the API."""
    notes: tuple[str, ...] = ()
    """Further arguments for the audit log, by these names, never personal values.

    The log cannot be redacted.
    """
    is_logged: bool = True
    """Whether a change is for the audit log, which has no changes of data."""
    audits_itself: bool = False
    """Whether the function writes to the audit log, because the arguments do not say enough."""
    creates: bool = False
    """Whether it creates the returned object, which makes its status 201."""
    reads: str | None = None
    """The source of the answer in the provenance of a context whose function calls it."""
    answer: type[msgspec.Struct] | None = None
    """The JSON object whose last field is the result, after the first arguments of the path.

    None if the result is an object itself.
    """
    reply: Reply | None = None
    is_repeatable: bool = True
    """Whether it may be sent again if its outcome is unknown; a change only if its method says so.
    """
    raises: tuple[type[Exception], ...] = ()
    applies_limits: bool = False
    is_long: bool = False
    """Whether it may take minutes: its response is lines with the progress, then the result."""
    max_bytes: BodyLimit = "max_body_bytes"
    """The setting with the largest size of a body."""
    most: int = 1_000
    """The most rows of one call: of a list of arguments, and of an argument that has `ROWS`."""
    seconds: float = 60.0
    """How long a request may take, unless it is long or changes something.

    A long one ends with its connection, and a change goes on to its end, so that no half of it
    stays.
    """
    ends_with_client: bool = False
    """Whether a change ends when its client disconnects: all of it is one write, at its end."""
    at_once: int = 256
    """How many requests one process runs at the same time."""
    local: tuple[str, ...] = ()
    """The arguments that only callers in the process can give."""
    function: Callable[..., Coroutine[Any, Any, Any]] = field(init=False)

    def __call__(
        self, function: Callable[Concatenate[G, P], Coroutine[Any, Any, T]]
    ) -> Callable[Concatenate[G, P], Coroutine[Any, Any, T]]:
        object.__setattr__(self, "function", function)

        @wraps(function)
        async def call(group: G, /, *args: P.args, **named: P.kwargs) -> T:
            return cast("T", await run(self, group, self.bound(args, named)))

        title = self.operation.replace("_", " ").capitalize()
        shown = with_bar(call, title) if "progress" in self.signature.parameters else call
        _DECLARED[shown] = self
        return shown

    @property
    def is_cut_off(self) -> bool:
        """Whether it ends after its seconds."""
        return not self.is_long and self.changes is None

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.function.__name__

    @cached_property
    def summary(self) -> str:
        """The docstring without its examples, and without arguments, whose types describe them."""
        text = inspect.cleandoc(self.function.__doc__ or "").partition("\n>>> ")[0]
        return text.partition("\nArgs:\n")[0].strip()

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature without ``self``."""
        _, *parameters = inspect.signature(self.function).parameters.values()
        return inspect.Signature(parameters)

    @cached_property
    def returns(self) -> Any:
        """The type of the result."""
        return self._hints["return"]

    @property
    def answers(self) -> Any:
        """The type of what a server answers."""
        return self.answer or self.returns if self.reply is None else self.reply.kind

    @cached_property
    def step(self) -> Any:
        """The type of its progress, `ProgressStep` for two numbers or none."""
        kinds = [kind for kind in get_args(self._hints.get("progress")) if get_args(kind)]
        shown = get_args(kinds[0])[0] if kinds else []
        return shown[0] if len(shown) == 1 else ProgressStep

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """The types of the result and of the arguments that can be sent."""
        kinds = self.function.__annotations__.items()
        sent = {name: kind for name, kind in kinds if name not in self.local}
        annotated = SimpleNamespace(__annotations__=sent)
        return get_type_hints(annotated, self.function.__globals__, include_extras=True)

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        """The arguments that are part of the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def fields(self) -> dict[str, Field]:
        """The arguments that are sent, by their name in the API."""
        return {field.name: field for field in self._fields()}

    @cached_property
    def _by_argument(self) -> dict[str, Field]:
        return {field.argument: field for field in self._fields()}

    def _fields(self) -> Iterator[Field]:
        for parameter in self.signature.parameters.values():
            if (name := parameter.name) in self.local:
                continue
            kind = self._hints[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                yield from filter_fields(kind)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                yield _positional_field(name, kind, self.most)
            elif name != "progress":
                yield _field(name, kind, parameter.default, self.most)

    @cached_property
    def body(self) -> type[msgspec.Struct] | None:
        """The JSON object with the arguments that are sent in the body."""
        if self.method not in ("POST", "PUT"):
            return None
        fields = [field for field in self.fields.values() if field.name not in self.path_names]
        if not fields:
            return None
        title = "".join(word.capitalize() for word in self.operation.split("_"))
        return msgspec.defstruct(
            f"{title}Body",
            [_struct_field(field) for field in fields],
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            namespace={"__doc__": self.summary.partition("\n")[0]},
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        """The arguments that can be given by name."""
        parameters = self.signature.parameters.values()
        named = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
        return frozenset({*self._by_argument, *named})

    def bound(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments by name; raise InvalidInputError for an unknown one."""
        for name in named:
            if name not in self._names:
                raise InvalidInputError(
                    f"unknown option {name!r} of {self.name}; {nearest(name, self._names)}"
                )
        arguments = self.signature.bind(*args, **named).arguments
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        return arguments

    def sent(self, arguments: Arguments) -> dict[str, Any]:
        """Return the given arguments as they are sent, except None."""
        fields = self._by_argument
        return {
            field.name: value if field.encode is None else field.encode(value)
            for name, value in arguments.items()
            if value is not None and (field := fields.get(name)) is not None
        }

    def received(self, sent: Arguments) -> dict[str, Any]:
        """Return arguments that were sent as the function takes them."""
        fields = [(self.fields[name], value) for name, value in sent.items()]
        return {
            field.argument: value if field.decode is None else field.decode(value)
            for field, value in fields
        }

    def answered(self, arguments: Arguments, result: Any) -> Any:
        """Return the JSON object with a result."""
        if self.answer is None:
            return result
        *named, _ = self.answer.__struct_fields__
        sent = self.sent(arguments)
        return self.answer(*(sent[name] for name in self.path_names[: len(named)]), result)

    def result(self, answer: Any) -> Any:
        """Return the result in what a server answered."""
        if self.reply is not None:
            return self.reply.result(answer)
        return answer if self.answer is None else getattr(answer, self.answer.__struct_fields__[-1])

    def call(self, group: Verbs, arguments: Arguments) -> Coroutine[Any, Any, Any]:
        """Call the function with arguments by name."""
        named = dict(arguments)
        *positional, several = [named.pop(name, ()) for name in self._positional] or [()]
        return self.function(group, *positional, *several, **named)

    @cached_property
    def _positional(self) -> list[str]:
        """The names of ``*arguments`` and of those before them, which cannot be given by name."""
        names = list(self.signature.parameters)
        kinds = [each.kind for each in self.signature.parameters.values()]
        several = inspect.Parameter.VAR_POSITIONAL
        return names[: kinds.index(several) + 1] if several in kinds else []


verb = Verb
_DECLARED: dict[Callable[..., Any], Verb] = {}


async def run(verb: Verb, group: Verbs, arguments: Arguments) -> Any:
    """Run a verb of a group."""
    return await group._executor.run(verb, group, arguments)  # noqa: SLF001 - of this module


def declared(method: Callable[..., Any]) -> Verb:
    """Return the declaration of a method that is a verb."""
    return _DECLARED[method]


def verbs_of(group: type[Verbs]) -> list[Verb]:
    """Return the verbs that a class declares, in their order."""
    return [
        _DECLARED[member]
        for kind in reversed(group.__mro__)
        for member in vars(kind).values()
        if callable(member) and member in _DECLARED
    ]


def filter_fields(unpacked: Any) -> Iterator[Field]:
    """Return the arguments of ``**filters: Unpack[Filters]``, all of which are optional."""
    (filters,) = get_args(unpacked)
    for name, kind in get_type_hints(filters, include_extras=True).items():
        yield _field(name, kind, None)


def _positional_field(name: str, kind: Any, most: int) -> Field:
    """Return positional arguments as a list: the one that `Sent` has is not empty."""
    sent = _sent(kind)
    if sent is not None:
        several = _bounded(sent.kind, Meta(max_length=most))
        return Field(name, name, several, inspect.Parameter.empty, list, None)
    return Field(name, name, _several(kind, most), (), list, None)


def _several(kind: Any, most: int) -> Any:
    """Return the type of positional arguments, with an example of one of them."""
    metas = [meta for meta in get_args(kind)[1:] if isinstance(meta, Meta)]
    examples = [[example] for meta in metas for example in meta.examples or ()]
    kinds: Any = list[kind]
    return Annotated[kinds, Meta(max_length=most, examples=examples)]


def _field(name: str, kind: Any, default: Any, most: int | None = None) -> Field:
    """Return an argument as it is sent: only an absent one is None."""
    kind = _without_none(kind)
    if ROWS in get_args(kind)[1:]:
        kind = _bounded(kind, Meta(le=most))
    sent = _sent(kind)
    if sent is None:
        return Field(name, name, kind, default, None, None)
    return Field(name, sent.name or name, sent.kind, default, sent.encode, sent.decode)


def _bounded(kind: Any, bound: Meta) -> Any:
    """Return a type with a bound, and without `ROWS`."""
    plain, *metas = get_args(kind)
    return Annotated[(plain, *(meta for meta in metas if meta is not ROWS), bound)]


def _sent(kind: Any) -> Sent | None:
    return next((each for each in get_args(kind)[1:] if isinstance(each, Sent)), None)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not NoneType)]  # noqa: UP007 - of a tuple


def _struct_field(field: Field) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.is_required:
        return field.name, field.kind
    return field.name, field.kind if field.default is not None else field.kind | None, field.default
