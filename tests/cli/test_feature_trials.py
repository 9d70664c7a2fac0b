"""`headwater features test` runs one handler, and prints what it would do."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run


def test_a_handler_is_run_without_a_store(run: Run, folder: Path) -> None:
    tested = run("features", "test", "total_spend", "u1", "--event", '{"amount": 5}', "--json")

    assert (tested.code, tested.json["value"]) == (0, 5.0)
    assert tested.json["writes"][0]["feature"] == "total_spend"
    assert tested.err == "There is no store yet; this runs on an empty one.\n"
    assert not (folder / ".headwater").exists()


def test_a_stored_event_or_a_file_is_the_event(run: Run, folder: Path) -> None:
    run(
        "events",
        "publish",
        "purchase",
        "u1",
        "amount=7",
        "--event-id",
        "e1",
        "--file",
        "features.py",
    )
    (folder / "event.json").write_text('{"amount": 8}')

    stored = run("features", "test", "total_spend", "u1", "--event-id", "e1", "--json")
    read = run("features", "test", "total_spend", "u1", "--event", "@event.json", "--json")
    unknown = run("features", "test", "total_spend", "u1", "--event-id", "e2")

    assert (stored.json["value"], stored.json["event"]["event_id"]) == (7.0, "e1")
    assert read.json["value"] == 8.0
    assert "'u1' has no event with the id 'e2'" in unknown.err


def test_the_result_is_printed(run: Run) -> None:
    tested = run(
        *("features", "test", "visits", "u1", "--event", "{}", "--type", "click"),
        *("--at", "2026-01-31T12:00:00Z"),
    )

    value, took, event, empty, title, columns, row = tested.out.splitlines()
    assert (value.split(), took.split()[0], empty) == (["value", "1"], "took", "")
    assert event.split()[:2] == ["event", "click"]
    assert (title, columns.split()[0]) == ("Would write", "FEATURE")
    assert row.split() == ["visits", "u1", "1", "2026-01-31T12:00:00Z", "online"]
    assert tested.err.endswith("Nothing was stored or published.\n")


def test_a_failing_handler_is_shown_with_its_source_line(run: Run, folder: Path) -> None:
    failed = run("features", "test", "total_spend", "u1", "--event", "{}")
    as_json = run("features", "test", "broken", "u1", "--json")

    assert failed.code == as_json.code == 1
    assert f'File "{folder / "features.py"}", line 14, in total_spend' in failed.err
    assert 'return before + event.payload["amount"]' in failed.err
    assert failed.err.endswith("total_spend of u1 failed: KeyError: 'amount'\n")
    assert as_json.json["error"] == "ZeroDivisionError: integer division or modulo by zero"
    assert "return 1 // 0" in as_json.json["traceback"]


def test_what_is_wrong_with_the_arguments_is_named(run: Run) -> None:
    for arguments, problem in [
        (("total_spend", "u1", "--event", "{}", "--url", "http://x"), "features file here"),
        (("total_spend", "u1", "--event", "{}", "--event-id", "e1"), "--event or --event-id"),
        (("total_spend", "u1", "--event", "amount=5"), "--event is one JSON object"),
        (("total_spend", "u1"), "give an event: its payload, or --event or --event-id"),
        (("total_spent", "u1"), "did you mean 'total_spend'?"),
    ]:
        refused = run("features", "test", *arguments)
        assert refused.code in (1, 2)
        assert problem in " ".join(refused.err.replace("│", "").split()), refused.err
