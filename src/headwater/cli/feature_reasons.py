"""The reasons why entities have no value of a feature, or only a default."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from shlex import quote
from types import NoneType

from headwater.cli.output import pluralize
from headwater.core.durations import format_duration
from headwater.declarations.features import FeatureDef
from headwater.errors import FeatureValueError
from headwater.model.dead_letters import MOST_LETTERS
from headwater.model.declarations import FeatureListing
from headwater.model.values import FeatureValue
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declared_feature

_MILLISECOND = timedelta(milliseconds=1)


def recomputed(feature: FeatureListing) -> str:
    """Return when a feature is recomputed, in words."""
    if feature.triggers:
        return f"on {', '.join(feature.triggers)}"
    if feature.refresh_ms:
        return f"every {format_duration(feature.refresh_ms)}"
    if feature.template:
        return f"from {', '.join(feature.needs)}, when read"
    return "when read"


async def explain_missing(
    store: FeatureStore, feature: FeatureDef, values: Mapping[str, FeatureValue]
) -> list[str]:
    """Return a sentence for each reason why entities have no value, or only a default."""
    inputs = list(dict.fromkeys(feature.template.references)) if feature.template else []
    missing = [
        entity_id
        for entity_id, value in values.items()
        if value.source in ("missing", "default") or (inputs and value.as_of is None)
    ]
    if not missing:
        return []
    failed = [part.detail for part in await store.admin.health() if part.needed and not part.ok]
    if failed:
        reasons = {"; ".join(failed): missing}
    elif feature.template:
        reasons = await _template_reasons(store, feature.name, inputs, missing)
    elif feature.codec.annotation is NoneType:
        reasons = {f"{feature.name} is annotated `-> None`, so it never has a value": missing}
    else:
        waiting = sum(lag.waiting for lag in await store.admin.lag())
        reasons = {}
        for entity_id in missing:
            reason = await _unreadable(store, feature, entity_id) or (
                _not_computed(feature, waiting)
                + (
                    await _failures(store, feature, entity_id)
                    or ("" if waiting else await _past_events(store, feature, entity_id))
                )
            )
            reasons.setdefault(reason, []).append(entity_id)
    return [f"{', '.join(entity_ids)}: {reason}" for reason, entity_ids in reasons.items()]


async def _unreadable(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return why the stored value of an entity cannot be read, which a read of it alone tells."""
    try:
        await store.get_feature_values([feature.name], [entity_id])
    except FeatureValueError as error:
        return str(error)
    return ""


async def _template_reasons(
    store: FeatureStore, name: str, inputs: Sequence[str], entity_ids: Sequence[str]
) -> dict[str, list[str]]:
    """Return the inputs that a template lacks, each reason with its entities."""
    reasons: dict[str, list[str]] = {}
    rows = await store.get_feature_values(inputs, entity_ids)
    for entity_id, row in zip(entity_ids, rows, strict=True):
        if missing := [input_name for input_name in inputs if row[input_name].value is None]:
            reason = (
                f"{name} needs {', '.join(missing)}, with no value; "
                f"`headwater features get {missing[0]} ID` explains why"
            )
        elif defaults := [input_name for input_name in inputs if row[input_name].as_of is None]:
            reason = f"{name} contains the default of {', '.join(defaults)}"
        else:
            continue  # the value has been written since the first read
        reasons.setdefault(reason, []).append(entity_id)
    return reasons


async def _failures(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return the number of dead letters of a feature and an entity, and how to list them."""
    name, text_id = feature.name, feature.entity.text_id(entity_id)
    letters = await store.dead_letters.list(feature=name, entity_id=text_id, limit=MOST_LETTERS)
    command = f"headwater dlq list --feature {name} --entity-id {quote(text_id)}"
    return f"; {pluralize(len(letters), 'dead letter')}: {command}" if letters else ""


async def _past_events(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return how to compute a feature from past events of an entity, if it has some."""
    if feature.ttl is not None:
        return ""  # the value may have expired
    text_id = feature.entity.text_id(entity_id)
    for event_type in feature.triggers:
        if await store.bus.list(event_type=event_type, entity_id=text_id, limit=1):
            return (
                "; there are past events: if they are older than the feature, run "
                f"`headwater backfill {feature.name}`"
            )
    return ""


def _not_computed(feature: FeatureDef, waiting: int) -> str:
    backlog = f"{pluralize(waiting, 'event')} waiting (see `headwater lag`); " if waiting else ""
    period = "yet"
    if feature.ttl is not None:
        period = f"within its ttl of {format_duration(feature.ttl // _MILLISECOND)}"
    if feature.triggers:
        events = " or ".join(feature.triggers)
        return (
            f"{backlog}no worker has computed {feature.name} {period}; a worker computes it on "
            f"{events}"
        )
    when = recomputed(declared_feature(feature))
    return (
        f"{backlog}no refresh has written {feature.name} {period}; `headwater serve` and "
        f"`headwater worker` refresh it {when} and log `refresh failed` on errors"
    )
