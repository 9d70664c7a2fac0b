"""Write a feature's value from outside of its function: ``set_feature``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headwater.core.clock import to_micros
from headwater.declarations.features import FeatureDef
from headwater.errors import ErasedEntityError, InvalidInputError
from headwater.features.call_scope import current_scope
from headwater.features.cells import make_cell, make_change
from headwater.model.values import OUT_OF_RANGE, Cell, has_supported_year
from headwater.store.runtime import Runtime


async def set_value(
    runtime: Runtime,
    feature: FeatureDef,
    entity_id: str | int,
    value: object,
    as_of: datetime | None,
) -> None:
    """Write a value; inside a handler as part of the handler's transaction."""
    check_stored(feature)
    feature.check_stored()
    runtime.registry.check_writable(feature)
    text_id = feature.entity.text_id(entity_id)
    scope = current_scope()
    if scope.transaction is not None:
        if as_of is not None:
            raise InvalidInputError("inside a handler, as_of is the event's and cannot be set")
        for version in _versions(runtime, feature, scope.variant):
            await scope.transaction.set(version, text_id, value)
        return
    moment = None if as_of is None else _checked_micros(runtime, as_of)
    engine = await runtime.open()
    await engine.reader.check(scope)
    online = engine.backends.online
    (cells,) = await online.get(feature.entity.name, [text_id])
    changes = []
    for version in _versions(runtime, feature, None):
        stored = cells.get(version.series)
        at, written_at = _after_stored(stored, moment, runtime.clock.micros())
        cell = make_cell(version, value, at, written_at)
        changes.append(make_change(version, text_id, cell, "set"))
    if await online.put(changes):
        raise ErasedEntityError(feature.entity.name, text_id)


def _versions(
    runtime: Runtime, feature: FeatureDef, variant: FeatureDef | None
) -> Sequence[FeatureDef]:
    """Return the versions that a value counts for: all that are kept fresh, or the handler's."""
    if variant is not None and variant.name == feature.name:
        return (variant,)
    return runtime.registry.versions(feature.name)


def trigger_of(feature: FeatureDef, payload: object, event_type: str | None) -> str | None:
    """Return the type of the event that runs a feature's function; None if it takes no event.

    Raise InvalidInputError if there is no function, or if the event does not fit it.
    """
    triggers, name = feature.triggers, feature.name
    if not triggers:
        if payload is not None or event_type is not None:
            raise InvalidInputError(f"feature {name!r} has no trigger; test it without an event")
        if feature.mode == "stored":
            raise InvalidInputError(
                f"feature {name!r} has no function: other handlers and set_feature write it"
            )
        return None
    if event_type is None and len(triggers) > 1:
        raise InvalidInputError(
            f"feature {name!r} is triggered by {', '.join(triggers)}; choose one of these types "
            "with event_type or --type"
        )
    if event_type is not None and event_type not in triggers:
        raise InvalidInputError(
            f"feature {name!r} is not triggered by {event_type!r}, but by {', '.join(triggers)}"
        )
    if payload is None:
        raise InvalidInputError(
            f"feature {name!r} is triggered by {event_type or triggers[0]}; give an event: "
            "its payload, or --event or --event-id"
        )
    return event_type or triggers[0]


def check_stored(feature: FeatureDef) -> None:
    """Raise InvalidInputError if values of a feature are not stored, or are contributions."""
    if feature.windows is not None or feature.window is not None:
        family = feature.name if feature.window is None else feature.window.family
        raise InvalidInputError(
            f"feature {feature.name!r} is made of what events contribute to {family!r} and cannot "
            "be set; publish an event, or add past contributions with `headwater history import`"
        )
    if not feature.kept:
        how, remedy = (
            ("composed of other features", "set those")
            if feature.template
            else ("computed", "declare stored=True, a ttl, a trigger or a refresh")
        )
        raise InvalidInputError(
            f"feature {feature.name!r} is {how} at every read and cannot be set; {remedy}"
        )


def _after_stored(stored: Cell | None, as_of: int | None, now: int) -> tuple[int, int]:
    """Return ``as_of`` and ``written_at`` of a write that follows the stored value.

    The clock of the process that wrote the stored value may be ahead of this one's. Without an
    ``as_of`` of the caller, the new value is about the later of both times; of two values of one
    time, the one written last counts.
    """
    if as_of is None:
        as_of = max(now, stored.as_of if stored else now)
    if stored is not None and stored.as_of == as_of:
        now = max(now, stored.written_at + 1)
    return as_of, now


def _checked_micros(runtime: Runtime, as_of: datetime) -> int:
    if as_of.tzinfo is None:
        raise InvalidInputError("as_of needs a time zone, for example datetime.now(UTC)")
    if not has_supported_year(as_of):
        raise InvalidInputError(f"as_of {as_of.isoformat()} is {OUT_OF_RANGE}")
    if as_of > runtime.clock.now() + runtime.settings.ingest.future_tolerance:
        raise InvalidInputError(f"as_of {as_of.isoformat()} is in the future")
    return to_micros(as_of)
