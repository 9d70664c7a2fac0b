"""`headwater keys`: API keys are created, listed and revoked in the keys file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.access.key_format import hash_of
from headwater.access.keys_file import read_keys
from tests.cli.conftest import Run


def test_a_key_is_shown_once_and_stored_as_its_hash(folder: Path, run: Run) -> None:
    created = run("keys", "create", "shop", "--scope", "read", "--scope", "assemble")
    assert (created.code, "not shown again" in created.err) == (0, True)
    assert "refuse requests without a key" in created.err
    second = run("keys", "create", "other", "--scope", "read")
    assert "refuse requests" not in second.err
    key = created.out.strip()
    text = (folder / "keys.toml").read_text()
    assert key.startswith("hw_shop_")
    assert key not in text
    assert read_keys(folder / "keys.toml")["shop"].hash == hash_of(key)


def test_keys_are_listed_with_scopes_limits_and_expiry(folder: Path, run: Run) -> None:
    run("keys", "create", "plain", "--scope", "admin")
    limits = ["--entity", "User", "--context", "support", "--index", "manuals", "--tenant", "acme-"]
    limits += ["--id", "acme-7", "--id", "acme-8"]
    run(
        "keys",
        "create",
        "full",
        "--scope",
        "read",
        *limits,
        "--expires",
        "90d",
        "--rate-limit",
        "5",
    )
    (plain, full) = run("keys", "list", "--json").json
    assert (plain["name"], plain["scopes"], plain["expires"]) == ("plain", ["admin"], None)
    assert (full["entities"], full["contexts"], full["indexes"]) == (
        ["User"],
        ["support"],
        ["manuals"],
    )
    assert (full["tenant"], full["rate_limit"]) == ("acme-", 5.0)
    assert full["ids"] == ["acme-7", "acme-8"]
    assert "hash" not in full
    shown = run("keys", "list").out
    assert "contexts support" in shown
    assert "tenant acme-" in shown
    assert full["expires"][:10] in shown


def test_a_revoked_key_is_removed(folder: Path, run: Run) -> None:
    run("keys", "create", "shop", "--scope", "read")
    assert run("keys", "revoke", "shop").code == 0
    assert run("keys", "list", "--json").json == []
    unknown = run("keys", "revoke", "shop")
    assert (unknown.code, "has no key 'shop'" in unknown.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["shop", "--scope", "reed"], "did you mean 'read'"),
        (["a b", "--scope", "read"], "cannot be the name of a key"),
        (["shop", "--scope", "admin", "--tenant", "x"], "cannot have limits"),
        (["shop", "--scope", "read", "--expires", "soon"], "duration"),
        (["shop", "--scope", "read", "--tenant", ""], "a limit is empty"),
        (["shop", "--scope", "read", "--index", ""], "a limit is empty"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_stored(
    arguments: list[str], problem: str, folder: Path, run: Run
) -> None:
    refused = run("keys", "create", *arguments)
    assert (refused.code != 0, problem in refused.err) == (True, True), refused.err
    assert not (folder / "keys.toml").exists()


def test_a_name_is_used_once(folder: Path, run: Run) -> None:
    run("keys", "create", "shop", "--scope", "read")
    again = run("keys", "create", "shop", "--scope", "read")
    assert (again.code, "headwater keys revoke shop" in again.err) == (1, True)


def test_changes_of_keys_are_in_the_audit_log(folder: Path, run: Run) -> None:
    limits = ["--tenant", "acme-", "--id", "acme-ada"]
    key = run("keys", "create", "shop", "--scope", "read", *limits).out.strip()
    run("keys", "revoke", "shop")
    run("keys", "revoke", "unknown")
    logged = run("audit-log", "--json")
    entries = [(each["action"], each["target"], each["outcome"]) for each in logged.json["entries"]]
    assert entries == [("keys.revoke", "shop", "done"), ("keys.create", "shop", "done")]
    assert logged.json["entries"][1]["parameters"]["tenant"] == "acme-"
    assert "ada" not in logged.out
    assert key not in logged.out
    assert hash_of(key) not in logged.out
