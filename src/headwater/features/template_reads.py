"""Templates and features: the text of a template feature, and the features a template names."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import (
    FormatError,
    FunctionRaisedError,
    InvalidInputError,
    UnknownReferenceError,
)
from headwater.errors.hints import Location
from headwater.features.call_scope import current_scope
from headwater.features.read_plan import check_readable
from headwater.features.read_tracking import tracked_feature, unshared
from headwater.features.window_reads import MISSING, absent
from headwater.model.features import FeatureRow
from headwater.model.values import FeatureValue, FreshnessRule, TrackedFeature

if TYPE_CHECKING:
    from headwater.features.reader import Reader


def rendered(
    feature: FeatureDef, entity_id: str, row: FeatureRow, features: Mapping[str, FeatureDef]
) -> FeatureValue:
    """Return a template's text, as old as its oldest input; missing if one without fallback is."""
    if feature.template is None:
        return MISSING
    inputs = {name: row[name] for name in feature.template.references}
    kind = feature.entity.name
    provenance = frozenset(("feature", kind, name, entity_id) for name in inputs).union(
        *(value.provenance for value in inputs.values())
    )
    rule: FreshnessRule = "age"
    tracked: tuple[TrackedFeature, ...] = ()
    if current_scope().reads is not None and inputs:
        rule = "inputs"
        windows = [value.window for value in inputs.values() if value.window is not None]
        provenance |= {("feature", kind, window.family, entity_id) for window in windows}
        tracked = tuple(
            [
                tracked_feature(features[name], entity_id, unshared(value))
                for name, value in inputs.items()
            ]
        )
    values = {name: value.value for name, value in inputs.items()}
    if feature.template.is_missing(values):
        return msgspec.structs.replace(
            absent(feature), provenance=provenance, rule=rule, inputs=tracked
        )
    try:
        text = feature.template.render(values)
    except FormatError as error:
        raise FunctionRaisedError(feature.name, entity_id, error) from error
    moments = [value.as_of for value in inputs.values()]
    dated = [moment for moment in moments if moment is not None]
    as_of = min(dated) if dated and len(dated) == len(moments) else None
    return FeatureValue(text, as_of, "computed", None, provenance, rule, None, tracked)


class ReferenceOwner(NamedTuple):
    """The context or retriever whose template refers to features, for messages."""

    name: str
    location: Location


class References:
    """Reads features for the entities whose ids are arguments of a call."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry = registry
        self._reader = reader

    async def read(
        self, names: Sequence[str], arguments: Mapping[str, Any], owner: ReferenceOwner
    ) -> dict[str, Any]:
        """Return the values of features, each read for the entity that the arguments name."""
        by_id_field: dict[str, list[str]] = {}
        for name in names:
            field = id_field(self._registry, name, arguments, owner)
            by_id_field.setdefault(field, []).append(name)
        rows = await asyncio.gather(
            *(self._reader.read(group, [arguments[field]]) for field, group in by_id_field.items())
        )
        return {name: value.value for (row,) in rows for name, value in row.items()}


def id_field(
    registry: Registry, name: str, parameters: Container[str], owner: ReferenceOwner
) -> str:
    """Return the parameter that holds the id of the feature's entity; raise if there is none."""
    if name not in registry.features:
        template = f"a template of {owner.name}"
        raise UnknownReferenceError(template, "feature", name, registry.features, owner.location)
    check_readable(registry.features[name])
    field = registry.features[name].entity.id_field
    if field not in parameters:
        raise InvalidInputError(
            f"{owner.name}: a template names {name!r}, so the function needs a parameter "
            f"{field!r} that says whose {name} it is"
        )
    return field
