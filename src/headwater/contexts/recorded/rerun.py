"""Replays: a recorded context shown, fitted again, or run again and kept nowhere."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.inspect import DataclassType, StructType, is_struct_type, type_info
from msgspec.structs import replace

from headwater.contexts.assembler import Assembler
from headwater.contexts.recorded.replay import Mode, Replay, reassemble, rerun, show
from headwater.contexts.recorded.verification import decode_record
from headwater.core.canonical_json import to_tagged
from headwater.core.clock import Clock, to_micros
from headwater.declarations import ContextDef, Overrides, annotations_of
from headwater.errors import InvalidInputError, RecordValueError, ReplayError, ReplayWriteError
from headwater.errors.hints import nearest
from headwater.features.frame import (
    AssembleContext,
    ReplayRun,
    at_moment,
    current_frame,
    replaying,
)
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.ports import RecordLog, StoredRecord
from headwater.records.core import Commitment, Core
from headwater.records.sealing import open_core

_MILLISECOND = timedelta(milliseconds=1)


def current_replay() -> AssembleContext | None:
    """Return the function that assembles contexts in place of the store, if this is a replay."""
    replay = current_frame().replay
    return None if replay is None else replay.assemble


def check_mode(mode: str) -> None:
    """Refuses a way to replay that there is not."""
    known = get_args(Mode)
    if mode not in known:
        raise InvalidInputError(f"no replay mode {mode!r}; {nearest(str(mode), known)}")


class Replayer:
    """Gives a recorded context once more."""

    def __init__(self, services: Services, reader: Reader) -> None:
        self._services = services
        self._reader = reader

    async def replay(self, core: Core, mode: Mode) -> Replay:
        """The context that a core tells of, in one of the ways."""
        if mode == "show":
            return show(core)
        if mode == "reassemble":
            return reassemble(core, version("splintr-rs"))
        return await self._rerun(core, mode)

    async def _rerun(self, core: Core, mode: Mode) -> Replay:
        """Runs the function as it is declared now, with the recorded inputs; nothing is kept."""
        inputs, reference = _arguments(core, mode)
        definition = self._services.registry.context(core.context.name)
        call = _bound(definition, inputs)
        scratch = _Scratch(self._services.backends.records)
        clock = _Still(core.created_at) if mode == "as_of" else self._services.clock
        assembler = self._assembler(scratch, clock)
        sla_ms = core.policy.freshness_sla_ms
        overrides = Overrides(
            max_tokens=core.policy.max_tokens,
            freshness_sla=None if sla_ms is None else sla_ms * _MILLISECOND,
            interaction_ref=reference,
        )
        past = _then(core) if mode == "as_of" else nullcontext()
        replay = ReplayRun(assembler.run, [])
        with replaying(replay), past:
            context = await assembler.run(definition, call.args, call.kwargs, overrides)
        again = open_core(decode_record(scratch.appended[context.context_id]))
        unkept = replace(context, meta={**context.meta, "recorded": False})
        return rerun(
            core, mode, unkept, again, definition.definition, searched=bool(replay.searches)
        )

    def _assembler(self, records: RecordLog, clock: Clock) -> Assembler:
        """Return an assembler that leaves no trace: other records, no signature, no metrics."""
        services = self._services
        replayed = replace(
            services,
            clock=clock,
            settings=services.settings.replace(
                signature_mode="off", record={"include_content": True}
            ),
            backends=replace(services.backends, records=records),
        )
        return Assembler(replayed, self._reader, _uncounted)


def _uncounted(context: object) -> None:
    """Leave a context out of the metrics."""


class _Scratch:
    """A log that is read like the store's own, and forgets what is appended to it."""

    def __init__(self, inner: RecordLog) -> None:
        self.appended: dict[str, StoredRecord] = {}
        self.get, self.ids_beginning, self.records = inner.get, inner.ids_beginning, inner.records
        self.find, self.redact, self.index_key = inner.find, inner.redact, inner.index_key

    async def append(self, record: StoredRecord, keys: object) -> None:
        self.appended[record.context_id] = record


class _Still:
    """A clock that stands at one moment."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    def micros(self) -> int:
        return to_micros(self._moment)

    async def sleep(self, seconds: float) -> None:
        """Returns at once: no time passes here."""


def track_search(retriever: str) -> None:
    """Takes note of a search, by whatever function, if this is a replay."""
    replay = current_frame().replay
    if replay is not None:
        replay.searches.append(retriever)


def check_not_replaying(verb: str) -> None:
    """Refuses a verb that would change something, if this is a replay."""
    if current_replay() is not None:
        raise ReplayWriteError(verb)


def _then(core: Core) -> AbstractContextManager[None]:
    """Reads values inside as the record says that they were read, or as they were known then."""
    began, ended = core.timing.started_at, core.created_at
    read_at: dict[tuple[str, str, str], list[datetime]] = {}
    for read in core.features:
        if not isinstance(read.entity_id, Commitment):
            absent = ended if read.source == "computed" else began
            moments = read_at.setdefault((read.entity, read.feature, read.entity_id), [])
            moments.append(read.written_at or absent)
    return at_moment(began, ended, read_at)


def _arguments(core: Core, mode: Mode) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What the function was called with."""
    withheld = [
        f"/{where}/{name}"
        for where, values in (("inputs", core.inputs), ("interaction_ref", core.interaction_ref))
        for name, value in (values or {}).items()
        if isinstance(value, Commitment)
    ]
    if withheld:
        raise ReplayError(core.context_id, mode, withheld)
    reference = core.interaction_ref
    return dict(core.inputs), None if reference is None else dict(reference)


def _bound(definition: ContextDef, inputs: Mapping[str, Any]) -> inspect.BoundArguments:
    """The recorded inputs as a call of the function as it is today."""
    parameters = definition.signature.parameters
    for name in inputs:
        if name not in parameters:
            raise InvalidInputError(
                f"context {definition.name!r} was recorded with the input {name!r}, which its "
                f"function no longer takes; {nearest(name, parameters)}"
            )
    hints = annotations_of(definition.function)
    given = {
        name: _given(definition, parameters[name], value, hints.get(name, Any))
        for name, value in inputs.items()
    }
    return inspect.BoundArguments(definition.signature, given)


def _given(definition: ContextDef, parameter: inspect.Parameter, value: Any, hint: Any) -> Any:
    """A recorded input as the function was given it, in the type that it annotates today."""
    kind = hint
    if parameter.kind is parameter.VAR_POSITIONAL:
        kind = tuple[hint, ...]
    elif parameter.kind is parameter.VAR_KEYWORD:
        kind = dict[str, hint]
    try:
        return _typed(value, kind)
    except _UnfitError as unfit:
        if not _is_made_of_fields(value, kind):
            return value  # it was called with something else, or the annotation is about no value
        raise InvalidInputError(
            f"context {definition.name!r} was recorded with {parameter.name!r} of the fields "
            f"{', '.join(map(str, value))}, which make no {kind.__name__} of today: "
            f"{_misfit(value, kind, unfit)}"
        ) from unfit


class _UnfitError(Exception):
    """A recorded value is none of a type as it is today."""


def _typed(value: Any, kind: Any) -> Any:
    """A recorded value in a type, and the same in it."""
    why = "one of them would be another value"
    # A record has the fields of an object by their names, whatever they are called in JSON.
    for form in (value, _objects(value)):
        try:
            typed = msgspec.convert(form, kind, from_attributes=True)
            if _holds(to_tagged(typed), to_tagged(value)):
                return typed
        except (msgspec.ValidationError, TypeError, RecordValueError) as error:
            why = str(error)
    raise _UnfitError(why)


def _misfit(value: Mapping[str, Any], kind: Any, unfit: _UnfitError) -> str:
    """Which of the recorded fields does not fit a type, and what would let it."""
    today = type_info(kind)
    assert isinstance(today, StructType | DataclassType)
    hints = get_type_hints(kind)
    gone = [name for name in value if name not in hints]
    if gone:
        return f"it has no {gone[0]!r} any more; let it take that again"
    new = [field.name for field in today.fields if field.required and field.name not in value]
    if new:
        return f"it needs {new[0]!r}, which was not there; give that a default"
    for name, item in value.items():
        try:
            _typed(item, hints[name])
        except _UnfitError as why:
            return _misfit_at(name, item, hints[name], why)
    return f"{unfit}; let it take them again"


def _misfit_at(name: str, value: Any, kind: Any, unfit: _UnfitError) -> str:
    if _is_made_of_fields(value, kind):
        return f"in its {name!r}, {_misfit(value, kind, unfit)}"
    today = kind.__name__ if isinstance(kind, type) else kind
    return f"its {name!r} was recorded as {type(value).__name__} and is {today}; let it take both"


def _is_made_of_fields(value: Any, kind: Any) -> bool:
    return isinstance(value, dict) and (is_struct_type(kind) or is_dataclass(kind))


def _objects(value: Any) -> Any:
    """The same with objects in the place of mappings."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return SimpleNamespace(**{key: _objects(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(map(_objects, value))
    return value


def _holds(typed: Any, recorded: Any) -> bool:
    """Says whether a value has all that was recorded, as it was: 1 for a float was no 1.0."""
    if isinstance(recorded, dict) and isinstance(typed, dict):
        return all(key in typed and _holds(typed[key], of) for key, of in recorded.items())
    if isinstance(recorded, list) and isinstance(typed, list):
        return len(typed) == len(recorded) and all(map(_holds, typed, recorded))
    return bool(typed == recorded)
