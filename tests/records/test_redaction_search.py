"""Redaction search: equal values and plain substrings are found, other spellings are not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from time import thread_time
from typing import Any

import msgspec
import pytest

from headwater.records.redaction import also_disclosed
from headwater.records.sealing import seal
from verifier.generator.samples import GRAMMAR, sample

SEEN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)

TRIVIAL = {
    *("null", "true", "false", "zero", "float that is an integer"),
    *("empty text", "empty array", "empty object"),
}


def found(value: object, other: object) -> bool:
    """Return True if the search for one value finds another one."""
    record = seal(sample(inputs={"x": value}, interaction_ref={"y": other}, items=()))
    return "/interaction_ref" in also_disclosed(record, "/inputs/x")


@pytest.mark.parametrize("what", GRAMMAR)
def test_an_equal_value_is_found_by_itself_and_inside_of_another(what: str) -> None:
    value = GRAMMAR[what]
    assert found(value, value) is (what not in TRIVIAL)
    assert found(value, {"a": ["other", value]}) is (what not in TRIVIAL)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Zoë", "Dear Zoë,"),
        ("a\nb", "a\nb"),
        (SEEN, "on 2026-01-15T09:30:00+00:00."),
        (date(1981, 5, 4), "born 1981-05-04"),
        (["diabetes", "smoker"], 'ill: ["diabetes","smoker"]'),
        ({"b": True, "a": None}, 'said {"b":true,"a":null}.'),
        (40, "Spent:\n40\n"),
        (8213, "weighs 8213kg."),
        (400, "[39,400]"),
        (12.5, "$12.5M"),
        (Decimal("77.10"), "77.10EUR"),
    ],
)
def test_a_value_is_found_in_a_text_as_a_template_writes_it(value: object, text: str) -> None:
    assert found(value, text)
    assert found(value, {"said": [text]})


def test_a_text_is_found_in_keys_and_in_parts_that_are_written_as_text() -> None:
    assert found("Zoë", {"Zoë": 5})
    assert found("1981-05", date(1981, 5, 4))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('Zoë "Z"', json.dumps({"name": 'Zoë "Z"'})),
        (date(1981, 5, 4), "on 4 May 1981"),
        (12.0, "12 kg"),
        (40, "in 1940 or 401"),
        ("Zoë", "ZOË"),
        (["diabetes", "smoker"], "a SMOKER"),
        (["an", 7, True, None, {"b": "c"}], "an example of 7 bananas: c"),
        ({"diabetes": "Zoë Müller"}, "diabetes"),
    ],
)
def test_another_spelling_is_not_found(value: object, text: str) -> None:
    assert not found(value, text)


@pytest.mark.parametrize(
    "value",
    [
        ["diabetes", "smoker"],
        ("unlike", "smoker"),
        {"smoker", "unlike"},
        frozenset({"smoker"}),
        {"illness": {"habits": [["smoker"]]}},
        {7: "smoker"},
        [8213],
        [date(1981, 5, 4)],
        {"price": Decimal("77.10")},
    ],
)
def test_of_a_list_or_a_dict_each_leaf_is_found(value: object) -> None:
    text = "a smoker, born on 1981-05-04, with 8213 visits for 77.10 each"
    assert found(value, text)
    assert found(value, {"said": [text]})


def test_a_value_that_was_altered_is_found_where_it_is_equal() -> None:
    record = seal(sample(inputs={"x": "1"}, interaction_ref={"y": "2"}, items=()))
    altered: Any = {"$date": "not a date"}
    disclosures = tuple(
        msgspec.structs.replace(item, value=altered)
        if item.pointer in ("/inputs/x", "/interaction_ref")
        else item
        for item in record.disclosures
    )
    record = msgspec.structs.replace(record, disclosures=disclosures)
    assert also_disclosed(record, "/inputs/x") == ["/interaction_ref"]


def test_the_search_takes_time_that_grows_with_the_text() -> None:
    def spent(length: int) -> float:
        started = thread_time()
        assert not found(88, "8" * length)
        assert not found("a*(b" * (length // 4), "a*(b" * (length // 4 - 1))
        return thread_time() - started

    short = min(spent(20_000) for _ in range(3))
    assert spent(200_000) < 40 * max(short, 0.02)
