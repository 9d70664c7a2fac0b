"""Sealing: plain values in, bytes and disclosures out, and back."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.canonical_json import canonical, from_base64, to_tagged
from headwater.errors import RecordValueError
from headwater.model.values import Exact
from headwater.records.core import Commitment, Core, Item, Policy, Timing, decimal_text
from headwater.records.diff import diff
from headwater.records.document import load
from headwater.records.projection import past_context
from headwater.records.record import (
    content_hash,
    decode_disclosures,
    encode_disclosures,
    moment_text,
)
from headwater.records.redaction import redact
from headwater.records.sealing import open_core, seal
from headwater.records.verify import verify_record
from tests.records.strategies import cores
from verifier.generator.samples import NOON, salts, sample

_CORE = sample()
_RECORD = seal(_CORE)


def test_the_hash_is_that_of_the_bytes_and_of_the_text() -> None:
    text = str(_CORE.output.content)
    assert _RECORD.record_hash == f"sha256:{hashlib.sha256(_RECORD.core).hexdigest()}"
    assert _RECORD.content_hash == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert json.loads(_RECORD.core)["output"]["content_hash"] == _RECORD.content_hash


def test_no_text_and_no_value_stands_in_the_core() -> None:
    core = _RECORD.core.decode()
    for item in _CORE.items:
        assert json.dumps(item.content, ensure_ascii=False)[1:-1] not in core
    for secret in (
        '"system"',
        "parcel",
        "u/1~",
        "0.30000000000000004",
        "18446744073709551616",
        "doc-7",
    ):
        assert secret not in core


def test_no_key_and_no_value_of_an_interaction_stands_in_the_core() -> None:
    reference = {"ada@example.com": {"ticket": "T-1"}}
    record = seal(sample(interaction_ref=reference))
    assert b"ada@example.com" not in record.core
    assert b"ticket" not in record.core
    assert open_core(record).interaction_ref == reference
    assert isinstance(open_core(record.private()).interaction_ref, Commitment)


def test_an_earlier_record_whose_interaction_has_a_commitment_for_each_key_is_read() -> None:
    record = load(Path(__file__).with_name("earlier-interaction.json").read_bytes())
    assert verify_record(record, expect=record.record_hash).ok
    core = open_core(record)
    reference: Any = core.interaction_ref
    assert (reference["call_id"], reference["turn_index"]) == ("call-1", 3)
    erased = redact(record, "/interaction_ref/call_id", at=NOON, reason="asked")
    assert verify_record(erased).ok
    past = past_context(erased, open_core(erased))
    assert past.interaction_ref is not None
    assert (past.interaction_ref["call_id"], past.interaction_ref["turn_index"]) == (None, 3)
    assert past_context(record.private(), open_core(record.private())).interaction_ref == (
        dict.fromkeys(reference)
    )
    (changed,) = diff(core, open_core(erased)).interaction_ref
    assert (changed.name, changed.change) == ("call_id", "unknown")


def test_every_field_is_present_even_if_empty() -> None:
    tree = json.loads(seal(sample(interaction_ref=None, items=())).core)
    assert tree.keys() == set(Core.__struct_fields__)
    assert tree["interaction_ref"] is None
    assert tree["items"] == []


def _said(core: Core, content_hash: str) -> bytes:
    """All that a core says, in one text: NaN is not equal to itself, and dicts have an order."""
    output = msgspec.structs.replace(core.output, content_hash=content_hash)
    return canonical(to_tagged(msgspec.structs.replace(core, output=output)))


def test_opening_a_sealed_core_returns_the_core() -> None:
    opened = open_core(_RECORD)
    assert _said(opened, _RECORD.content_hash) == _said(_CORE, _RECORD.content_hash)
    assert opened.output.content_hash == _RECORD.content_hash


@given(cores(), st.randoms(use_true_random=False))
def test_a_sealed_core_always_verifies_and_opens(core: Core, random: Random) -> None:
    record = seal(core, random.randbytes)
    assert [check.ok for check in verify_record(record).checks] == [True, None, True, True, True]
    assert _said(open_core(record), "") == _said(core, "")


def test_a_withheld_value_opens_to_its_commitment() -> None:
    opened = open_core(_RECORD.private())
    assert isinstance(opened.output.content, Commitment)
    assert isinstance(opened.inputs["question"], Commitment)
    assert opened.items[0].emitted is None
    assert opened.features[0].feature == "total_spend"


def test_the_same_salts_give_the_same_bytes_and_others_do_not() -> None:
    assert seal(_CORE, salts()) == seal(_CORE, salts())
    assert seal(_CORE).record_hash != seal(_CORE).record_hash


def test_every_salt_is_sixteen_bytes_and_used_once() -> None:
    used = [disclosure.salt for disclosure in _RECORD.disclosures]
    assert {len(from_base64(salt)) for salt in used} == {16}
    assert len(set(used)) == len(used) > 32


def test_disclosures_are_sorted_and_come_back_from_their_text() -> None:
    pointers = [disclosure.pointer for disclosure in _RECORD.disclosures]
    assert pointers == sorted(pointers)
    assert decode_disclosures(encode_disclosures(_RECORD.disclosures)) == _RECORD.disclosures


def test_a_value_of_none_is_committed_to_like_any_other() -> None:
    tree = json.loads(_RECORD.core)
    assert tree["features"][4]["value"].keys() == {"$sd"}
    assert tree["items"][0]["emitted"] is None


class _Text(str):
    """A subclass of str that encoders may write differently."""


class _OwnPolicy(Policy, frozen=True, kw_only=True):
    temperature: float = 0.7


_OWN_POLICY = _OwnPolicy(**msgspec.structs.asdict(_CORE.policy))


def _with_output(**changes: Any) -> Core:
    return sample(output=msgspec.structs.replace(_CORE.output, **changes))


def _with_item(**changes: Any) -> Core:
    item = msgspec.structs.replace(_CORE.items[0], **changes)
    return sample(items=(item,))


@pytest.mark.parametrize(
    ("core", "pointer"),
    [
        (sample(environment=1.5), "/environment"),
        (sample(environment=b"production"), "/environment"),
        (sample(environment=Decimal(1)), "/environment"),
        (sample(environment=None), "/environment"),
        (sample(environment=_Text("production")), "/environment"),
        (sample(environment=msgspec.Raw(b' "production" ')), "/environment"),
        (sample(version=2**53), "/version"),
        (sample(version=True), "/version"),
        (sample(policy=_OWN_POLICY), "/policy"),
        (sample(policy=msgspec.structs.asdict(_CORE.policy)), "/policy"),
        (_with_output(cost_nano_usd=float("nan")), "/output/cost_nano_usd"),
        (_with_output(overflow=msgspec.UNSET), "/output/overflow"),
        (_with_item(decision="perhaps"), "/items/0/decision"),
        (sample(inputs={"x": [object()]}), "/inputs/x/0"),
        (sample(inputs={"$sd": 1}), "/inputs"),
        (sample(inputs={1: 1}), "/inputs"),
        (sample(interaction_ref={"\ud800": 1}), "/interaction_ref"),
        (sample(environment="\ud800"), "/environment"),
        (_with_item(content="\ud800"), "/items/0/content"),
        (_with_item(priority=0.5), "/items/0/priority"),
        (_with_item(source="literal"), "/items/0/source"),
        (sample(created_at=datetime(2026, 1, 1)), "/created_at"),  # noqa: DTZ001
        (sample(output=msgspec.structs.replace(_CORE.output, content="\ud800")), "/output/content"),
        (
            sample(output=msgspec.structs.replace(_CORE.output, content=Commitment("0"))),
            "/output/content",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_cannot_be_recorded_are_refused_with_their_pointer(
    core: Core, pointer: str
) -> None:
    with pytest.raises(RecordValueError) as refused:
        seal(core)
    assert refused.value.pointer == pointer


class _Later(Core, frozen=True, kw_only=True):
    temperature: float = 0.7


def test_an_uncheckable_field_is_refused_with_any_value() -> None:
    later = _Later(**{name: getattr(_CORE, name) for name in _CORE.__struct_fields__})
    with pytest.raises(TypeError, match=r"float.* cannot be uncommitted"):
        seal(later)


def test_an_invalid_core_cannot_be_opened() -> None:
    deep = b'{"deep":' + b"[" * 900 + b"]" * 900 + b"}"
    for core in (b"{}", b"", b"\xff", deep):
        with pytest.raises(RecordValueError, match="it is not the core of a record"):
            open_core(msgspec.structs.replace(_RECORD, core=core))


@pytest.mark.parametrize("pointer", ["/inputs/question", "/items/1/content", "/output/content"])
def test_a_value_that_was_altered_is_never_shown_as_the_record_s_own(pointer: str) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    for value in ("another text", 5, "\ud800", deep):
        altered = tuple(
            msgspec.structs.replace(each, value=value) if each.pointer == pointer else each
            for each in _RECORD.disclosures
        )
        with pytest.raises(RecordValueError, match="does not open its commitment") as refused:
            open_core(msgspec.structs.replace(_RECORD, disclosures=altered))
        assert refused.value.pointer == pointer


class LaterTiming(Timing, frozen=True, kw_only=True):
    queued_us: Exact = 0


class LaterItem(Item, frozen=True, kw_only=True):
    language: str | None = None


class LaterCore(Core, frozen=True, kw_only=True):
    items: tuple[LaterItem, ...] = ()
    timing: LaterTiming
    region: str = "unknown"


def test_a_record_still_verifies_and_opens_after_fields_were_added_to_the_schema() -> None:
    later = open_core(_RECORD, LaterCore)
    assert (later.region, later.timing.queued_us, later.items[0].language) == ("unknown", 0, None)
    assert verify_record(_RECORD).ok
    # The schema of today writes other bytes for it, so verification must not use one.
    assert seal(later, salts()).record_hash != seal(_CORE, salts()).record_hash


def test_a_record_of_a_later_version_verifies_and_opens_here() -> None:
    core = LaterCore(
        **msgspec.structs.asdict(_CORE)
        | {
            "region": "eu",
            "timing": LaterTiming(started_at=NOON, assembly_us=1, queued_us=2),
            "items": tuple(LaterItem(**msgspec.structs.asdict(item)) for item in _CORE.items),
        }
    )
    record = seal(core)
    assert verify_record(record).ok
    assert open_core(record).items[0].content == _CORE.items[0].content


def test_moments_are_written_in_utc_with_microseconds() -> None:
    east = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert moment_text(east) == "2025-12-31T23:00:00.000000Z"


@pytest.mark.parametrize(
    ("score", "text"),
    [(0.5, "0.5"), (1e-7, "0.0000001"), (1e22, "10000000000000000000000"), (2.0, "2.0")],
)
def test_a_score_has_all_its_digits(score: float, text: str) -> None:
    assert decimal_text(score) == text
    assert float(text) == score


def test_a_nan_score_is_written_as_nan() -> None:
    assert decimal_text(float("nan")) == "NaN"


def test_the_hash_of_a_text_is_that_of_its_utf8() -> None:
    assert content_hash("é") == f"sha256:{hashlib.sha256(bytes((0xC3, 0xA9))).hexdigest()}"
