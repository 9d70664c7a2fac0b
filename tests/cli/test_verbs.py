"""Commands that read, publish, and redrive or discard dead letters."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.cli import events
from headwater.cli.output import pluralize
from headwater.store.loader import load_store
from tests.cli.conftest import FEATURES, Run
from tests.engine.support import records


def drain(folder: Path) -> None:
    """Handle all waiting events, as a worker does."""

    async def drained(store: FeatureStore) -> None:
        async with store:
            await store.drain()

    asyncio.run(drained(load_store(folder / "features.py")))


@pytest.fixture
def letter(folder: Path, run: Run) -> str:
    """The id of a dead letter: a purchase that lacks its amount."""
    run("events", "publish", "purchase", "u1", "currency=EUR")
    drain(folder)
    (letter,) = run("dlq", "list", "--json").json
    return str(letter["id"])


def test_features_are_listed_with_when_they_are_recomputed(run: Run) -> None:
    shown = run("features", "list")
    assert shown.code == 0
    assert "on visit, click" in shown.out
    assert "every 5m" in shown.out
    assert "from shout, total_spend, when read" in shown.out
    listed = {feature["name"]: feature for feature in run("features", "list", "--json").json}
    assert listed["orders"]["refresh"] == "5m"
    assert listed["blurb"]["needs"] == ["shout", "total_spend"]
    assert listed["total_spend"]["description"] == "What a user has spent."
    assert listed["total_spend"]["declared_at"].endswith("features.py:10")
    assert (listed["total_spend"]["max_retries"], listed["visits"]["default"]) == (0, 0)
    assert (listed["orders"]["materialize"], listed["shout"]["materialize"]) == (True, False)
    assert (listed["shout"]["ttl_ms"], listed["shout"]["order"]) == (None, "stream")


def test_values_over_time_are_shown_with_their_causes(folder: Path, run: Run) -> None:
    for number in range(3):
        run("events", "publish", "purchase", "u1", "amount=2.5", "--event-id", f"e{number}")
    drain(folder)
    shown = run("features", "history", "total_spend", "u1", "--limit", "2")
    heading, *rows = shown.out.splitlines()
    assert heading.split("  ")[0] == "AS OF"
    for row, (value, cause) in zip(rows, [("7.5", "e2"), ("5.0", "e1")], strict=True):
        assert f" {value} " in row
        assert row.endswith(cause)
    assert shown.err == "These are the newest 2 values; pass --limit or --until for more.\n"
    values = run("features", "history", "total_spend", "u1", "--since", "1h", "--json").json
    assert [value["value"] for value in values] == [7.5, 5.0, 2.5]
    assert run("features", "history", "total_spend", "u1", "--until", "1h", "--json").json == []
    assert run("features", "history", "total_spend", "u2").out == "No values.\n"
    refused = run("features", "history", "blurb", "u1")
    assert (refused.code, "is a template" in refused.err) == (1, True)
    assert "did you mean 'total_spend'" in run("features", "history", "total_spent", "u1").err


def test_a_value_is_shown_with_its_age_and_source(folder: Path, run: Run) -> None:
    run("events", "publish", "purchase", "u1", "amount=2.5")
    drain(folder)
    (value,) = run("features", "get", "total_spend", "u1", "--json").json
    assert (value["feature"], value["entity_id"], value["value"]) == ("total_spend", "u1", 2.5)
    assert value["source"] == "online"
    assert value["age_ms"] >= 0
    heading, row = run("features", "get", "blurb", "u1").out.splitlines()
    assert heading.split() == ["USER_ID", "BLURB", "SOURCE", "AGE", "AS", "OF"]
    assert "U1! spent 2.5  computed" in row


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        (
            "total_spend",
            "missing",
            "no worker has computed total_spend yet; a worker computes it on purchase",
        ),
        (
            "visits",
            "default",
            "no worker has computed visits yet; a worker computes it on visit or click",
        ),
        ("orders", "missing", "no refresh has written orders yet"),
        ("blurb", "missing", "blurb needs total_spend, with no value; `headwater"),
    ],
)
def test_a_missing_value_is_explained(run: Run, name: str, source: str, why: str) -> None:
    shown = run("features", "get", name, "u1", "u2")
    assert shown.code == 0
    assert shown.out.count(source) == 2
    assert f"u1, u2: {why}" in shown.err


@pytest.mark.usefixtures("home")
def test_a_missing_value_of_a_stored_feature_is_explained(run: Run, folder: Path) -> None:
    stored = 'notes = store.stored_feature("notes", str, entity=User, default="-")\n'
    (folder / "features.py").write_text(FEATURES + stored)

    shown = run("features", "get", "notes", "u2")

    assert "u2: no handler and no set_feature has written notes yet" in shown.err


def test_a_feature_added_later_points_to_the_backfill(folder: Path, run: Run) -> None:
    run("events", "publish", "purchase", "u1", "amount=2.5")
    drain(folder)
    (folder / "features.py").write_text(
        (folder / "features.py").read_text()
        + """

@feature(entity=User, trigger="purchase")
def last_amount(user_id: str, event: ServiceEvent) -> float:
    return event.payload["amount"]
"""
    )
    shown = run("features", "get", "last_amount", "u1", "u2")
    assert "run `headwater backfill last_amount`" in shown.err
    assert shown.err.count("backfill") == 1


def test_a_template_names_its_missing_inputs_for_each_entity(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        (folder / "features.py").read_text()
        + """
@feature(entity=User, template="{total_spend} {orders} {visits}", default="unknown")
def summary(user_id: str) -> str: ...
"""
    )
    run("events", "publish", "purchase", "u1", "amount=2.5")
    drain(folder)
    shown = run("features", "get", "summary", "u1", "u 2", "u3")
    assert shown.out.count("default") == 2
    assert shown.err == (
        "\nu1: summary contains the default of visits\n"
        "u 2, u3: summary needs total_spend, orders, with no value; `headwater features get "
        "total_spend ID` explains why\n"
    )


@pytest.mark.usefixtures("home")
def test_a_template_without_inputs_has_no_note(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        (folder / "features.py").read_text()
        + """
@feature(entity=User, template="always the same")
def fixed(user_id: str) -> str: ...
"""
    )
    shown = run("features", "get", "fixed", "u1")
    assert (shown.code, "always the same" in shown.out, shown.err) == (0, True, "")


@pytest.mark.usefixtures("letter")
def test_a_missing_value_counts_its_dead_letters(run: Run) -> None:
    told = run("features", "get", "total_spend", "u1", "u2").err
    command = "headwater dlq list --feature total_spend --entity-id u1"
    assert f"a worker computes it on purchase; 1 dead letter: {command}\n" in told
    assert told.endswith("a worker computes it on purchase\n")
    assert "KeyError" in run(*command.split()[1:]).out


@pytest.mark.usefixtures("home")
def test_an_event_type_without_a_feature_is_noted(folder: Path, run: Run) -> None:
    hint = "No feature of features.py is triggered by 'purchse'; did you mean 'purchase'?\n"
    slip = run("events", "publish", "purchse", "u1", "amount=3", "--json")
    assert (slip.code, slip.json["event_type"], slip.err) == (0, "purchse", hint)
    slip = run("events", "publish", "purchse", "u1", "amount=3", "--file", "features.py")
    (logged,) = records(slip.err, "event type triggers no feature")
    assert logged["hint"] == "no feature is triggered by 'purchse'; did you mean 'purchase'?"
    assert run("events", "publish", "click", "u1").err == ""
    line = b'{"event_type": "purchse", "entity_id": "u1"}\n'
    assert run("events", "publish", "-", stdin=line * 2).err == hint
    (folder / "features.py").unlink()
    assert run("events", "publish", "purchse", "u1").err == ""


@pytest.mark.usefixtures("home")
def test_a_features_file_whose_store_is_in_another_one_is_loaded_once(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "more.py").write_text(
        "from features import store\nfrom headwater import entity, feature\n"
        "@entity(store)\nclass Page:\n    page_id: str\n"
        "@feature(entity=Page, trigger='saved')\ndef saved(page_id: str, event) -> bool: ...\n"
    )
    monkeypatch.setenv("HEADWATER_FEATURES", "more.py")
    hint = "No feature of more.py is triggered by 'savd'; did you mean 'saved'?\n"
    assert run("events", "publish", "savd", "p1").err == hint


@pytest.mark.usefixtures("home")
def test_a_features_file_that_publishes_when_it_is_loaded_is_warned_of(
    folder: Path, run: Run
) -> None:
    with (folder / "features.py").open("a") as file:
        file.write("\nstore.sync.publish('purchase', 'u1', {'amount': 1})\nstore.sync.close()\n")
    (logged,) = records(
        run("features", "list").err, "features file used its store while it was loaded"
    )
    assert "if __name__ == '__main__':" in logged["hint"]


def test_waiting_events_are_named_first(run: Run) -> None:
    run("events", "publish", "purchase", "u1", "amount=2.5")
    for name in ("total_spend", "orders"):
        told = run("features", "get", name, "u1").err
        assert "u1: 1 event waiting (see `headwater lag`); no " in told


@pytest.mark.usefixtures("home")
def test_a_scheduled_feature_names_the_log_event_of_failures(run: Run) -> None:
    told = run("features", "get", "orders", "u1").err
    assert "log `refresh failed` on errors" in told


@pytest.mark.usefixtures("home")
def test_a_value_of_an_old_type_is_not_reported_as_never_computed(folder: Path, run: Run) -> None:
    run("events", "publish", "purchase", "u1", "amount=2.5")
    drain(folder)
    written = (folder / "features.py").read_text()
    (folder / "features.py").write_text(written.replace("-> float", "-> str"))
    shown = run("features", "get", "total_spend", "u1", "u2")
    assert shown.out.count("missing") == 2
    assert "u1: feature 'total_spend' was stored as 2.5, which is not str" in shown.err
    assert "u2: no worker has computed total_spend yet" in shown.err


@pytest.mark.usefixtures("home")
def test_an_expired_value_is_not_reported_as_never_computed(folder: Path, run: Run) -> None:
    mended = (folder / "features.py").read_text().replace("max_retries=0", 'ttl="1h"')
    (folder / "features.py").write_text(mended)
    told = run("features", "get", "total_spend", "u1").err
    assert "no worker has computed total_spend within its ttl of 1h;" in told


def test_a_feature_that_returns_none_never_has_a_value(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        (folder / "features.py").read_text()
        + """
@feature(entity=User, trigger="purchase")
async def tell(user_id: str, event: ServiceEvent) -> None: ...
"""
    )
    run("events", "publish", "purchase", "u1", "amount=2.5")
    assert "never has a value" in run("features", "get", "tell", "u1").err
    assert run("features", "list", "--json").json[-1]["type"] == "None"


@pytest.mark.usefixtures("home")
def test_the_features_file_comes_from_the_settings(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "features.py").rename(folder / "shop.py")
    monkeypatch.setenv("HEADWATER_FEATURES", "shop.py")
    assert run("features", "get", "shout", "u1", "--json").json[0]["value"] == "U1!"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["shop/features.py", "shop.features"])
def test_a_features_file_may_be_a_module_of_a_package(folder: Path, name: str) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "marks.py").write_text("MARK = '!'\n")
    declared = (folder / "features.py").read_text().replace('"!"', "MARK")
    (folder / "shop" / "features.py").write_text(f"from .marks import MARK\n{declared}")

    command = [sys.executable, "-m", "headwater", "dlq", "list", "--feature", "total_spent"]
    slip = subprocess.run(
        [*command, "--file", name], capture_output=True, text=True, timeout=60, check=True
    )
    assert slip.stderr == f"{name} declares no feature 'total_spent'; did you mean 'total_spend'?\n"


@pytest.mark.usefixtures("home")
def test_a_feature_that_fails_and_one_that_is_unknown_are_errors(run: Run) -> None:
    failed = run("features", "get", "broken", "u1")
    assert failed.code == 1
    assert failed.err.startswith("error: feature 'broken' failed for 'u1': ZeroDivisionError")
    unknown = run("features", "get", "totl_spend", "u1")
    assert unknown.code == 1
    assert "did you mean 'total_spend'? (searched features.py; pass --file" in unknown.err


def test_a_mistake_in_the_file_is_reported_with_file_and_line(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        "from headwater import FeatureStore\nstore = FeaturStore()\n"
    )
    shown = run("features", "list")
    assert shown.code == 1
    assert shown.err.startswith(f"error: {folder / 'features.py'}:2: NameError")


def test_an_event_is_published_with_pairs_or_json(folder: Path, run: Run) -> None:
    pairs = run("events", "publish", "purchase", "u1", "amount=1.5", "shop=north", "--json")
    assert pairs.json["duplicate"] is False
    assert pairs.json["event_type"] == "purchase"
    run("events", "publish", "purchase", "u1", '{"amount": 2}')
    drain(folder)
    assert run("features", "get", "total_spend", "u1", "--json").json[0]["value"] == 3.5


def test_an_event_repeated_under_its_id_counts_once(folder: Path, run: Run) -> None:
    arguments = ["events", "publish", "purchase", "u1", "amount=1", "--event-id", "e1"]
    arguments += ["--timestamp", "2026-01-31T12:00:00Z"]
    assert run(*arguments).out.splitlines()[1].split()[-1] == "new"
    repeated = run(*arguments, "--json").json
    assert (repeated["duplicate"], repeated["event_id"]) == (True, "e1")
    assert repeated["timestamp"] == "2026-01-31T12:00:00Z"
    drain(folder)
    assert run("features", "get", "total_spend", "u1", "--json").json[0]["value"] == 1.0


def test_a_batch_is_read_from_stdin(folder: Path, run: Run) -> None:
    line = '{"event_type": "visit", "entity_id": "u1"}'
    published = run("events", "publish", "-", "--json", stdin=f"{line}\n\n{line}\n")
    assert len(published.json) == 2
    drain(folder)
    assert run("features", "get", "visits", "u1", "--json").json[0]["value"] == 2


def test_an_empty_batch_is_noted(folder: Path, run: Run) -> None:
    nothing = run("events", "publish", "-", stdin="\n\n")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "stdin is empty; no events were published.\n"
    assert run("events", "publish", "-", "--json").json == []
    assert not (folder / ".headwater").exists()


def test_a_time_without_a_zone_is_refused_with_an_example(run: Run) -> None:
    line = '{"event_type": "visit", "entity_id": "u1", "timestamp": "2026-01-31T12:00:00"}'
    refused = run("events", "publish", "-", stdin=line)
    assert refused.code == 1
    assert "line 1: 2026-01-31T12:00:00 has no time zone; add one, as in" in refused.err


def test_a_line_that_is_not_utf_8_is_named(folder: Path, run: Run) -> None:
    line = b'{"event_type": "visit", "entity_id": "u1"}\n'
    refused = run("events", "publish", "-", stdin=line + line.replace(b"u1", b"\xff"))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: line 2: not UTF-8 (byte 0xff at 38); convert the events to UTF-8; nothing was "
        "published\n"
    )
    assert run("events", "publish", "-", stdin="x\n".encode("utf-16")).err.startswith(
        "error: line 1: not UTF-8 (byte 0xff at 0)"
    )
    assert not (folder / ".headwater").exists()


def test_a_byte_order_mark_is_ignored(run: Run) -> None:
    line = '\ufeff{"event_type": "visit", "entity_id": "u1"}\n'
    assert len(run("events", "publish", "-", "--json", stdin=line).json) == 1
    assert run("events", "publish", "-", stdin=f"{line}{line}").err.startswith("error: line 2: ")


@pytest.mark.usefixtures("home")
def test_arguments_that_are_not_utf_8_are_an_error(run: Run) -> None:
    refused = run("dlq", "show", "\udcff")
    assert (refused.code, refused.err) == (1, "error: '\\xff' is not UTF-8 text\n")


@pytest.mark.parametrize(
    "line",
    [
        "[" * 10_000,
        "no json",
        '{"event_type": "visit"}',
        '{"event_type": "visit", "entity_id": ""}',
        '{"event_type": "visit", "entity_id": "u1", "payloads": {}}',
    ],
)
def test_one_bad_line_refuses_the_batch(folder: Path, run: Run, line: str) -> None:
    good = '{"event_type": "visit", "entity_id": "u1"}\n'
    refused = run("events", "publish", "-", stdin=good + line)
    assert refused.code == 1
    assert refused.err.startswith("error: line 2: ")
    drain(folder)
    assert run("features", "get", "visits", "u1", "--json").json[0]["source"] == "default"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["purchase"], "missing ENTITY_ID"),
        (["purchase", "u1", "amount"], "write key=value pairs"),
        (["purchase", "u1", "{no json"], "the payload is not JSON"),
        (["purchase", "u1", "--timestamp", "yesterday"], "'yesterday' is not a time"),
        (["purchase", "u1", "--timestamp", "2026-01-31T12:00:00"], "as in 2026-01-31T12:00:00Z"),
        (["purchase", "u1", "temp=1", "temp=2"], "'temp' appears twice"),
        (["purchase", "u1", "amount=1e400"], "'amount': Number out of range; use another value"),
        (["purchase", "u1", "amount=[1e400]"], "'amount': Number out of range - at `$[0]`"),
        (["purchase", "u1", "amount=" + "[" * 10_000], "'amount': maximum recursion depth"),
        (["purchase", "u1", "a=\udcff"], r"'a=\xff' is not UTF-8 text; nothing was published"),
        (["purchase", "\udcff"], r"'\xff' is not UTF-8 text; nothing was published"),
        (["-", "u1"], "takes no other arguments"),
    ],
)
def test_an_invalid_event_is_a_usage_error(run: Run, arguments: list[str], told: str) -> None:
    shown = run("events", "publish", *arguments)
    assert shown.code == 2
    assert told in shown.err


def test_dead_letters_are_listed_and_shown(run: Run, letter: str) -> None:
    listed = run("dlq", "list").out
    assert "KeyError: 'amount'" in listed
    assert run("dlq", "list", "--feature", "visits").out == "No dead letters.\n"
    assert run("dlq", "list", "--event-type", "visit", "--json").json == []
    shown = run("dlq", "show", letter)
    assert '{"currency":"EUR"}' in shown.out
    assert "Traceback" in shown.out
    assert run("dlq", "show", letter, "--json").json["attempts"] == 1


def test_a_redriven_letter_is_run_again(folder: Path, run: Run, letter: str) -> None:
    assert run("dlq", "redrive", letter, "--json").json == {"redriven": [letter]}
    assert run("dlq", "list", "--json").json == []
    mended = (folder / "features.py").read_text().replace('["amount"]', '.get("amount", 7)')
    (folder / "features.py").write_text(mended)
    drain(folder)
    assert run("features", "get", "total_spend", "u1", "--json").json[0]["value"] == 7.0


def test_all_letters_are_redriven_or_discarded_at_once(folder: Path, run: Run, letter: str) -> None:
    assert run("dlq", "redrive", "--all").out.startswith("Queued 1 dead letter ")
    drain(folder)
    assert (
        run("dlq", "discard", "--all", "--feature", "visits", "--yes").out
        == "Discarded 0 dead letters.\n"
    )
    discarded = run("dlq", "discard", "--all", "--file", "features.py", "--yes")
    assert discarded.out.startswith("Discarded 1 dead letter")
    assert run("dlq", "list", "--json").json == []


def test_discarding_asks_for_confirmation_on_a_terminal(
    run: Run, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "is_interactive", lambda: True)
    refused = run("dlq", "discard", letter, stdin="n\n")
    assert refused.code == 1
    assert "Discard 1 dead letter?" in refused.out
    assert len(run("dlq", "list", "--json").json) == 1
    assert run("dlq", "discard", letter, "--yes").code == 0
    assert run("dlq", "discard", letter, stdin="y\n").code == 1


def test_discarding_all_without_a_terminal_needs_yes(run: Run, letter: str) -> None:
    refused = run("dlq", "discard", "--all")
    assert refused.code == 2
    assert "without a terminal; pass --yes" in refused.err
    assert [listed["id"] for listed in run("dlq", "list", "--json").json] == [letter]
    assert run("dlq", "discard", letter).out == "Discarded 1 dead letter.\n"


def test_dead_letters_are_selected_by_ids_or_by_all(run: Run, letter: str) -> None:
    neither = run("dlq", "redrive")
    assert neither.code == 2
    assert "no dead letters selected; pass their ids, or --all" in neither.err
    for verb in ("redrive", "discard"):
        both = run("dlq", verb, letter, "--all")
        assert both.code == 2
        assert "cannot combine ids with --all; pass one of them" in both.err
    assert run("dlq", "discard", letter, "--feature", "visits").code == 2
    unknown = run("dlq", "show", "4711")
    assert unknown.code == 1
    assert "no dead letter '4711'" in unknown.err


def test_the_graph_is_mermaid_or_json(run: Run) -> None:
    assert run("graph", "features.py").out.startswith("flowchart LR\n")
    drawn = run("graph", "--json").json
    edges = [tuple(edge.values()) for edge in drawn["edges"]]
    assert ("event:purchase", "feature:total_spend", "declaration") in edges


def test_settings_are_shown_with_their_origin_and_without_secrets(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "All values are defaults" in run("config", "show").err
    monkeypatch.setenv("HEADWATER_API_KEY", "sesame")
    (folder / "headwater.toml").write_text("[http]\nport = 9000\n")
    shown = run("config", "show")
    assert "sesame" not in shown.out
    settings = {setting["path"]: setting for setting in run("config", "show", "--json").json}
    assert (settings["api_key"]["value"], settings["api_key"]["origin"]) == ("***", "environment")
    assert (settings["http.port"]["value"], settings["http.port"]["origin"]) == (9000, "file")


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 entities"), (1, "1 entity"), (2, "2 entities")]
)
def test_counts_have_singular_and_plural(number: int, said: str) -> None:
    assert pluralize(number, "entity", "entities") == said
    assert pluralize(number, "value") == f"{number} value{'' if number == 1 else 's'}"


def test_a_table_is_framed_on_a_terminal_and_plain_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run("features", "list").out
    assert "━" not in plain
    assert not any(line.endswith(" ") for line in plain.splitlines())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "─" in run("features", "list").out
