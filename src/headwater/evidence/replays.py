"""Replays: a recorded context shown, fitted again, or run again and kept nowhere."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, Protocol, get_args

import msgspec

from headwater.clock import Clock, to_micros
from headwater.contexts import ContextDef, Overrides
from headwater.errors import InvalidInputError, ReplayError, nearest
from headwater.evidence.proof import whole
from headwater.lineage import Context
from headwater.ports import RecordLog, StoredRecord
from headwater.record.core import Commitment, Core
from headwater.record.replay import Mode, Replay, reassemble, rerun, show
from headwater.record.sealing import open_core
from headwater.registry import Registry
from headwater.workspace import at_moment

_MILLISECOND = timedelta(milliseconds=1)

Run = Callable[[ContextDef, Sequence[Any], Mapping[str, Any], Overrides], Awaitable[Context]]
"""Assembles a context."""


class Assembly(Protocol):
    """What evidence needs of the room that assembles."""

    def run(
        self,
        definition: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Awaitable[Context]: ...


Rehearse = Callable[[RecordLog, Clock], Assembly]
"""Makes an assembly that counts nothing, by another log and another clock."""

_rehearsal: ContextVar[Run | None] = ContextVar("headwater_rehearsal", default=None)

current_rehearsal = _rehearsal.get
"""What assembles contexts here in place of the store, if this is a replay."""


def check_mode(mode: str) -> None:
    """Refuses a way to replay that there is not."""
    known = get_args(Mode)
    if mode not in known:
        raise InvalidInputError(f"no replay mode {mode!r}; {nearest(str(mode), known)}")


class Replayer:
    """Gives a recorded context once more."""

    def __init__(
        self, records: RecordLog, registry: Registry, clock: Clock, rehearse: Rehearse
    ) -> None:
        self._records = records
        self._registry = registry
        self._clock = clock
        self._rehearse = rehearse

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
        definition = self._registry.context(core.context.name)
        call = _bound(definition, inputs)
        scratch = _Scratch(self._records)
        moment = core.created_at if mode == "as_of" else None
        clock = self._clock if moment is None else _Still(moment)
        assembly = self._rehearse(scratch, clock)
        sla_ms = core.policy.freshness_sla_ms
        overrides = Overrides(
            max_tokens=core.policy.max_tokens,
            freshness_sla=None if sla_ms is None else sla_ms * _MILLISECOND,
            interaction_ref=reference,
        )
        with at_moment(moment), _rehearsing(assembly.run):
            context = await assembly.run(definition, call.args, call.kwargs, overrides)
        again = open_core(whole(scratch.appended[context.context_id]))
        unkept = msgspec.structs.replace(context, meta={**context.meta, "recorded": False})
        return rerun(core, mode, unkept, again, definition.definition)


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


@contextmanager
def _rehearsing(run: Run) -> Iterator[None]:
    """Lets contexts that are assembled inside be kept nowhere, like the one around them."""
    token = _rehearsal.set(run)
    try:
        yield
    finally:
        _rehearsal.reset(token)


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
    return inspect.BoundArguments(definition.signature, dict(inputs))
