"""Reading values as they were in the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from headwater.declarations.features import FeatureDef

ReadAt = Mapping[tuple[str, str, str], Sequence[datetime]]
"""The times at which the values had been written that were read of (entity, feature, id)."""


class Past:
    """A span of the past whose values are read in place of the present ones.

    ``read_at`` says which version of a value each read returned. For other reads, a stored value is
    the one of the beginning, because most reads happen early; a value that was computed and cached
    is the one of the end, because this span may have computed it.
    """

    def __init__(self, began: datetime, ended: datetime, read_at: ReadAt) -> None:
        self.began = began
        self._ended = ended
        self._read_at = {key: list(moments) for key, moments in read_at.items()}

    def moment(self, feature: FeatureDef, entity_id: str) -> datetime:
        """Return the moment whose value the next read of the feature returns."""
        moments = self._read_at.get((feature.entity.name, feature.name, entity_id))
        if moments:
            return moments[0]
        return self.began if feature.stored else self._ended

    def advance(self, feature: FeatureDef, entity_id: str) -> None:
        """Move to the version that the following read returned, if there was one."""
        moments = self._read_at.get((feature.entity.name, feature.name, entity_id), [])
        if len(moments) > 1:
            del moments[0]
