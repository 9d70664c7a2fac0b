"""Conformance tests of the ``RecordLog`` port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from conformance.suite import START, Connect, Opened, Suite, after
from headwater.core.clock import to_micros
from headwater.errors import ImmutableRecordError, InvalidInputError
from headwater.model.contexts import RecordSummary
from headwater.model.values import LONGEST_NAME
from headwater.ports import StoredRecord

EVERY_BYTE = bytes(range(256))
LONGEST = "\U0010fffd" * LONGEST_NAME
UNSTORABLE = ["\ud800", "a\0b", LONGEST + "b", "".join(map(chr, range(1, 9_000)))]


def context_id(moment: datetime = START) -> str:
    """Return a context id of this time."""
    millis = to_micros(moment) // 1000
    return str(UUID(int=millis << 80 | 7 << 76 | 2 << 62 | uuid4().int & (1 << 62) - 1))


def record(
    core: bytes = b"{}",
    *,
    new_id: str | None = None,
    at: datetime = START,
    name: str = "support",
    freshness_status: str = "guaranteed",
    caller: str | None = None,
    disclosures: bytes = b"[]",
    signature: bytes | None = None,
) -> StoredRecord:
    """Return a record, by default with a new id; as in real records, the core holds the id."""
    new_id = new_id or context_id(at)
    core = core + new_id.encode()
    return StoredRecord(
        context_id=new_id,
        record_hash=f"sha256:{sha256(core).hexdigest()}",
        content_hash=f"sha256:{sha256(b'text').hexdigest()}",
        name=name,
        created_at=at,
        freshness_status=freshness_status,
        caller=caller,
        assembly_us=1_234_567,
        core=core,
        disclosures=disclosures,
        signature=signature,
        keys=b"\x00key\xff",
    )


def summary(of: StoredRecord) -> RecordSummary:
    """Return the summary of a record."""
    return RecordSummary(**{field: getattr(of, field) for field in RecordSummary.__struct_fields__})


async def append(store: Opened, *records: StoredRecord) -> None:
    """Append records without search keys."""
    await asyncio.gather(*(store.records.append(each, []) for each in records))


def newest_first(records: Sequence[StoredRecord]) -> list[RecordSummary]:
    """Return the summaries of the records in the order of lists."""
    return [
        summary(each) for each in sorted(records, key=lambda r: (r.created_at, r.context_id))[::-1]
    ]


class RecordLogConformance(Suite):
    """The immutable records of all contexts, found by id and by hash."""

    async def test_a_record_whose_append_returned_is_seen_by_all_readers_from_then_on(
        self, store: Opened, other: Opened
    ) -> None:
        for number in range(5):
            kept = record(b"%d" % number)
            await store.records.append(kept, [b"key"])
            assert await other.records.get(kept.context_id) == kept
            assert len(await other.records.find(b"key")) == number + 1

    async def test_bytes_are_returned_unchanged(self, store: Opened) -> None:
        kept = record(
            EVERY_BYTE + b'{"b": 1,  "a":1.0, "a":"\\u0000"}',
            at=after(0.000_001),
            name="nämé \U0001d51e",
            disclosures=EVERY_BYTE[::-1],
            signature=EVERY_BYTE * 2,
        )
        kept = msgspec.structs.replace(
            kept,
            redactions=b"\x00\xff[ ]",
            model="gpt-4o",
            tokens=2**53,
            max_tokens=3,
            cost_nano_usd=0,
            items_dropped=4,
            is_signed=True,
        )
        await store.records.append(kept, [EVERY_BYTE, b""])
        assert await store.records.get(kept.context_id) == kept
        assert await store.records.find(EVERY_BYTE) == [summary(kept)]
        assert await store.records.find(b"") == [summary(kept)]

    async def test_large_records_are_returned_unchanged(self, store: Opened) -> None:
        kept = [
            record(EVERY_BYTE * 4096, disclosures=EVERY_BYTE * 8192),
            *(record(b"%d" % number) for number in range(10)),
            record(b"\x00" * (1 << 20), disclosures=b""),
        ]
        await append(store, *kept)
        assert [await store.records.get(each.context_id) for each in kept] == kept

    async def test_a_record_without_a_signature_has_none(self, store: Opened) -> None:
        kept = [record(signature=None), record(signature=b"")]
        await append(store, *kept)
        found = [await store.records.get(each.context_id) for each in kept]
        assert [each and each.signature for each in found] == [None, b""]

    async def test_the_same_record_again_changes_nothing(
        self, store: Opened, other: Opened
    ) -> None:
        kept = record()
        again = msgspec.structs.replace(kept, disclosures=b"[1]", signature=b"later")
        await store.records.append(kept, [b"a"])
        await store.records.append(again, [b"a", b"b"])
        await other.records.append(again, [b"b"])
        assert await store.records.get(kept.context_id) == kept
        assert await store.summaries() == [summary(kept)]
        assert await store.records.find(b"a") == [summary(kept)]
        assert await store.records.find(b"b") == []

    async def test_the_same_record_may_be_appended_concurrently(self, connect: Connect) -> None:
        openings = [await connect() for _ in range(3)]
        kept = record()
        await asyncio.gather(
            *(opening.records.append(kept, [b"a"]) for opening in openings for _ in range(5))
        )
        assert await openings[0].records.find(b"a") == [summary(kept)]

    async def test_the_same_record_again_does_not_undo_redactions(self, store: Opened) -> None:
        kept = record(disclosures=b"[secret]")
        await append(store, kept)
        await store.records.redact(
            kept.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
        )
        await append(store, kept)
        found = await store.records.get(kept.context_id)
        assert found == msgspec.structs.replace(
            kept, disclosures=b"[]", redactions=b"[note]", is_redacted=True
        )

    async def test_a_different_record_under_the_same_id_is_refused_and_nothing_changes(
        self, store: Opened, other: Opened
    ) -> None:
        kept = record(b"one")
        changed = record(b"two", new_id=kept.context_id, name="else", at=after(1))
        await store.records.append(kept, [b"a"])
        for opening in (store, other):
            with pytest.raises(ImmutableRecordError) as refused:
                await opening.records.append(changed, [b"b"])
            error = refused.value
            assert error.context_id == kept.context_id
            assert (error.stored, error.given) == (kept.record_hash, changed.record_hash)
        assert await store.records.get(kept.context_id) == kept
        assert await store.records.get(changed.record_hash) is None
        assert await store.summaries() == [summary(kept)]
        assert await store.records.find(b"b") == []

    async def test_a_refused_record_does_not_affect_other_appends(self, store: Opened) -> None:
        kept = record(b"first")
        await append(store, kept)
        others = [record(b"%d" % number) for number in range(20)]
        appends: list[StoredRecord] = []
        for each in others:
            appends += [each, record(b"second", new_id=kept.context_id)]
        answers = await asyncio.gather(
            *(store.records.append(each, [b"key"]) for each in appends), return_exceptions=True
        )
        assert answers[::2] == [None] * 20
        assert all(isinstance(answer, ImmutableRecordError) for answer in answers[1::2])
        assert await store.records.find(b"key") == newest_first(others)
        assert await store.records.get(kept.context_id) == kept

    @pytest.mark.parametrize("text", UNSTORABLE)
    async def test_a_text_that_cannot_be_stored_does_not_affect_other_appends(
        self, store: Opened, text: str
    ) -> None:
        kept = [record(b"%d" % number) for number in range(10)]
        bad = [record(name=text), record(freshness_status=text), record(caller=text)]
        answers = await asyncio.gather(
            *(store.records.append(each, []) for each in [*kept[:5], *bad, *kept[5:]]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers[5:8]] == [InvalidInputError] * 3
        assert answers[:5] + answers[8:] == [None] * 10
        assert await store.summaries() == newest_first(kept)

    async def test_the_longest_texts_are_returned_and_found(self, store: Opened) -> None:
        kept = record(name=LONGEST, freshness_status=LONGEST, caller=LONGEST)
        await append(store, kept)
        assert await store.records.get(kept.context_id) == kept
        found = await store.summaries(name=LONGEST, freshness_status=LONGEST, caller=LONGEST)
        assert found == [summary(kept)]

    async def test_a_cancelled_append_does_not_affect_other_appends(self, store: Opened) -> None:
        kept = [record(b"%d" % number) for number in range(20)]
        appends = [asyncio.create_task(store.records.append(each, [each.core])) for each in kept]
        await asyncio.sleep(0)
        for cancelled in appends[::2]:
            cancelled.cancel()
        answers = await asyncio.gather(*appends, return_exceptions=True)
        assert answers[1::2] == [None] * 10
        for each in kept:
            found = await store.records.get(each.context_id)
            assert found in ([each, None] if each in kept[::2] else [each])
            whole = [] if found is None else [summary(each)]
            assert await store.records.find(each.core) == whole

    async def test_of_two_records_with_one_id_exactly_one_wins(
        self, store: Opened, other: Opened
    ) -> None:
        openings = [store, other]
        for _ in range(10):
            new_id = context_id()
            rivals = [record(b"%d" % number, new_id=new_id) for number in range(4)]
            answers = await asyncio.gather(
                *(
                    openings[number % 2].records.append(rival, [rival.core])
                    for number, rival in enumerate(rivals)
                ),
                return_exceptions=True,
            )
            (winner,) = (r for r, answer in zip(rivals, answers, strict=True) if answer is None)
            losers = [answer for answer in answers if answer is not None]
            assert all(isinstance(answer, ImmutableRecordError) for answer in losers)
            assert await openings[0].records.get(new_id) == winner
            for rival in rivals:
                found = await openings[1].records.find(rival.core)
                assert found == ([summary(winner)] if rival is winner else [])

    async def test_get_finds_a_record_by_its_context_id_and_by_its_record_hash(
        self, store: Opened
    ) -> None:
        kept = [record(b"%d" % number) for number in range(3)]
        await append(store, *kept)
        for each in kept:
            assert await store.records.get(each.context_id) == each
            assert await store.records.get(each.record_hash) == each

    @pytest.mark.parametrize("ref", ["", "sha256:", "unknown", "0' OR 1=1", "\0", "ü", "\ud800"])
    async def test_get_returns_none_for_an_unknown_reference(self, store: Opened, ref: str) -> None:
        await append(store, record())
        assert await store.records.get(ref) is None

    async def test_beginning_returns_the_records_with_an_id_prefix_by_descending_id(
        self, store: Opened
    ) -> None:
        ids = [f"0190a{number:03x}-0000-7000-8000-000000000000" for number in range(20)]
        other = "0190b000-0000-7000-8000-000000000000"
        await append(store, *(record(new_id=each) for each in [*ids, other]))

        async def beginning(prefix: str, **page: Any) -> list[str]:
            return [each.context_id for each in await store.records.beginning(prefix, **page)]

        assert await beginning("0190a") == ids[::-1]
        assert await beginning("0190a", limit=3) == ids[:-4:-1]
        assert await beginning("0190a", limit=3, before=ids[3]) == ids[2::-1]
        assert await beginning("0190a01") == ids[:15:-1]
        assert await beginning(other) == [other]
        assert await beginning("") == [other, *ids[::-1]]
        for unknown in ("0190c", "%", "0190_", "ü", "\0", "\ud800"):
            assert await beginning(unknown) == []
        with pytest.raises(InvalidInputError, match="no record has the id"):
            await beginning("0190a", before="unknown")

    async def test_beginning_finds_a_prefix_of_the_record_hash(self, store: Opened) -> None:
        kept = [record(b"%d" % number) for number in range(30)]
        await append(store, *kept)
        digits = len("sha256:") + 1
        by_id = sorted(kept, key=lambda each: each.context_id, reverse=True)
        for each in kept[:5]:
            prefix = each.record_hash[:digits]
            found = [summary(other) for other in by_id if other.record_hash.startswith(prefix)]
            assert await store.records.beginning(prefix) == found
            assert await store.records.beginning(prefix, limit=1) == found[:1]
            last = found[0].context_id
            assert await store.records.beginning(prefix, before=last) == found[1:]
        assert await store.records.beginning("sha256:x") == []

    async def test_the_index_key_is_random_and_then_constant(
        self, connect: Connect, store: Opened, other: Opened
    ) -> None:
        keys = await asyncio.gather(*(each.records.index_key() for each in (store, other, store)))
        assert len(set(keys)) == 1
        assert len(keys[0]) >= 16
        await append(store, record())
        assert await (await connect()).records.index_key() == keys[0]

    async def test_marks_are_remembered_once_and_for_good(
        self, connect: Connect, store: Opened, other: Opened
    ) -> None:
        assert await store.records.marks() == set()
        marks = [b"\0" * 16, b"\xff" * 16]
        await asyncio.gather(*(each.records.add_mark(marks[0]) for each in (store, other, store)))
        await other.records.add_mark(marks[1])
        await append(store, record())
        await store.records.prune(after(3600))
        for each in (store, other, await connect()):
            assert await each.records.marks() == set(marks)

    async def test_redact_replaces_disclosures_and_redactions_and_nothing_else(
        self, store: Opened, other: Opened
    ) -> None:
        kept = record(disclosures=b"[1, 2]", signature=b"signed")
        untouched = record(disclosures=b"[3]")
        for each in (kept, untouched):
            await store.records.append(each, [b"key"])
        assert await store.records.redact(
            kept.context_id, expected=b"[]", disclosures=b"[1]", redactions=EVERY_BYTE
        )
        redacted = msgspec.structs.replace(
            kept, disclosures=b"[1]", redactions=EVERY_BYTE, is_redacted=True
        )
        assert await other.records.get(kept.record_hash) == redacted
        assert await other.records.get(untouched.context_id) == untouched
        assert await other.records.find(b"key") == newest_first([redacted, untouched])

    async def test_redact_replaces_only_if_the_redactions_are_as_expected(
        self, store: Opened, other: Opened
    ) -> None:
        kept = record(disclosures=b"[1, 2]")
        await append(store, kept)
        answers = await asyncio.gather(
            *(
                opening.records.redact(
                    kept.context_id, expected=b"[]", disclosures=b"[]", redactions=note
                )
                for opening, note in ((store, b"[one]"), (other, b"[other]"))
            )
        )
        assert sorted(answers) == [False, True]
        found = await store.records.get(kept.context_id)
        assert found is not None
        assert found.redactions == (b"[one]" if answers[0] else b"[other]")
        assert not await store.records.redact(
            kept.context_id, expected=b"[else]", disclosures=b"", redactions=b""
        )
        assert await store.records.get(kept.context_id) == found

    @pytest.mark.parametrize("unknown_id", ["", "unknown", "\0", "ü", "\ud800"])
    async def test_redact_of_an_unknown_record_does_nothing(
        self, store: Opened, unknown_id: str
    ) -> None:
        kept = record()
        await append(store, kept)
        change = {"expected": b"[]", "disclosures": b"", "redactions": b""}
        assert not await store.records.redact(unknown_id, **change)
        assert await store.summaries() == [summary(kept)]
