"""Commands for operators: lag, rebuild, audit, migrate, dead letters by filter."""

import os
import pwd
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from headwater.cli import operating, output
from headwater.core import progress
from headwater.model.admin import ConsumerLag
from headwater.store.verbs.admin import AdminVerbs
from tests.cli.conftest import FEATURES_WITH_RARE_TICKS, Run
from tests.cli.test_verbs import drain


def lose_online(folder: Path) -> None:
    with closing(sqlite3.connect(folder / ".headwater" / "headwater.db")) as db, db:
        db.execute("DELETE FROM entities")


@pytest.fixture
def bought(folder: Path, run: Run) -> None:
    """A store with some values."""
    for user in ("u1", "u2"):
        run("events", "publish", "purchase", user, "amount=2.5")
    run("events", "publish", "visit", "u1")
    drain(folder)


def test_lag_shows_each_partition_and_the_total(folder: Path, run: Run) -> None:
    for user in ("u1", "u2", "u3"):
        run("events", "publish", "visit", user)
    heading, *rows, total = run("lag").out.splitlines()
    assert heading.split() == ["PARTITION", "OWNER", "WAITING", "OLDEST"]
    assert [row.split()[0] for row in rows] == [str(number) for number in range(17)]
    assert sum(int(row.split()[2]) for row in rows[:-1]) == 3
    assert rows[-1].split() == ["16", "(SQL", "ticks)", "–", "0", "–"]
    assert total.split()[:4] == ["all", "0", "workers", "3"]
    shown = run("lag", "features.py", "--json").json
    assert shown["waiting"] == 3
    assert shown["age_ms"] >= 0
    oldest = min(part["oldest_at"] for part in shown["partitions"] if part["waiting"])
    assert shown["oldest_at"] == oldest
    drain(folder)
    shown = run("lag", "--json").json
    assert (shown["waiting"], shown["oldest_at"], shown["age_ms"]) == (0, None, None)


def test_groups_lists_each_group_and_drop_forgets_one_that_was_left(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "features.py").write_text(FEATURES_WITH_RARE_TICKS)
    run("events", "publish", "visit", "u1")
    assert run("groups", "list").out == "No consumer groups: no worker has run yet.\n"
    drain(folder)
    monkeypatch.setenv("HEADWATER_WORKER_CONSUMER_GROUP", "experiment")
    drain(folder)
    monkeypatch.delenv("HEADWATER_WORKER_CONSUMER_GROUP")
    run("events", "publish", "visit", "u2")
    drain(folder)
    heading, left, used = run("groups", "list").out.splitlines()
    assert heading.split() == ["GROUP", "WORKERS", "WAITING", "OLDEST", "LAST", "COMMIT"]
    assert left.split()[:3] == ["experiment", "0", "1"]
    assert used.split()[:4] == ["headwater_workers", "0", "0", "–"]
    assert run("lag").out.splitlines()[-2].split()[:3] == ["experiment", "0", "1"]
    (shown, _) = run("lag", "--json").json["groups"]
    assert shown["name"] == "experiment"
    assert shown["workers"] == []
    assert shown["waiting"] == 1
    assert "did you mean 'experiment'" in run("groups", "drop", "experimnt", "--yes").err
    assert "pass --yes" in run("groups", "drop", "experiment").err
    dropped = run("groups", "drop", "experiment", "--yes").out
    assert dropped == "Dropped consumer group experiment, which had 1 waiting event.\n"
    (group,) = run("groups", "list", "--json").json
    assert group["name"] == "headwater_workers"


@pytest.mark.usefixtures("home")
def test_lag_is_watched_at_a_terminal_until_ctrl_c(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("lag", "--watch").code == 2
    looks: list[int] = []

    async def interrupted(admin: AdminVerbs) -> list[ConsumerLag]:
        looks.append(len(looks))
        if len(looks) == 3:
            raise KeyboardInterrupt
        return [ConsumerLag(0, "somebody", 70 + len(looks), None)]

    monkeypatch.setattr(operating, "is_interactive", lambda: True)
    monkeypatch.setattr(operating, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(AdminVerbs, "lag", interrupted)
    shown = run("lag", "--watch")
    assert shown.code == 0
    assert "somebody" in shown.out
    assert "72" in shown.out


@pytest.mark.usefixtures("bought")
def test_a_lost_online_store_is_noticed_and_rebuilt(folder: Path, run: Run) -> None:
    assert run("audit").out == "No differences: compared 4 values of 2 entities.\n"
    lose_online(folder)
    differs = run("audit", "features.py")
    assert differs.code == 1
    heading, *rows = differs.out.splitlines()
    assert heading.split()[:4] == ["ENTITY", "ENTITY", "ID", "FEATURE"]
    assert len(rows) == 4
    assert any(row.split()[:5] == ["User", "u1", "total_spend", "–", "–"] for row in rows)
    assert "`headwater rebuild`" in differs.err
    rebuilt = run("rebuild", "--json")
    assert rebuilt.json == {"entity_ids": 2, "values": 4}
    assert run("audit").code == 0
    assert run("features", "get", "total_spend", "u2", "--json").json[0]["value"] == 2.5
    assert "Rebuilt 4 values of 2 entities" in run("rebuild", "features.py").out


@pytest.mark.usefixtures("bought")
def test_an_audit_as_json_has_both_sides_and_says_when_there_is_more(
    folder: Path, run: Run
) -> None:
    agrees = run("audit", "--json")
    assert agrees.code == 0
    assert agrees.json == {
        "entity_ids": 2,
        "values": 4,
        "differences": [],
        "not_compared": [],
        "complete": True,
        "served": {
            "records": 0,
            "values": 0,
            "equal": 0,
            "different": 0,
            "differences": [],
            "not_compared": {},
        },
    }
    lose_online(folder)
    differs = run("audit", "--json", "--limit", "1")
    assert differs.code == 1
    assert differs.json["complete"] is False
    (difference,) = differs.json["differences"]
    assert difference["online"] is None
    assert difference["history"].keys() == {"value", "as_of"}
    assert "more than 1 difference;" in run("audit", "--limit", "1").err


SUMMARY = """
from headwater import ContextItem, context

@context(store)
async def summary(user_id: str) -> list[ContextItem]:
    spent = await store.get_feature("total_spend", user_id)
    return [ContextItem(f"{spent} spent by {await store.get_feature('shout', user_id)}")]
"""


@pytest.mark.usefixtures("bought")
def test_an_audit_shows_recorded_values_that_history_does_not_give(folder: Path, run: Run) -> None:
    with (folder / "features.py").open("a") as file:
        file.write(SUMMARY)
    assert run("context", "assemble", "summary", "user_id=u1").code == 0
    agrees = run("audit")
    line = "Recorded contexts: 1 record with 1 value: 1 equal, 0 different in history.\n"
    assert (agrees.code, agrees.out.endswith(line)) == (0, True)
    reason = "Not compared: 1 recorded value of on-demand features without history.\n"
    assert agrees.err.endswith(reason)
    assert run("audit", "--records", "0").out.count("\n") == 1
    with closing(sqlite3.connect(folder / ".headwater" / "headwater.db")) as home:
        home.execute("UPDATE history SET value = CAST('99.0' AS BLOB) WHERE entity_id = 'u1'")
        home.commit()
    differs = run("audit")
    assert differs.code == 1
    assert "1 value: 0 equal, 1 different" in differs.out
    *_, heading, row = differs.out.splitlines()
    assert "KNOWN IN HISTORY" in heading
    assert row.split()[1:3] == ["total_spend", "u1"]
    assert row.split()[-2:] == ["2.5", "99.0"]
    (listed,) = run("audit", "--json").json["served"]["differences"]
    assert (listed["recorded"], listed["history"]) == (2.5, 99.0)


@pytest.mark.usefixtures("home")
def test_cached_values_are_reported_as_not_compared(folder: Path, run: Run) -> None:
    cached = (
        (folder / "features.py")
        .read_text()
        .replace("@feature(entity=User)\ndef shout", '@feature(entity=User, ttl="1h")\ndef shout')
    )
    (folder / "features.py").write_text(cached)
    assert run("features", "get", "shout", "u1").code == 0
    shown = run("audit")
    assert shown.code == 0
    assert "Not compared, because their stored values are only a cache: shout." in shown.err


@pytest.mark.usefixtures("bought")
def test_progress_is_drawn_on_a_terminal_and_printed_in_lines_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rebuild").err == ""  # a line every ten seconds
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with output.progress_bar("Rebuilding") as show:
        show(1_000, 2_000)
    assert capsys.readouterr().err == "Rebuilding: 1,000 of 2,000\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress_bar("Rebuilding") as show:
        show(1, 2)
    drawn = run("rebuild")
    assert drawn.code == 0
    assert "Rebuilt 4 values" in drawn.out


def test_the_embedded_store_has_nothing_to_migrate(run: Run) -> None:
    assert run("migrate").out == (
        "Nothing to migrate: the embedded store migrates its own tables when it is opened.\n"
    )
    assert run("migrate", "--json").json == {"versions": []}


def test_a_migration_without_both_servers_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_ENV", "production")
    refused = run("migrate")
    assert refused.code == 1
    assert "redis.url and postgres.url must be set" in refused.err


@pytest.fixture
def letters(folder: Path, run: Run) -> list[str]:
    """The ids of three dead letters: purchases that lack their amount."""
    for user in ("u1", "u2", "u1"):
        run("events", "publish", "purchase", user, "currency=EUR")
    drain(folder)
    return [str(letter["id"]) for letter in run("dlq", "list", "--json").json]


def test_dead_letters_are_listed_by_entity_and_time(run: Run, letters: list[str]) -> None:
    def listed(*options: str) -> list[str]:
        return [str(letter["id"]) for letter in run("dlq", "list", *options, "--json").json]

    whose = {i: run("dlq", "show", i, "--json").json["event"]["entity_id"] for i in letters}
    assert listed("--entity-id", "u2") == [i for i in letters if whose[i] == "u2"]
    assert listed("--since", "1h") == letters
    assert listed("--before", "1h") == []
    assert listed("--since", "2020-01-01T00:00:00Z", "--before", "2120-01-01T00:00:00+02:00")
    third = run("dlq", "show", letters[2], "--json").json
    assert letters[2] in listed("--since", third["dead_at"])
    assert letters[2] not in listed("--before", third["dead_at"])


def test_a_dead_letter_is_shown_with_its_partition_and_position(
    run: Run, letters: list[str]
) -> None:
    whole = run("dlq", "show", letters[0], "--json").json
    shown = run("dlq", "show", letters[0]).out
    assert f"\npartition     {whole['partition']}\n" in shown
    assert f"\nposition      {whole['position']}\n" in shown
    for told in ("total_spend", "KeyError: 'amount'", "attempts", "first failed", "dead at"):
        assert told in shown
    assert "Traceback" in shown


def test_dead_letters_are_settled_by_filter(run: Run, letters: list[str]) -> None:
    none = run("dlq", "discard", "--all", "--before", "1h", "--yes")
    assert none.out == "Discarded 0 dead letters.\n"
    assert run("dlq", "redrive", "--all", "--entity-id", "u2").out.startswith(
        "Queued 1 dead letter"
    )
    discarded = run("dlq", "discard", "--all", "--since", "1h", "--entity-id", "u1", "--yes")
    assert discarded.out == "Discarded 2 dead letters.\n"
    assert run("dlq", "list").out == "No dead letters.\n"


def test_an_undeclared_feature_is_noted_if_the_features_file_exists(
    folder: Path, run: Run, letters: list[str]
) -> None:
    slip = run("dlq", "list", "--feature", "total_spent")
    assert (slip.code, slip.out) == (0, "No dead letters.\n")
    assert slip.err == (
        "features.py declares no feature 'total_spent'; did you mean 'total_spend'?\n"
    )
    slip = run("dlq", "list", "--feature", "total_spent", "--json")
    assert slip.json == []
    assert "did you mean 'total_spend'?" in slip.err
    for right in ([], ["--feature", "visits"], ["--feature", "total_spend"]):
        assert run("dlq", "list", "--before", "1h", *right).err == ""
    (folder / "features.py").unlink()
    assert run("dlq", "list", "--feature", "total_spent").err == ""
    assert len(run("dlq", "list", "--feature", "total_spend", "--json").json) == len(letters)


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("yesterday", "neither a duration such as 2h nor a time"),
        ("2026-01-31T12:00:00", "a time with a time zone"),
        ("999999999d", "neither a duration"),
    ],
)
def test_an_invalid_time_is_a_usage_error(run: Run, when: str, told: str) -> None:
    shown = run("dlq", "list", "--since", when)
    assert shown.code == 2
    assert told in shown.err


@pytest.fixture
def servers(
    folder: Path, redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a new store on real servers."""
    own = uuid4().hex[:12]
    monkeypatch.setenv("HEADWATER_ENV", "production")
    monkeypatch.setenv("HEADWATER_REDIS_URL", redis_url)
    monkeypatch.setenv("HEADWATER_REDIS_PREFIX", f"test-{own}")
    monkeypatch.setenv("HEADWATER_POSTGRES_URL", postgres_url)
    monkeypatch.setenv("HEADWATER_POSTGRES_SCHEMA", f"test_{own}")


@pytest.mark.usefixtures("servers")
def test_the_verbs_work_the_same_on_servers(folder: Path, run: Run) -> None:
    refused = run("lag")
    assert refused.code == 1
    assert "headwater migrate" in refused.err
    assert run("migrate").out.startswith("Migrated the tables to version ")
    assert run("migrate").out == "Nothing to migrate: the tables are up to date.\n"
    for user in ("u1", "u2"):
        run("events", "publish", "purchase", user, "amount=2.5")
    run("events", "publish", "purchase", "u3", "currency=EUR")
    assert run("lag", "--json").json["waiting"] == 3
    drain(folder)
    shown = run("lag", "--json").json
    assert (shown["waiting"], len(shown["partitions"])) == (0, 17)
    assert run("audit", "--json").json["differences"] == []
    assert run("rebuild", "--json").json["values"] == run("audit", "--json").json["values"]
    (letter,) = run("dlq", "list", "--entity-id", "u3", "--since", "1h", "--json").json
    assert f"position      {letter['position']}\n" in run("dlq", "show", letter["id"]).out
    assert run("dlq", "discard", letter["id"]).out == "Discarded 1 dead letter.\n"


@pytest.mark.usefixtures("bought")
def test_a_feature_is_renamed_listed_and_dropped_with_its_values(folder: Path, run: Run) -> None:
    (listed,) = run("features", "versions", "total_spend", "--json").json
    assert (listed["version"], listed["state"], listed["type"]) == (1, "active", "float")
    assert (listed["series"], listed["online"], listed["history"]) == ("total_spend", 2, 2)
    renamed = run("features", "rename", "total_spend", "spend")
    assert renamed.out == "Renamed feature total_spend to spend, with its values and its history.\n"
    assert "Next, rename it in features.py, in templates and contexts too" in renamed.err
    assert run("features", "get", "total_spend", "u1", "--json").json[0]["value"] == 2.5
    refused = run("features", "versions", "total_spend")
    assert (refused.code, "was renamed to 'spend'" in refused.err) == (1, True)
    file = folder / "features.py"
    file.write_text(file.read_text().replace("total_spend", "spend"))
    assert run("features", "get", "spend", "u1", "--json").json[0]["value"] == 2.5
    assert "total_spend  2       2" in run("features", "versions", "spend").out
    refused = run("features", "drop", "spend")
    assert (refused.code, "pass --yes to drop the feature" in refused.err) == (2, True)
    dropped = run("features", "drop", "spend", "--yes")
    assert dropped.out == "Dropped feature spend with 4 values (2 online and 2 in history).\n"
    assert dropped.err == "features.py still declares spend: it begins without values.\n"
    assert run("features", "get", "spend", "u1", "--json").json[0]["value"] is None


@pytest.mark.usefixtures("bought")
def test_the_audit_log_lists_who_did_what(run: Run) -> None:
    assert run("audit-log").out == "No administrative actions.\n"
    run("rebuild")
    run("features", "rename", "visits", "visit_count")
    heading, *rows = run("audit-log").out.splitlines()
    assert heading.split() == ["AT", "ACTOR", "ACTION", "TARGET", "OUTCOME", "PARAMETERS"]
    actor = f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"
    assert [row.split()[1:] for row in rows] == [
        [actor, "catalog.rename", "visits", "done", '{"new":"visit_count"}'],
        [actor, "admin.rebuild", "–", "done", '{"adopt":false}'],
    ]
    newest = run("audit-log", "--limit", "1")
    cursor = newest.err.partition("--cursor ")[2].split()[0]
    older = run("audit-log", "--cursor", cursor, "--json").json
    assert [entry["action"] for entry in older["entries"]] == ["admin.rebuild"]
    assert run("audit-log", "--actor", "nobody", "--since", "1d").out.startswith("No admin")


def test_a_dead_letter_cannot_control_the_terminal(
    folder: Path, run: Run, letters: list[str]
) -> None:
    # As a handler would raise them that puts a text of its event into its error.
    hostile = "\x1b]0;title\x07 \x9b2J \x7f \u202egpj"
    with closing(sqlite3.connect(folder / ".headwater" / "headwater.db")) as db, db:
        db.execute("UPDATE dead_letters SET error = ?, traceback = ?", (hostile, f"a\n\t{hostile}"))
    for verb in (["list"], ["show", letters[0]]):
        shown = run("dlq", *verb).out
        assert "title" in shown
        assert [c for c in shown if not c.isprintable() and c not in "\n\t"] == []
    assert "\na\n\t\\x1b]0;title" in shown
