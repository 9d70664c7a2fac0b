"""The state of a replay: the new values in memory, and the past of all other features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headwater.core.clock import from_micros
from headwater.declarations.features import FeatureDef
from headwater.errors import BackfillRefusedError, HeadwaterError, ReplayWriteError
from headwater.features.batch_state import BatchState, HandlerTransaction, StagedChanges
from headwater.history.backfill.event_file import StoredEvent
from headwater.history.backfill.past_values import PastValues
from headwater.model.values import Cell, Cells, EntityKey
from headwater.ports import Change, Delivery, DocumentWrite, EntityState, Ledger

_READS = {
    "search": "it would find the documents of today",
    "retrieve": "it would find the documents of today",
    "assemble": "a context is about the present",
}


class ReplayState(BatchState):
    """The entities of a replay, with the values of one feature and no others."""

    def __init__(self, definition: FeatureDef, past: PastValues) -> None:
        super().__init__(0, {}, _nothing, Ledger())
        self.definition = definition
        self.past = past
        self.unstored: Counter[str] = Counter()
        self.refusal: HeadwaterError | None = None
        """The first thing that handlers did and that cannot be replayed."""

    def begin(self, delivery: Delivery, moment: int, now: int) -> HandlerTransaction:
        """Return the transaction of one run of a handler, at the time of its event."""
        assert isinstance(delivery, StoredEvent)
        return ReplayTransaction(self, delivery, moment)

    def apply(self, staged: StagedChanges, delivery: Delivery) -> None:
        """Keep the new values of the replayed feature; count those of other features."""
        for (entity, _), change in staged.items():
            if change.feature != self.definition.series:
                self.unstored[change.feature] += 1
                continue
            if change.online:
                entity.cells = {change.feature: change.cell}
            self.changes.append(change)

    def refuse(self, error: HeadwaterError) -> HeadwaterError:
        """Return an error that also ends the replay, if handlers catch it."""
        self.refusal = self.refusal or error
        return error


async def _nothing(_: EntityKey) -> EntityState:
    return EntityState(0, {})


class ReplayTransaction(HandlerTransaction):
    """One run of the handler of a past event."""

    __slots__ = ("_about", "_event", "_replay")

    is_past = True

    def __init__(self, state: ReplayState, stored: StoredEvent, moment: int) -> None:
        # Now is when the event was accepted: values expire as they would have.
        super().__init__(state, moment, stored.received_at, stored)
        self._replay = state
        self._event = stored
        own = self.loaded(self._own_key).get(state.definition.series)
        is_moved = own is not None and state.definition.order == "stream"
        self._about = max(moment, own.as_of) if own is not None and is_moved else moment

    @property
    def _own_key(self) -> EntityKey:
        return (self._replay.definition.entity.name, self._event.event.entity_id)

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value that is in memory; raise KeyError if it has to be loaded."""
        own = self._replay.definition
        if feature.name == own.name:
            if key != self._own_key:
                raise KeyError(key)
            return self.loaded(key).get(own.series)
        if self._staged and key in self._replay.entities:
            written = self.loaded(key).get(feature.series)
            if written is not None:
                return written
        past = self._replay.past
        if past.is_pruned(self._about):
            moment = from_micros(self._about).isoformat()
            raise self._refused(
                f"its handler reads {feature.name!r} of {moment}, and "
                f"history before {past.pruned} was pruned; run it with --since and a later time"
            )
        return past.value(feature, key[1], self._event, self._about)

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return features of entities as of the moment that the new value is about."""
        pages: list[Cells] = []
        for entity_id in entity_ids:
            key, cells = (entity, entity_id), {}
            for feature in features:
                try:
                    cell = self.cell(key, feature)
                except KeyError:
                    await self._load(key, feature)
                    cell = self.cell(key, feature)
                if cell is not None:
                    cells[feature.series] = cell
            pages.append(cells)
        return pages

    async def _load(self, key: EntityKey, feature: FeatureDef) -> None:
        own = self._replay.definition
        if feature.name == own.name:
            raise self._refused(
                f"its handler reads the feature of another {own.entity.name} ({key[1]!r}), whose "
                "events are replayed independently; keep that value in another feature"
            )
        await self._replay.past.load(feature, key[1], self._about)

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stage a value; one of another feature is seen by this run only."""
        own = self._replay.definition
        if feature.name == own.name:
            if entity_id != self._event.event.entity_id:
                raise self._refused(
                    f"its handler sets the feature of another {own.entity.name} ({entity_id!r}), "
                    "whose events are replayed independently; publish an event for that one"
                )
            feature = own
        super().stage(feature, entity_id, value)

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: values computed in a replay were never served."""

    def stage_document(self, write: DocumentWrite) -> None:
        """Count a document; it is not written, because its index has later versions."""
        self._replay.unstored[f"documents of {write.index}"] += 1

    def check_allowed(self, verb: str) -> None:
        """Raise an error for verbs that change anything, or that read the present."""
        definition = self._replay.definition
        if verb in _READS:
            raise self._refused(f"its handler calls {verb}, and {_READS[verb]}")
        if verb != "set_feature" and not definition.repeatable:
            remedy = (
                f"declare feature {definition.name!r} with repeatable=True if its handler may do "
                "it again for every past event"
            )
            raise self._replay.refuse(ReplayWriteError(verb, remedy))

    def is_computable(self, feature: FeatureDef) -> bool:
        """Raise an error unless the function depends on features only, which are of the past."""
        if not feature.derived:
            raise self._refused(
                f"its handler reads {feature.name!r}, which is computed at every read and may "
                "depend on the present; declare that one with derived=True if it depends on "
                "nothing but features"
            )
        return True

    def _refused(self, problem: str) -> HeadwaterError:
        return self._replay.refuse(BackfillRefusedError(self._replay.definition.name, problem))
