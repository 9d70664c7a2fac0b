"""Functions of derived features in the past: they read the values of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from headwater.core.clock import from_micros
from headwater.declarations.features import FeatureDef
from headwater.errors import HeadwaterError, InvalidInputError
from headwater.features.batch_state import BatchState, HandlerTransaction
from headwater.features.conversions import last_cell
from headwater.model.values import INTERNAL, Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import Change, Delivery, DocumentWrite, EntityState, Ledger

LoadedValues = Mapping[tuple[str, str, int], Cell | None]
"""Past values, by series, entity id and moment."""


class NotLoadedError(HeadwaterError):
    """A past value that has to be loaded before the function can run."""


class MomentTransaction(HandlerTransaction):
    """One computation at a moment of the past, from values that have been loaded.

    A read of any other value is listed in ``missing`` and ends the computation, which is repeated
    when that value has been loaded.
    """

    __slots__ = ("_at", "_known", "_values", "missing", "refusal")

    is_past = True

    def __init__(self, values: LoadedValues, at: int, *, known: bool) -> None:
        super().__init__(_NOTHING, at, at, _NO_EVENT)
        self._values = values
        self._at = at
        self._known = known
        self.missing: dict[tuple[str, str], FeatureDef] = {}
        """The features to load, by series and entity id."""
        self.refusal: HeadwaterError | None = None
        """The first thing that the function did and that has no past, also if it was caught."""

    @property
    def known_at(self) -> datetime | None:
        """The moment, if the values are those that were served then."""
        return from_micros(self._at) if self._known else None

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value that has been loaded; raise KeyError for any other one."""
        if not feature.lineage:
            return self._values[feature.series, key[1], self._at]
        chain = [series for series, _ in feature.chain]
        return last_cell(feature, {s: self._values[s, key[1], self._at] for s in chain})

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return the values of features at the moment."""
        read = [feature for feature in features if self._known or not feature.derived]
        cells = [self._cells((entity, entity_id), read) for entity_id in entity_ids]
        if self.missing:
            raise NotLoadedError("a past value is not loaded yet")
        return cells

    def _cells(self, key: EntityKey, features: Sequence[FeatureDef]) -> Cells:
        cells: Cells = {}
        for feature in features:
            try:
                cell = self.cell(key, feature)
            except KeyError:
                for series, _ in feature.chain:
                    self.missing[series, key[1]] = replace(feature, series=series)
            else:
                if cell is not None:
                    cells[feature.series] = cell
        return cells

    def is_computable(self, feature: FeatureDef) -> bool:
        """Return whether a value without a past is computed again, and not missing."""
        if feature.derived:
            return True
        if not feature.has_history:
            raise self._refused(
                f"it reads {feature.name!r}, which has no history because it is computed at every "
                "read; declare that one with derived=True or log=True"
            )
        return False

    def check_allowed(self, verb: str) -> None:
        """Raise an error for every verb that is not a read of features."""
        raise self._refused(
            f"its function calls {verb}, and a derived feature depends on nothing but the features "
            "that it reads; declare it with log=True instead of derived=True"
        )

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: a value of the past that is computed now was never served."""

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Refuse a write."""
        self.check_allowed("set_feature")

    def stage_document(self, write: DocumentWrite) -> None:
        """Refuse a write."""
        self.check_allowed("index")

    def _refused(self, problem: str) -> HeadwaterError:
        error = InvalidInputError(problem)
        self.refusal = self.refusal or error
        return error


async def _no_state(_: EntityKey) -> EntityState:
    return EntityState(0, {})


_NO_EVENT = Delivery("0", ServiceEvent(f"{INTERNAL}moment", "none"))
_NOTHING = BatchState(0, {}, _no_state, Ledger())
