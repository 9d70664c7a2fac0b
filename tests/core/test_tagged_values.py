"""The closed grammar: every value comes back as it was, or is refused with its place."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict, defaultdict
from datetime import datetime, time
from enum import Enum, IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from headwater.core.canonical_json import DEEPEST, canonical, from_tagged, parse, to_tagged
from headwater.errors import RecordValueError
from tests.records.strategies import VALUES
from verifier.generator.samples import GRAMMAR


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Point(msgspec.Struct):
    x: int
    y: float


@dataclasses.dataclass
class Place:
    name: str
    at: Point


def same(one: Any, two: Any) -> bool:
    """Equal in type as well, and NaN is NaN."""
    return type(one) is type(two) and canonical(to_tagged(one)) == canonical(to_tagged(two))


class Key(msgspec.Struct, frozen=True):
    x: int


@pytest.mark.parametrize("value", [{Key(1)}, frozenset({Key(1)}), {Key(1): 2}, {(1, Key(2))}])
def test_unhashable_members_and_keys_are_refused(value: Any) -> None:
    with pytest.raises(RecordValueError, match=r"^/x: a \w+ is not hashable when read"):
        to_tagged(value, "/x")


@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:
    tagged = parse(canonical(to_tagged(value)))
    assert same(from_tagged(tagged), value)


@pytest.mark.parametrize("value", GRAMMAR.values(), ids=GRAMMAR)
def test_every_published_value_comes_back(value: Any) -> None:
    back = from_tagged(parse(canonical(to_tagged(value))))
    assert same(back, value)
    if not (isinstance(value, float) and math.isnan(value)):
        assert back == value


def test_the_kinds_of_numbers_stay_apart() -> None:
    texts = {canonical(to_tagged(value)) for value in (1, 1.0, True, "1")}
    assert len(texts) == 4


def test_structs_and_dataclasses_are_objects_of_their_fields() -> None:
    tagged = to_tagged(Place("home", Point(1, 2.5)))
    assert tagged == {"name": "home", "at": {"x": 1, "y": {"$float": "2.5"}}}
    assert from_tagged(tagged) == {"name": "home", "at": {"x": 1, "y": 2.5}}


def test_the_order_of_sets_and_dicts_leaves_no_trace() -> None:
    one, two = {"a": {1: 2, 3: 4}}, {"a": {3: 4, 1: 2}}
    assert canonical(to_tagged(one)) == canonical(to_tagged(two))
    assert to_tagged({"b", "a"}) == {"$set": ["a", "b"]}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "do not support the type builtins.object"),
        (1j, "complex"),
        (time(12), "datetime.time"),
        (range(3), "range"),
        (bytearray(b"x"), "bytearray"),
        (Colour.RED, r"pass its \.value"),
        (Level.LOW, r"pass its \.value"),
        (np.float64(1.5), "plain float"),
        (np.array([1]), "numpy.ndarray"),
        (OrderedDict(a=1), "plain dict"),
        (defaultdict(int), "plain dict"),
        (datetime(2026, 1, 1), "without a time zone"),  # noqa: DTZ001
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (10**5000, "too long"),
        (Point, "do not support the type"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_an_exact_form_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(RecordValueError, match=problem):
        to_tagged(value)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (object(), "/inputs/x"),
        ([1, object()], "/inputs/x/1"),
        ({"a/b": {"c": (1, {"~": object()})}}, "/inputs/x/a~1b/c/1/~0"),
        ({1: object()}, "/inputs/x/1"),
        (Place("home", object()), "/inputs/x/at"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_names_the_place(value: Any, pointer: str) -> None:
    with pytest.raises(RecordValueError) as refused:
        to_tagged(value, "/inputs/x")
    assert refused.value.pointer == pointer
    assert str(refused.value).startswith(f"{pointer}: ")


def test_deep_and_recursive_values_are_refused() -> None:
    deep: Any = "bottom"
    for _ in range(DEEPEST):
        deep = [deep]
    assert from_tagged(to_tagged(deep)) == deep
    with pytest.raises(RecordValueError, match="64 levels"):
        to_tagged([deep])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecordValueError, match="contains itself"):
        to_tagged(endless)


@pytest.mark.parametrize(
    "tagged",
    [
        {"$unknown": 1},
        {"$int": "5"},
        {"$int": "007"},
        {"$int": 2**60},
        {"$float": "1.50"},
        {"$float": "nan"},
        {"$float": []},
        {"$decimal": "one"},
        {"$datetime": "2026-01-01T00:00:00Z"},
        {"$datetime": "2026-01-01T00:00:00"},
        {"$date": "2026-1-1"},
        {"$date": 5},
        {"$duration_us": "1.5"},
        {"$duration_us": "9" * 40},
        {"$bytes": "YQ=="},
        {"$bytes": "Y"},
        {"$uuid": "12345678123456781234567812345678"},
        {"$uuid": 5},
        {"$map": [["a", 1]]},
        {"$map": [[2, 1], [1, 1]]},
        {"$map": [[1, 1], [1, 2]]},
        {"$map": 5},
        {"$map": [[[], 1]]},
        {"$set": [2, 1]},
        {"$set": [1, 1]},
        {"$set": [[]]},
        {"$tuple": 5},
        {"a": 1, "$b": 2},
        1.5,
        2**53,
        {"a": [2**60]},
    ],
    ids=repr,
)
def test_tagged_values_that_the_encoder_never_writes_are_refused(tagged: Any) -> None:
    with pytest.raises(RecordValueError, match=r"^/x: it is not a valid CRS-001 value"):
        from_tagged(tagged, "/x")
