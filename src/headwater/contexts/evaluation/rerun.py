"""Assembling a recorded context again, with the declarations of a variant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.contexts.assembler import Assembler
from headwater.contexts.counters import ModelCounters
from headwater.contexts.evaluation.replayed_history import ReplayedHistory
from headwater.contexts.evaluation.variants import Variant
from headwater.contexts.recorded.arguments import bind_recorded
from headwater.contexts.recorded.past_searches import recorded_results, searched_versions
from headwater.contexts.recorded.replay import (
    names_now,
    past_read,
    recorded_inputs,
    recorded_overrides,
)
from headwater.contexts.recorder import Recorder
from headwater.core.clock import Clock, to_micros
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.declarations.fingerprints import Declared
from headwater.declarations.interceptors import Interceptors
from headwater.errors import FreshnessSLAError, HeadwaterError
from headwater.features.call_scope import (
    Past,
    PastRead,
    RecordedResults,
    ReplayedSearch,
    ReplayRun,
    current_scope,
    in_past,
    replaying,
)
from headwater.features.read_tracking import Reads, RetrievalKey, TrackedRetrieval
from headwater.features.reader import Reader
from headwater.features.services import Services
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context
from headwater.model.values import FeatureValue, FreshnessRule, Part, TrackedFeature
from headwater.records.core import Commitment, Core, FeatureInput, FeatureRead, disclosed
from headwater.records.record import Record, content_hash
from headwater.records.sealing import open_core, seal

INDEX = "index "
"""The beginning of the names of options that choose a version of an index."""

UNSEALED = "sha256:" + 64 * "0"
"""The hash of a record that was not sealed."""

_Key = tuple[str, str, str]
"""An entity, a feature and an id."""


class Rerun(NamedTuple):
    """A context that a variant has assembled; `core` is None if it raised the error."""

    core: Core | None
    record: Record | None = None
    """Absent until it is sealed: most contexts are identical, and then need none."""
    reasons: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()
    error: str = ""

    def sealed(self) -> Rerun:
        """Return it with its record, and the core as that has it."""
        if self.core is None or self.record is not None:
            return self
        record = seal(self.core)
        return self._replace(core=open_core(record), record=record)


class Rerunner:
    """Assembles recorded contexts with the declarations of one variant, and stores nothing."""

    def __init__(
        self,
        variant: Variant,
        services: Services,
        reader: Reader,
        counters: ModelCounters,
        history: ReplayedHistory,
    ) -> None:
        self._variant = variant
        self._services = services
        self._reader = reader
        self._counters = counters
        self._history = history
        self._problems = variant.problems()
        self._recorder = _CoreRecorder(services)
        self._assemblers: dict[tuple[str | None, int], Assembler] = {}

    async def run(self, core: Core, inner: Sequence[Core] = ()) -> Rerun:
        """Assemble the context of a record again; ``inner`` are the records inside of it."""
        registry = self._services.registry
        definition = registry.contexts.get(core.context.name)
        if definition is None:
            return Rerun(None, error=f"context {core.context.name!r} is not declared any more")
        assembler = self._assembler(core)
        replay = ReplayRun(self._named(assembler), [])
        try:
            inputs, reference = recorded_inputs(core, "as_of")
            model = self._variant.options.get("model", definition.model)
            definition = replace(definition, model=model)
            call = bind_recorded(definition, inputs)
            overrides = self._overrides(core, reference)
            with replaying(replay, Reads()), self._past(core, inner):
                context_id = await self._context_id(assembler, definition, call, overrides)
        except HeadwaterError as error:
            return Rerun(None, error=str(error))
        again = self._recorder.cores.pop(context_id)
        reasons = tuple(dict.fromkeys(self._reasons(again, replay.searches)))
        return Rerun(again, None, reasons, tuple(dict.fromkeys(self._dead_letters(again))))

    async def _context_id(
        self, assembler: Assembler, definition: ContextDef, call: Any, overrides: Overrides
    ) -> str:
        try:
            context = await assembler.run(definition, call.args, call.kwargs, overrides)
        except FreshnessSLAError as refusal:
            if refusal.context != definition.name or refusal.context_id is None:
                raise
            return refusal.context_id
        return context.context_id

    def _assembler(self, core: Core) -> Assembler:
        """Return an assembler that leaves no trace, and counts as the recorded one did."""
        key = (core.policy.model, core.tokenizer.margin_percent)
        if key not in self._assemblers:
            services = self._services
            replayed = replace(
                services, clock=PastClock(services.clock), interceptors=Interceptors()
            )
            is_other = "model" in self._variant.options
            counters = self._counters if is_other else self._counters.pinned(*key)
            assembler = Assembler(replayed, self._reader, counters, counted=lambda context: None)
            assembler.recorder = self._recorder
            self._assemblers[key] = assembler
        return self._assemblers[key]

    def _named(self, assembler: Assembler) -> Any:
        """Assemble contexts inside by name: a function may hold one that is taken back."""
        contexts = self._services.registry.contexts

        async def assemble(
            context: ContextDef,
            arguments: Sequence[Any],
            named: Mapping[str, Any],
            overrides: Overrides,
        ) -> Context:
            return await assembler.run(
                contexts.get(context.name, context), arguments, named, overrides
            )

        return assemble

    def _overrides(self, core: Core, reference: dict[str, Any] | None) -> Overrides:
        overrides, options = recorded_overrides(core, reference), self._variant.options
        if "max_tokens" in options:
            overrides = replace(overrides, max_tokens=options["max_tokens"])
        return overrides

    def _past(self, core: Core, inner: Sequence[Core]) -> AbstractContextManager[None]:
        """Read what the records have, and all else as it was known at that time."""
        catalog, features = self._services.catalog.state, self._services.registry.features
        began, ended = core.timing.started_at, core.created_at
        reads: dict[_Key, list[PastRead]] = {}
        searched: dict[RetrievalKey, list[str]] = {}
        results: dict[RetrievalKey, list[TrackedRetrieval]] = {}
        former: dict[RetrievalKey, list[TrackedRetrieval]] = {}
        for recorded in (core, *inner):
            names = names_now(recorded, catalog, features)
            for key, read in self._recorded_reads(recorded, names):
                reads.setdefault(key, []).append(read)
            for call, versions in searched_versions(recorded).items():
                searched.setdefault(call, []).extend(versions)
            for call, found in recorded_results(recorded, names).items():
                kept = results if self._is_found_again(call, found) else former
                kept.setdefault(call, []).extend(found)
        options = self._variant.options.items()
        indexes = {name.removeprefix(INDEX): v for name, v in options if name.startswith(INDEX)}
        past = _ReplayedPast(began, ended, reads, searched, results, indexes)
        past.has_failed = self._history.failed_at
        past.former = former
        return in_past(past)

    def _is_found_again(self, call: RetrievalKey, found: Sequence[TrackedRetrieval]) -> bool:
        """Return whether a retriever is declared as it was, and read the same."""
        read = {name for one in found for _, name, _ in one.read or ()}
        is_changed = Declared("retriever", call[0]) in self._variant.changed
        return not is_changed and not read & self._variant.affected

    def _recorded_reads(
        self, core: Core, names: Mapping[str, str | None]
    ) -> Iterator[tuple[_Key, PastRead]]:
        """Yield how each read of a record is answered again."""
        features = self._services.registry.features
        began, ended = core.timing.started_at, core.created_at
        seen = _seen(core)
        for read in core.features:
            name = names[read.feature]
            feature = features.get(name or "")
            if isinstance(read.entity_id, Commitment) or name is None or feature is None:
                continue
            key = (read.entity, name, read.entity_id)
            if self._is_affected(name, read):
                last = seen[read.entity, read.entity_id]
                yield key, PastRead(last, read.current_at or began, "caught_up")
            else:
                past = past_read(read, ended if read.source == "computed" else began, began)
                yield key, past._replace(value=recorded_value(feature, read))
        direct = {(read.feature, read.entity_id) for read in core.features}
        for inner in (value for read in core.features for value in read.inputs):
            name = names[inner.feature]
            if (
                isinstance(inner.entity_id, Commitment)
                or name is None
                or inner.source == "computed"
            ):
                continue
            if (inner.feature, inner.entity_id) not in direct and not self._is_affected(
                name, inner
            ):
                direct.add((inner.feature, inner.entity_id))
                yield (inner.entity, name, inner.entity_id), past_read(inner, began, began)

    def _is_affected(self, name: str, read: FeatureInput) -> bool:
        if name in self._problems:
            return read.source == "default"
        affected = self._variant.affected
        inputs = read.inputs if isinstance(read, FeatureRead) else ()
        return name in affected or any(value.feature in affected for value in inputs)

    def _dead_letters(self, again: Core) -> Iterator[str]:
        """Yield the features that a context read, and whose handlers fail for an event."""
        for read in (value for one in again.features for value in (one, *one.inputs)):
            name = self._family_of(read.feature)
            if self._history.failed_at(name, str(read.entity_id), again.created_at):
                yield f"feature {name}: {self._history.error_of(name, str(read.entity_id))}"

    def _family_of(self, name: str) -> str:
        feature = self._services.registry.features.get(name)
        return name if feature is None or feature.window is None else feature.window.family

    def _reasons(self, again: Core, searches: Sequence[ReplayedSearch]) -> Iterator[str]:
        """Yield why a context is not exactly the one that the variant would have assembled."""
        read = [
            (value.feature, value.entity_id)
            for one in again.features
            for value in (one, *one.inputs)
        ]
        for name, entity_id in read:
            if name in self._problems:
                yield f"feature {name}: {self._problems[name]}; its former value is used"
            family = self._family_of(name)
            yield from self._history.notes(family, str(entity_id), again.created_at)
        if "model" in self._variant.options and not again.tokenizer.exact:
            yield f"the tokens of {again.policy.model} are estimated"
        for index in {call.index.name for call in again.retrievals if call.index is not None}:
            writer = self._variant.unwritten.get(index)
            if writer is not None:
                yield f"feature {writer}: what it writes to index {index} is not replayed"
        for search in searches:
            if search.as_of == "now":
                yield f"retriever {search.name}: its function was called now; declare record=True"
            elif search.as_of == "texts":
                yield f"index {search.name}: its version is gone; the recorded texts are used"
            elif search.as_of == "gone":
                yield (
                    f"index {search.name}: the version of that time is no longer kept; see "
                    "keep_versions"
                )
            elif search.as_of == "unasked":
                yield (
                    f"index {search.name}: what embeds or ranks is not called; former results are "
                    "used, or a search for words"
                )


def _seen(core: Core) -> dict[tuple[str, Any], datetime]:
    """Return the moment up to which a record has seen the writes of each entity."""
    seen: dict[tuple[str, Any], datetime] = {}
    for read in core.features:
        key = (read.entity, read.entity_id)
        moments = [seen.get(key), core.timing.started_at, read.written_at]
        seen[key] = max(moment for moment in moments if moment is not None)
    return seen


def recorded_value(feature: FeatureDef, read: FeatureRead) -> FeatureValue | None:
    """Return a recorded value as JSON text; None if the record does not have it exactly.

    Records sort the keys of objects, and a failed computation looks like a missing value.
    """
    if isinstance(read.value, Commitment) or _has_keys(read.value):
        return None
    if read.source == "missing" and not feature.stored and feature.window is None:
        return None
    text = None if read.value is None else msgspec.json.encode(read.value)
    if text is not None and not feature.codec.fits(text):
        return None
    inputs = tuple(
        TrackedFeature(i.entity, i.feature, str(i.entity_id), _value(i, i.value), i.sla_ms)
        for i in read.inputs
    )
    return replace(_value(read, text), inputs=inputs)


def _has_keys(value: object) -> bool:
    if isinstance(value, dict):
        return len(value) > 1 or any(map(_has_keys, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_keys, value))


def _value(read: FeatureInput, value: Any) -> FeatureValue:
    window = None if read.window is msgspec.UNSET else read.window
    return FeatureValue(
        value,
        read.as_of,
        read.source,  # type: ignore[arg-type]
        read.written_at,
        frozenset(),
        read.rule,
        read.current_at,
        (),
        window,
    )


class _ReplayedPast(Past):
    """A past in which a replayed handler that failed leaves a dead letter, as a live one does.

    ``former`` has what retrievers found that have changed since.
    """

    has_failed: Callable[[str, str, datetime], bool]
    former: RecordedResults

    def former_results(self, key: RetrievalKey) -> TrackedRetrieval | None:
        return next(iter(self.former.get(key, ())), None)

    def judged(self, feature: FeatureDef, entity_id: str) -> tuple[FreshnessRule, datetime | None]:
        name = feature.name if feature.window is None else feature.window.family
        if self.has_failed(name, entity_id, self.moment(feature, entity_id)):
            return "dead_letter", None
        return super().judged(feature, entity_id)


class _CoreRecorder(Recorder):
    """Keeps the cores of contexts, and neither seals nor stores them."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.cores: dict[str, Core] = {}

    def seal(self, core: Core) -> Record:
        """Keep a core; the record has only what the context shows of it."""
        text = content_hash(disclosed(core.output.content) or "")
        output = replace(core.output, content_hash=text)
        self.cores[core.context_id] = replace(core, output=output)
        return Record(core=b"", context_id=core.context_id, record_hash=UNSEALED, content_hash=text)

    async def store(
        self, core: Core, record: Record, provenance: Collection[Part], since: int
    ) -> bool:
        """Store nothing."""
        return True


class PastClock:
    """A clock that shows the end of the past that is read, and the time elsewhere."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """Return the moment at which the recorded context was complete."""
        past = current_scope().past
        return self._clock.now() if past is None else past.ended

    def micros(self) -> int:
        """Return the same in microseconds since the epoch."""
        past = current_scope().past
        return self._clock.micros() if past is None else to_micros(past.ended)

    def monotonic(self) -> int:
        """Return microseconds that pass."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._clock.sleep(seconds)
