"""Fabra's features file: one feature with a trivial handler, in Fabra's own idiom."""
# mypy: disable-error-code="import-not-found", allow-untyped-decorators

from fabra.core import FeatureStore, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


# Fabra never awaits a handler, so this one cannot read the value it adds to.
@feature(entity=User, trigger="purchase")
def total_spend(user_id: str, payload: dict[str, float]) -> float:
    return payload["amount"]
