"""Features: every option is checked where it is declared, and the function stays unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DuplicateNameError
from headwater.settings.schema import Settings


def of_id(user_id: str) -> int:
    return len(user_id)


def of_event(user_id: str, event: ServiceEvent) -> int:
    return int(event.payload["amount"])


def text_of_id(user_id: str) -> str: ...  # type: ignore[empty-body]


def test_a_sync_function_stays_callable_in_a_plain_unit_test(user: type) -> None:
    @feature(entity=user)
    def name(user_id: str) -> str:
        """What we call a user."""
        return user_id.title()

    assert name("ada") == "Ada"
    assert name.__doc__ == "What we call a user."
    assert inspect.signature(name) == inspect.signature(lambda user_id: None).replace(
        parameters=[
            inspect.Parameter("user_id", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
        ],
        return_annotation="str",
    )


def test_a_handle_holds_the_function_itself(user: type) -> None:
    assert feature(entity=user)(of_id).function is of_id


async def test_a_handler_stays_callable_in_a_plain_unit_test(user: type) -> None:
    @feature(entity=user, trigger="purchase")
    async def total(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    assert await total("u1", ServiceEvent("purchase", "u1", {"amount": 3})) == 3.0


def test_every_option_is_kept(store: FeatureStore, user: type) -> None:
    feature(
        entity=user,
        name="spend",
        trigger=["purchase", "refund"],
        max_retries=5,
        default=0,
        ttl="1.5h",
        order="event_time",
        freshness="caught_up",
        freshness_sla="1d",
    )(of_event)
    kept = runtime_of(store).registry.features["spend"]
    assert kept.triggers == ("purchase", "refund")
    assert (kept.max_retries, kept.default, kept.order) == (5, 0, "event_time")
    assert kept.ttl == timedelta(minutes=90)
    assert (kept.freshness, kept.freshness_sla) == ("caught_up", timedelta(days=1))


def test_durations_are_timedeltas_or_texts(store: FeatureStore, user: type) -> None:
    feature(entity=user, name="one", refresh=timedelta(minutes=5), materialize=True)(of_id)
    feature(entity=user, name="two", refresh="5m")(of_id)
    assert (
        runtime_of(store).registry.features["one"].refresh
        == runtime_of(store).registry.features["two"].refresh
    )


def test_two_features_of_one_name_are_refused_and_both_places_named(user: type) -> None:
    @feature(entity=user)
    def name(user_id: str) -> str:
        return "one"

    first = name.function.__code__.co_firstlineno
    with pytest.raises(DuplicateNameError) as caught:

        @feature(entity=user, name="name")
        def another(user_id: str) -> str:
            return "two"

    problem = str(caught.value)
    assert f"feature 'name' is already declared at {__file__}:{first}; rename one" in problem
    assert problem.startswith(f"{__file__}:")


def test_an_error_names_the_file_and_line_of_the_declaration(user: type) -> None:
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(DeclarationError) as caught:

        @feature(entity=user, ttl="soon")
        def name(user_id: str) -> str:
            return "x"

    assert str(caught.value).startswith(f"{__file__}:{line + 3}: feature 'name': ttl: 'soon'")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"triger": "x"}, "unknown option 'triger'; did you mean 'trigger'?"),
        ({"refesh": "5m"}, "unknown option 'refesh'; did you mean 'refresh'?"),
        ({"colour": "red"}, "unknown option 'colour'; choose one of "),
        ({"refresh": "5 parsecs"}, "refresh: '5 parsecs' is not a duration"),
        ({"refresh": "-5m"}, "refresh: '-5m' is not a duration"),
        ({"refresh": timedelta(0)}, "is not a duration"),
        ({"refresh": timedelta(microseconds=1)}, "is out of range; write 100ms to 365000d"),
        ({"refresh": "365001d"}, "refresh: '365001d' is out of range"),
        ({"ttl": 5}, "ttl: 5 is not a duration"),
        ({"materialize": True}, "materialize needs refresh"),
        ({"sql": "SELECT 1"}, "sql needs refresh"),
        ({"max_retries": 3}, "max_retries needs trigger"),
        ({"order": "event_time"}, "order needs trigger"),
        (
            {"freshness": "caught_up"},
            "freshness needs trigger or refresh: a value that is computed",
        ),
        ({"trigger": "x", "freshness": "new"}, "freshness must be one of age, caught_up"),
        ({"freshness_sla": "5 minutes"}, "freshness_sla: '5 minutes' is not a duration"),
        ({"trigger": "x", "sql": "SELECT 1"}, "sql and trigger cannot be combined"),
        ({"trigger": "x", "refresh": "5m"}, "refresh and trigger cannot be combined"),
        ({"trigger": "x", "template": "x"}, "template and trigger cannot be combined"),
        ({"refresh": "5m", "template": "x"}, "refresh and template cannot be combined"),
        ({"template": "x", "ttl": "5m"}, "ttl does not apply to a template"),
        ({"log": True, "trigger": "x"}, "log and trigger cannot be combined; log is for"),
        ({"log": True, "refresh": "5m"}, "log and refresh cannot be combined"),
        ({"log": True, "template": "x"}, "log and template cannot be combined"),
        ({"log": True, "ttl": "5m"}, "values with a ttl are in history already"),
        (
            {"derived": True, "trigger": "x"},
            "derived and trigger cannot be combined; derived is for",
        ),
        ({"derived": True, "refresh": "5m"}, "derived and refresh cannot be combined"),
        ({"derived": True, "template": "x"}, "derived and template cannot be combined"),
        (
            {"derived": True, "log": True},
            "log and derived cannot be combined; choose whether history keeps the values",
        ),
        ({"default": "none"}, "default: feature 'feature_name' cannot store 'none' as int"),
        ({"name": "not a name"}, "feature name 'not a name' is not an identifier"),
        ({"template": "x"}, "a template is text; annotate it `-> str`"),
    ],
)
def test_options_that_cannot_hold_are_refused(
    user: type, options: dict[str, Any], problem: str
) -> None:
    def feature_name(user_id: str) -> int:
        return 1

    with pytest.raises(DeclarationError) as caught:
        feature(entity=user, **options)(feature_name)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"trigger": []}, "trigger must be an event type or a list of them"),
        ({"trigger": [1]}, "trigger must be an event type or a list of them"),
        ({"trigger": ""}, "trigger must be an event type or a list of them"),
        ({"trigger": "x", "max_retries": -1}, "max_retries must be a whole number, 0 or above"),
        ({"trigger": "x", "max_retries": True}, "max_retries must be a whole number, 0 or above"),
        ({"trigger": "x", "order": "random"}, "order must be one of stream, event_time"),
    ],
)
def test_options_of_a_handler_that_cannot_hold_are_refused(
    user: type, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        feature(entity=user, **options)(of_event)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("function", "options", "wanted"),
    [
        (of_id, {"trigger": "x"}, "must take (user_id, event), but its function takes (user_id)"),
        (of_event, {}, "must take (user_id)"),
        (of_event, {"refresh": "5m"}, "must take (user_id)"),
        (lambda: 1, {"name": "nothing"}, "must take (user_id)"),
        (lambda *, user_id: 1, {"name": "keyword"}, "but its function takes (*, user_id)"),
    ],
)
def test_a_function_that_cannot_be_called_as_it_will_be_is_refused(
    user: type, function: Callable[..., int], options: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        feature(entity=user, **options)(function)
    assert wanted in str(caught.value)


def test_a_feature_of_a_class_without_entity_is_refused() -> None:
    class Stranger:
        stranger_id: str

    with pytest.raises(DeclarationError, match=r"decorate its class with @entity\(store\) first"):
        feature(entity=Stranger)(of_id)


@pytest.mark.parametrize("arguments", [(), (of_id,)], ids=["no arguments", "no parentheses"])
@pytest.mark.parametrize("on_store", [True, False])
def test_a_feature_without_its_entity_is_refused_with_file_and_line(
    store: FeatureStore, arguments: tuple[Any, ...], on_store: bool
) -> None:
    decorator = store.feature if on_store else feature
    with pytest.raises(DeclarationError, match=r"write @feature\(entity=User\)") as caught:
        decorator(*arguments)
    assert str(caught.value).startswith(f"{__file__}:")


def test_only_a_handler_may_return_nothing(user: type) -> None:
    def nothing(user_id: str) -> None:
        return None

    with pytest.raises(DeclarationError, match="only features with trigger= may return nothing"):
        feature(entity=user)(nothing)


def test_an_annotation_that_cannot_be_resolved_is_refused(user: type) -> None:
    def name(user_id: str, event: ServiceEvent) -> Unheard:  # type: ignore[name-defined]  # noqa: F821
        ...

    def visits(user_id: str, event: Unheard) -> int:  # type: ignore[name-defined]  # noqa: F821
        return 1

    for function in (name, visits):
        with pytest.raises(DeclarationError, match="its annotations cannot be used: name 'Unh"):
            feature(entity=user, trigger="visit")(function)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{user.name}", "without attributes or indexes"),
        ("{items[0]}", "without attributes or indexes"),
        ("{total:>9999}", "its width is above 1000"),
        ("{total!r}", "without attributes or indexes"),
        ("{}", "is not a feature's name"),
        ("{__class__.__mro__}", "without attributes or indexes"),
        ("open {", "lone '{'"),
        ("close }", "lone '}'"),
    ],
)
def test_a_template_is_plain_names_in_braces_and_nothing_else(
    user: type, template: str, problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        feature(entity=user, template=template)(text_of_id)
    assert problem in str(caught.value)


def test_a_refused_declaration_leaves_nothing_behind(store: FeatureStore, user: type) -> None:
    with pytest.raises(DeclarationError):
        feature(entity=user, ttl="soon")(of_id)
    assert runtime_of(store).registry.features == {}
    feature(entity=user, ttl="5m")(of_id)
    assert list(runtime_of(store).registry.features) == ["of_id"]


def test_declaring_runs_nothing_and_opens_nothing(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User)
    def never(user_id: str) -> int:
        raise AssertionError("declared, not called")

    assert list(runtime_of(store).registry.features) == ["never"]


def test_a_source_is_declared_once_under_a_name_that_is_free(store: FeatureStore) -> None:
    store.source("orders", "orders.parquet")
    store.source("orders", "orders.parquet")
    with pytest.raises(DeclarationError, match=r"already declared as 'orders\.parquet'"):
        store.source("orders", "other.parquet")
    with pytest.raises(DeclarationError, match="not a plain identifier"):
        store.source("my orders", "orders.parquet")
    with pytest.raises(DeclarationError, match="is built in"):
        store.source("events", "events.parquet")


def test_a_source_in_the_settings_replaces_the_one_in_code(tmp_path: Path) -> None:
    settings = Settings(sources={"orders": "/srv/orders-*.parquet"})
    store = FeatureStore(settings=settings, home=tmp_path)
    store.source("orders", "orders.parquet")
    store.source("refunds", "refunds.csv")
    expected = {"orders": "/srv/orders-*.parquet", "refunds": "refunds.csv"}
    assert runtime_of(store).registry.sources == expected
