"""Every error Headwater raises, as one tree.

HeadwaterError
├── DeclarationError            a features file declares something that cannot hold
│   ├── DuplicateNameError      two declarations share a name
│   ├── UnknownReferenceError   a {reference} or option names nothing that exists
│   ├── CycleError              features depend on each other in a circle
│   ├── TemplateError           a template is not one
│   └── FeaturesFileError       a features file is not there, fails, or has no single store
├── ConfigError                 a setting is wrong or missing
│   ├── UnknownSettingError     headwater.toml has a key that no setting reads
│   ├── MissingExtraError       an optional driver is not installed
│   └── SigningKeyError         a signing key is not one
├── InvalidInputError           a caller passed something that cannot be used
│   ├── DurationError           a duration is not one
│   ├── EventError              an event is not valid
│   ├── FeatureValueError       a value does not fit its feature's annotated type
│   ├── RecordValueError        a value has no exact form in a record
│   ├── RecordDocumentError     a text is not a record's document
│   ├── RedactionError          a record has nothing to redact there
│   ├── AmbiguousRefError       the beginning of an id is that of several contexts
│   ├── ReplayError             a record withholds what a replay needs
│   └── ReplayWriteError          a function that is replayed would change something
├── NotFoundError               a caller named something that does not exist
│   ├── UnknownNameError        … among the declarations
│   ├── UnknownContextError     … among the recorded contexts
│   └── UnknownDeadLetterError  … among the dead letters
├── FeatureFailedError          a feature's own function raised
│   ├── FunctionRaisedError     … what, it says
│   ├── HandlerTimeoutError     … or ran longer than it may
│   └── HungHandlerError        … and cannot be stopped, so its worker has to end
├── RetrieverFailedError        a retriever's own function raised
│   └── RetrieverTimeoutError   … or ran longer than it may
├── ContextFailedError          a context's own function raised, or made a mistake
│   └── ContextTimeoutError     … or ran longer than it may
├── FreshnessSLAError           a context that must be fresh is not
├── RecordingError              a context's record could not be kept, and must be
├── TokenBudgetError            what a context requires does not fit its budget
├── CommitError                 a batch was not committed and will be read again
│   ├── LeaseLostError          another worker owns the partition now
│   └── VersionConflictError    an entity changed while the batch ran
├── ImmutableRecordError        a record exists already and says something else
├── DamagedRecordError          a record in the log can no longer be read
├── SignatureError              a record cannot be signed, or its signature cannot be read
└── BackendError                a store cannot be used
    ├── HomeError               the embedded store's folder: read-only, full, corrupt or newer
    ├── BackendUnavailableError  a server cannot be reached at present
    ├── SchemaError             the tables in Postgres are missing, older or newer
    ├── StoreMismatchError      Postgres and Redis belong to different stores
    └── ClosedError             the store was closed, or opened before a fork
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.errors.hints import Location, closest, nearest


class HeadwaterError(Exception):
    """The root of every error that Headwater raises on purpose."""


class DeclarationError(HeadwaterError):
    """A features file declares something that cannot hold."""

    def __init__(self, problem: str, location: Location | None = None) -> None:
        self.problem = problem
        self.location = location
        super().__init__(f"{location}: {problem}" if location else problem)


class DuplicateNameError(DeclarationError):
    """Two declarations share a name."""

    def __init__(self, kind: str, name: str, location: Location, first: Location) -> None:
        self.name = name
        problem = f"{kind} {name!r} is already declared at {first}; rename one of them"
        super().__init__(problem, location)


class UnknownReferenceError(DeclarationError):
    """A reference or an option names nothing that exists."""

    def __init__(
        self, owner: str, kind: str, name: str, known: Iterable[str], location: Location | None
    ) -> None:
        self.name = name
        problem = f"{owner} names the unknown {kind} {name!r}; {nearest(name, known)}"
        super().__init__(problem, location)


class CycleError(DeclarationError):
    """Features depend on each other in a circle."""

    def __init__(self, cycle: Sequence[str], location: Location | None) -> None:
        self.cycle = tuple(cycle)
        super().__init__(f"features depend on each other: {' → '.join(cycle)}", location)


class TemplateError(DeclarationError):
    """A template is not one."""


class FeaturesFileError(DeclarationError):
    """A features file is not there, fails, or has no single store."""


class ConfigError(HeadwaterError):
    """A setting is wrong or missing."""


class UnknownSettingError(ConfigError):
    """The configuration file has a key that no setting reads."""

    def __init__(self, key: str, file: str, known: Iterable[str]) -> None:
        self.key = key
        super().__init__(f"{file}: unknown setting {key!r}; {nearest(key, known)}")


class MissingExtraError(ConfigError):
    """An optional driver is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{what} needs the extra {extra!r}: `pip install 'headwater[{extra}]'`, or from a "
            f"clone `pip install '.[{extra}]'`"
        )


class SigningKeyError(ConfigError):
    """A signing key is not one; the message never shows it."""

    def __init__(self, which: str, problem: str) -> None:
        self.which = which
        super().__init__(
            f"signing key {which} {problem}; write 'key_id:secret', "
            "'ed25519:key_id:<base64 of the 32 byte seed>' or "
            "'ed25519-pub:key_id:<base64 of the 32 byte public key>', several with commas between"
        )


class InvalidInputError(HeadwaterError):
    """A caller passed something that cannot be used."""


class DurationError(InvalidInputError, ValueError):
    """A duration is not one."""

    def __init__(self, given: object) -> None:
        self.given = given
        super().__init__(
            f"{given!r} is not a duration; write a number above zero and a unit, one of ms, s, m, "
            "h, d (for example '500ms' or '1.5h'), or pass a timedelta"
        )


class EventError(InvalidInputError, ValueError):
    """An event is not valid."""

    def __init__(self, problem: str, index: int | None = None) -> None:
        self.problem = problem
        self.index = index
        super().__init__(problem if index is None else f"event {index}: {problem}")


class FeatureValueError(InvalidInputError, ValueError):
    """A value does not fit its feature's annotated type."""

    def __init__(self, feature: str, problem: str) -> None:
        self.feature = feature
        super().__init__(f"feature {feature!r} {problem}")


class RecordValueError(InvalidInputError, ValueError):
    """A value has no exact form in a record."""

    def __init__(self, pointer: str, problem: str) -> None:
        self.pointer = pointer
        self.problem = problem
        super().__init__(f"{pointer or 'the value'}: {problem}")


class RecordDocumentError(InvalidInputError, ValueError):
    """A text is not a record's document."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"this is not the document of a record: {problem}; "
            "`headwater context export ID` writes one"
        )


class RedactionError(InvalidInputError, ValueError):
    """A record has nothing to redact there."""

    def __init__(self, pointer: str, known: Iterable[str], erased: str | None = None) -> None:
        self.pointer = pointer
        pointers = list(known)
        if erased is not None:
            super().__init__(f"the value at {pointer!r} is gone already: it was erased {erased}")
            return
        others = nearest(pointer, pointers) if pointers else "the record withholds every value"
        super().__init__(f"nothing is disclosed at {pointer!r}; {others}")


class AmbiguousRefError(InvalidInputError, LookupError):
    """The beginning of an id is that of several contexts."""

    def __init__(self, ref: str, ids: Sequence[str]) -> None:
        self.ref = ref
        self.ids = tuple(ids)
        several = ", ".join(ids)
        super().__init__(f"several contexts begin with {ref!r}: {several}; give more of the id")


class ReplayError(InvalidInputError):
    """A record withholds what a replay needs."""

    def __init__(self, context_id: str, mode: str, withheld: Sequence[str]) -> None:
        self.context_id = context_id
        self.mode = mode
        self.withheld = tuple(withheld)
        shown = ", ".join(self.withheld[:4]) + (", …" if len(self.withheld) > 4 else "")
        super().__init__(
            f"context {context_id} cannot be replayed in mode {mode!r}, because its record "
            f"withholds {shown}; `headwater context show {context_id}` shows what there is"
        )


class ReplayWriteError(InvalidInputError):
    """A function that is replayed would change something."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        super().__init__(
            f"a replay runs a context's function again and must change nothing, so {verb} is "
            "refused in it; call it beside the function, where the context is used"
        )


class NotFoundError(HeadwaterError):
    """A caller named something that does not exist."""


class UnknownNameError(NotFoundError, LookupError):
    """A caller named a declaration that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        names = list(known)
        self.nearest = closest(name, names)
        super().__init__(f"unknown {kind} {name!r}; {nearest(name, names)}")


class UnknownContextError(NotFoundError, LookupError):
    """No context that was recorded has this id or this record hash."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        super().__init__(
            f"no recorded context {ref!r}; give a context id, at least 8 characters of its "
            "beginning, or a record hash; `headwater context list` shows those there are"
        )


class UnknownDeadLetterError(NotFoundError, LookupError):
    """No dead letter has this id."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(
            f"no dead letter {letter_id!r}; `headwater dlq list` shows those there are"
        )


class FeatureFailedError(HeadwaterError):
    """A feature's own function raised."""

    def __init__(self, feature: str, entity_id: str, problem: str) -> None:
        self.feature = feature
        self.entity_id = entity_id
        super().__init__(f"feature {feature!r} failed for {entity_id!r}: {problem}")


class FunctionRaisedError(FeatureFailedError):
    """A feature's own function raised this."""

    def __init__(self, feature: str, entity_id: str, raised: Exception) -> None:
        self.raised = raised
        super().__init__(feature, entity_id, f"{type(raised).__name__}: {raised}")


class HandlerTimeoutError(FeatureFailedError):
    """A feature's function ran longer than it may."""

    def __init__(self, feature: str, entity_id: str, seconds: float) -> None:
        super().__init__(feature, entity_id, f"it ran longer than {seconds:g} s")


class HungHandlerError(FeatureFailedError):
    """A sync handler ran longer than it may; nothing but the end of its process stops it."""

    def __init__(self, feature: str, entity_id: str, seconds: float) -> None:
        problem = (
            f"it has run for {seconds:g} s in a thread that cannot be stopped; the worker ends, "
            "and the next one counts how often this event did that"
        )
        super().__init__(feature, entity_id, problem)


class RetrieverFailedError(HeadwaterError):
    """A retriever's own function raised this."""

    def __init__(self, retriever: str, raised: Exception) -> None:
        self.retriever = retriever
        self.raised = raised
        super().__init__(f"retriever {retriever!r} failed: {type(raised).__name__}: {raised}")


class RetrieverTimeoutError(RetrieverFailedError):
    """A retriever's own function ran longer than it may."""

    def __init__(self, retriever: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(retriever, TimeoutError(_too_long(seconds)))


class ContextFailedError(HeadwaterError):
    """A context's own function raised this, or named or gave what makes us raise it."""

    def __init__(self, context: str, raised: Exception) -> None:
        self.context = context
        self.raised = raised
        super().__init__(f"context {context!r} failed: {type(raised).__name__}: {raised}")


class ContextTimeoutError(ContextFailedError):
    """A context's own function ran longer than it may."""

    def __init__(self, context: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(context, TimeoutError(_too_long(seconds)))


def _too_long(seconds: float) -> str:
    return (
        f"it ran longer than {seconds:g} s; make it quicker, or give it more time: by timeout= "
        "where it is declared, or for all by HEADWATER_CONTEXT_TIMEOUT"
    )


class FreshnessSLAError(HeadwaterError):
    """A context that must be fresh is not; ``violations`` says what is too old or missing."""

    def __init__(self, context: str, violations: Sequence[Any]) -> None:
        self.context = context
        self.violations = violations
        worst = ", ".join(f"{v.kind} {v.name!r} is {v.reason}" for v in violations[:3])
        more = f" and {len(violations) - 3} more" if len(violations) > 3 else ""
        super().__init__(f"context {context!r} is not as fresh as it must be: {worst}{more}")


class RecordingError(HeadwaterError):
    """A context was assembled but its record could not be kept, and must be."""

    def __init__(self, context_id: str, problem: str) -> None:
        self.context_id = context_id
        super().__init__(
            f"context {context_id} was not recorded: {problem}; unset HEADWATER_RECORD_REQUIRED to "
            "go on without"
        )


class TokenBudgetError(HeadwaterError):
    """What a context requires does not fit its budget."""

    def __init__(self, needed: int, available: int, items: Mapping[int, int]) -> None:
        self.needed = needed
        self.available = available
        self.items = dict(items)
        shown = [f"item {place} has {count}" for place, count in self.items.items()]
        tokens = ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "")
        super().__init__(
            f"the required items need max_tokens={needed}, and it is {available} ({tokens}); raise "
            "it, require less, or mark an item truncate=True"
        )


class CommitError(HeadwaterError):
    """A batch was not committed and will be read again."""


class LeaseLostError(CommitError):
    """Another worker owns the partition now."""

    def __init__(self, partition: int, owner: str) -> None:
        self.partition = partition
        super().__init__(f"partition {partition} is no longer held by worker {owner}")


class VersionConflictError(CommitError):
    """An entity changed while the batch ran."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        super().__init__(f"an entity of partition {partition} changed while its batch ran")


class ImmutableRecordError(HeadwaterError):
    """A record exists already and says something else."""

    def __init__(self, context_id: str, stored: str, given: str) -> None:
        self.context_id = context_id
        self.stored = stored
        self.given = given
        super().__init__(
            f"context {context_id} is already recorded as {stored} and cannot become {given}; "
            "a record never changes: assemble again to get a new one"
        )


class DamagedRecordError(HeadwaterError):
    """A record in the log can no longer be read."""

    def __init__(self, context_id: str, part: str, problem: str) -> None:
        self.context_id = context_id
        self.part = part
        super().__init__(
            f"the {part} of context {context_id} cannot be read: {problem}; "
            f"`headwater context verify {context_id}` says what still holds"
        )


class SignatureError(HeadwaterError):
    """A record cannot be signed, or its signature cannot be read."""


class BackendError(HeadwaterError):
    """A store cannot be used."""


class HomeError(BackendError):
    """The embedded store's folder is read-only, full, corrupt or of a newer version."""

    def __init__(self, home: str, problem: str, remedy: str) -> None:
        self.home = home
        super().__init__(f"the store in {home} {problem}; {remedy}")


class BackendUnavailableError(BackendError):
    """A server cannot be reached at present."""


class SchemaError(BackendError):
    """The tables in Postgres are missing, or of an older or a newer version."""

    def __init__(self, schema: str, problem: str, remedy: str) -> None:
        self.schema = schema
        super().__init__(f"the tables in the Postgres schema {schema!r} {problem}; {remedy}")


class StoreMismatchError(BackendError):
    """Postgres holds the history of another store, or another Postgres that of this one."""

    def __init__(self, owner: str | None) -> None:
        self.owner = owner
        if owner is None:
            problem = "the history of this store is in another Postgres than in this one"
            remedy = "postgres.url and postgres.schema are right"
            outcome = "goes on with this one and leaves there what the other has"
        else:
            problem = f"Postgres holds the history of another store ({owner})"
            remedy = "redis.url, redis.prefix, postgres.url and postgres.schema are right"
            outcome = "makes it the history of this one and takes it away from the other"
        super().__init__(
            f"{problem}, so nothing is taken there and nothing is read from there; see that "
            f"{remedy}; if they are, `headwater rebuild --adopt` {outcome}"
        )


class ClosedError(BackendError):
    """The store was closed, or was opened before a fork."""
