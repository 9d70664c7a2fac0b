"""Why features have no value: what to look at, for each of the entities that were asked for."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from shlex import quote
from types import NoneType

from headwater.cli.output import counted
from headwater.core.durations import format_duration
from headwater.core.values import FeatureValue
from headwater.declarations.features import FeatureDef
from headwater.store.feature_store import FeatureStore

_MILLISECOND = timedelta(milliseconds=1)


def absent(feature: FeatureDef, values: Mapping[str, FeatureValue]) -> list[str]:
    """The entities that have no value of their own, or a text with a default in it."""
    return [
        entity_id
        for entity_id, value in values.items()
        if value.source in ("missing", "default") or (_has_inputs(feature) and value.as_of is None)
    ]


def _has_inputs(feature: FeatureDef) -> bool:
    return feature.template is not None and bool(feature.template.references)


def recomputed(feature: FeatureDef) -> str:
    """When a feature is recomputed, in words."""
    if feature.triggers:
        return f"on {', '.join(feature.triggers)}"
    if feature.refresh:
        return f"every {format_duration(feature.refresh // _MILLISECOND)}"
    if feature.template:
        return f"from {', '.join(dict.fromkeys(feature.template.references))}, when read"
    return "when read"


async def why_absent(
    store: FeatureStore, feature: FeatureDef, entity_ids: Sequence[str]
) -> list[str]:
    """A sentence for each reason, after the entities that it holds for."""
    if not entity_ids:
        return []
    whose = ", ".join(entity_ids)
    if troubles := [
        part.detail for part in await store.admin.health() if part.needed and not part.ok
    ]:
        return [f"{whose}: {'; '.join(troubles)}"]
    if feature.template:
        return await _of_inputs(store, feature, entity_ids)
    if feature.codec.annotation is NoneType:
        return [
            f"{whose}: {feature.name} is annotated `-> None`: it runs for its effects alone, and "
            "never has a value"
        ]
    waiting = sum(lag.waiting for lag in await store.admin.lag())
    return [f"{whose}: {_waiting(waiting)}{_not_written(feature)}"]


async def _of_inputs(
    store: FeatureStore, feature: FeatureDef, entity_ids: Sequence[str]
) -> list[str]:
    """What a template lacks, or has defaults of; entities of which the same is true together."""
    inputs = list(dict.fromkeys(feature.template.references)) if feature.template else []
    whose: dict[str, list[str]] = {}
    for entity_id, row in zip(
        entity_ids, await store.get_feature_values(inputs, entity_ids), strict=True
    ):
        if missing := [name for name in inputs if row[name].value is None]:
            told = f"needs {', '.join(missing)}, without a value so far"
            told += f"; `headwater features get {missing[0]} {{}}` says why"
        elif defaults := [name for name in inputs if row[name].as_of is None]:
            told = f"has the default of {', '.join(defaults)} in it"
        else:
            continue  # what came in the meantime is there for the next read
        whose.setdefault(told, []).append(entity_id)
    return [
        f"{', '.join(ids)}: {feature.name} {told.format(quote(ids[0]))}"
        for told, ids in whose.items()
    ]


def _waiting(number: int) -> str:
    if not number:
        return ""
    return f"{counted(number, 'event')} still to be handled, as `headwater lag` shows; "


def _not_written(feature: FeatureDef) -> str:
    since = "yet"
    if feature.ttl is not None:
        since = f"within its ttl of {format_duration(feature.ttl // _MILLISECOND)}"
    if feature.triggers:
        return (
            f"nothing has computed {feature.name} {since}; it is computed when a worker handles "
            f"{' or '.join(feature.triggers)}; `headwater dlq list` shows what one could not handle"
        )
    return (
        f"no refresh has written {feature.name} {since}; `headwater serve` and `headwater worker` "
        f"run one {recomputed(feature)}, and if it fails their log says why, as `refresh failed`"
    )
