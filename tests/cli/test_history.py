"""`headwater history`: past values for the rows of a file, and imports."""

from pathlib import Path

import duckdb
import pytest

from tests.cli.conftest import Run

SPINE = """user_id,timestamp,label
u1,2026-01-01T12:00:00Z,1
u1,2026-01-05T12:00:00+02:00,0
u2,2026-01-05T12:00:00Z,0
"""
SPEND = """user_id,event_timestamp,total_spend,visits
u1,2026-01-01T00:00:00Z,5,1
u1,2026-01-02T00:00:00Z,7.5,
"""


@pytest.fixture
def tables(folder: Path) -> Path:
    """A folder with a features file, a table of values and rows to read them for."""
    (folder / "spine.csv").write_text(SPINE)
    (folder / "spend.csv").write_text(SPEND)
    return folder


def test_the_rows_of_a_warehouse_query_are_imported(run: Run, folder: Path) -> None:
    with duckdb.connect(folder / "shop.duckdb") as shop:
        shop.execute(
            "CREATE TABLE totals AS SELECT 'u1' AS user_id, 5.5 AS total_spend,"
            " TIMESTAMPTZ '2026-01-01 00:00:00Z' AS timestamp"
        )
    query = ("--query", "SELECT * FROM totals", "--from", "shop.duckdb", "-f", "total_spend")
    assert run("history", "import", *query).out == "Imported 1 value of 1 row into history.\n"
    assert run("history", "import", *query, "--json").json["added"] == 0
    for wrong in (query[:2], query[2:4], ("spend.csv", *query[:4]), ()):
        refused = run("history", "import", *wrong, "-f", "total_spend")
        assert refused.code == 2
        assert "pass --query and --from" in refused.err


def test_values_are_imported_read_and_rebuilt(run: Run, tables: Path) -> None:
    imported = run("history", "import", "spend.csv", "--feature", "total_spend,visits")
    assert imported.out == "Imported 3 values of 2 rows into history.\n"
    assert "1 value missing in the file" in imported.err
    assert "`headwater rebuild` restores them" in imported.err
    again = run("history", "import", "spend.csv", "-f", "total_spend", "-f", "visits", "--json")
    assert again.json == {
        "rows": 2,
        "values": 3,
        "added": 0,
        "missing": 1,
        "erased": 0,
        "states": 0,
    }
    read = run("history", "spine.csv", "-f", "total_spend, visits", "-o", "out.csv", "--as-of")
    assert read.out == "Wrote out.csv.\n"
    lines = (tables / "out.csv").read_text().splitlines()
    assert lines[0].endswith("label,total_spend,total_spend__as_of,visits,visits__as_of")
    assert [line.split(",")[3] for line in lines[1:]] == ["5.0", "7.5", ""]
    assert [line.split(",")[5] for line in lines[1:]] == ["1", "1", "0"]
    known = run("history", "read", "spine.csv", "-f", "total_spend", "--known", "--json")
    assert known.json == {"output": "spine.features.parquet"}
    assert "Rebuilt 2 values of 1 entity" in run("rebuild").out
    assert "7.5" in run("features", "get", "total_spend", "u1").out
    with (tables / "spend.csv").open("a") as more:
        more.write("u2,2026-01-02T00:00:00Z,9,1\n")
    third = run("history", "import", "spend.csv", "-f", "visits")
    assert third.out == "Imported 1 new value of 3 rows into history; 1 was there already.\n"
    versions = run("features", "versions", "visits", "--json").json
    assert [(each["version"], each["history"]) for each in versions] == [(1, 2)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("spine.csv", "-f", "totl_spend"), "did you mean 'total_spend'? (searched"),
        (("spine.csv", "-f", ","), "name at least one feature, as in -f total_spend"),
        (("spine.csv",), "Missing option '--feature'"),
        (("none.parquet", "-f", "visits"), "there is no file none.parquet"),
        (("spine.csv", "-f", "visits", "--at", "time"), "the frame has no column 'time'"),
        (("spine.csv", "-f", "visits", "-o", "x/out.csv"), "the folder x of the output does not e"),
        (("spine.csv", "-f", "visits", "-o", "out.txt"), "must end with .parquet or .csv"),
        (("spine.csv", "-f", "visits", "-o", "spine.csv"), "input and output are the same file"),
        (("spine.csv", "-f", "visits", "--at", "x"), "pass the name of the column as --at"),
        (("import", "spend.csv", "-f", "visits", "--value", "x"), "values of visits (--value)"),
        (("import", "spend.csv", "-f", "shout"), "feature 'shout' is computed at every read"),
    ],
)
def test_mistakes_are_explained(
    run: Run, tables: Path, arguments: tuple[str, ...], problem: str
) -> None:
    run("history", "import", "spend.csv", "-f", "visits")
    ran = run("history", *arguments)
    assert (ran.code != 0, problem in ran.err) == (True, True), ran.err


def test_an_export_is_read_in_another_folder_than_the_store(run: Run, tables: Path) -> None:
    run("history", "import", "spend.csv", "-f", "total_spend")
    assert run("history", "export", "exported").code == 0
    (tables / ".headwater").rename(tables / "moved")
    ran = run("history", "spine.csv", "-f", "total_spend", "-o", "o.csv", "--exported", "exported")
    assert (ran.code, ran.out) == (0, "Wrote o.csv.\n"), ran.err
    assert ",5.0\n" in (tables / "o.csv").read_text()
    assert not (tables / ".headwater").exists()
