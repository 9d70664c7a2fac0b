"""Copies of a record: redacted ones, and documents that carry it elsewhere."""

from __future__ import annotations

import json

import msgspec
import pytest

from headwater.errors import RecordDocumentError, RedactionError
from headwater.record.core import Commitment
from headwater.record.document import export, load
from headwater.record.parts import decode_redactions, encode_redactions
from headwater.record.redact import redact
from headwater.record.sealing import open_core, seal
from headwater.record.signing import parse_keyring, sign
from verifier.generator.samples import NOON, sample

RECORD = sign(seal(sample()), parse_keyring("k1:secret"), NOON)


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


def test_what_is_not_disclosed_cannot_be_redacted() -> None:
    with pytest.raises(RedactionError, match="did you mean '/inputs/question'"):
        redact(RECORD, "/inputs/questions", at=NOON, reason="asked for")
    once = redact(RECORD, "/inputs/question", at=NOON, reason="asked for")
    with pytest.raises(RedactionError, match="nothing is disclosed at '/inputs/question'"):
        redact(once, "/inputs/question", at=NOON, reason="again")
    with pytest.raises(RedactionError):
        redact(RECORD.private(), "/inputs/question", at=NOON, reason="asked for")


def test_a_document_carries_everything_and_the_exact_core() -> None:
    redacted = redact(RECORD, "/inputs/question", at=NOON, reason="asked for")
    for record in (RECORD, RECORD.private(), redacted):
        document = export(record)
        assert load(document) == record
        assert json.loads(document)["core"].encode() == record.core


def test_a_document_may_be_laid_out_anew() -> None:
    again = json.dumps(json.loads(export(RECORD)), indent=None, sort_keys=True)
    assert load(again) == RECORD


def test_a_core_that_is_no_text_has_no_document() -> None:
    with pytest.raises(RecordDocumentError, match="byte 0 of its core is not UTF-8"):
        export(msgspec.structs.replace(RECORD, core=b"\xff"))


def test_a_text_that_is_no_document_is_refused_with_a_remedy() -> None:
    with pytest.raises(RecordDocumentError, match="headwater context export"):
        load("{}")
