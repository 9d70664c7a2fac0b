"""Conformance tests of the ``OutcomeLog`` part of the ``RecordLog`` port."""

from __future__ import annotations

import asyncio
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from conformance.records import UNSTORABLE, append, context_id, newest_first, record, summary
from conformance.suite import START, Connect, Opened, Suite, after
from headwater.errors import ImmutableRecordError, InvalidInputError, UnknownContextError
from headwater.ports import OutcomeFilter, StoredOutcome, StoredRecord

EVERY_BYTE = bytes(range(256))


def outcome(
    of: StoredRecord, core: bytes = b"{}", *, at: datetime = START, **fields: Any
) -> StoredOutcome:
    """Return an outcome of a record, by default a response with a new id."""
    given = {"outcome_id": context_id(at), "kind": "response", "disclosures": b"[1]"} | fields
    core = core + given["outcome_id"].encode()
    return StoredOutcome(
        context_id=of.context_id,
        record_hash=of.record_hash,
        outcome_hash=f"sha256:{sha256(core).hexdigest()}",
        at=at,
        core=core,
        **given,
    )


def score(of: StoredRecord, name: str, **fields: Any) -> StoredOutcome:
    """Return a score of a record."""
    return outcome(of, kind="score", name=name, **fields)


async def recorded(store: Opened, count: int = 1, **fields: Any) -> list[StoredRecord]:
    """Append records, one for each second, and return them."""
    kept = [record(at=after(number), **fields) for number in range(count)]
    await append(store, *kept)
    return kept


async def add(store: Opened, *outcomes: StoredOutcome) -> list[StoredOutcome]:
    """Append outcomes at the same time."""
    return await asyncio.gather(*(store.records.append_outcome(each) for each in outcomes))


class OutcomeLogConformance(Suite):
    """The promises of the port, as tests."""

    async def test_an_outcome_is_returned_as_it_was_appended(
        self, connect: Connect, store: Opened, other: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        bare = outcome(kept, core=EVERY_BYTE, signature=None)
        full = outcome(
            kept,
            at=after(1),
            kind="score",
            name="helpful",
            value=-0.25,
            flag=False,
            label_key=EVERY_BYTE[:16],
            model="gpt-6",
            error_type="RateLimitError",
            predicted=2**53,
            billed=0,
            source_key=b"\0\xff",
            is_signed=True,
            disclosures=EVERY_BYTE,
            signature=b"",
            redactions=EVERY_BYTE,
        )
        assert await add(store, bare, full) == [bare, full]
        for each in (other, await connect()):
            assert await each.records.outcomes([kept.context_id]) == [bare, full]
            assert await each.records.outcome(full.outcome_id) == full

    async def test_the_outcomes_of_several_contexts_are_sorted_from_oldest_to_newest(
        self, store: Opened
    ) -> None:
        records = await recorded(store, 3, disclosures=b"[0]")
        kept = [outcome(records[number % 3], at=after(number // 2)) for number in range(9)]
        await add(store, *kept[::-1])
        ordered = sorted(kept, key=lambda each: (each.at, each.outcome_id))
        ids = [each.context_id for each in records]
        assert await store.records.outcomes(ids) == ordered
        assert await store.records.outcomes(ids, limit=4) == ordered[:4]
        last = ordered[3].outcome_id
        assert await store.records.outcomes(ids, after=last, limit=4) == ordered[4:8]
        with pytest.raises(InvalidInputError, match="no outcome has the id"):
            await store.records.outcomes(ids, after="unknown")
        assert await store.records.outcomes(ids[:1]) == [
            each for each in ordered if each.context_id == ids[0]
        ]
        for unknown in ([], ["unknown"], ["\0", "\ud800"]):
            assert await store.records.outcomes(unknown) == []

    async def test_an_outcome_of_an_unknown_context_or_another_record_is_refused(
        self, store: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        good = outcome(kept)
        wrong = [outcome(record()), replace(outcome(kept), record_hash=record().record_hash)]
        answers = await asyncio.gather(
            *(store.records.append_outcome(each) for each in [wrong[0], good, wrong[1]]),
            return_exceptions=True,
        )
        assert answers[1] == good
        assert [type(answers[0]), type(answers[2])] == [UnknownContextError] * 2
        assert await store.records.outcome_page() == [good]

    async def test_the_same_outcome_again_changes_nothing_and_is_returned_as_stored(
        self, store: Opened, other: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        first = outcome(kept)
        again = replace(first, disclosures=b"[2]")
        await add(store, first)
        assert await add(other, again, again) == [first, first]
        assert await store.records.outcome_page() == [first]

    async def test_an_outcome_of_one_source_is_stored_once(
        self, store: Opened, other: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        rivals = [outcome(kept, b"%d" % n, source_key=b"langfuse 1") for n in range(6)]
        answers = [*await add(store, *rivals[:3]), *await add(other, *rivals[3:])]
        (stored,) = await store.records.outcome_page()
        assert answers == [stored] * 6
        assert stored in rivals

    async def test_a_different_outcome_under_the_same_id_is_refused_and_nothing_changes(
        self, store: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        first, bystander = outcome(kept, b"one"), outcome(kept, b"two", at=after(1))
        await add(store, first)
        changed = outcome(kept, b"else", outcome_id=first.outcome_id)
        answers = await asyncio.gather(
            *(store.records.append_outcome(each) for each in (changed, bystander)),
            return_exceptions=True,
        )
        assert isinstance(answers[0], ImmutableRecordError)
        assert "outcome" in str(answers[0])
        assert await store.records.outcome_page() == [first, bystander]

    @pytest.mark.parametrize("text", UNSTORABLE)
    async def test_an_outcome_with_a_text_that_cannot_be_stored_is_refused(
        self, store: Opened, text: str
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        good = outcome(kept)
        bad = [replace(good, **{field: text}) for field in ("name", "model", "error_type")]
        answers = await asyncio.gather(
            *(store.records.append_outcome(each) for each in [*bad, good]), return_exceptions=True
        )
        assert [type(answer) for answer in answers[:3]] == [InvalidInputError] * 3
        assert await store.records.outcome_page() == [good]

    async def test_an_outcome_of_a_record_that_discloses_nothing_is_stored_without_disclosures(
        self, store: Opened, other: Opened
    ) -> None:
        (private,) = await recorded(store, disclosures=b"[]")
        (erased,) = await recorded(store, disclosures=b"[0]")
        (partly,) = await recorded(store, disclosures=b"[0, 1]")
        await store.records.redact(
            erased.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
        )
        await store.records.redact(
            partly.context_id, expected=b"[]", disclosures=b"[1]", redactions=b"[note]"
        )
        given = [outcome(each) for each in (private, erased, partly)]
        stored = await add(other, *given)
        assert [each.disclosures for each in stored] == [b"[]", b"[]", b"[1]"]
        assert [await store.records.outcome(each.outcome_id) for each in given] == stored

    async def test_no_outcome_keeps_disclosures_that_is_appended_while_its_record_is_erased(
        self, store: Opened, other: Opened
    ) -> None:
        for _ in range(20):
            (kept,) = await recorded(store, disclosures=b"[0]")

            async def erase(erased: StoredRecord = kept) -> None:
                await store.records.redact(
                    erased.context_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
                )
                for each in await store.records.outcomes([erased.context_id]):
                    await store.records.redact_outcome(
                        each.outcome_id, expected=b"[]", disclosures=b"[]", redactions=b"[note]"
                    )

            given = [outcome(kept, b"%d" % number) for number in range(4)]
            await asyncio.gather(add(other, *given[:2]), erase(), add(other, *given[2:]))
            stored = await store.records.outcomes([kept.context_id])
            assert [each.disclosures for each in stored] == [b"[]"] * 4

    async def test_redact_outcome_replaces_disclosures_and_redactions_and_nothing_else(
        self, store: Opened, other: Opened
    ) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        given = outcome(kept, signature=b"signed")
        untouched = outcome(kept, at=after(1))
        await add(store, given, untouched)
        change = {"expected": b"[]", "disclosures": b"[]", "redactions": EVERY_BYTE}
        assert await store.records.redact_outcome(given.outcome_id, **change)
        assert not await store.records.redact_outcome(given.outcome_id, **change)
        redacted = replace(given, disclosures=b"[]", redactions=EVERY_BYTE, is_redacted=True)
        assert await other.records.outcomes([kept.context_id]) == [redacted, untouched]
        assert await add(other, given) == [redacted]
        for unknown in ("", "unknown", "\0", "\ud800"):
            assert not await store.records.redact_outcome(unknown, **change)
            assert await store.records.outcome(unknown) is None

    async def test_pages_of_outcomes_go_from_oldest_to_newest(self, store: Opened) -> None:
        (kept,) = await recorded(store, disclosures=b"[0]")
        given = [outcome(kept, at=after(number // 2)) for number in range(10)]
        await add(store, *given)
        ordered = sorted(given, key=lambda each: (each.at, each.outcome_id))
        read: list[StoredOutcome] = []
        while page := await store.records.outcome_page(
            after=read[-1].outcome_id if read else None, limit=3
        ):
            read += page
        assert read == ordered
        assert await store.records.outcome_page(start=after(1), end=after(3)) == ordered[2:6]
        with pytest.raises(InvalidInputError, match="no outcome has the id"):
            await store.records.outcome_page(after="unknown")

    async def test_records_are_found_by_an_outcome_that_matches_all_fields(
        self, store: Opened
    ) -> None:
        kept = await recorded(store, 5, disclosures=b"[0]")
        await add(
            store,
            *(score(each, "helpful", value=float(number)) for number, each in enumerate(kept)),
            score(kept[0], "safe", flag=True),
            score(kept[1], "safe", flag=False),
            score(kept[2], "tone", label_key=b"bad"),
            outcome(kept[3], model="gpt-6"),
            outcome(kept[4], kind="error", model="gpt-6", error_type="RateLimitError"),
        )

        async def found(**fields: Any) -> list[int]:
            summaries = await store.records.having(OutcomeFilter(**fields))
            assert summaries == newest_first([each for each in kept if summary(each) in summaries])
            return [kept.index(each) for each in kept if summary(each) in summaries]

        for operator, numbers in {
            "<": [0, 1],
            "<=": [0, 1, 2],
            ">": [3, 4],
            ">=": [2, 3, 4],
            "=": [2],
            "!=": [0, 1, 3, 4],
        }.items():
            assert await found(name="helpful", value=2.0, operator=operator) == numbers
        assert await found(name="helpful") == [0, 1, 2, 3, 4]
        assert await found(name="safe", flag=True) == [0]
        assert await found(name="safe", flag=False) == [1]
        assert await found(name="tone", label_key=b"bad") == [2]
        assert await found(label_key=b"bad") == [2]
        assert await found(name="helpful", label_key=b"bad") == []
        assert await found(model="gpt-6") == [3, 4]
        assert await found(error_type="RateLimitError") == [4]
        assert await found(model="gpt-6", error_type="RateLimitError") == [4]
        for unknown in ("", "unknown", "\0", "\ud800"):
            assert await found(name=unknown) == []

    async def test_a_record_with_many_such_outcomes_is_listed_once_in_the_pages_of_records(
        self, store: Opened
    ) -> None:
        kept = await recorded(store, 7, disclosures=b"[0]")
        await add(store, *(score(each, "helpful", value=1.0) for each in kept for _ in range(3)))
        query = OutcomeFilter(name="helpful")
        for oldest_first in (False, True):
            ordered = newest_first(kept)[:: -1 if oldest_first else 1]
            before, pages = None, []
            while page := await store.records.having(
                query, before=before, limit=2, oldest_first=oldest_first
            ):
                before = page[-1].context_id
                pages.append(page)
            assert [each for page in pages for each in page] == ordered
            assert [len(page) for page in pages] == [2, 2, 2, 1]
        within = await store.records.having(query, start=after(2), end=after(4))
        assert within == newest_first(kept[2:4])
        with pytest.raises(InvalidInputError, match="no record has the id"):
            await store.records.having(query, before="unknown")

    async def test_predicted_and_billed_tokens_are_those_of_the_newest_contexts_for_a_model(
        self, store: Opened
    ) -> None:
        kept = [replace(record(at=after(n)), model=model) for n, model in enumerate("aab")]
        unknown = replace(record(), model=None)
        await append(store, *kept, unknown)
        tokens = [(10, 11), (20, 19), (30, 33)]
        await add(
            store,
            *(
                outcome(each, at=after(n), model="else", predicted=pair[0], billed=pair[1])
                for n, (each, pair) in enumerate(zip(kept, tokens, strict=True))
            ),
            outcome(unknown, predicted=1, billed=1),
            outcome(kept[0], predicted=1),
            outcome(kept[0], billed=1),
        )
        assert await store.records.measured("a") == [(20, 19), (10, 11)]
        assert await store.records.measured("a", limit=1) == [(20, 19)]
        assert await store.records.measured("b") == [(30, 33)]
        for model in ("else", "", "\0"):
            assert await store.records.measured(model) == []
        assert await store.records.measured_models() == ["a", "b"]

    async def test_pruned_records_leave_no_outcome(self, store: Opened, other: Opened) -> None:
        kept = await recorded(store, 6, disclosures=b"[0]")
        given = [outcome(each, at=after(100 + number)) for number, each in enumerate(kept)]
        await add(store, *given, *(score(each, "helpful", value=1.0) for each in kept))
        assert await store.records.prune(after(4), dry_run=True) == 4
        assert len(await store.records.outcome_page()) == 12
        assert await store.records.prune(after(4)) == 4
        left = await other.records.outcome_page()
        assert {each.context_id for each in left} == {each.context_id for each in kept[4:]}
        assert await other.records.having(OutcomeFilter(name="helpful")) == newest_first(kept[4:])
        with pytest.raises(UnknownContextError):
            await add(store, outcome(kept[0]))
        for earlier, later in pairwise(left):
            assert (earlier.at, earlier.outcome_id) < (later.at, later.outcome_id)
