"""Events and stored values: construction and validation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.clock import to_micros
from headwater.errors import EventError
from headwater.model.values import (
    LONGEST_ID,
    LONGEST_NAME,
    Cell,
    FeatureValue,
    ServiceEvent,
    as_of_time,
    decode_cells,
    encode_cells,
    new_id,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_an_event_needs_a_type_and_an_entity_and_gets_the_rest() -> None:
    before = datetime.now(UTC)
    event = ServiceEvent("purchase", "u1")
    assert event.payload == {}
    assert before <= event.timestamp <= datetime.now(UTC)
    assert event.event_id != ServiceEvent("purchase", "u1").event_id


def test_an_event_without_a_given_timestamp_shows_and_equals_only_what_is_stored() -> None:
    event = ServiceEvent("purchase", "u1")
    stored = ServiceEvent("purchase", "u1", {}, event.timestamp, event.event_id)
    assert event == stored
    assert stored == event
    assert repr(event) == repr(stored)
    assert event != ServiceEvent("refund", "u1", {}, event.timestamp, event.event_id)
    assert event != "purchase"
    assert event.timestamp.fold == 0


def test_two_events_do_not_share_a_payload() -> None:
    first, second = ServiceEvent("purchase", "u1"), ServiceEvent("purchase", "u1")
    assert first.payload is not second.payload


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ServiceEvent("purchase", "u1").entity_id = "u2"  # type: ignore[misc]


def test_new_ids_sort_by_time() -> None:
    ids = [new_id() for _ in range(100)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 100


@pytest.mark.parametrize("field", ["event_type", "entity_id", "event_id"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be a non-empty text"),
        (5, "must be a non-empty text"),
        (None, "must be a non-empty text"),
        (b"u1", "must be a non-empty text"),
        ("x" * (LONGEST_ID + 1), "is longer than"),
        ("a\nb", "cannot be printed"),
        ("a\x00", "cannot be printed"),
        ("\ud800", "cannot be printed"),
    ],
)
def test_an_invalid_name_or_id_is_refused(field: str, text: Any, problem: str) -> None:
    fields: dict[str, Any] = {"event_type": "purchase", "entity_id": "u1", field: text}
    with pytest.raises(EventError, match=f"{field} .*{problem}"):
        ServiceEvent(**fields)


def test_the_longest_names_and_ids_are_accepted() -> None:
    ServiceEvent("x" * LONGEST_NAME, "y" * LONGEST_ID, event_id="z" * LONGEST_ID)
    with pytest.raises(EventError, match="event_type is longer than 256 characters"):
        ServiceEvent("x" * (LONGEST_NAME + 1), "u1")


@pytest.mark.parametrize("entity_id", ["ünï", "用户", "a b", "user:1/2", "{p07}", "😀"])
def test_an_id_may_be_any_printable_text(entity_id: str) -> None:
    assert ServiceEvent("purchase", entity_id).entity_id == entity_id


@pytest.mark.parametrize(
    "entity_id",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
        "\u0d28\u0d4d\u200d",
    ],
    ids=["Persian", "Sinhala", "Malayalam"],
)
def test_an_id_may_have_joiners_where_a_spelling_has_them(entity_id: str) -> None:
    assert ServiceEvent(entity_id, entity_id, event_id=entity_id).entity_id == entity_id


@pytest.mark.parametrize(
    "entity_id",
    [
        *("ad\u200ca", "ad\u200da", "\u200cada", "\U0001f469\u200d\U0001f4bb"),
        *(
            "\u0645\u06cc\u200c",
            "\u0645\u06cc\u200c\u200c\u062e",
            "\u0645\u06cc\u200d\u062e",
            "\u06f1\u200c\u06f2",
        ),
        *(
            "\u0dca\u200d\u200d",
            "\u200b",
            "\u200e\u0645",
            "\u0645\u2060\u06cc",
            "\ufeffada",
            "\u00ad",
        ),
    ],
)
def test_an_id_has_no_character_that_cannot_be_seen(entity_id: str) -> None:
    with pytest.raises(EventError, match="entity_id contains characters that cannot be printed"):
        ServiceEvent("purchase", entity_id)


@pytest.mark.parametrize("payload", [None, [], "x", 5])
def test_a_payload_that_is_not_an_object_is_refused(payload: Any) -> None:
    with pytest.raises(EventError, match="payload must be an object"):
        ServiceEvent("purchase", "u1", payload)


@pytest.mark.parametrize(
    "timestamp",
    [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 0, None],  # noqa: DTZ001 - naive on purpose
)
def test_a_timestamp_without_a_time_zone_is_refused(timestamp: Any) -> None:
    with pytest.raises(EventError, match="timestamp must be a datetime with a time zone"):
        ServiceEvent("purchase", "u1", timestamp=timestamp)


def test_an_event_from_json_is_checked_in_the_same_words() -> None:
    with pytest.raises(msgspec.ValidationError, match="entity_id must be a non-empty text"):
        msgspec.json.decode(b'{"event_type":"purchase","entity_id":""}', type=ServiceEvent)


def test_an_event_survives_json() -> None:
    event = ServiceEvent("purchase", "u1", {"amount": 5, "tags": ["a"]}, NOON, "e1")
    assert msgspec.json.decode(msgspec.json.encode(event), type=ServiceEvent) == event


@given(
    st.dictionaries(
        st.text(),
        st.builds(
            Cell,
            st.integers(-(2**63), 2**63 - 1).map(lambda n: msgspec.Raw(str(n).encode())),
            st.integers(0, 2**60),
            st.integers(0, 2**60),
            st.none() | st.integers(0, 2**60),
        ),
    )
)
def test_stored_cells_come_back_byte_for_byte(cells: dict[str, Cell]) -> None:
    back = decode_cells(encode_cells(cells))
    assert back.keys() == cells.keys()
    for name, cell in cells.items():
        assert bytes(back[name].value) == bytes(cell.value)
        assert msgspec.structs.astuple(back[name])[1:] == msgspec.structs.astuple(cell)[1:]


def test_a_value_expires_at_the_end_of_its_time_to_live() -> None:
    cell = Cell(msgspec.Raw(b"1"), as_of=0, written_at=0, expires_at=10)
    assert not cell.expired(9)
    assert cell.expired(10)
    assert not Cell(msgspec.Raw(b"1"), as_of=0, written_at=0).expired(2**60)


def test_as_of_time_of_a_cell() -> None:
    moment = NOON + timedelta(microseconds=1)
    assert as_of_time(Cell(msgspec.Raw(b"1"), to_micros(moment), 0)) == moment


@pytest.mark.parametrize(
    ("age", "milliseconds"),
    [
        (timedelta(0), 0),
        (timedelta(seconds=2), 2_000),
        (timedelta(milliseconds=1_001), 1_001),
        (timedelta(microseconds=1_999), 1),
        (timedelta(seconds=-5), 0),
    ],
)
def test_a_value_s_age_is_in_milliseconds_and_never_negative(
    age: timedelta, milliseconds: int
) -> None:
    assert FeatureValue(1, NOON, "online").age_ms(NOON + age) == milliseconds


@given(st.integers(0, 10**12))
def test_an_age_is_exact(milliseconds: int) -> None:
    later = NOON + timedelta(milliseconds=milliseconds)
    assert FeatureValue(1, NOON, "online").age_ms(later) == milliseconds


def test_a_value_that_is_missing_has_no_age() -> None:
    assert FeatureValue(None, None, "missing").age_ms(NOON) is None
