"""Mentions: a value is found in each form that texts give it, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from time import thread_time
from typing import Any
from uuid import UUID

import pytest

from headwater.core.canonical_json import to_tagged
from headwater.records.redaction import also_disclosed
from headwater.records.redaction_search import begins, mention, readings
from headwater.records.sealing import seal
from verifier.generator.samples import GRAMMAR, sample

SEEN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)

SAY_NOTHING = {
    *("null", "true", "false", "zero", "negative zero", "float that is an integer"),
    *("empty text", "empty array", "empty object"),
}


@dataclass
class Address:
    street: str
    number: int
    since: list[date]


HOME = Address("Rue des Lilas", 4, [date(2020, 1, 2)])


def found(value: object, text: str) -> bool:
    return any(mention(to_tagged(value)).find(each) >= 0 for each in readings(text))


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
        (8213, "weighs 8213kg."),
        (82, "EUR82"),
        (82, "82ms"),
        (82, "_82_"),
        (82, "room no.82"),
        (400, "[39,400]"),
        (39, "[39,400]"),
        (12.5, "$12.5M"),
        (Decimal("77.10"), "77.10EUR"),
        ([""], "given: ['']"),
        (["smoker", " "], '["smoker", " "]'),
        ([float("nan")], "[null]"),
        (["a\xa0b\x1f", "\U000e0001"], str(["a\xa0b\x1f", "\U000e0001"])),
        ([date(2026, 1, 1), SEEN], str([date(2026, 1, 1), SEEN])),
        (
            [Decimal("77.1"), timedelta(3), UUID(int=7)],
            str([Decimal("77.1"), timedelta(3), UUID(int=7)]),
        ),
        ({("a", 1): {"b": ()}}, "{('a', 1): {'b': ()}}"),
        (HOME, f"lives at {HOME}"),
        ([HOME], str([HOME])),
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
        (40, "40,000 or 40.5, in 1940"),
        (float("inf"), "information"),
        ([""], "call() of []"),
        ([" "], "call( )"),
        ({"a": ""}, "{a:}"),
        ({"a": 1}, "{'a': 1, 'b': 2}"),
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
    assert any(mention(altered).find(each) >= 0 for each in readings([altered]))


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
    pairs = {(number, "smoker") for number in range(3_000)}
    started = thread_time()
    assert found(pairs, str(pairs))
    assert thread_time() - started < 3


LONG = 200_000
HOSTILE = {
    "spaces": "[" + " " * LONG,
    "spaces in a list": "['smoker'," + " " * LONG,
    "spaces in an object": "{t:[" + " " * LONG,
    "lists": "[''," * (LONG // 4),
    "objects": "{t:[''" * (LONG // 6),
    "calls": "t(" * (LONG // 2),
    "digits": "8" * LONG,
    "backslashes": "\\" * LONG,
    "escapes of escapes": "\\" + "u005c" * (LONG // 5),
}


def spent(value: object, text: str) -> float:
    started = thread_time()
    assert not found(value, text)
    return thread_time() - started


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "value",
    [["", "-"], ["smoker", "", "-"], {"t": [""], "u": "-"}, {"-", ""}, [[["", "-"]]], 88],
    ids=["list", "longer list", "object", "set", "nested lists", "number"],
)
def test_no_text_takes_longer_than_its_length(value: object, text: str) -> None:
    # A tenth of the text would take a hundredth of the time if each character met each other.
    short = min(spent(value, f"'' {text[: LONG // 10]}") for _ in range(3))
    assert spent(value, f"'' {text}") < 40 * max(short, 0.02)


def test_a_large_text_is_looked_for_in_time_that_grows_with_it() -> None:
    def looked_for(times: int) -> float:
        secret = "a*(b" * times
        values = (secret, [secret, 5], {"said": secret})
        return sum(spent(value, secret[1:] + "[{5") for value in values)

    short = min(looked_for(25_000) for _ in range(3))
    assert looked_for(250_000) < 40 * max(short, 0.02)


def test_no_pattern_is_made_of_a_value_and_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("re._compile", None)
    for value in ("here", ["here"], {"here": 77123}, {"here"}, 77123, 77.123):
        assert found(value, "['here'] {'here': 77123} 77.123")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.0, Decimal(0), Decimal("1.00"), Decimal("0E+2")])
def test_nothing_and_one_say_nothing_whatever_kind_of_number_they_are(value: object) -> None:
    texts = {"said": "item 1 of 3, 0 open, 1.0, 0.0, 1.00", "same": value}
    record = seal(sample(inputs={"x": value}, interaction_ref=texts, items=()))
    assert also_disclosed(record, "/inputs/x") == []


def test_a_number_that_cannot_be_compared_is_looked_for_all_the_same() -> None:
    value = Decimal("sNaN")
    record = seal(sample(inputs={"x": value}, interaction_ref={"y": value}, items=()))
    assert also_disclosed(record, "/inputs/x") == ["/interaction_ref/y"]
