"""`headwater events list` and `show`, and `headwater refresh`."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from headwater import FeatureStore, event
from headwater.store.loader import load_store
from tests.cli.conftest import FEATURES, Run


def drain() -> None:
    """Handle the waiting events in this process."""
    store = load_store("features.py")
    store.sync.drain()
    store.sync.close()


def published(run: Run, event_type: str, entity_id: str, *payload: str) -> str:
    event_id: str = run("events", "publish", event_type, entity_id, *payload, "--json").json[
        "event_id"
    ]
    return event_id


def test_events_are_listed_newest_first_whether_or_not_they_were_handled(run: Run) -> None:
    first = published(run, "purchase", "ada", "amount=2.5")
    drain()
    second = published(run, "visit", "o'brien")
    listed = run("events", "list", "--json").json
    assert [event["event_id"] for event in listed] == [second, first]
    assert listed[1]["payload"] == {"amount": 2.5}
    assert '{"amount":2.5}' in run("events", "list").out
    only = run("events", "list", "--entity-id", "o'brien", "--event-type", "visit", "--json").json
    assert [event["event_id"] for event in only] == [second]
    assert run("events", "list", "--before", "1h").out == "No events.\n"
    misspelled = run("events", "list", "--event-type", "vist")
    assert "is triggered by 'vist'; did you mean 'visit'?" in misspelled.err


def test_an_event_is_shown_with_its_payload_and_its_dead_letters(run: Run) -> None:
    event_id = published(run, "purchase", "ada", "price=2.5")
    drain()
    shown = run("events", "show", event_id).out
    assert '{"price":2.5}' in shown
    assert "dead letters  total_spend" in shown
    as_json = run("events", "show", event_id, "--json").json
    assert [event["event_id"] for event in as_json["events"]] == [event_id]
    assert [letter["feature"] for letter in as_json["dead_letters"]] == ["total_spend"]
    unknown = run("events", "show", "nope")
    assert (unknown.code, unknown.out) == (1, "")
    assert "no event has the id 'nope'; see `headwater events list`" in unknown.err


def test_a_schedule_is_run_now(run: Run) -> None:
    published(run, "visit", "u1")
    drain()
    queued = run("refresh", "orders")
    assert queued.code == 0
    assert "Queued a run of orders" in queued.err
    assert run("lag", "--json").json["waiting"] == 1
    drain()
    assert run("lag", "--json").json["waiting"] == 0
    assert "feature 'visits' has no schedule" in run("refresh", "visits").err
    assert "did you mean 'orders'?" in run("refresh", "ordres").err


def test_publish_with_wait_says_whether_the_event_is_visible_or_why_not(run: Run) -> None:
    waiting = run("events", "publish", "purchase", "ada", "amount=2", "--wait", "20ms")
    assert waiting.code == 3
    assert "no worker is running" in waiting.out
    drain()
    given = ("nothing", "ada", "--wait", "20ms", "--file", "features.py")
    assert run("events", "publish", *given, "--json").json["visible"] is True
    assert "yes" in run("events", "publish", *given).out
    assert "visible" not in run("events", "publish", "nothing", "ada").out
    refused = run("events", "publish", "purchase", "ada", "--wait", "2m")
    assert (refused.code, "longer than the maximum of 60s" in refused.err) == (1, True)


def test_publish_and_load_refuse_what_does_not_fit_the_schema_of_the_features_file(
    run: Run, folder: Path
) -> None:
    declared = '@store.event("purchase")\nclass Purchase:\n    amount: float\n'
    (folder / "features.py").write_text(FEATURES + declared)
    row = '{"event_type": "purchase", "entity_id": "u1", "amount": "five"}\n'
    (folder / "past.jsonl").write_text(row)

    published = run("events", "publish", "purchase", "u1", "amount=five")
    loaded = run("events", "load", "past.jsonl", "--now")

    for refused in (published, loaded):
        assert refused.code == 1
        assert "payload.amount does not fit Purchase, the schema of 'purchase'" in refused.err
    assert run("events", "publish", "purchase", "u1", "amount=5").code == 0
    stored = run("events", "list", "--event-type", "purchase", "--json").json
    assert [event["payload"] for event in stored] == [{"amount": 5}]


DECIMALS = """
from decimal import Decimal
@store.event("purchase")
class Purchase:
    amount: Decimal
    ratio: float = 0.0
"""


def _published_decimals(run: Run, *options: str) -> list[object]:
    given = ("purchase", "u1", "amount=12345678901234567.80", "ratio=1.10")
    assert run("events", "publish", *given, *options).code == 0
    stored = run("events", "list", "--event-type", "purchase", "--json").json
    return [event["payload"] for event in stored]


@pytest.mark.parametrize("options", [(), ("--file", "features.py")])
def test_a_published_decimal_keeps_the_digits_of_the_argument(
    run: Run, folder: Path, options: tuple[str, ...]
) -> None:
    (folder / "features.py").write_text(FEATURES + DECIMALS)
    exact = [{"amount": "12345678901234567.80", "ratio": 1.1}]
    assert _published_decimals(run, *options) == exact


def test_a_published_decimal_keeps_its_digits_where_the_schema_is_that_of_a_server(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    @event(served[1], "purchase")
    @dataclass
    class Purchase:
        amount: Decimal
        ratio: float = 0.0

    assert {"amount": "12345678901234567.80", "ratio": 1.1} in _published_decimals(remote)


def test_publish_and_load_refuse_events_of_an_erased_entity_without_naming_the_file(
    run: Run, folder: Path
) -> None:
    published(run, "purchase", "carl", "amount=3")
    drain()
    assert run("forget", "User", "carl", "--reason", "asked", "--yes").code == 0
    refused = run("events", "publish", "purchase", "carl", "amount=3", "--wait", "1s")
    assert refused.code == 1
    assert "was erased" in refused.err
    row = '{"event_type": "purchase", "entity_id": "carl", "amount": 3}\n'
    (folder / "past.jsonl").write_text(row)
    (loaded,) = run("events", "load", "past.jsonl", "--now", "--json").json
    assert (loaded["published"], loaded["erased"]) == (0, 1)
    assert run("events", "list", "--entity-id", "carl").out == "No events.\n"
