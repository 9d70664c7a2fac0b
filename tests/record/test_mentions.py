"""Mentions: a value is found in each form that texts give it, and nothing else is."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from headwater.canonical import to_tagged
from headwater.record.mentions import begins, mention, readings
from headwater.record.redact import also_disclosed
from headwater.record.sealing import seal
from verifier.generator.samples import GRAMMAR, sample

SEEN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)

SAY_NOTHING = ("null", "true", "false", "zero", "empty text", "empty array", "empty object")


def found(value: object, text: str) -> bool:
    return any(mention(to_tagged(value)).search(each) for each in readings(text))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["diabetes", "smoker"], "ill: ['diabetes', 'smoker']"),
        (["diabetes", "smoker"], json.dumps(["diabetes", "smoker"], indent=2)),
        (("diabetes",), "('diabetes',)"),
        ({"diabetes", "smoker"}, '["smoker","diabetes"]'),
        ({"diabetes", "smoker"}, "{'smoker', 'diabetes'}"),
        ({"b": True, "a": None}, "{'a': None, 'b': True}"),
        ({"b": True, "a": None}, '{"a":null,"b":true}'),
        ({"b": {"c": [1, 2]}, "a": {3, 4}}, '{"a": [4, 3], "b": {"c": [1, 2]}}'),
        (SEEN, "on 2026-01-15 09:30:00+00:00"),
        (SEEN, 'on ["2026-01-15T09:30:00Z"]'),
        (40, "Spent:\n40\n"),
        (40, json.dumps({"said": "Spent:\n40"})),
        ("😀 Zoë", json.dumps({"name": "😀 Zoë"})),
        (r"C:\new", json.dumps({"folder": r"C:\new"})),
        ("a\nb", "a\nb"),
    ],
)
def test_a_value_is_found_as_a_text_writes_it(value: object, text: str) -> None:
    assert found(value, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["diabetes", "smoker"], "a smoker with diabetes"),
        (["diabetes", "smoker"], '["diabetes"]'),
        ({"diabetes", "smoker"}, '["diabetes","smoker","other"]'),
        ({"visits": 3}, '{"spent":3}'),
        ({"visits": 3}, '{"visits":31}'),
        ([3], "3 of [31]"),
        (date(1981, 5, 4), "1981-05-05"),
        (float("nan"), "null"),
        (b"", "anything"),
        ((), "nothing: []"),
        (set(), "nothing: []"),
    ],
)
def test_what_is_another_value_is_not_found(value: object, text: str) -> None:
    assert not found(value, text)


@pytest.mark.parametrize("what", GRAMMAR)
def test_every_value_of_a_record_is_found_in_another_one(what: str) -> None:
    value = GRAMMAR[what]
    record = seal(sample(inputs={"x": value}, interaction_ref={"y": ["other", value]}))
    found = "/interaction_ref/y" in also_disclosed(record, "/inputs/x")
    assert found is (what not in SAY_NOTHING)


def test_what_was_altered_is_looked_for_as_it_stands() -> None:
    altered: Any = {"$date": "no day"}
    assert any(mention(altered).search(each) for each in readings([altered]))


@pytest.mark.parametrize(
    ("text", "shown", "begun"),
    [
        ('Born "1981-05-04", ill.', "Born", False),
        ('Born "1981-05-04", ill.', 'Born "198', True),
        (json.dumps({"a": '""""""', "born": "1981-05-04"}), '{"a": "\\"\\"\\"\\"', False),
        (json.dumps({"a": '""""""', "born": "1981-05-04"}), json.dumps({"a": '""""""'}), False),
    ],
)
def test_a_value_that_was_cut_is_found_by_its_beginning(text: str, shown: str, begun: bool) -> None:
    assert begins([mention(to_tagged(date(1981, 5, 4)))], text, shown) is begun


def test_a_large_set_is_found_and_missed_without_trying_every_order() -> None:
    members = [str(number) for number in range(1_000)]
    assert found(set(members), json.dumps(members[::-1]))
    assert not found(set(members), json.dumps(members[:-1]) * 5)
