"""Replays of recorded contexts: from a record alone, or by running the function again.

From the record alone come the stored text, and the stored items fitted again. A function that runs
again is the one that is declared now; it leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, get_args

import msgspec
from msgspec.structs import asdict, replace

from headwater.contexts.assembler import Assembler
from headwater.contexts.budget import BudgetPolicy, Fitted, fit
from headwater.contexts.counters import ModelCounters
from headwater.contexts.record_builder import output_facts
from headwater.contexts.recorded.arguments import bind_recorded
from headwater.contexts.recorded.past_searches import recorded_results, searched_versions
from headwater.contexts.recorded.verification import decode_record
from headwater.contexts.requests import recorded_candidates, recorded_envelope, tokenizer_of
from headwater.core.canonical_json import to_tagged
from headwater.core.clock import Clock, to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Interceptors
from headwater.declarations.meanings import declared_as, named_at
from headwater.errors import FreshnessSLAError, InvalidInputError, ReplayError
from headwater.errors.hints import nearest
from headwater.features.call_scope import (
    PastRead,
    ReplayedSearch,
    ReplayRun,
    at_moment,
    current_reads,
    replaying,
)
from headwater.features.read_tracking import Reads
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.model.catalog import CatalogState
from headwater.model.contexts import Mode, Overrides, Replay
from headwater.model.lineage import Context
from headwater.model.values import WindowRead
from headwater.ports import RecordLog, StoredRecord
from headwater.records.core import Commitment, Core, FeatureInput, disclosed
from headwater.records.diff import diff
from headwater.records.projection import live_context, request_of
from headwater.records.record import content_hash, moment_text
from headwater.records.sealing import open_core

_SHOWN = {
    True: "exact: the stored text, which has the recorded hash",
    False: "broken: the stored text does not have the recorded hash",
    None: "the text is withheld or erased; only its hash is stored",
}


def show(core: Core) -> Replay:
    """Return the stored text."""
    text, recorded = disclosed(core.output.content), core.output.content_hash
    actual = recorded if text is None else content_hash(text)
    matches = None if text is None else actual == recorded
    refused = "; it was refused" if core.freshness.status == "refused" else ""
    return Replay(
        context_id=core.context_id,
        mode="show",
        fidelity=_SHOWN[matches] + refused,
        content=text,
        content_hash=actual,
        matches=matches,
    )


def reassemble(core: Core, tokenizer_version: str) -> Replay:
    """Fit the stored candidates again, under the stored rules."""
    withheld = [
        f"/items/{place}/content"
        for place, item in enumerate(core.items)
        if not isinstance(item.content, str)
    ]
    if withheld:
        raise ReplayError(core.context_id, "reassemble", withheld)
    policy = msgspec.convert(core.policy, BudgetPolicy, from_attributes=True)
    missing = {place for place, item in enumerate(core.items) if item.reason == "missing"}
    counter = core.tokenizer.counter
    fitted = fit(
        recorded_candidates(core),
        policy,
        tokenizer_of(core),
        recorded_envelope(core),
        None if counter is msgspec.UNSET else counter.limit,
    ).without(missing)
    again = _with_fit(core, fitted)
    same = again.output.content_hash == core.output.content_hash
    return Replay(
        context_id=core.context_id,
        mode="reassemble",
        fidelity=_reassemble_fidelity(core, tokenizer_version, same=same),
        content=fitted.content,
        content_hash=again.output.content_hash,
        matches=same,
        differences=diff(core, again),
    )


def _with_fit(core: Core, fitted: Fitted) -> Core:
    """Return the core with the decisions of another fit."""
    decided = [
        (item, choice.decision == "truncated", asdict(choice))
        for item, choice in zip(core.items, fitted.choices, strict=True)
    ]
    items = tuple(
        replace(item, **facts | {"emitted": facts["emitted"] if is_cut else None})
        for item, is_cut, facts in decided
    )
    new_hash = content_hash(fitted.content)
    output = replace(core.output, content_hash=new_hash, **output_facts(fitted))
    return replace(core, items=items, output=output)


def _reassemble_fidelity(core: Core, tokenizer_version: str, *, same: bool) -> str:
    source = "the recorded items, fitted again under the recorded rules"
    if same:
        return f"exact: {source}, give the recorded text"
    if tokenizer_version != core.versions.tokenizer:
        return (
            f"different: {source}, give another text; the tokenizer's version is "
            f"{tokenizer_version} and was {core.versions.tokenizer}"
        )
    return f"different: {source}, give another text than the recorded one"


def rerun(
    core: Core,
    mode: Mode,
    context: Context,
    again: Core,
    definition: str | None,
    *,
    searches: Sequence[ReplayedSearch],
    names: Mapping[str, str | None],
) -> Replay:
    """Return the replay of a function that ran again, and made these searches.

    ``names`` are the present names of the features in the record.
    """
    same = context.content_hash == core.output.content_hash
    fidelity = _rerun_fidelity(
        core,
        mode,
        definition,
        same=same,
        searches=searches,
        unlike=unlike(core, again, names) if mode == "as_of" else (),
        is_policy_changed=again.policy != core.policy,
    )
    if core.freshness.status == "refused":
        is_refused_again = again.freshness.status == "refused"
        fidelity = f"{'refused again' if is_refused_again else 'no longer refused'}, {fidelity}"
    return Replay(
        context_id=core.context_id,
        mode=mode,
        fidelity=fidelity,
        content=context.content,
        content_hash=context.content_hash,
        matches=same,
        context=context,
        differences=diff(core, again),
    )


def unlike(core: Core, again: Core, names: Mapping[str, str | None]) -> list[str]:
    """Return the features of which a replay read other stored values than the record has.

    A feature that has no name any more was not read at all.
    """
    stored = [read for read in core.features if read.source != "computed"]
    recorded: dict[tuple[str | None, str], list[Any]] = {}
    for read in stored:
        if not (isinstance(read.entity_id, Commitment) or isinstance(read.value, Commitment)):
            key = (names[read.feature], str(read.entity_id))
            recorded.setdefault(key, []).append(to_tagged(read.value))
    other = {
        read.feature
        for read in again.features
        if (values := recorded.get((read.feature, str(read.entity_id))))
        and to_tagged(read.value) not in values
    }
    return sorted(other | {read.feature for read in stored if names[read.feature] is None})


def _search_words(core: Core, searches: Sequence[ReplayedSearch]) -> Iterator[str]:
    """Yield as of when the replay searched."""
    kinds: dict[str, list[str]] = {}
    for search in sorted(set(searches)):
        kinds.setdefault(search.as_of, []).append(search.name)
    if "now" in kinds:
        yield "retrievers called now"
    if "recorded" in kinds:
        yield "indexes in their recorded versions"
    if "moment" in kinds:
        yield f"unrecorded searches of indexes as of {moment_text(core.timing.started_at)}"
    if "results" in kinds:
        yield f"recorded results of {', '.join(kinds['results'])}"
    gone = "because the version of that time is no longer kept (see keep_versions)"
    if "texts" in kinds:
        yield f"recorded results of {', '.join(kinds['texts'])} with present metadata, {gone}"
    if "gone" in kinds:
        yield f"present contents of {', '.join(kinds['gone'])}, {gone}"


def _rerun_fidelity(
    core: Core,
    mode: Mode,
    definition: str | None,
    *,
    same: bool,
    searches: Sequence[ReplayedSearch],
    unlike: Sequence[str],
    is_policy_changed: bool,
) -> str:
    """Return how reliable a text of the current function is."""
    words = ["the same text" if same else "another text"]
    words.append(
        "features as the record says they were read, and others as they were at "
        f"{moment_text(core.timing.started_at)}"
        if mode == "as_of"
        else "features as they are now"
    )
    if unlike:
        words.append(f"but not the recorded values of {', '.join(unlike)}")
    words += _search_words(core, searches)
    if is_policy_changed:
        words.append("budget and rules as declared now")
    if mode == "as_of":
        words.append("computed features and other data as they are now")
    if definition is None or core.context.definition is None:
        words.append("it is unknown whether the function has changed")
    elif definition != core.context.definition:
        words.append("the function has changed since")
    return f"{words[0]}: {'; '.join(words[1:])}"


_MILLISECOND = timedelta(milliseconds=1)


def check_mode(mode: str) -> None:
    """Raise InvalidInputError for an unknown replay mode."""
    modes = get_args(Mode)
    if mode not in modes:
        raise InvalidInputError(f"unknown replay mode {mode!r}; {nearest(str(mode), modes)}")


class Replayer:
    """Replays recorded contexts."""

    def __init__(self, services: Services, reader: Reader, counters: ModelCounters) -> None:
        self._services = services
        self._reader = reader
        self._counters = counters

    async def replay(self, core: Core, mode: Mode) -> Replay:
        """Replay the context of a core in one of the modes."""
        if mode == "show":
            return show(core)
        if mode == "reassemble":
            return await asyncio.to_thread(reassemble, core, version("splintr-rs"))
        return await self._rerun(core, mode)

    async def _rerun(self, core: Core, mode: Mode) -> Replay:
        """Run the function as it is declared now, with the recorded inputs; store nothing."""
        if mode == "as_of":
            await self._check_not_pruned(core)
        inputs, reference = recorded_inputs(core, mode)
        definition = self._services.registry.context(core.context.name)
        call = bind_recorded(definition, inputs)
        scratch = ScratchLog(self._services.backends.records)
        clock = StoppedClock(core.created_at) if mode == "as_of" else self._services.clock
        counters = self._counters
        if mode == "as_of":
            counters = counters.pinned(core.policy.model, core.tokenizer.margin_percent)
        assembler = self._assembler(scratch, clock, counters)
        overrides = recorded_overrides(core, reference)
        services = self._services
        names = names_now(core, services.catalog.state, services.registry.features)
        past = _past_of(core, names) if mode == "as_of" else nullcontext()
        replay, around = ReplayRun(assembler.run, []), current_reads()
        reads = Reads()
        with replaying(replay, reads), past:
            try:
                context = await assembler.run(definition, call.args, call.kwargs, overrides)
            except FreshnessSLAError as refusal:
                was_refused = core.freshness.status == "refused"
                is_inner = refusal.context != definition.name
                if not was_refused or is_inner or refusal.context_id is None:
                    # A replay is not recorded, so its refusal has no record either.
                    raise FreshnessSLAError(refusal.context, refusal.violations) from refusal
                context = scratch.refused(refusal.context_id)
            finally:
                around.provenance |= reads.provenance
        new_core = open_core(decode_record(scratch.appended[context.context_id]))
        unrecorded = replace(context, meta={**context.meta, "recorded": False})
        return rerun(
            core,
            mode,
            unrecorded,
            new_core,
            definition.definition,
            searches=replay.searches,
            names=names,
        )

    async def _check_not_pruned(self, core: Core) -> None:
        """Raise if values that the context read may have been pruned."""
        horizon = (await self._services.catalog.follow()).pruned.history
        values = [value for read in core.features for value in (read, *read.inputs)]
        needed = min([core.timing.started_at, *filter(None, map(first_needed, values))])
        if horizon is not None and needed <= horizon:
            raise InvalidInputError(
                f"context {core.context_id} cannot be replayed in mode 'as_of': it needs history "
                f"of {needed.isoformat()}, and history before {horizon.isoformat()} was "
                "pruned; mode 'reassemble' needs nothing but its record"
            )

    def _assembler(self, records: RecordLog, clock: Clock, counters: ModelCounters) -> Assembler:
        """Return an assembler that leaves no trace: other records, no signature, no metrics."""
        services = self._services
        replayed = replace(
            services,
            clock=clock,
            settings=services.settings.replace(
                signature_mode="off", record={"include_content": True}
            ),
            backends=replace(services.backends, records=records),
            interceptors=Interceptors(),
        )
        return Assembler(replayed, self._reader, counters, counted=lambda context: None)


def names_now(
    core: Core, state: CatalogState, declared: Mapping[str, FeatureDef]
) -> dict[str, str | None]:
    """Return the declared names of the features that a record names; None if there is none.

    A feature may have been renamed since, and its name may mean another one.
    """
    reads = [value for read in core.features for value in (read, *read.inputs)]

    def named(name: str) -> str | None:
        owner = named_at(state, name, core.timing.started_at)
        return name if owner is None else declared_as(state, owner, declared)

    def member(window: WindowRead) -> str | None:
        """Return the feature of a family, which has the name of its family."""
        family = declared.get(named(window.family) or "")
        members = [] if family is None or family.windows is None else family.windows.members
        of = (window.aggregate, window.window)
        return next((name for name in members if _kind_of(declared[name]) == of), None)

    return {
        read.feature: named(read.feature) if read.window is msgspec.UNSET else member(read.window)
        for read in reads
    }


class ScratchLog:
    """The store's record log, except that new records are kept in memory."""

    def __init__(self, inner: RecordLog) -> None:
        self.appended: dict[str, StoredRecord] = {}
        self.get, self.beginning, self.records = inner.get, inner.beginning, inner.records
        self.find, self.redact, self.index_key = inner.find, inner.redact, inner.index_key
        self.count, self.count_found, self.prune = inner.count, inner.count_found, inner.prune
        self.marks, self.having = inner.marks, inner.having
        self.append_outcome, self.redact_outcome = inner.append_outcome, inner.redact_outcome
        self.outcome, self.outcomes = inner.outcome, inner.outcomes
        self.outcome_page, self.measured = inner.outcome_page, inner.measured
        self.measured_models = inner.measured_models

    async def add_mark(self, mark: bytes) -> None:
        """Remember nothing: no record of the store has this mark because of a replay."""

    async def append(self, record: StoredRecord, keys: object, *, checked: int = 0) -> None:
        self.appended[record.context_id] = record

    def refused(self, context_id: str) -> Context:
        """Return the context whose refusal was recorded here."""
        record = decode_record(self.appended[context_id])
        core = open_core(record)
        return live_context(record, core, request_of(core), recorded=False)


class StoppedClock:
    """A clock that always shows one moment."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    def micros(self) -> int:
        return to_micros(self._moment)

    def monotonic(self) -> int:
        return to_micros(self._moment)

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


def _past_of(core: Core, names: Mapping[str, str | None]) -> AbstractContextManager[None]:
    """Read the values inside that the record has, or that were current at its time.

    ``names`` are the present names of the features in the record.
    """
    began, ended = core.timing.started_at, core.created_at
    read_at: dict[tuple[str, str, str], list[PastRead]] = {}
    for read in core.features:
        if not isinstance(read.entity_id, Commitment):
            absent = ended if read.source == "computed" else began
            past = past_read(read, absent, began)
            key = (read.entity, names[read.feature] or "", read.entity_id)
            read_at.setdefault(key, []).append(past)
    for inner in (inner for read in core.features for inner in read.inputs):
        if not isinstance(inner.entity_id, Commitment) and inner.source != "computed":
            past = past_read(inner, began, began)
            read_at.setdefault((inner.entity, names[inner.feature] or "", inner.entity_id), [past])
    return at_moment(began, ended, read_at, searched_versions(core), recorded_results(core, names))


def first_needed(read: FeatureInput) -> datetime | None:
    """Return the moment of the first contribution that a window may have; None without one."""
    if read.window is msgspec.UNSET:
        return None
    reach = timedelta(microseconds=read.window.span_us + read.window.hop_us)
    return read.window.read_at - reach


def _kind_of(feature: FeatureDef) -> tuple[str, str] | None:
    window = feature.window
    return None if window is None else (window.aggregate.text, window.window.name)


def past_read(read: FeatureInput, absent: datetime, began: datetime) -> PastRead:
    """Return how a recorded value is read again; one that was absent is of the given moment."""
    window = None if read.window is msgspec.UNSET else read.window
    return PastRead(read.written_at or absent, _current_at(read, began), read.rule, window)


def _current_at(read: FeatureInput, began: datetime) -> datetime | None:
    """Return when a value was known to be current; the feature may have had another rule then."""
    return read.current_at if read.rule == "caught_up" else read.current_at or began


def recorded_inputs(core: Core, mode: Mode) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the recorded inputs and interaction_ref; raise ReplayError if one is withheld."""
    reference = core.interaction_ref
    values = {f"/inputs/{name}": value for name, value in core.inputs.items()}
    if isinstance(reference, Mapping):
        values |= {f"/interaction_ref/{name}": value for name, value in reference.items()}
    else:
        values["/interaction_ref"] = reference
    withheld = [pointer for pointer, value in values.items() if isinstance(value, Commitment)]
    if withheld:
        raise ReplayError(core.context_id, mode, withheld)
    return dict(core.inputs), None if reference is None else dict(disclosed(reference))


def recorded_overrides(core: Core, reference: dict[str, Any] | None) -> Overrides:
    """Return the options that the recorded call set; all others are as declared today."""
    policy, sla_ms = core.policy, core.policy.freshness_sla_ms
    limits: dict[str, Any] = {
        "max_tokens": policy.max_tokens,
        "freshness_sla": None if sla_ms is None else sla_ms * _MILLISECOND,
    }
    changed = {name: limits[name] for name in policy.set_by_call if name in limits}
    return Overrides(interaction_ref=reference, **changed)
