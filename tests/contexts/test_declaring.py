"""Contexts and retrievers: every option is checked where it is declared, with file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from headwater import Chunk, ContextItem, FeatureStore, context, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, DuplicateNameError, DurationError, InvalidInputError
from headwater.settings.schema import Settings

Decorator = Callable[..., Any]


@pytest.fixture
def store() -> FeatureStore:
    """Declaring opens nothing, so one environment is enough."""
    return FeatureStore(settings=Settings())


def text(user_id: str) -> str:
    """Says who it is."""
    return user_id


def test_every_option_of_a_context_is_kept(store: FeatureStore) -> None:
    declared = context(
        store,
        max_tokens=100,
        freshness_sla="5m",
        freshness_strict=True,
        model="gpt-4o",
        name="support",
        version="2",
        separator=" | ",
        on_overflow="flag",
        backfill=True,
        timeout="2s",
        allow_looser="max_tokens",
    )(text).definition
    assert runtime_of(store).registry.context("support") is declared
    assert (declared.name, declared.version, declared.model) == ("support", "2", "gpt-4o")
    assert (declared.max_tokens, declared.separator) == (100, " | ")
    assert (declared.freshness_sla, declared.freshness_strict) == (timedelta(minutes=5), True)
    assert (declared.on_overflow, declared.backfill) == ("flag", True)
    assert declared.timeout == timedelta(seconds=2)
    assert declared.allow_looser == ("max_tokens",)
    assert declared.description == "Says who it is."
    assert declared.location == (__file__, text.__code__.co_firstlineno)
    assert declared.definition is not None
    assert declared.definition.startswith("sha256:")


def test_a_context_needs_no_option(store: FeatureStore) -> None:
    declared = context(store)(text).definition
    assert (declared.name, declared.separator, declared.on_overflow) == ("text", "\n\n", "error")
    assert (declared.max_tokens, declared.model, declared.version) == (None, None, None)
    assert (declared.freshness_sla, declared.freshness_strict) == (None, False)
    assert (declared.backfill, declared.timeout) == (False, None)


def test_every_option_of_a_retriever_is_kept(store: FeatureStore) -> None:
    declared = retriever(
        store, cache_ttl=timedelta(seconds=3), name="search", top_k=5, timeout="1m"
    )(text)
    definition = declared.definition
    assert runtime_of(store).registry.retrievers == {"search": definition}
    assert (definition.cache_ttl, definition.top_k) == (timedelta(seconds=3), 5)
    assert definition.timeout == timedelta(minutes=1)
    plain = retriever(store)(text).definition
    assert (plain.name, plain.cache_ttl, plain.top_k, plain.timeout) == ("text", None, None, None)


@pytest.mark.parametrize("decorator", [context, retriever])
def test_a_declared_object_keeps_the_attributes_of_its_function(
    store: FeatureStore, decorator: Decorator
) -> None:
    declared = decorator(store)(text)
    assert (declared.__name__, declared.__doc__) == ("text", "Says who it is.")
    assert inspect.signature(declared) == inspect.signature(text)
    assert declared.function("u1") == "u1"


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"max_tokens": 0}, "max_tokens must be a whole number above zero"),
        ({"max_tokens": 2.5}, "max_tokens must be a whole number above zero"),
        ({"max_tokens": True}, "max_tokens must be a whole number above zero"),
        ({"max_tokens": 2**53}, "max_tokens must be a whole number above zero and below 2^53"),
        ({"freshness_sla": "999999999d"}, "freshness_sla: '999999999d' is longer than a record"),
        ({"freshness_sla": "5 minutes"}, "freshness_sla: '5 minutes' is not a duration"),
        ({"freshness_sla": timedelta(microseconds=5)}, "is not a duration"),
        ({"timeout": 5}, "timeout: 5 is not a duration"),
        ({"freshness_strict": "yes"}, "freshness_strict must be True or False"),
        ({"backfill": 1}, "backfill must be True or False"),
        ({"model": 4}, "model must be a text"),
        ({"model": "\ud83d"}, "model must be a text that UTF-8 can hold"),
        ({"version": 2}, "version must be a text"),
        ({"version": "\ud83d"}, "version must be a text that UTF-8 can hold"),
        ({"separator": None}, "separator must be a text"),
        ({"separator": "\ud83d"}, "separator must be a text that UTF-8 can hold"),
        ({"freshness_strict": True}, "freshness_strict needs freshness_sla: the age from which"),
        ({"allow_looser": "model"}, "allow_looser must be 'max_tokens', 'freshness_sla', or a"),
        ({"on_overflow": "drop"}, "on_overflow must be 'error' or 'flag'"),
        ({"max_token": 5}, "unknown option 'max_token'; did you mean 'max_tokens'?"),
        ({"name": "two words"}, "name 'two words' is not an identifier"),
        ({"name": ""}, "name '' is not an identifier"),
    ],
)
def test_a_wrong_option_of_a_context_is_refused_with_file_and_line(
    store: FeatureStore, option: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        context(store, **option)(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:{text.__code__.co_firstlineno}: context ")


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"top_k": 0}, "top_k must be a whole number above zero"),
        ({"top_k": True}, "top_k must be a whole number above zero"),
        ({"cache_ttl": 5}, "cache_ttl: 5 is not a duration"),
        ({"timeout": "0s"}, "timeout: '0s' is not a duration"),
        ({"cache": "5m"}, "unknown option 'cache'; did you mean 'cache_ttl'?"),
        ({"name": "a-b"}, "name 'a-b' is not an identifier"),
    ],
)
def test_a_wrong_option_of_a_retriever_is_refused_with_file_and_line(
    store: FeatureStore, option: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        retriever(store, **option)(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:{text.__code__.co_firstlineno}: retriever ")


def test_the_largest_that_a_record_holds_is_allowed(store: FeatureStore) -> None:
    longest = timedelta(milliseconds=2**53 - 1)
    declared = context(store, max_tokens=2**53 - 1, freshness_sla=longest)(text)
    assert declared.definition.max_tokens == 2**53 - 1
    assert declared.options(freshness_sla=longest).definition.freshness_sla == longest
    for most in (2**53 - 1, 1 - 2**53):
        assert ContextItem("text", priority=most).priority == most


class Colour(Enum):
    """A class that records cannot restore."""

    RED = "red"


async def of_a_colour(user_id: str, colour: Colour) -> str:
    return user_id


async def of_colours(colours: dict[str, list[Colour]] | None = None) -> str:
    return str(colours)


async def of_a_time(at: time) -> str:
    return str(at)


async def with_a_default(colour=Colour.RED) -> str:  # type: ignore[no-untyped-def]
    return str(colour)


async def with_an_object(client: object = object()) -> str:
    return str(client)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (of_a_colour, "parameter 'colour' is a Colour, which records do not support; take the"),
        (of_colours, "parameter 'colours' is a Colour, which records do not support"),
        (of_a_time, "parameter 'at' is a time, which records do not support"),
        (with_a_default, "the default of 'colour': Colour is an Enum, which records do not"),
        (
            with_an_object,
            "the default of 'client': records do not support the type builtins.object",
        ),
    ],
)
def test_a_parameter_that_every_call_would_refuse_is_refused_at_once(
    store: FeatureStore, function: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        context(store)(function)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: context ")


def test_annotations_for_type_checkers_only_are_accepted(store: FeatureStore) -> None:
    async def made(user: OnlyForTheTypeChecker, at: date | None = None) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(user)

    assert context(store)(made).definition.name == "made"


@pytest.mark.parametrize("decorator", [context, retriever])
def test_the_repr_of_a_declared_object_has_its_name_and_place(
    store: FeatureStore, decorator: Decorator
) -> None:
    line = text.__code__.co_firstlineno
    declared = decorator(store, name="desk")(text)
    assert repr(declared) == f"<{decorator.__name__} 'desk' at {__file__}:{line}>"


@pytest.mark.parametrize("decorator", [context, retriever])
def test_a_name_is_declared_once(store: FeatureStore, decorator: Decorator) -> None:
    decorator(store, name="same")(text)
    with pytest.raises(DuplicateNameError, match="rename one"):
        decorator(store, name="same")(text)


@pytest.mark.parametrize("decorator", [context, retriever])
def test_a_decorator_without_its_store_says_so(decorator: Decorator) -> None:
    with pytest.raises(DeclarationError, match=r"@\w+ needs the store; write @\w+\(store\)"):
        decorator(text)


@pytest.mark.parametrize("kind", ["context", "retriever"])
def test_a_decorator_of_the_store_without_parentheses_is_refused(
    store: FeatureStore, kind: str
) -> None:
    decorator = {"context": store.context, "retriever": store.retriever}[kind]
    with pytest.raises(DeclarationError, match=rf"write @store\.{kind}\(\)") as caught:
        decorator(text)  # type: ignore[operator]
    assert str(caught.value).startswith(f"{__file__}:")


@pytest.mark.parametrize("decorator", [context, retriever])
def test_only_functions_are_declared(store: FeatureStore, decorator: Decorator) -> None:
    with pytest.raises(DeclarationError, match="decorate a function"):
        decorator(store)(Path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", None),
        ("content", b"bytes"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", 2**53),
        ("priority", -(2**53)),
        ("required", 1),
        ("truncate", "yes"),
        ("section", 7),
    ],
)
def test_a_wrong_field_of_an_item_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"{field} of a ContextItem is"):
        ContextItem(**{"content": "text", field: value})


def test_a_chunk_has_text_and_perhaps_an_id_and_a_score() -> None:
    assert Chunk(text="t", score=1).score == 1.0
    with pytest.raises(InvalidInputError, match="text of a Chunk is plain text, not NoneType"):
        Chunk(text=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="id of a Chunk is plain text or None, not int"):
        Chunk(text="t", id=7)  # type: ignore[arg-type]
    assert Chunk(text="t", id="ä").id == "ä"
    with pytest.raises(InvalidInputError, match="a lone surrogate"):
        Chunk(text="t", id="\ud83d")


def test_wrong_overrides_are_refused(store: FeatureStore) -> None:
    declared = context(store)(text)
    for wrong in (0, -1, 1.5, "100", True):
        with pytest.raises(InvalidInputError, match="pass a whole number above zero and below"):
            declared.options(max_tokens=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="below 2\\^53"):
        declared.options(max_tokens=2**53)
    with pytest.raises(DurationError):
        declared.options(freshness_sla="soon")
    with pytest.raises(InvalidInputError, match="longer than a record can hold"):
        declared.options(freshness_sla="999999999d")
    for other in ("call-1", ["call-1"], {1: "call"}, {"$call": 1}):
        with pytest.raises(InvalidInputError, match="interaction_ref is a mapping such as"):
            declared.options(interaction_ref=other)  # type: ignore[arg-type]
