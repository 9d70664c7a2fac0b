"""Long commands with `--url` run on a real server."""

from __future__ import annotations

from pathlib import Path

from headwater import FeatureStore
from tests.cli.conftest import Run


def test_a_feature_is_backfilled_compared_and_switched_to(
    remote: Run, served: tuple[str, FeatureStore]
) -> None:
    remote("events", "publish", "purchase", "b1", "amount=5")
    served[1].sync.drain()
    ran = remote("backfill", "total_spend")
    assert ran.code == 0
    assert "headwater backfill switch total_spend" in ran.out
    assert remote("backfill", "status", "total_spend", "--json").json["state"] == "ready"
    assert "served values" in remote("backfill", "compare", "total_spend").out
    assert "is served now" in remote("backfill", "switch", "total_spend").out
    remote("backfill", "run", "total_spend")
    assert "Removed version" in remote("backfill", "cancel", "total_spend", "--yes").out
    refused = remote("backfill", "total_spend", "--processes", "2")
    assert refused.code == 2
    assert f"{served[0]} replays the events itself" in refused.err


def test_an_entity_is_forgotten(remote: Run, served: tuple[str, FeatureStore]) -> None:
    remote("events", "publish", "purchase", "b1", "amount=5")
    served[1].sync.drain()
    because = ("--reason", "request 12")
    counted = remote("forget", "User", "b1", *because, "--dry-run", "--json").json
    assert counted["values"] > 0
    assert "pass --yes to erase" in remote("forget", "User", "b1", *because).err
    erased = remote("forget", "User", "b1", *because, "--yes")
    assert erased.out.splitlines()[1].split() == ["current", "values", str(counted["values"])]
    assert served[1].sync.bus.list(entity_id="b1") == []


def test_rows_are_counted_and_pruned(remote: Run) -> None:
    counted = remote("prune", "--events", "30d", "--dry-run", "--json").json
    assert (counted["events"]["rows"], counted["history"]) == (0, None)
    assert remote("prune", "--events", "30d", "--yes").code == 0
    refused = remote("prune", "--events", "soon", "--yes")
    assert "'soon' is not a duration" in refused.err


def test_an_index_is_built_again_and_dropped(remote: Run, served: tuple[str, FeatureStore]) -> None:
    served[1].sync.index("docs", "parcels", "Parcels arrive within 3 days.")
    assert "docs is up to date" in remote("index", "reindex", "docs").out
    refused = remote("index", "reindex", "dosc")
    assert "did you mean 'docs'" in refused.err
    assert f"({served[0]} answered 404" in refused.err
    assert "Dropped index docs" in remote("index", "drop", "docs", "--yes").out


def test_a_table_is_imported_read_and_exported(remote: Run, folder: Path) -> None:
    times = "2026-05-01T00:00:00Z"
    (folder / "spend.csv").write_text(f"user_id,timestamp,total_spend\nh1,{times},25\n")
    imported = remote("history", "import", "spend.csv", "-f", "total_spend")
    assert "Imported 1 value of 1 row into history" in imported.out
    (folder / "rows.csv").write_text(f"user_id,timestamp\nh1,{times}\n")
    read = remote("history", "rows.csv", "-f", "total_spend,visits", "-o", "out.csv")
    assert (read.code, read.out) == (0, "Wrote out.csv.\n")
    assert (folder / "out.csv").read_text().splitlines()[1].endswith(",25.0,0")
    assert "Exported" in remote("history", "export", "exported").out
    assert "no new rows" in remote("history", "export", "exported").out
    refused = remote("history", "rows.csv", "-f", "totl_spend", "-o", "out.csv")
    assert "did you mean 'total_spend'" in refused.err
