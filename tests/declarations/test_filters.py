"""Filters: how users write them, which errors they get, and which metadata meets them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.declarations.filters import matches, parse_filters
from headwater.errors import InvalidInputError
from headwater.ports import AllOf, AnyOf, Compare, Not

PAGE = {"lang": "en", "year": 2024, "price": 9.5, "tags": ["a", 1], "draft": False, "note": None}


def met(filters: dict[str, Any], metadata: dict[str, Any] = PAGE) -> bool:
    condition = parse_filters(filters)
    assert condition is not None
    return matches(condition, metadata)


def test_no_filter_is_no_condition() -> None:
    assert parse_filters(None) is None
    assert parse_filters({}) is None


def test_a_filter_becomes_conditions() -> None:
    assert parse_filters({"lang": "en"}) == Compare("lang", "eq", "en")
    assert parse_filters({"lang": "en", "year": {"$gte": 2020, "$lt": 2030}}) == AllOf(
        [
            Compare("lang", "eq", "en"),
            AllOf([Compare("year", "gte", 2020), Compare("year", "lt", 2030)]),
        ]
    )
    assert parse_filters({"lang": {"$ne": "en"}}) == Not(Compare("lang", "eq", "en"))
    assert parse_filters({"tag": {"$nin": ("a", "b")}}) == Not(Compare("tag", "in", ["a", "b"]))
    assert parse_filters({"$or": [{"a": 1}, {"b": 2}]}) == AnyOf(
        [Compare("a", "eq", 1), Compare("b", "eq", 2)]
    )
    assert parse_filters({"$not": {"a": 1, "b": 2}}) == Not(
        AllOf([Compare("a", "eq", 1), Compare("b", "eq", 2)])
    )
    assert parse_filters({"$and": [{"a": 1}]}) == Compare("a", "eq", 1)
    assert parse_filters({"year": {"$not": {"$gt": 5}}}) == Not(Compare("year", "gt", 5))


@pytest.mark.parametrize(
    "filters",
    [
        {"lang": "en"},
        {"lang": {"$in": ["de", "en"]}},
        {"lang": {"$ne": "de"}},
        {"missing": {"$ne": "de"}},
        {"missing": {"$nin": ["de"]}},
        {"year": 2024.0},
        {"year": {"$gte": 2024, "$lte": 2024.5}},
        {"price": {"$gt": 9, "$lt": 10}},
        {"lang": {"$gt": "de", "$lt": "f"}},
        {"tags": "a"},
        {"tags": {"$in": [1]}},
        {"draft": False},
        {"note": None},
        {"$or": [{"lang": "de"}, {"year": 2024}]},
        {"$and": []},
        {"$not": {"lang": "de"}},
        {"lang": {"$nin": []}},
    ],
)
def test_metadata_meets_a_filter(filters: dict[str, Any]) -> None:
    assert met(filters)


@pytest.mark.parametrize(
    "filters",
    [
        {"lang": "EN"},
        {"missing": None},
        {"missing": {"$lt": 5}},
        {"year": "2024"},
        {"year": {"$gt": "2000"}},
        {"lang": {"$gt": 5}},
        {"draft": 0},
        {"tags": True},
        {"draft": {"$in": [0, ""]}},
        {"draft": {"$lt": 1}},
        {"tags": {"$gt": 0}},
        {"lang": {"$in": []}},
        {"$or": []},
        {"$not": {"lang": "en"}},
        {"lang": "en", "year": 1999},
    ],
)
def test_metadata_does_not_meet_a_filter(filters: dict[str, Any]) -> None:
    assert not met(filters)


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ("lang=en", "filters must be a mapping such as {'lang': 'en'}, not 'lang=en'"),
        ({"year": {"$gtt": 5}}, "unknown operator '$gtt' in the filter of 'year'; did you mean"),
        ({"author": {"name": "Ada"}}, "unknown operator 'name' in the filter of 'author'"),
        ({"$xor": []}, "unknown operator '$xor' in filters; did you mean '$or'? Write operators"),
        ({"$gte": 5}, "choose one of $and, $or, $not. Write operators such as '$gte' inside"),
        (
            {"tags": {"$contains": "a"}},
            "choose one of $eq, $ne, $in, $nin, $gt, $gte, $lt, $lte, $not",
        ),
        (
            {"year": {"gte": 5}},
            "unknown operator 'gte' in the filter of 'year'; did you mean '$gte'",
        ),
        ({"$gte": 5}, "Write operators such as '$gte' inside of a field"),
        ({"$or": {"a": 1}}, "$or takes a list of filters"),
        ({"$or": ["a"]}, "an element of $or must be a mapping"),
        ({"$not": [1]}, "$not must be a mapping"),
        ({"tag": ["a", "b"]}, "write {'$in': [...]} for one of several values"),
        ({"tag": {"$in": "a"}}, "$in in the filter of 'tag' takes a list of values, not 'a'"),
        ({"tag": {"$in": [["a"]]}}, "the filter of 'tag' cannot compare with ['a']"),
        ({"n": {"$in": list(range(1001))}}, "has 1001 values, more than the maximum of 1000"),
        ({"n": {"$gt": True}}, "compares with a number or a text, not True"),
        ({"n": {"$gt": None}}, "compares with a number or a text, not None"),
        ({"n": float("nan")}, "the filter of 'n' cannot compare with nan"),
        ({"n": 2**63}, "the filter of 'n' cannot compare with"),
        ({"n": "\ud800"}, "lone surrogate"),
        ({5: "a"}, "the name of a field of the metadata is a text, not 5"),
        ({"n": {"$not": 5}}, "$not in the filter of 'n' takes operators"),
    ],
)
def test_an_invalid_filter_is_refused_with_its_remedy(filters: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_filters(filters)
    assert problem in str(refused.value)


def test_deeply_nested_filters_are_refused() -> None:
    filters: dict[str, Any] = {"a": 1}
    for _ in range(5_000):
        filters = {"$not": filters}
    with pytest.raises(InvalidInputError, match="more than 16 levels deep"):
        parse_filters(filters)
    operators: dict[str, Any] = {"$gt": 1}
    for _ in range(5_000):
        operators = {"$not": operators}
    with pytest.raises(InvalidInputError, match="takes operators"):
        parse_filters({"a": operators})
