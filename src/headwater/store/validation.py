"""Check the features that a caller names."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.declarations.feature_handles import FeatureRef, check_sequences, feature_name
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.errors import InvalidInputError


def requested(registry: Registry, features: Sequence[FeatureRef]) -> list[FeatureDef]:
    """Return the definitions of features, each of which may be named once."""
    check_sequences(features, ())
    names = [feature_name(feature) for feature in features]
    if not names:
        raise InvalidInputError("name at least one feature")
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise InvalidInputError(f"feature {twice[0]!r} is named twice; name it once")
    found = [registry.feature(name) for name in names]
    for feature in found:
        feature.check_stored()
    return found
