"""Every error Headwater raises, as one tree.

HeadwaterError
├── DeclarationError            invalid declaration in a features file
│   ├── DuplicateNameError      two declarations share a name
│   ├── UnknownReferenceError   unknown name in a {reference} or an option
│   ├── CycleError              features depend on each other
│   ├── TemplateError           invalid template
│   └── FeaturesFileError       features file missing, failing, or without exactly one store
├── ConfigError                 invalid or missing setting
│   ├── UnknownSettingError     unknown key in headwater.toml
│   ├── MissingExtraError       optional driver not installed
│   └── SigningKeyError         invalid signing key
├── InvalidInputError           invalid argument
│   ├── LooserOverrideError     option of one call is looser than its context allows
│   ├── FieldError              field of a request, or parameter of a context, is invalid
│   ├── DurationError           invalid duration
│   ├── EventError              invalid event
│   ├── QueryError              query that can never run
│   ├── FeatureValueError       value does not fit its feature's annotated type
│   ├── RecordValueError        value cannot be represented exactly in a record
│   ├── RecordDocumentError     invalid record document
│   ├── RedactionError          nothing to redact at this pointer
│   ├── AmbiguousRefError       several contexts match this prefix of an id
│   ├── ReplayError             record withholds values that a replay needs
│   └── ReplayWriteError        replayed function tried to write
├── NotFoundError               not found
│   ├── UnknownNameError        … among the declarations
│   ├── UnknownContextError     … among the recorded contexts
│   ├── UnknownDeadLetterError  … among the dead letters
│   └── UnknownGroupError       … among the consumer groups
├── GroupInUseError             consumer group has live workers
├── FeatureFailedError          feature function failed
│   ├── FunctionRaisedError     … it raised an exception
│   ├── HandlerTimeoutError     … it timed out
│   └── HungHandlerError        … it was not called, because too many of its calls hang
├── TooManyHungThreadsError     worker ended because too many of its threads hang
├── RetrieverFailedError        retriever function failed
│   └── RetrieverTimeoutError   … it timed out
├── ContextFailedError          context function failed
│   └── ContextTimeoutError     … it timed out
├── FreshnessSLAError           context does not meet its freshness requirement
├── RecordingError              required record could not be stored
├── TokenBudgetError            required items exceed the token budget
├── CommitError                 batch was not committed and will be read again
│   ├── LeaseLostError          another worker holds the partition
│   └── VersionConflictError    entity changed while the batch ran
├── EventConflictError          event id already accepted with other content
├── ImmutableRecordError        different record already stored under this id
├── DamagedRecordError          stored record is unreadable
├── SignatureError              record cannot be signed, or its signature cannot be read
└── BackendError                store unusable
    ├── HomeError               embedded store: read-only, full, corrupt, or another version
    ├── BackendUnavailableError  server unreachable, or unable to serve at present
    ├── SchemaError             Postgres tables missing or of another version
    ├── StoreMismatchError      Redis and Postgres hold different stores, or an older copy
    ├── StoreLostError          store lost its data, so every value is missing
    └── ClosedError             store closed, or opened before a fork
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors.hints import Location, closest, nearest

_TIMED_OUT = "it timed out after {:g} s; raise its timeout= or HEADWATER_CONTEXT_TIMEOUT"


class HeadwaterError(Exception):
    """The base class of all Headwater errors."""


class DeclarationError(HeadwaterError):
    """An invalid declaration in a features file."""

    def __init__(self, problem: str, location: Location | None = None) -> None:
        self.problem = problem
        self.location = location
        super().__init__(f"{location}: {problem}" if location else problem)


class DuplicateNameError(DeclarationError):
    """Two declarations with the same name."""

    def __init__(self, kind: str, name: str, location: Location, first: Location) -> None:
        self.name = name
        super().__init__(f"{kind} {name!r} is already declared at {first}; rename one", location)


class UnknownReferenceError(DeclarationError):
    """An unknown name in a reference or an option."""

    def __init__(
        self, owner: str, kind: str, name: str, known: Iterable[str], location: Location | None
    ) -> None:
        self.name = name
        problem = f"{owner} refers to unknown {kind} {name!r}; {nearest(name, known)}"
        super().__init__(problem, location)


class CycleError(DeclarationError):
    """Features that depend on each other."""

    def __init__(self, cycle: Sequence[str], location: Location | None) -> None:
        self.cycle = tuple(cycle)
        super().__init__(f"features depend on each other: {' → '.join(cycle)}", location)


class TemplateError(DeclarationError):
    """An invalid template."""


class FeaturesFileError(DeclarationError):
    """A features file that is missing, fails, or does not define exactly one store."""


class ConfigError(HeadwaterError):
    """An invalid or missing setting."""


class UnknownSettingError(ConfigError):
    """An unknown key in the configuration file."""

    def __init__(self, key: str, file: str, known: Iterable[str]) -> None:
        self.key = key
        super().__init__(f"{file}: unknown setting {key!r}; {nearest(key, known)}")


class MissingExtraError(ConfigError):
    """An optional driver that is not installed."""

    def __init__(self, user: str, extra: str) -> None:
        self.extra = extra
        commands = f"`pip install 'headwater[{extra}]'`, or from a clone `pip install '.[{extra}]'`"
        super().__init__(f"{user} needs the extra {extra!r}: {commands}")


class SigningKeyError(ConfigError):
    """An invalid signing key; the message never shows the key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"signing key {key} {problem}; write 'key_id:secret', "
            "'ed25519:key_id:<base64 of the 32 byte seed>' or "
            "'ed25519-pub:key_id:<base64 of the 32 byte public key>', separated by commas"
        )


class InvalidInputError(HeadwaterError):
    """An invalid argument."""


class LooserOverrideError(InvalidInputError, ValueError):
    """An option of one call that is looser than the declaration of its context allows."""

    def __init__(self, context: str, option: str, value: str, declared: str) -> None:
        self.option = option
        super().__init__(
            f"context {context!r}: {option}={value} is looser than the declared {declared}, and "
            f"callers may only tighten it; pass {declared} or less, or declare the context with "
            f"allow_looser={option!r}"
        )


class FieldError(InvalidInputError):
    """A field of a request, or a parameter of a context, that is missing, unknown or invalid."""

    def __init__(
        self, problem: str, field: str = "", nearest: str | None = None, index: int | None = None
    ) -> None:
        self.problem = problem
        self.field = field
        self.nearest = nearest
        self.index = index
        super().__init__(problem if index is None else f"event {index}: {problem}")

    @classmethod
    def unknown(cls, problem: str, name: str, known: Iterable[str], field: str = "") -> FieldError:
        """Return an error for an unknown name that suggests the nearest known one."""
        names = list(known)
        near = closest(name, names)
        known_names = f"known: {', '.join(names)}" if names else "none is defined"
        hint = f"did you mean {near!r}?" if near else known_names
        return cls(f"{problem} {name!r}; {hint}", field or name, near)


class DurationError(InvalidInputError, ValueError):
    """An invalid duration."""

    def __init__(self, value: object) -> None:
        self.value = value
        remedy = "write a number above zero and one of ms, s, m, h, d, as in '1.5h', or a timedelta"
        super().__init__(f"{value!r} is not a duration; {remedy}")


class EventError(InvalidInputError, ValueError):
    """An invalid event; ``index`` is its position in the batch."""

    def __init__(self, problem: str, index: int | None = None) -> None:
        self.problem = problem
        self.index = index
        super().__init__(problem if index is None else f"event {index}: {problem}")


class QueryError(InvalidInputError):
    """A query that can never run: it is not one statement that returns rows."""


class FeatureValueError(InvalidInputError, ValueError):
    """A value that does not fit its feature's annotated type."""

    def __init__(self, feature: str, problem: str) -> None:
        self.feature = feature
        super().__init__(f"feature {feature!r} {problem}")


class RecordValueError(InvalidInputError, ValueError):
    """A value that cannot be represented exactly in a record."""

    def __init__(self, pointer: str, problem: str) -> None:
        self.pointer = pointer
        self.problem = problem
        super().__init__(f"{pointer or 'the value'}: {problem}")


class RecordDocumentError(InvalidInputError, ValueError):
    """A text that is not a valid record document."""

    def __init__(self, problem: str) -> None:
        remedy = "`headwater context export ID` writes one"
        super().__init__(f"this is not the document of a record: {problem}; {remedy}")


class RedactionError(InvalidInputError, ValueError):
    """A pointer at which a record has nothing to redact."""

    def __init__(self, pointer: str, known: Iterable[str], erased: str | None = None) -> None:
        self.pointer = pointer
        pointers = list(known)
        hint = nearest(pointer, pointers) if pointers else "the record withholds every value"
        absent = f"no value is disclosed at {pointer!r}; {hint}"
        gone = f"the value at {pointer!r} was already erased {erased}"
        super().__init__(absent if erased is None else gone)


class AmbiguousRefError(InvalidInputError, LookupError):
    """A prefix that matches the ids of several contexts."""

    def __init__(self, ref: str, ids: Sequence[str]) -> None:
        self.ref = ref
        self.ids = tuple(ids)
        super().__init__(f"{', '.join(ids)} all begin with {ref!r}; give more of the id")


class ReplayError(InvalidInputError):
    """A record that withholds values which a replay needs."""

    def __init__(self, context_id: str, mode: str, withheld: Sequence[str]) -> None:
        self.context_id = context_id
        self.mode = mode
        self.withheld = tuple(withheld)
        shown = ", ".join(self.withheld[:4]) + (", …" if len(self.withheld) > 4 else "")
        problem = f"context {context_id} cannot be replayed in mode {mode!r}: it withholds {shown}"
        super().__init__(f"{problem}; `headwater context show {context_id}` shows its record")


class ReplayWriteError(InvalidInputError):
    """A write from a context function that is being replayed."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        problem = f"{verb} is not allowed in a replay, which must not change anything"
        super().__init__(f"{problem}; call it outside the context function")


class NotFoundError(HeadwaterError):
    """Not found."""


class UnknownNameError(NotFoundError, LookupError):
    """A name under which nothing is declared."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        names = list(known)
        self.nearest = closest(name, names)
        super().__init__(f"unknown {kind} {name!r}; {nearest(name, names)}")


class UnknownContextError(NotFoundError, LookupError):
    """An id or record hash that matches no recorded context."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        remedy = "give a context id, its first 8 or more characters, or a record hash"
        super().__init__(f"no recorded context {ref!r}; {remedy}; see `headwater context list`")


class UnknownDeadLetterError(NotFoundError, LookupError):
    """An id that matches no dead letter."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(f"no dead letter {letter_id!r}; see `headwater dlq list`")


class UnknownGroupError(NotFoundError, LookupError):
    """A name that no consumer group has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        hint = nearest(name, list(known))
        super().__init__(f"unknown consumer group {name!r} (see `headwater groups list`); {hint}")


class GroupInUseError(HeadwaterError):
    """A consumer group that cannot be dropped because it has live workers."""

    def __init__(self, name: str, workers: Sequence[str]) -> None:
        self.name = name
        self.workers = workers
        super().__init__(
            f"consumer group {name!r} has live workers ({', '.join(workers)}), so it cannot be "
            "dropped; stop them first"
        )


class FeatureFailedError(HeadwaterError):
    """A feature function that failed."""

    def __init__(self, feature: str, entity_id: str, problem: str) -> None:
        self.feature = feature
        self.entity_id = entity_id
        super().__init__(f"feature {feature!r} failed for {entity_id!r}: {problem}")


class FunctionRaisedError(FeatureFailedError):
    """A feature function that raised an exception."""

    def __init__(self, feature: str, entity_id: str, raised: Exception) -> None:
        self.raised = raised
        super().__init__(feature, entity_id, f"{type(raised).__name__}: {raised}")


class HandlerTimeoutError(FeatureFailedError):
    """A feature function that timed out."""

    def __init__(self, feature: str, entity_id: str, seconds: float) -> None:
        super().__init__(feature, entity_id, f"it timed out after {seconds:g} s")


class HungHandlerError(FeatureFailedError):
    """A sync function that is not called because too many threads hang, some of them in it."""

    def __init__(self, feature: str, entity_id: str, hung: int, threads: int) -> None:
        super().__init__(
            feature,
            entity_id,
            f"it was not called: {hung} of its earlier calls still hang, and with {threads} hung "
            "threads the process has reached worker.max_hung_threads; the log shows where they "
            "hang, and a restart ends them",
        )


class TooManyHungThreadsError(HeadwaterError):
    """A worker that ended because too many of its threads hang."""

    def __init__(self, functions: Sequence[str], limit: int) -> None:
        named = ", ".join(f"{functions.count(name)} in {name!r}" for name in sorted({*functions}))
        super().__init__(
            f"{len(functions)} threads hang ({named}), and worker.max_hung_threads is {limit}; "
            "only the end of the process stops them; give the functions' blocking calls a timeout"
        )


class RetrieverFailedError(HeadwaterError):
    """A retriever function that failed."""

    def __init__(self, retriever: str, raised: Exception) -> None:
        self.retriever = retriever
        self.raised = raised
        super().__init__(f"retriever {retriever!r} failed: {type(raised).__name__}: {raised}")


class RetrieverTimeoutError(RetrieverFailedError):
    """A retriever function that timed out."""

    def __init__(self, retriever: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(retriever, TimeoutError(_TIMED_OUT.format(seconds)))


class ContextFailedError(HeadwaterError):
    """A context function that raised an exception, used an unknown name or an invalid value."""

    def __init__(self, context: str, raised: Exception) -> None:
        self.context = context
        self.raised = raised
        super().__init__(f"context {context!r} failed: {type(raised).__name__}: {raised}")


class ContextTimeoutError(ContextFailedError):
    """A context function that timed out."""

    def __init__(self, context: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(context, TimeoutError(_TIMED_OUT.format(seconds)))


class FreshnessSLAError(HeadwaterError):
    """A context that does not meet its freshness requirement; ``violations`` lists why.

    ``context_id`` is the id of the record of the refusal, or None if it is not recorded.
    """

    def __init__(
        self, context: str, violations: Sequence[Any], context_id: str | None = None
    ) -> None:
        self.context = context
        self.violations = violations
        self.context_id = context_id
        worst = ", ".join(f"{v.kind} {v.name!r} is {v.reason}" for v in violations[:3])
        more = f" and {len(violations) - 3} more" if len(violations) > 3 else ""
        record = "" if context_id is None else f"; the refusal is recorded as {context_id}"
        super().__init__(f"context {context!r} is not fresh enough: {worst}{more}{record}")


class RecordingError(HeadwaterError):
    """A context whose required record could not be stored."""

    def __init__(self, context_id: str, problem: str) -> None:
        self.context_id = context_id
        remedy = "unset HEADWATER_RECORD_REQUIRED to continue without a record"
        super().__init__(f"context {context_id} was not recorded: {problem}; {remedy}")


class TokenBudgetError(HeadwaterError):
    """Required items that exceed the token budget."""

    def __init__(self, needed: int, available: int, items: Mapping[int, int]) -> None:
        self.needed = needed
        self.available = available
        self.items = dict(items)
        shown = [f"item {place} has {count}" for place, count in self.items.items()]
        tokens = ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "")
        problem = f"the required items need max_tokens={needed}, but it is {available} ({tokens})"
        super().__init__(f"{problem}; raise it, require less, or mark an item truncate=True")


class CommitError(HeadwaterError):
    """A batch that was not committed and will be read again."""


class LeaseLostError(CommitError):
    """A partition that another worker holds."""

    def __init__(self, partition: int, owner: str) -> None:
        self.partition = partition
        super().__init__(f"worker {owner} lost its lease on partition {partition}")


class VersionConflictError(CommitError):
    """An entity that changed while the batch ran."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        super().__init__(f"an entity of partition {partition} changed while its batch ran")


@dataclass(frozen=True, slots=True)
class EventConflict:
    """An event whose id was accepted with other content; ``index`` is its place in the batch."""

    index: int
    entity_id: str
    event_id: str
    problem: str

    def __str__(self) -> str:
        return (
            f"event {self.event_id!r} of entity {self.entity_id!r} was accepted before with other "
            f"content ({self.problem})"
        )


class EventConflictError(HeadwaterError):
    """Events whose ids were accepted for their entities with other content; they are not stored."""

    _shown = 5

    def __init__(self, conflicts: Sequence[EventConflict], events: int) -> None:
        self.conflicts = list(conflicts)
        problems = list(map(str, conflicts[: self._shown]))
        if len(conflicts) > self._shown:
            problems.append(f"{len(conflicts) - self._shown} more events")
        accepted = events - len(conflicts)
        others = f"; {accepted} of {events} events of the batch were accepted" if accepted else ""
        super().__init__(
            f"{'; '.join(problems)}: not stored{others}; give each new event its own event_id"
        )


class ImmutableRecordError(HeadwaterError):
    """A different record that is already stored under the same id."""

    def __init__(self, context_id: str, stored: str, given: str) -> None:
        self.context_id = context_id
        self.stored = stored
        self.given = given
        problem = f"context {context_id} is already recorded as {stored} and cannot become {given}"
        super().__init__(f"{problem}; records never change: assemble again to get a new one")


class DamagedRecordError(HeadwaterError):
    """A stored record that is unreadable."""

    def __init__(self, context_id: str, part: str, problem: str) -> None:
        self.context_id = context_id
        self.part = part
        remedy = f"`headwater context verify {context_id}` lists the intact parts"
        super().__init__(f"the {part} of context {context_id} cannot be read: {problem}; {remedy}")


class SignatureError(HeadwaterError):
    """A record that cannot be signed, or whose signature cannot be read."""


class BackendError(HeadwaterError):
    """A store that cannot be used."""


class HomeError(BackendError):
    """An embedded store that is read-only, full, corrupt or of another version."""

    def __init__(self, home: str, problem: str, remedy: str) -> None:
        super().__init__(f"the store in {home} {problem}; {remedy}")


class BackendUnavailableError(BackendError):
    """A server that cannot be reached, or that cannot serve any caller at present."""


class SchemaError(BackendError):
    """Postgres tables that are missing or of another version."""

    def __init__(self, schema: str, problem: str, remedy: str) -> None:
        super().__init__(f"the tables in the Postgres schema {schema!r} {problem}; {remedy}")


class StoreMismatchError(BackendError):
    """Redis and Postgres hold different stores, or one of them is an older copy."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}, so history is neither read nor added to; correct redis.url, redis.prefix, "
            "postgres.url or postgres.schema; if they are right, `headwater rebuild --adopt` makes "
            "the history in this Postgres that of the store in this Redis and restores its values"
        )


class StoreLostError(BackendError):
    """A store that lost its data, or cannot show that it did not: every value is missing."""

    def __init__(self, server: str, problem: str) -> None:
        self.server = server
        super().__init__(problem)


class ClosedError(BackendError):
    """A store that was closed, or was opened before a fork."""
