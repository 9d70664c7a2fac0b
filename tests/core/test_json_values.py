"""Responses as JSON: special numbers are tagged and do not become null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headwater.core.json_values import plain

NAN = float("nan")
TAGGED = {"$float": "NaN"}


class Filter(msgspec.Struct, frozen=True):
    """An argument of a type that the user declares."""

    least: float
    inner: Filter | None = None


@dataclass
class Window:
    """Another."""

    width: float
    name: str = "w"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (NAN, TAGGED),
        ({NAN}, [TAGGED]),
        (frozenset({NAN}), [TAGGED]),
        ([{"a": {NAN}}], [{"a": [TAGGED]}]),
        ((1, NAN), [1, TAGGED]),
        (Filter(NAN), {"least": TAGGED, "inner": None}),
        (Filter(1.5, Filter(NAN)), {"least": 1.5, "inner": {"least": TAGGED, "inner": None}}),
        (Window(NAN), {"width": TAGGED, "name": "w"}),
        ({1: {NAN}}, {"$map": [[1, {"$set": [TAGGED]}]]}),
        ({"a": 1.5, "b": "text", "c": None}, {"a": 1.5, "b": "text", "c": None}),
    ],
)
def test_values_without_a_json_form_are_tagged_at_any_depth(value: Any, told: Any) -> None:
    assert msgspec.json.decode(msgspec.json.encode(plain(value))) == told


def test_values_with_a_json_form_are_not_changed() -> None:
    value = Filter(1.5)
    assert plain(value) is value


def test_annotations_that_cannot_be_read_are_no_hindrance() -> None:
    class Odd(msgspec.Struct):
        value: OnlyForTheTypeChecker  # type: ignore[name-defined]  # noqa: F821

    assert plain(Odd(NAN)).value == TAGGED
