"""Commands with `--url` call a real server, in place of a local store."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.cli import VERBS
from headwater.cli.commands import LOCAL_ONLY
from headwater.settings.loading import load
from tests.cli.conftest import AGENT_KEY, FEATURES, KEY, TENANT_KEY, Run


def test_events_are_published_and_values_read(
    remote: Run, served: tuple[str, FeatureStore], folder: Path
) -> None:
    published = remote("events", "publish", "purchase", "u1", "amount=5", "--json").json
    assert published["entity_id"] == "u1"
    batch = '{"event_type": "purchase", "entity_id": "u1", "payload": {"amount": 2}}\n' * 2
    assert len(remote("events", "publish", "-", "--json", stdin=batch).json) == 2
    served[1].sync.drain()
    (value,) = remote("features", "get", "total_spend", "u1", "--json").json
    assert value["value"] == 9.0
    assert "USER_ID" in remote("features", "get", "total_spend", "u1").out
    assert len(remote("features", "history", "total_spend", "u1", "--json").json) == 3
    assert not (folder / ".headwater").exists()


def test_a_misspelled_event_type_is_answered_with_the_hint_of_the_server(remote: Run) -> None:
    assert "did you mean 'purchase'" in remote("events", "publish", "purchas", "u9").err


def test_declarations_are_those_of_the_server(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    names = [each["name"] for each in remote("features", "list", "--json").json]
    assert names == ["total_spend", "visits", "orders", "shout", "blurb", "broken"]
    assert "every 5m" in remote("features", "list").out
    assert "user_id: str" in remote("context", "declared").out
    assert remote("graph").out.strip() == served[1].graph().to_mermaid().strip()


def test_a_context_is_assembled_shown_verified_compared_and_exported(
    remote: Run, folder: Path
) -> None:
    made = [remote("context", "assemble", "support", "user_id=7", "--json").json for _ in range(2)]
    one, two = (each["context_id"] for each in made)
    assert one in remote("context", "list").out
    assert one in remote("context", "find", "--entity-id", "7").out
    assert remote("context", "show", one, "--content").out == made[0]["content"]
    assert "total_spend" in remote("context", "show", one).out
    assert remote("context", "verify", one, "--expect", made[0]["record_hash"]).code == 0
    assert remote("context", "verify", one, "--signed").code == 1
    assert remote("context", "diff", one, two).code == 0
    assert remote("context", "replay", one, "--mode", "live").out == made[0]["content"]
    remote("context", "export", one, "--output", "record.json")
    assert remote("context", "verify", "--document", "record.json").code == 0
    remote("context", "export", one, "--bundle", "bundle.zip")
    assert (folder / "bundle.zip").exists()


def test_documents_are_searched_shown_and_deleted(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    served[1].sync.index("docs", "parcels", "Parcels arrive within 3 days.")
    assert "parcels" in remote("index", "search", "docs", "When do parcels arrive?").out
    assert "parcels" in remote("index", "list", "docs", "--prefix", "par").out
    assert remote("index", "show", "docs", "parcels", "--json").json["version"] == 1
    assert "docs" in remote("index", "status").out
    assert "keep versions" in remote("index", "status", "docs").out
    assert remote("index", "delete", "docs", "parcels").code == 0
    assert "has no document" in remote("index", "show", "docs", "parcels").err


def test_a_wrong_key_names_the_server_and_the_remedy(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    ran = remote("context", "list", "--key", "a wrong key")
    assert ran.code == 1
    assert "--key or HEADWATER_CLIENT_KEY" in ran.err
    assert f"({served[0]} answered 401" in ran.err
    assert "a wrong key" not in ran.err


def test_the_key_of_the_settings_is_not_sent_to_another_server(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    other = served[0].replace("127.0.0.1", "localhost")
    assert "answered 401" in remote("context", "list", "--url", other).err
    assert remote("context", "list", "--url", other, "--key", KEY).code == 0


def test_the_key_of_the_settings_is_sent_if_they_name_no_server(
    remote: Run, served: tuple[str, FeatureStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_CLIENT_URL")
    assert remote("features", "get", "visits", "u1", "--url", served[0]).code == 0


def test_a_key_needs_only_the_scope_and_the_limits_of_the_command(remote: Run) -> None:
    read = remote("features", "get", "visits", "acme-1", "--key", TENANT_KEY)
    assert read.code == 0, read.err
    assert "USER_ID" in read.out
    words = ("context", "assemble", "support", "--key", AGENT_KEY)
    made = remote(*words, "user_id=7", "top=2")
    assert made.out == "spent None, top 2", made.err
    assert remote(*words, '{"user_id": "7", "top": 2}').out == made.out


def test_a_url_without_a_server_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_RETRIES", "0")
    ran = run("context", "list", "--url", "http://127.0.0.1:1")
    assert ran.code == 1
    assert "no response from http://127.0.0.1:1" in ran.err
    assert "headwater serve" in ran.err


def test_an_unknown_name_is_answered_by_the_server(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    ran = remote("features", "get", "totl_spend", "u1")
    assert "did you mean 'total_spend'" in ran.err
    assert f"({served[0]} answered 404" in ran.err


def test_a_features_file_on_the_command_line_means_the_local_store(
    remote: Run, folder: Path, home: Path
) -> None:
    (folder / "local.py").write_text(FEATURES)
    names = [each["name"] for each in remote("features", "list", "-f", "local.py", "--json").json]
    assert "support" not in names
    ran = remote("features", "list", "-f", "local.py", "--url", "http://localhost")
    assert ran.code == 2
    assert "pass --url or a file, not both" in ran.err


@pytest.mark.parametrize("name", sorted(LOCAL_ONLY))
def test_a_command_that_never_calls_a_server_says_why(name: str) -> None:
    assert name.split()[0] in VERBS


def test_local_commands_refuse_a_server_with_the_reason(run: Run) -> None:
    for words in (["serve"], ["config", "show"], ["migrate"], ["features", "test", "a", "b"]):
        ran = run(*words, "--url", "http://localhost:1")
        assert ran.code == 2, words
        assert "cannot call a server" in ran.err, words
        assert "--url" not in run(*words, "--help").out


def test_local_commands_ignore_the_server_of_the_settings(remote: Run) -> None:
    assert remote("config", "show").code == 0


def test_a_key_without_a_server_is_refused(run: Run) -> None:
    ran = run("context", "list", "--key", "k")
    assert ran.code == 2
    assert "--key is for a server" in ran.err


def test_every_command_has_the_options_once(run: Run) -> None:
    assert load().client.url == ""
    for words in (["context", "list"], ["features", "get"], ["index", "search"], ["graph"]):
        help_ = run(*words, "--help").out
        assert help_.count("--url URL") == help_.count("--key KEY") == 1
