"""Commands for operators against a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start
from tests.cli.test_verbs import drain


def test_the_commands_of_operators_work_with_a_url(
    folder: Path, run: Run, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("events", "publish", "purchase", "u1", "amount=no")
    run("events", "publish", "visit", "u1")
    drain(folder)
    url = start("serve", "--workers", "0", "--port", "0").next_line()["url"]
    monkeypatch.setenv("HEADWATER_CLIENT_URL", url)
    assert run("lag", "--json").json["waiting"] == 0
    (group,) = run("groups", "list", "--json").json
    assert [each["event_type"] for each in run("events", "list", "--json").json] == [
        "visit",
        "purchase",
    ]
    (letter,) = run("dlq", "list", "--json").json
    assert letter["feature"] in run("dlq", "show", letter["id"]).out
    assert "no dead letter '999'" in run("dlq", "redrive", letter["id"], "999").err
    assert run("dlq", "discard", letter["id"]).out == "Discarded 1 dead letter.\n"
    assert run("groups", "drop", group["name"], "--yes").code == 0
    assert run("rebuild", "--json").json == {"entity_ids": 1, "values": 2}
    assert run("audit").out.startswith("No differences")
    assert run("features", "versions", "visits", "--json").json[0]["state"] == "active"
    assert run("refresh", "orders").code == 0
    renamed = run("features", "rename", "visits", "visit_count")
    assert f"the features file of {url}" in renamed.err
    actions = [entry["action"] for entry in run("audit-log", "--json").json["entries"]]
    assert actions == [
        "catalog.rename",
        "admin.refresh",
        "admin.rebuild",
        "admin.drop_group",
        "dead_letters.discard",
        "dead_letters.redrive",
    ]
