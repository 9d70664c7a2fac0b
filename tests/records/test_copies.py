"""Copies of a record: redacted ones, and documents that carry it elsewhere."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headwater.errors import InvalidInputError, RecordDocumentError, RedactionError
from headwater.records.core import Commitment
from headwater.records.document import export, load
from headwater.records.record import decode_redactions, encode_redactions
from headwater.records.redaction import also_disclosed, redact
from headwater.records.sealing import open_core, seal
from headwater.records.signing import parse_keyring, sign
from verifier.generator.samples import NOON, sample

SECOND = timedelta(seconds=1)
RECORD = sign(seal(sample()), parse_keyring("k1:correct horse battery"), NOON)


def test_redaction_erases_one_value_and_leaves_a_note() -> None:
    redacted = redact(RECORD, "/inputs/question", at=NOON, reason="asked for", by="dpo")
    assert isinstance(open_core(redacted).inputs["question"], Commitment)
    assert b"parcel" not in msgspec.json.encode(redacted.disclosures[:10])
    assert (redacted.core, redacted.record_hash) == (RECORD.core, RECORD.record_hash)
    [note] = redacted.redactions
    assert note.pointer == "/inputs/question"
    assert (note.redacted_at, note.reason, note.by) == (
        "2026-01-02T12:00:00.250000Z",
        "asked for",
        "dpo",
    )
    assert decode_redactions(encode_redactions(redacted.redactions)) == redacted.redactions


def test_a_value_that_is_not_disclosed_cannot_be_redacted() -> None:
    with pytest.raises(RedactionError, match="did you mean '/inputs/question'"):
        redact(RECORD, "/inputs/questions", at=NOON, reason="asked for")
    once = redact(RECORD, "/inputs/question", at=NOON, reason="asked for")
    for copy in (once, once.private()):
        with pytest.raises(RedactionError) as refused:
            redact(copy, "/inputs/question", at=NOON, reason="again")
        assert str(refused.value) == (
            "the value at '/inputs/question' was already erased at "
            "2026-01-02T12:00:00.250000Z, because: asked for"
        )
    by_dpo = redact(RECORD, "/inputs/question", at=NOON, reason="asked for", by="dpo")
    with pytest.raises(RedactionError, match=r"erased at 2026-01-02.* by dpo, because: asked for"):
        redact(by_dpo, "/inputs/question", at=NOON, reason="again")
    with pytest.raises(RedactionError, match="the record withholds every value"):
        redact(RECORD.private(), "/inputs/question", at=NOON, reason="asked for")


@pytest.mark.parametrize(
    "note", [{"reason": 5}, {"reason": " "}, {"by": 5}, {"reason": "\ud800"}, {"by": "\ud800"}]
)
def test_a_note_that_could_not_be_read_again_is_refused(note: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="reason"):
        redact(RECORD, "/inputs/question", at=NOON, **{"reason": "asked for"} | note)


def test_several_values_are_redacted_together_with_a_note_each() -> None:
    pointers = ("/inputs/question", "/output/content", "/inputs/question")
    redacted = redact(RECORD, *pointers, at=NOON, reason="asked for")
    assert [note.pointer for note in redacted.redactions] == ["/inputs/question", "/output/content"]
    assert len(redacted.disclosures) == len(RECORD.disclosures) - 2
    with pytest.raises(RedactionError, match="'/nowhere'"):
        redact(RECORD, "/inputs/question", "/nowhere", at=NOON, reason="asked for")


def test_a_record_that_is_printed_shows_neither_values_nor_salts() -> None:
    assert repr(RECORD) == f"Record({RECORD.context_id!r}, {RECORD.record_hash!r})"
    printed = repr(RECORD.disclosures)
    assert "'/inputs/question'" in printed
    assert not any(item.salt in printed for item in RECORD.disclosures)
    assert "parcel" not in printed


def test_other_disclosures_of_a_redacted_value_are_named() -> None:
    assert also_disclosed(RECORD, "/inputs/question", "/items/0/content") == [
        "/output/content",
        "/retrievals/0/arguments",
        "/retrievals/0/index/query",
    ]
    assert also_disclosed(RECORD, "/inputs/question") == [
        "/retrievals/0/arguments",
        "/retrievals/0/index/query",
    ]
    assert also_disclosed(RECORD, "/items/0/content") == ["/output/content"]
    assert also_disclosed(RECORD, "/features/0/entity_id") == [
        *(f"/features/{at}/entity_id" for at in (1, 2, 3, 4, 5)),
        "/features/5/inputs/0/entity_id",
        "/freshness/violations/0/entity_id",
        "/inputs/user_id",
    ]
    assert also_disclosed(RECORD, "/features/4/value") == []  # None
    assert also_disclosed(RECORD, "/nowhere") == []


def test_a_shortened_item_is_found_with_its_content() -> None:
    [item] = [item for item in sample().items if item.decision == "truncated"]
    assert (item.content, item.emitted) == ("A long story. It goes on.", "A long story. […]")
    inputs = {"cut": "story. It", "said": f"He said: {item.content}", "other": "A short one."}
    record = seal(sample(inputs=inputs, items=(item,)))
    texts = ["/items/0/content", "/items/0/emitted", "/output/content"]
    assert also_disclosed(record, "/inputs/cut") == ["/inputs/said", *texts]
    for chosen in ("/items/0/content", "/items/0/emitted"):
        others = [pointer for pointer in texts if pointer != chosen]
        assert also_disclosed(record, chosen) == ["/inputs/said", *others]


def test_the_output_is_found_in_the_items_that_it_was_joined_of() -> None:
    inputs = {"one": sample().items[0].content, "dropped": sample().items[3].content}
    record = seal(sample(inputs=inputs))
    joined = ["/inputs/one", *(f"/items/{at}/content" for at in range(3)), "/items/2/emitted"]
    assert also_disclosed(record, "/output/content") == joined
    once = redact(record, "/items/2/emitted", at=NOON, reason="asked for")
    assert also_disclosed(once, "/output/content") == joined[:-1]
    unreadable = msgspec.structs.replace(record, core=record.core[1:])
    texts = {"/items/3/content", "/inputs/dropped"}
    assert {*also_disclosed(unreadable, "/output/content")} == {*joined} | texts
    assert redact(unreadable, "/output/content", at=NOON, reason="asked for").redactions


def test_a_note_is_not_older_than_its_record_though_a_clock_was_behind() -> None:
    [note] = redact(RECORD, "/inputs/question", at=NOON - SECOND, reason="asked for").redactions
    assert note.redacted_at == "2026-01-02T12:00:00.250000Z"
    [later] = redact(RECORD, "/inputs/question", at=NOON + SECOND, reason="asked for").redactions
    assert later.redacted_at == "2026-01-02T12:00:01.250000Z"


def test_a_core_with_a_time_without_zone_can_be_redacted() -> None:
    altered = RECORD.core.replace(
        b'"created_at":"2026-01-02T12:00:00.250000Z"', b'"created_at":"2026-01-02T12:00:00.250000"'
    )
    assert altered != RECORD.core
    record = msgspec.structs.replace(RECORD, core=altered)
    [note] = redact(record, "/inputs/question", at=NOON - SECOND, reason="asked for").redactions
    assert note.redacted_at == "2026-01-02T11:59:59.250000Z"


def test_a_document_carries_everything_and_the_exact_core() -> None:
    redacted = redact(RECORD, "/inputs/question", at=NOON, reason="asked for")
    for record in (RECORD, RECORD.private(), redacted):
        document = export(record)
        assert load(document) == record
        assert json.loads(document)["core"].encode() == record.core


def test_a_document_may_be_reformatted() -> None:
    again = json.dumps(json.loads(export(RECORD)), indent=None, sort_keys=True)
    assert load(again) == RECORD


def test_a_core_that_is_not_utf8_cannot_be_exported() -> None:
    with pytest.raises(RecordDocumentError, match="byte 0 of its core is not UTF-8"):
        export(msgspec.structs.replace(RECORD, core=b"\xff"))


def test_an_invalid_document_is_refused_with_a_remedy() -> None:
    with pytest.raises(RecordDocumentError, match="headwater context export"):
        load("{}")
