"""`headwater eval freeze`: cohorts of recorded contexts, in all their forms."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from headwater.contexts.evaluation.cohort import Cohort
from headwater.model.evaluations import CohortEntry
from headwater.records.signing import generate_key
from headwater.settings.schema import Settings
from headwater.store.base_code import load_base
from headwater.store.loader import load_store
from tests.cli.conftest import Ran, Run

DESK = """
from headwater import FeatureStore, context, entity

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@context(store, model="gpt-4o")
async def support(user_id: str, question: str):
    return f"{user_id} asks: {question}"

@context(store)
async def greeting(user_id: str):
    return f"Hello {user_id}"
"""
Cohorts = Callable[[str], Cohort]


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(DESK)
    return folder


@pytest.fixture
def ids(folder: Path) -> list[str]:
    """Return the ids of twelve recorded contexts: ten of support, two greetings."""
    store = load_store(folder / "features.py")

    async def assembled() -> list[str]:
        made = []
        async with store:
            for at in range(10):
                params = {"user_id": f"u{at % 2}", "question": f"question {at}"}
                made.append((await store.assemble("support", params)).context_id)
            greetings = [await store.assemble("greeting", {"user_id": f"u{at}"}) for at in (0, 1)]
            made += [context.context_id for context in greetings]
            for at, context_id in enumerate(made[:4]):
                await store.records.add_outcome(context_id, score="helpful", value=at)
            await store.record_external(name="elsewhere", content="Hello")
        return made

    return asyncio.run(assembled())


def entries(name: str = "october") -> list[CohortEntry]:
    return list(Cohort.open(Path("evals") / f"{name}.cohort", Settings()).entries())


def frozen(ran: Ran, name: str = "october") -> list[str]:
    assert ran.code == 0, ran.err
    return [entry.context_id for entry in entries(name)]


def test_the_contexts_of_a_name_are_frozen_with_their_inputs(run: Run, ids: list[str]) -> None:
    ran = run("eval", "freeze", "october", "--context", "support", "--since", "30d")
    assert frozen(ran) == ids[:10]
    assert entries()[3].inputs == {"user_id": "u1", "question": "question 3"}
    assert entries()[3].name == "support"
    for text in ("contexts      10", "by model      gpt-4o 10", "by status     guaranteed 10"):
        assert text in ran.out
    assert "evals/october.cohort" in ran.out
    assert "headwater eval run october" in ran.err


def test_what_was_frozen_is_printed_as_json(run: Run, ids: list[str]) -> None:
    report = run("eval", "freeze", "october", "--json").json
    cohort = Cohort.open(Path("evals/october.cohort"), Settings())
    assert (report["count"], report["cohort_hash"]) == (12, cohort.seal.cohort_hash)
    assert report["contexts"] == {"support": 10, "greeting": 2}
    assert report["models"] == {"gpt-4o": 10, "none": 2}
    assert report["left_out"] == {"not declared": 1}
    assert report["is_signed"] is False
    assert cohort.header.chosen == {}


def test_contexts_are_chosen_by_filters_and_scores(run: Run, ids: list[str]) -> None:
    assert frozen(run("eval", "freeze", "october", "--score", "helpful<2")) == ids[:2]
    assert frozen(run("eval", "freeze", "gpt", "--where", "model=gpt-4o"), "gpt") == ids[:10]
    options = ("--where", "model=gpt-4o", "--where", "status=guaranteed", "--score", "helpful>=3")
    assert frozen(run("eval", "freeze", "both", *options), "both") == ids[3:4]
    ran = run("eval", "freeze", "none", "--where", "status=degraded")
    assert (ran.code, ran.out) == (1, "")
    assert "no recorded context" in ran.err
    assert not Path("evals/none.cohort").exists()


def test_contexts_of_a_span_of_time_are_frozen(run: Run, ids: list[str]) -> None:
    middle = entries_of_all(run)[5].created_at.isoformat()
    assert frozen(run("eval", "freeze", "early", "--until", middle), "early") == ids[:5]
    assert frozen(run("eval", "freeze", "late", "--since", middle), "late") == ids[5:]


def entries_of_all(run: Run) -> list[CohortEntry]:
    assert run("eval", "freeze", "all").code == 0
    return entries("all")


def test_the_same_seed_makes_the_same_sample(run: Run, ids: list[str]) -> None:
    def sample(name: str, seed: str) -> list[str]:
        return frozen(run("eval", "freeze", name, "--sample", "5", "--seed", seed), name)

    one, again, other = sample("one", "7"), sample("again", "7"), sample("other", "8")
    assert one == again != other
    assert len(one) == 5
    chosen = Cohort.open(Path("evals/one.cohort"), Settings()).header.chosen
    assert chosen == {"sample": 5, "seed": 7}
    assert set(one) < set(ids)
    assert one == sorted(one)


def test_a_sample_has_a_share_of_each_stratum(run: Run, ids: list[str]) -> None:
    ran = run("eval", "freeze", "strata", "--sample", "3", "--stratify-by", "model", "--json")
    assert ran.json["models"] == {"gpt-4o": 2, "none": 1}
    options = ("--context", "support", "--sample", "4", "--stratify-by", "input.user_id")
    assert len(frozen(run("eval", "freeze", "users", *options), "users")) == 4
    users = [entry.inputs["user_id"] for entry in entries("users")]
    assert sorted(users) == ["u0", "u0", "u1", "u1"]


@pytest.mark.parametrize("source", ["-", "chosen.txt"])
def test_the_contexts_of_a_list_of_ids_are_frozen(run: Run, ids: list[str], source: str) -> None:
    by_hash = [each.record_hash for each in entries_of_all(run)][2]
    text = f"# three of them\n{ids[4]}\n\n{by_hash}\n{ids[4]}\n{ids[0].replace('-', '')}\n"
    Path("chosen.txt").write_text(text)
    ran = run("eval", "freeze", "october", "--ids", source, stdin=text)
    assert frozen(ran) == [ids[4], ids[2], ids[0]]


def test_ids_that_are_not_recorded_are_named(run: Run, ids: list[str]) -> None:
    Path("chosen.txt").write_text(f"{ids[0]}\n{ids[1][:-4]}ffff\n")
    ran = run("eval", "freeze", "october", "--ids", "chosen.txt")
    assert ran.code == 1
    assert f"'{ids[1][:-4]}ffff' is not recorded in this store" in ran.err
    assert "--skip-missing" in ran.err
    assert not list(Path("evals").iterdir())
    ran = run("eval", "freeze", "october", "--ids", "chosen.txt", "--skip-missing")
    assert frozen(ran) == [ids[0]]
    assert "Left out: 1 context not recorded" in ran.err


def test_the_contexts_of_a_table_are_frozen(run: Run, ids: list[str]) -> None:
    Path("chosen.csv").write_text(f"reviewer,trace\nada,{ids[1]}\nbob,{ids[0]}\n", "utf-8-sig")
    ran = run("eval", "freeze", "october", "--csv", "chosen.csv", "--column", "trace")
    assert frozen(ran) == [ids[1], ids[0]]
    ran = run("eval", "freeze", "other", "--csv", "chosen.csv")
    assert ran.code == 1
    assert "the table has no column 'context_id'" in ran.err


def items(ids: list[str]) -> list[dict[str, Any]]:
    """Return items of Langfuse, which name contexts by metadata or by a trace."""
    return [
        {"id": "a", "metadata": {"headwater.context.id": ids[0]}, "status": "ACTIVE"},
        {"id": "b", "metadata": None, "sourceTraceId": ids[1].replace("-", "")},
        {"id": "c", "metadata": {"context_id": ids[2]}, "status": "ARCHIVED"},
        {"id": "d", "metadata": {"context_id": ids[3]}, "input": {"question": "…"}},
    ]


@pytest.mark.parametrize("form", ["list", "page", "lines"])
def test_the_items_of_an_exported_dataset_are_frozen(run: Run, ids: list[str], form: str) -> None:
    exported = items(ids)
    text = {
        "list": json.dumps(exported),
        "page": json.dumps({"data": exported, "meta": {"totalPages": 1}}),
        "lines": "\n".join(map(json.dumps, exported)),
    }[form]
    Path("dataset.json").write_text(text)
    ran = run("eval", "freeze", "october", "--langfuse-dataset", "dataset.json")
    assert frozen(ran) == [ids[0], ids[1], ids[3]]


def test_an_item_without_an_id_is_named(run: Run, ids: list[str]) -> None:
    Path("dataset.json").write_text(json.dumps([*items(ids), {"id": "e", "metadata": {}}]))
    ran = run("eval", "freeze", "october", "--langfuse-dataset", "dataset.json")
    assert ran.code == 1
    assert "entry 5 of the dataset names no context" in ran.err
    assert "metadata['headwater.context.id']" in ran.err


class _Langfuse(BaseHTTPRequestHandler):
    items: list[dict[str, Any]]

    def do_GET(self) -> None:
        asked = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        login = "Basic " + base64.b64encode(b"pk-1:sk-1").decode()
        is_known = asked.get("datasetName") == "hard cases" and asked["limit"] == "100"
        self.send_response(200 if self.headers["Authorization"] == login else 401)
        self.end_headers()
        half = self.items[:2] if asked["page"] == "1" else self.items[2:]
        pages = {"page": int(asked["page"]), "totalPages": 2}
        self.wfile.write(json.dumps({"data": half if is_known else [], "meta": pages}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def langfuse(ids: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve a dataset as Langfuse's API does, page by page."""
    _Langfuse.items = items(ids)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Langfuse) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LANGFUSE_HOST", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")
        yield
        server.shutdown()


@pytest.mark.usefixtures("langfuse")
def test_the_items_of_a_dataset_are_read_from_langfuse(run: Run, ids: list[str]) -> None:
    ran = run("eval", "freeze", "october", "--langfuse-dataset", "hard cases")
    assert frozen(ran) == [ids[0], ids[1], ids[3]]
    ran = run("eval", "freeze", "other", "--langfuse-dataset", "unknown")
    assert (ran.code, "has no items" in ran.err) == (1, True)


@pytest.mark.usefixtures("langfuse")
def test_refusals_of_langfuse_name_the_remedy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-2")
    ran = run("eval", "freeze", "october", "--langfuse-dataset", "hard cases")
    assert (ran.code, "401" in ran.err, "check its name" in ran.err) == (1, True, True)
    monkeypatch.delenv("LANGFUSE_SECRET_KEY")
    ran = run("eval", "freeze", "october", "--langfuse-dataset", "hard cases")
    assert (ran.code, "set LANGFUSE_PUBLIC_KEY" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--where", "modell=gpt-4o"], "did you mean 'model'"),
        (["--where", "model"], "such as status=degraded"),
        (["--context", "suport"], "did you mean 'support'"),
        (["--stratify-by", "model"], "give its size"),
        (["--stratify-by", "input.", "--sample", "3"], "or an input such as"),
        (["--ids", "chosen.txt", "--csv", "chosen.csv"], "cannot be combined"),
        (["--ids", "-", "--context", "support"], "leave out the other filters"),
        (["--ids", "missing.txt"], "cannot read missing.txt"),
        (["--score", "helpful<<3"], "helpful<<3"),
    ],
)
def test_mistakes_are_explained(run: Run, ids: list[str], options: list[str], problem: str) -> None:
    ran = run("eval", "freeze", "october", *options)
    assert ran.code != 0
    assert problem in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize("name", ["../october", "a/b", ".hidden", "", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(run: Run, ids: list[str], name: str) -> None:
    ran = run("eval", "freeze", name)
    assert (ran.code, "is not a valid name of a cohort" in ran.err) == (1, True)


def test_an_existing_cohort_is_replaced_only_by_force(run: Run, ids: list[str]) -> None:
    assert run("eval", "freeze", "october", "--context", "support").code == 0
    ran = run("eval", "freeze", "october", "--context", "greeting")
    assert (ran.code, "--force" in ran.err) == (1, True)
    assert len(entries()) == 10
    assert frozen(run("eval", "freeze", "october", "--context", "greeting", "--force")) == ids[10:]


def test_a_cohort_is_signed_with_the_key_of_the_store(
    run: Run, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = generate_key("2026-11", "HMAC-SHA256")
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", key)
    assert run("eval", "freeze", "october", "--json").json["is_signed"] is True
    Cohort.open(Path("evals/october.cohort"), Settings(signing_key=key))


def test_the_code_of_the_features_file_is_kept(run: Run, ids: list[str], folder: Path) -> None:
    assert run("eval", "freeze", "october").code == 0
    cohort = Cohort.open(Path("evals/october.cohort"), Settings())
    assert cohort.header.code == {"features.py": DESK}
    (folder / "features.py").write_text(DESK.replace("Hello", "Servus"))
    assert repr(load_base(cohort)) == "<FeatureStore in '.headwater': features=0, contexts=2>"
