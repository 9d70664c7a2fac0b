"""`headwater context declared` and `headwater context assemble`."""

from pathlib import Path

import pytest

from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from tests.cli.conftest import Run
from tests.cli.context.desk import DESK

ONLY_CONTEXTS = """
from headwater import FeatureStore, context, retriever

store = FeatureStore()

@retriever(store, top_k=3)
async def search(query: str, pages: int = 2):
    "Finds pages."
    return []

@context(store, max_tokens=100, freshness_sla="5m", model="gpt-4o")
async def answer(question: str, pages: int = 2, deep: bool = False, tags: list[str] | None = None):
    "What the model is told."
    return f"{question!r} {pages!r} {deep!r} {tags!r}"
"""


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(ONLY_CONTEXTS)
    return folder


def test_contexts_and_retrievers_are_listed_with_their_parameters(run: Run) -> None:
    heading, context, retriever = run("context", "declared").out.splitlines()
    assert heading.split() == [
        "NAME",
        "KIND",
        "PARAMETERS",
        "INDEX",
        "TOKENS",
        "SLA",
        "MODEL",
        "DESCRIPTION",
    ]
    parameters = "question: str, pages: int = 2, deep: bool = false, tags: list[str] | None = –"
    for told in ("answer", "context", parameters, "100", "5m", "gpt-4o", "What the model is told."):
        assert told in context
    for told in ("search", "retriever", "query: str, pages: int = 2", "Finds pages."):
        assert told in retriever
    listed = run("context", "declared", "--json").json
    assert [each["max_tokens"] for each in listed["contexts"]] == [100]
    assert [each["top_k"] for each in listed["retrievers"]] == [3]


def test_a_decimal_keeps_the_digits_of_the_argument(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        "from decimal import Decimal\n"
        + ONLY_CONTEXTS
        + """
@context(store)
def pay(amount: Decimal, ratio: float, note: str | float):
    return f"{amount!r} {ratio!r} {note!r}"
"""
    )
    exact = "0.12345678901234567890"
    made = run("context", "assemble", "pay", f"amount={exact}", "ratio=12.50", "note=1.5")
    assert made.out == f"Decimal('{exact}') 12.5 1.5"


def test_a_file_without_contexts_says_so(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        "from headwater import FeatureStore\nstore=FeatureStore()\n"
    )
    assert run("context", "declared").out == "No contexts and no retrievers.\n"
    assert run("features", "list").out == "No features.\n"
    assert run("features", "list").err == ""


def test_lists_of_features_name_the_command_that_lists_contexts(run: Run) -> None:
    where = "The file also declares 1 context and 1 retriever: see `headwater context declared`.\n"
    listed = run("features", "list")
    assert (listed.out, listed.err) == ("No features.\n", where)
    assert run("features", "list", "--json").err == ""


def test_the_graph_draws_contexts_and_retrievers(run: Run) -> None:
    drawn = run("graph")
    assert drawn.err == ""
    assert "answer" in drawn.out


def test_a_context_is_assembled_recorded_and_printed(folder: Path, run: Run) -> None:
    made = run("context", "assemble", "answer", "question=why", "pages=3", "deep=true")
    assert (made.code, made.out) == (0, "'why' 3 True None")
    new, empty, told = made.err.splitlines()
    assert empty == "", "the text ends without a line break"
    assert new == f"Created a new store in {folder / '.headwater'}."
    context_id, _, rest = told.partition(": ")
    assert run("context", "show", context_id, "--content").out == made.out
    record_hash = run("context", "show", context_id, "--json").json["record_hash"]
    assert rest.endswith(f"/100 tokens, guaranteed, recorded as {record_hash}")


def test_a_context_as_json_equals_the_http_response(folder: Path, run: Run) -> None:
    asked = ['{"question": "why", "tags": ["a"]}', "--max-tokens", "50", "--freshness-sla", "1m"]
    made = run("context", "assemble", "answer", *asked, "--json").json
    assert made["content"] == "'why' 2 False ['a']"
    assert (made["lineage"]["max_tokens"], made["freshness_sla_ms"]) == (50, 60_000)
    assert made["meta"]["recorded"] is True
    assert set(made) == {
        *("content", "context_id", "record_hash", "content_hash", "name", "created_at"),
        *("tokens", "cost", "cost_nano_usd", "freshness_status", "freshness_violations"),
        "freshness_sla_ms",
        *("interaction_ref", "model", "max_output", "request", "lineage", "meta"),
    }


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("question=42", "42"),
        ("question=1e400", "1e400"),
        ('question="42"', "42"),
        ("question=null", "null"),
        ("question=[1", "[1"),
    ],
)
def test_a_text_parameter_keeps_json_as_text(run: Run, word: str, text: str) -> None:
    assert run("context", "assemble", "answer", word).out == f"{text!r} 2 False None"


def test_interaction_ref_may_be_one_of_the_parameters(run: Run) -> None:
    reference = 'interaction_ref={"call_id": "c1"}'
    made = run("context", "assemble", "answer", "question=why", reference, "--json").json
    assert made["interaction_ref"] == {"call_id": "c1"}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["answr"], 1, "did you mean 'answer'? (searched features.py; pass --file to"),
        (["answer"], 1, "context 'answer' needs the parameter 'question'"),
        (["answer", "question=a", "page=1"], 1, "did you mean 'pages'?"),
        (["answer", "question=a", "pages=many"], 1, "'pages': Expected `int`, got `str`"),
        (["answer", "question=a", "--freshness-sla", "soon"], 1, "'soon'"),
        (["answer", "question"], 2, "'question' is not a parameter; write key=value pairs"),
        (["answer", "question=\udcff"], 2, "is not UTF-8 text; nothing was assembled"),
        (["answer", "question=a", "--max-tokens", "0"], 2, "should be greater than or equal to 1"),
    ],
)
def test_a_wrong_argument_is_named_with_a_remedy(
    folder: Path, run: Run, words: list[str], code: int, told: str
) -> None:
    refused = run("context", "assemble", *words)
    assert (refused.code, refused.out) == (code, "")
    assert told in refused.err
    assert not (folder / ".headwater").exists()


def test_a_replay_whose_context_is_not_declared_names_the_file_and_the_option(
    folder: Path, run: Run
) -> None:
    (folder / "desk.py").write_text(DESK)
    asked = ["user_id=u1", "question=parcels", "--file", "desk.py", "--json"]
    made = run("context", "assemble", "support", *asked).json
    assert runtime_of(load_store(folder / "desk.py")).registry.contexts.keys() == {"support"}
    for mode in ("live", "as_of"):
        refused = run("context", "replay", made["context_id"], "--mode", mode)
        assert (refused.code, refused.out) == (1, "")
        assert "unknown context 'support'; " in refused.err
        assert "(searched features.py; pass --file to use another file)" in refused.err
        again = run("context", "replay", made["context_id"], "--mode", mode, "-f", "desk.py")
        assert again.out == made["content"]


@pytest.mark.parametrize("option", ["--output", "--bundle"])
def test_an_export_replaces_a_file_only_with_the_option(
    folder: Path, run: Run, option: str
) -> None:
    made = run("context", "assemble", "answer", "question=why", "--json").json
    kept = folder / "kept"
    kept.write_text("mine")
    asked = ["context", "export", made["context_id"], option]
    refused = run(*asked, "kept")
    assert refused.code == 1
    assert refused.err == (
        "error: kept exists already; name another file, or pass --force to replace it\n"
    )
    assert kept.read_text() == "mine"
    assert run(*asked, "kept", "--force").code == 0
    assert len(kept.read_bytes()) > len("mine")
    assert run(*asked, "/dev/null").code == 0
