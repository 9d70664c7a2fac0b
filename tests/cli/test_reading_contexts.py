"""Text output about recorded contexts: complete, without repetition, correctly labelled."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from headwater.model.lineage import Context
from headwater.store.loader import load_store
from tests.cli.conftest import Run
from tests.cli.context.desk import DESK, assemble, tamper, unpacked

TEXT = "/output/content"


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(DESK)
    return folder


@pytest.fixture
def made(folder: Path) -> Context:
    """A context that is recorded in the folder's store."""
    return assemble(folder, interaction_ref={"call_id": "c1"})


def rows(printed: str, title: str) -> list[list[str]]:
    """The cells of the table under a title; the first row is its heading."""
    _, _, after = printed.partition(f"\n{title}\n")
    assert after, f"{title!r} is not in: {printed}"
    table, _, _ = after.partition("\n\n")
    return [line.split() for line in table.splitlines()]


def erase(folder: Path, made: Context, *pointers: str) -> None:
    store = load_store(folder / "features.py")

    async def erased() -> None:
        async with store:
            for pointer in pointers:
                await store.records.redact(made.context_id, pointer, reason="asked", by="dpo")

    asyncio.run(erased())


def test_search_results_are_shown_with_rank_and_score(run: Run, made: Context) -> None:
    shown = run("context", "show", made.context_id).out
    assert rows(shown, "Found") == [
        ["SEARCH", "RANK", "ID", "SCORE", "DOCUMENT", "TEXT"],
        ["0", "1", "page-1", "1.000", "pages", "parcels:", "see", "page", "1"],
        ["0", "2", "page-2", "0.500", "pages", "parcels:", "see", "page", "2"],
    ]
    assert rows(shown, "Retrievers")[1][:2] == ["0", "search_docs"]


def test_an_item_names_its_chunk_and_section(folder: Path, run: Run) -> None:
    sectioned = DESK.replace("priority=50, source=doc", "priority=50, source=doc, section='docs'")
    (folder / "features.py").write_text(sectioned)
    shown = run("context", "show", assemble(folder).context_id).out
    heading, *items = rows(shown, "Items")
    assert "SECTION" in heading
    assert [item[4:7] for item in items if "retrieval" in item] == [
        ["retrieval", "page-1", "docs"],
        ["retrieval", "page-2", "docs"],
    ]


def test_an_item_may_have_any_source_that_a_record_holds(folder: Path, run: Run) -> None:
    sourced = DESK.replace('"word " * 100, priority=1', '"x", source={(1, 2): float("nan")}')
    (folder / "features.py").write_text(sourced)
    shown = run("context", "show", assemble(folder).context_id)
    assert shown.code == 0, shown.err
    assert rows(shown.out, "Items")[-1][4] == "other"


@pytest.mark.parametrize("columns", [80, 100])
def test_a_listed_context_is_one_line_on_a_terminal(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    made = [assemble(folder) for _ in range(2)]
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for verb in (("list",), ("find", "--feature", "total_spend")):
        lines = run("context", *verb).out.splitlines()
        assert len(lines) == 2 + len(made)
        for line, context in zip(lines[2:], reversed(made), strict=True):
            context_id, created_at, name, freshness = line.split()
            assert (context_id, name, freshness) == (context.context_id, "support", "guaranteed")
            assert len(created_at) == len("2026-01-31T12:00:00Z")


def test_a_redacted_value_is_not_called_withheld(folder: Path, run: Run, made: Context) -> None:
    erase(folder, made, "/inputs/question", TEXT)
    shown = run("context", "show", made.context_id).out
    assert "ithheld" not in shown
    heading, *notes = rows(shown, "Redacted")
    assert heading == ["VALUE", "REDACTED", "AT", "BY", "REASON"]
    assert [note[0] for note in notes] == ["/inputs/question", TEXT]
    assert {(note[2], note[3]) for note in notes} == {("dpo", "asked")}
    assert f"\nText\n(redacted; its hash is {made.content_hash})\n" in shown
    refused = run("context", "show", made.context_id, "--content")
    assert (refused.code, refused.out) == (1, "")
    assert "is redacted; its hash is" in refused.err


def test_a_private_record_counts_its_withheld_values(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_RECORD_INCLUDE_CONTENT", "0")
    made = assemble(folder)
    shown = run("context", "show", made.context_id).out
    withheld = run("context", "show", made.context_id, "--json").json["withheld"]
    assert len(withheld) > 9
    assert (
        f"\nWithheld\n{len(withheld)} texts and values not included in this copy\n\nText\n" in shown
    )
    assert "/inputs/question" not in shown


def test_a_replay_without_a_text_is_an_exit_of_1(folder: Path, run: Run, made: Context) -> None:
    erase(folder, made, TEXT)
    replayed = run("context", "replay", made.context_id)
    assert (replayed.code, replayed.out) == (1, "")
    assert "is withheld or erased; only its hash is stored" in replayed.err
    assert run("context", "replay", made.context_id, "--json").code == 1


def test_an_as_of_replay_prints_its_times_in_one_notation(run: Run, made: Context) -> None:
    began = run("context", "show", made.context_id, "--json").json["started_at"]
    assert began.endswith("Z")
    assert run("context", "replay", made.context_id, "--mode", "as_of").err == (
        "\nas_of: the same text: features as the record says they were read, and others as "
        f"they were at {began}; retrievers called now; computed features and "
        "other data as they are now\n"
    )


def test_a_bundle_distinguishes_redacted_from_withheld_values(
    folder: Path, run: Run, made: Context
) -> None:
    erase(folder, made, "/inputs/question", TEXT)
    run("context", "export", made.context_id, "--bundle", "evidence.zip")
    readme = unpacked(folder / "evidence.zip")["README.md"].decode()
    assert "    withheld  nothing\n" in readme
    assert f"    erased    /inputs/question, {TEXT}; see `redactions` in record.json\n" in readme
    run("context", "export", made.context_id, "--bundle", "private.zip", "--private")
    readme = unpacked(folder / "private.zip")["README.md"].decode()
    assert "    withheld  every text and value (a private copy)" in readme
    assert "    erased    /inputs/question, " in readme


def test_a_core_that_cannot_be_read_is_still_exported(
    folder: Path, run: Run, made: Context
) -> None:
    tamper(folder, "UPDATE records SET core = CAST('{\"a\": 1.5' AS BLOB)")
    run("context", "export", made.context_id, "--bundle", "evidence.zip")
    readme = unpacked(folder / "evidence.zip")["README.md"].decode()
    assert "    withheld  unknown, because core.json cannot be parsed\n" in readme
    written = run("context", "export", made.context_id, "--format", "yaml").out
    assert msgspec.yaml.decode(written)["core"] == '{"a": 1.5'


def test_a_difference_is_never_called_the_same(folder: Path, run: Run) -> None:
    before = assemble(folder, interaction_ref={"call_id": "c1"})
    (folder / "features.py").write_text(DESK.replace("for n in (1, 2)", "for n in (2, 1)"))
    after = assemble(folder, interaction_ref={"call_id": "c2"})
    compared = run("context", "diff", before.context_id, after.context_id).out
    assert rows(compared, "Interaction")[1] == ["call_id", "changed", "c1", "c2"]
    found = {row[1]: row[2] for row in rows(compared, "Found")[1:]}
    assert found == {"page-1": "changed", "page-2": "changed"}
    assert [row[2] for row in rows(compared, "Items")[1:]] == ["moved", "moved"]
    for row in rows(compared, "Features")[1:]:
        assert row[2:4] == ["same", "value"]


def test_a_private_record_equals_itself(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_RECORD_INCLUDE_CONTENT", "0")
    made = assemble(folder, interaction_ref={"call_id": "c1"})
    compared = run("context", "diff", made.context_id, made.context_id).out
    assert [line.split()[0] for line in compared.splitlines()] == [
        "before",
        "after",
        "text",
        "tokens",
    ]


def test_an_undeclared_name_is_noted(folder: Path, run: Run, made: Context) -> None:
    slip = run("context", "find", "--feature", "total_spent")
    assert (slip.code, slip.out) == (0, "No contexts.\n")
    assert slip.err == (
        "features.py declares no feature 'total_spent'; did you mean 'total_spend'?\n"
    )
    slip = run("context", "find", "--entity", "Usr", "--entity-id", "u1", "--json")
    assert slip.json["contexts"] == []
    assert "features.py declares no entity 'Usr'" in slip.err
    assert "did you mean 'User'?" in slip.err
    for right in (("--feature", "total_spend", "--entity-id", "u9"), ("--chunk", "page-9")):
        nothing = run("context", "find", *right)
        assert (nothing.out, nothing.err) == ("No contexts.\n", "")
    (folder / "features.py").write_text(DESK.replace("total_spend", "spend"))
    found = run("context", "find", "--feature", "total_spend")
    assert made.context_id in found.out
    assert found.err == ""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "whose", [("--feature", "total_spend"), ("--entity", "User"), ()], ids=" ".join
)
def test_an_invalid_entity_id_is_noted(folder: Path, run: Run, whose: tuple[str, ...]) -> None:
    (folder / "features.py").write_text(DESK.replace("user_id: str", "user_id: int"))
    slip = run("context", "find", *whose, "--entity-id", "07")
    assert (slip.code, slip.out) == (0, "No contexts.\n")
    assert "user_id of User must be a whole number" in slip.err
    assert "not '07'" in slip.err
    assert run("context", "find", *whose, "--entity-id", "7").err == ""


def test_an_undeclared_context_is_noted_if_the_features_file_exists(
    folder: Path, run: Run, made: Context
) -> None:
    slip = run("context", "list", "--name", "suport")
    assert (slip.code, slip.out) == (0, "No contexts.\n")
    assert slip.err == "features.py declares no context 'suport'; did you mean 'support'?\n"
    assert run("context", "list", "--name", "support", "--before", "1h").err == ""
    assert run("context", "list", "--before", "1h").err == ""
    assert run("context", "list", "--name", "suport", "--cursor", made.context_id).err == ""
    (folder / "features.py").unlink()
    assert run("context", "list", "--name", "suport").err == ""


@pytest.mark.usefixtures("home")
def test_a_features_file_that_does_not_load_is_noted(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text("print('loaded'); 1 / 0")
    slip = run("context", "find", "--feature", "total_spend", "--json")
    assert (slip.code, slip.json["contexts"]) == (0, [])
    assert "Could not check the names, because features.py did not load: " in slip.err
    (folder / "features.py").unlink()
    slip = run("context", "find", "--feature", "total_spend")
    assert (slip.code, slip.out, slip.err) == (0, "No contexts.\n", "")


@pytest.mark.usefixtures("home")
def test_an_unknown_reference_is_quoted_as_written(run: Run) -> None:
    for verb in ("verify", "show"):
        assert "no recorded context 'ID'; " in run("context", verb, "ID").err
