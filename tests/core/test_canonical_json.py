"""Canonical JSON: the bytes of RFC 8785, and nothing that two readers understand differently."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given

from headwater.core.canonical_json import JsonError, canonical, child, from_base64, parse, to_base64
from tests.records.strategies import JSON
from verifier.generator.files import JSON_TEXTS, REFUSED_TEXTS


@given(JSON)
def test_the_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("text", JSON_TEXTS.values(), ids=JSON_TEXTS)
def test_the_bytes_of_a_published_text_are_those_of_rfc_8785(text: str) -> None:
    assert canonical(parse(text)) == rfc8785.dumps(json.loads(text))


@given(JSON)
def test_a_written_value_parses_to_the_same_value(value: Any) -> None:
    assert parse(canonical(value)) == value


@pytest.mark.parametrize("text", REFUSED_TEXTS.values(), ids=REFUSED_TEXTS)
def test_a_text_that_readers_could_differ_about_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        parse(text)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [(b"\xff", "byte 0 is not UTF-8"), (b'"\xed\xa0\x80"', "byte 1 is not UTF-8")],
)
def test_bytes_that_are_no_utf8_are_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(JsonError, match=problem):
        parse(raw)


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(JsonError, match="nested deeper than 256 levels"):
        parse("[" * 100_000)


def test_keys_are_in_the_order_of_utf16_at_every_depth() -> None:
    inner = {"\ue000": 1, "😀": 2}
    assert canonical([{"a": inner}]) == '[{"a":{"😀":2,"\ue000":1}}]'.encode()


@pytest.mark.parametrize(
    ("key", "pointer"), [("a", "/x/a"), ("", "/x/"), ("a/b~c", "/x/a~1b~0c"), (3, "/x/3")]
)
def test_a_pointer_escapes_its_special_characters(key: str | int, pointer: str) -> None:
    assert child("/x", key) == pointer


@pytest.mark.parametrize("raw", [b"", b"a", b"ab", b"abc", bytes(range(256))])
def test_base64_comes_back(raw: bytes) -> None:
    assert from_base64(to_base64(raw)) == raw


@pytest.mark.parametrize("text", ["YQ==", "YR", "a", "Y Q", "+/+/"])
def test_base64_written_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|padding|Invalid"):
        from_base64(text)
