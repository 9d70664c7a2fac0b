"""Evidence: recorded contexts found, proved, explained, replayed, compared and redacted."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol, get_args

import msgspec

from headwater.clock import Clock, to_micros
from headwater.contexts import ContextDef, Overrides
from headwater.errors import (
    AmbiguousRefError,
    ConfigError,
    DamagedRecordError,
    InvalidInputError,
    Location,
    RecordValueError,
    ReplayError,
    UnknownContextError,
    nearest,
)
from headwater.lineage import Context, ContextTrace, FreshnessStatus, PastContext
from headwater.ports import RecordLog, RecordSummary, StoredRecord
from headwater.record import replay as replays
from headwater.record import trace
from headwater.record.core import Commitment, Core
from headwater.record.diff import Diff, diff
from headwater.record.parts import (
    Disclosure,
    Record,
    Redaction,
    Signature,
    decode_disclosures,
    decode_redactions,
    encode_disclosures,
    encode_redactions,
)
from headwater.record.redact import redact
from headwater.record.replay import Mode, Replay
from headwater.record.sealing import open_core
from headwater.record.signing import parse_keyring
from headwater.record.verify import Check, Report, verify
from headwater.recorder import find_key
from headwater.registry import Registry
from headwater.settings import Settings
from headwater.workspace import at_moment

SHORTEST_PREFIX = 8
LARGEST_PAGE = 1_000
_ID_LENGTH = 36
_HEX_LENGTH = 64
_HEX = frozenset("0123456789abcdef-")
_SHOWN = 5
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


class ContextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded contexts, the newest first, and where the list goes on."""

    contexts: Sequence[RecordSummary]
    next_cursor: str | None


class Wanted(NamedTuple):
    """What contexts are looked for by: everything that is given."""

    feature: str | None
    entity_id: str | int | None
    chunk: str | None


class Receipt(NamedTuple):
    """A text that was assembled elsewhere."""

    name: str
    content: str
    inputs: Mapping[str, Any]
    model: str | None
    version: str | None
    interaction_ref: Mapping[str, Any] | None


_rehearsal: ContextVar[Run | None] = ContextVar("headwater_rehearsal", default=None)

current_rehearsal = _rehearsal.get
"""What assembles contexts here in place of the store, if this is a replay."""


def check_signing(settings: Settings) -> None:
    """Refuses keys that are none, and to go without where every record must be signed."""
    keyring = parse_keyring(settings.signing_key)
    if settings.signature_mode == "required" and keyring.signer is None:
        raise ConfigError(
            "HEADWATER_SIGNATURE_MODE is 'required' and there is no key that signs; set "
            "HEADWATER_SIGNING_KEY, for example to 'key_id:secret'"
        )


class Evidence:
    """What is known of contexts that were assembled before."""

    def __init__(
        self,
        records: RecordLog,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        assembly: Assembly,
        rehearse: Rehearse,
    ) -> None:
        self._records = records
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._assembly = assembly
        self._rehearse = rehearse

    async def record(self, receipt: Receipt) -> Context:
        """Records a text that was assembled elsewhere."""
        overrides = Overrides(interaction_ref=receipt.interaction_ref)
        return await self._assembly.run(_definition(receipt), (), receipt.inputs, overrides)

    async def context(self, ref: str) -> PastContext:
        """The context with this id, beginning of an id, or record hash."""
        return trace.past_context(*await self._opened(ref))

    async def explain(self, ref: str) -> ContextTrace:
        """Why that context is as it is."""
        return trace.explain(*await self._opened(ref))

    async def record_of(self, ref: str) -> Record:
        """Its record."""
        return _whole(await self._stored(ref))

    async def _opened(self, ref: str) -> tuple[Record, Core]:
        """The record, and what it says."""
        record = await self.record_of(ref)
        try:
            return record, open_core(record)
        except RecordValueError as error:
            raise DamagedRecordError(record.context_id, "core", str(error)) from error

    async def contexts(
        self,
        start: datetime | None,
        end: datetime | None,
        limit: int,
        name: str | None,
        freshness_status: str | None,
        cursor: str | None,
    ) -> ContextPage:
        """Lists contexts, the newest first."""
        _check_limit(limit)
        _check_moments(start=start, end=end)
        known = get_args(FreshnessStatus)
        if freshness_status is not None and freshness_status not in known:
            raise InvalidInputError(
                f"no freshness_status {freshness_status!r}; {nearest(freshness_status, known)}"
            )
        listed = await self._records.records(
            start=start,
            end=end,
            name=name,
            freshness_status=freshness_status,
            before=cursor,
            limit=limit + 1,
        )
        return _page(listed, limit)

    async def find(self, wanted: Wanted, limit: int, cursor: str | None) -> ContextPage:
        """Lists contexts that were made of what is wanted."""
        _check_limit(limit)
        groups = list(self._wanted(wanted))
        if not groups:
            raise InvalidInputError("say what to find contexts by: feature, entity_id or chunk")
        found: list[RecordSummary] = []
        async for summary in _in_all([self._in_any(keys, cursor, limit + 1) for keys in groups]):
            found.append(summary)
            if len(found) > limit:
                break
        return _page(found, limit)

    def _wanted(self, wanted: Wanted) -> Iterator[Sequence[bytes]]:
        """For each thing that is wanted, the keys of which a context has at least one."""
        if wanted.entity_id is not None:
            names = list(self._registry.features) if wanted.feature is None else [wanted.feature]
            if not names:
                raise InvalidInputError(
                    "entity_id alone is looked for among the declared features, and none is "
                    "declared; give the feature as well"
                )
            ids = {name: self._text_id(name, wanted.entity_id) for name in names}
            yield [key for name in names for key in self._keys("feature", name, ids[name])]
        elif wanted.feature is not None:
            yield self._keys("feature", wanted.feature)
        if wanted.chunk is not None:
            yield self._keys("chunk", wanted.chunk)

    def _keys(self, *parts: str) -> list[bytes]:
        """The keys of something under every secret that may have been the first of its time."""
        given = self._settings.signing_key
        secrets = dict.fromkeys((given, *(each.strip() for each in given.split(",")), ""))
        every = (self._settings.with_(signing_key=secret) for secret in secrets)
        return list(dict.fromkeys(find_key(each, *parts) for each in every))

    def _text_id(self, name: str, entity_id: str | int) -> str:
        """An entity's id as it is recorded; a feature may since have been taken away."""
        feature = self._registry.features.get(name)
        if feature is None or isinstance(entity_id, str):
            return str(entity_id)
        return feature.entity.text_id(entity_id)

    async def _in_any(
        self, keys: Sequence[bytes], cursor: str | None, size: int
    ) -> AsyncIterator[RecordSummary]:
        """Contexts with one of the keys, the newest first, each once."""
        pages = {key: await self._records.find(key, before=cursor, limit=size) for key in keys}
        while any(pages.values()):
            newest = max((page[0] for page in pages.values() if page), key=_order)
            yield newest
            for key, page in pages.items():
                if page and page[0].context_id == newest.context_id:
                    before = newest.context_id
                    pages[key] = page[1:] or await self._records.find(
                        key, before=before, limit=size
                    )

    async def verify(self, ref: str) -> Report:
        """What holds of a record as it lies in the log."""
        stored = await self._stored(ref)
        readings = _readings(stored)
        report = verify(
            _record(stored, readings),
            parse_keyring(self._settings.signing_key),
            expect=None if len(ref) < _ID_LENGTH else _spelled(ref),
            signed=self._settings.signature_mode == "required",
        )
        return _with_problems(report, stored, readings)

    async def redact(self, ref: str, pointer: str, reason: str, by: str | None) -> Record:
        """Erases one value of a record; two who redact at once both succeed."""
        if not reason.strip():
            raise InvalidInputError("say for what reason the value is redacted")
        while True:
            stored = await self._stored(ref)
            now = self._clock.now()
            redacted = redact(_whole(stored), pointer, at=now, reason=reason, by=by)
            if await self._records.redact(
                stored.context_id,
                expected=stored.redactions,
                disclosures=encode_disclosures(redacted.disclosures),
                redactions=encode_redactions(redacted.redactions),
            ):
                return redacted

    async def diff(self, before: str, after: str) -> Diff:
        """In what one context differs from another."""
        (_, one), (_, two) = await self._opened(before), await self._opened(after)
        return diff(one, two)

    async def replay(self, ref: str, mode: Mode) -> Replay:
        """The context once more."""
        known = get_args(Mode)
        if mode not in known:
            raise InvalidInputError(f"no replay mode {mode!r}; {nearest(str(mode), known)}")
        _, core = await self._opened(ref)
        if mode == "show":
            return replays.show(core)
        if mode == "reassemble":
            return replays.reassemble(core, version("splintr-rs"))
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
        again = open_core(_whole(scratch.appended[context.context_id]))
        unkept = msgspec.structs.replace(context, meta={**context.meta, "recorded": False})
        return replays.rerun(core, mode, unkept, again, definition.definition)

    async def _stored(self, ref: str) -> StoredRecord:
        """The record that is meant."""
        ref = _spelled(ref)
        stored = await self._records.get(ref)
        if stored is None and SHORTEST_PREFIX <= len(ref) < _ID_LENGTH and _HEX.issuperset(ref):
            ids = await self._records.ids_beginning(ref, _SHOWN)
            if len(ids) > 1:
                raise AmbiguousRefError(ref, ids)
            stored = await self._records.get(ids[0]) if ids else None
        if stored is None:
            raise UnknownContextError(ref)
        return stored


class _Scratch:
    """A log that is read like the store's own, and forgets what is appended to it."""

    def __init__(self, inner: RecordLog) -> None:
        self.appended: dict[str, StoredRecord] = {}
        self.get, self.ids_beginning, self.records = inner.get, inner.ids_beginning, inner.records
        self.find, self.redact = inner.find, inner.redact

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


def _spelled(ref: str) -> str:
    """A reference as the log writes it; a bare hash gets its kind."""
    ref = ref.strip().lower()
    return f"sha256:{ref}" if len(ref) == _HEX_LENGTH and _HEX.issuperset(ref) else ref


def _order(summary: RecordSummary) -> tuple[datetime, str]:
    return summary.created_at, summary.context_id


async def _in_all(
    lists: Sequence[AsyncIterator[RecordSummary]],
) -> AsyncIterator[RecordSummary]:
    """What stands in every one of several lists, the newest first."""
    heads = [await anext(each, None) for each in lists]
    while all(heads):
        present = [head for head in heads if head is not None]
        oldest = min(present, key=_order)
        if all(head.context_id == oldest.context_id for head in present):
            yield oldest
            heads = [await anext(each, None) for each in lists]
        else:
            heads = [
                await anext(each, None) if _order(head) > _order(oldest) else head
                for each, head in zip(lists, present, strict=True)
            ]


def _page(listed: Sequence[RecordSummary], limit: int) -> ContextPage:
    """As many as were asked for; one more says that the list goes on."""
    contexts = listed[:limit]
    return ContextPage(
        contexts=contexts, next_cursor=contexts[-1].context_id if len(listed) > limit else None
    )


def _check_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
        raise InvalidInputError(f"limit is {limit!r}; give a number from 1 to {LARGEST_PAGE}")


def _check_moments(**moments: datetime | None) -> None:
    for name, moment in moments.items():
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(f"{name} needs a time zone, for example datetime.now(UTC)")


class _Part(NamedTuple):
    """A part of a stored record as it was read, or why it cannot be."""

    value: Any
    problem: str | None = None


class _Readings(NamedTuple):
    """The parts that lie beside a core."""

    disclosures: _Part
    signature: _Part
    redactions: _Part


_decode_signature = msgspec.json.Decoder(Signature).decode


def _readings(stored: StoredRecord) -> _Readings:
    return _Readings(
        _read(decode_disclosures, stored.disclosures, ()),
        _Part(None)
        if stored.signature is None
        else _read(_decode_signature, stored.signature, None),
        _read(decode_redactions, stored.redactions, ()),
    )


def _read(decode: Callable[[bytes], Any], raw: bytes, otherwise: Any) -> _Part:
    try:
        return _Part(decode(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _Part(otherwise, str(error))


def _record(stored: StoredRecord, readings: _Readings) -> Record:
    disclosures: tuple[Disclosure, ...] = readings.disclosures.value
    redactions: tuple[Redaction, ...] = readings.redactions.value
    return Record(
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        content_hash=stored.content_hash,
        core=stored.core,
        disclosures=disclosures,
        signature=readings.signature.value,
        redactions=redactions,
    )


def _whole(stored: StoredRecord) -> Record:
    """The record of which every part can be read."""
    readings = _readings(stored)
    for part, reading in readings._asdict().items():
        if reading.problem is not None:
            raise DamagedRecordError(stored.context_id, part, reading.problem)
    return _record(stored, readings)


def _with_problems(report: Report, stored: StoredRecord, readings: _Readings) -> Report:
    """The report, and in it what is wrong with the log's own columns."""
    problems = {
        "hash": list(_column_problems(stored)),
        "signature": _unreadable("signature", readings.signature),
        "disclosures": _unreadable("disclosures", readings.disclosures)
        + _unreadable("redactions", readings.redactions),
    }
    return Report(tuple(_broken(check, problems.get(check.check, [])) for check in report.checks))


def _unreadable(part: str, reading: _Part) -> list[str]:
    return [] if reading.problem is None else [f"the {part} cannot be read: {reading.problem}"]


def _broken(check: Check, problems: Sequence[str]) -> Check:
    if not problems:
        return check
    said = [check.detail] if check.ok is False else []
    return Check(check.check, ok=False, detail="; ".join([*said, *problems]))


class _Listed(msgspec.Struct, frozen=True):
    """What a core says of the columns by which the log lists it."""

    class Named(msgspec.Struct, frozen=True):
        name: str

    class Fresh(msgspec.Struct, frozen=True):
        status: str

    created_at: datetime
    context: Named
    freshness: Fresh


def _column_problems(stored: StoredRecord) -> Iterator[str]:
    try:
        core = msgspec.json.decode(stored.core, type=_Listed)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return  # that the core cannot be read, the report says already
    for column, listed, said in (
        ("name", stored.name, core.context.name),
        ("created_at", stored.created_at, core.created_at),
        ("freshness_status", stored.freshness_status, core.freshness.status),
    ):
        if listed != said:
            yield f"the log lists it with {column} {listed}, but the core says {said}"


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


def _definition(receipt: Receipt) -> ContextDef:
    """A context that is assembled already."""
    if not isinstance(receipt.content, str):
        raise InvalidInputError(f"content is a text, not {type(receipt.content).__name__}")

    async def content(**inputs: object) -> str:
        return receipt.content

    return ContextDef(
        name=receipt.name,
        version=receipt.version,
        function=content,
        is_async=True,
        signature=_signature(receipt.inputs),
        definition=None,
        location=Location("(recorded)", 0),
        description="",
        max_tokens=None,
        freshness_sla=None,
        freshness_strict=False,
        model=receipt.model,
        separator="\n\n",
        on_overflow="error",
        backfill=False,
    )


def _signature(inputs: Mapping[str, Any]) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    try:
        return inspect.Signature([inspect.Parameter(name, keyword) for name in inputs])
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{error}; inputs are named like the parameters of a function: letters, digits and _"
        ) from error
