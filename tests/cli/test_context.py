"""`headwater context`: show, list, find, verify, export, diff, replay, redact."""

import asyncio
import hashlib
import math
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli import context_output
from headwater.cli.context_yaml import to_yaml
from headwater.declarations import Overrides
from headwater.records.document import export, load
from headwater.records.lineage import Context
from headwater.records.sealing import open_core, seal
from headwater.records.verify import verify_record
from headwater.store.loader import load_store
from tests.cli.conftest import Ran, Run
from tests.records.node import VERIFIER
from tests.records.node import run as run_node

DESK = '''
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature, retriever

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase", default=0)
async def total_spend(user_id: str, event: ServiceEvent) -> int:
    return event.payload["amount"]

@retriever(store)
async def search_docs(query: str):
    return [
        {"text": f"{query}: see page {n}", "id": f"page-{n}", "score": 1 / n, "document": "pages"}
        for n in (1, 2)
    ]

@context(
    store, max_tokens=60, freshness_sla="5m", model="gpt-4o", allow_looser="freshness_sla"
)
async def support(user_id: str, question: str):
    """What a support agent knows."""
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem.template("The customer has spent {total_spend}.", priority=80),
        *(ContextItem(doc.text, priority=50, source=doc) for doc in await search_docs(question)),
        ContextItem("word " * 100, priority=1),
    ]
'''


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(DESK)
    return folder


def assemble(
    folder: Path, user_id: str = "u1", question: str = "parcels", **options: Any
) -> Context:
    """Assembles the desk's context in the folder's store."""
    store = load_store(folder / "features.py")

    async def assembled() -> Context:
        async with store:
            if user_id == "u1":
                await store.set_feature("total_spend", "u1", 40)
            params = {"user_id": user_id, "question": question}
            overrides = Overrides(**options)
            return await store.assemble("support", params, overrides)

    return asyncio.run(assembled())


@pytest.fixture
def made(folder: Path) -> Context:
    """A context that is recorded in the folder's store."""
    return assemble(folder, interaction_ref={"call_id": "c1"})


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_context_is_shown_by_id_prefix_and_hash(run: Run, made: Context) -> None:
    shown = run("context", "show", made.context_id)
    assert shown.code == 0
    for told in (
        made.context_id,
        str(made.record_hash),
        made.content_hash,
        "guaranteed (SLA 5m",
        "of 60 (o200k_base, exact)",
        " USD\n",
        "total_spend  u1         40",
        "call_id  c1",
        "search_docs",
        "tokens did not fit; max_tokens would have to be",
    ):
        assert told in shown.out
    assert shown.out.endswith(f"\nText\n{made.content}\n")
    for ref in (made.context_id[:13], str(made.record_hash), str(made.record_hash)[7:]):
        assert run("context", "show", ref).out == shown.out


def test_a_context_without_an_sla_is_shown_as_not_checked(folder: Path, run: Run) -> None:
    unchecked = assemble(folder, freshness_sla=None)
    shown = run("context", "show", unchecked.context_id).out
    assert "guaranteed (not checked: no SLA, oldest " in shown


def test_values_that_json_cannot_represent_are_shown_in_tags(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(DESK.replace("question: str", "question"))
    values = (math.nan, {None: 1}, None)
    kept = [assemble(folder, question=value) for value in values]  # type: ignore[arg-type]
    shown = [run("context", "show", made.context_id).out for made in kept]
    assert '{"$float":"NaN"}' in shown[0]
    assert '{"$map":[[null,1]]}' in shown[1]
    told = run("context", "diff", kept[0].context_id, kept[1].context_id).out
    assert '{"$float":"NaN"}' in told


def test_nothing_is_wrapped_or_coloured_off_a_terminal(run: Run, made: Context) -> None:
    shown = run("context", "show", made.context_id).out
    assert "\x1b" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("4 ")]
    assert " dropped " in row
    assert " did not fit; max_tokens would have to be " in row
    assert "because" not in row
    assert "SECTION" not in shown
    assert row.endswith("…")
    heading, row = run("context", "list").out.splitlines()
    assert heading.split() == ["CONTEXT", "ID", "CREATED", "AT", "NAME", "FRESHNESS"]
    assert row.split()[::2] == [made.context_id, "support"]


def test_the_text_alone_is_given_byte_by_byte(folder: Path, made: Context) -> None:
    command = [sys.executable, "-m", "headwater", "context", "show", made.context_id, "--content"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert sha256(done.stdout) == made.content_hash
    assert done.stdout == made.content.encode()


def test_a_context_as_json_has_everything(run: Run, made: Context) -> None:
    trace = run("context", "show", made.context_id, "--json").json
    assert trace["content"] == made.content
    assert trace["inputs"] == {"user_id": "u1", "question": "parcels"}
    assert [result["id"] for result in trace["retrievers"][0]["results"]] == ["page-1", "page-2"]


@pytest.mark.usefixtures("home")
def test_a_context_that_was_never_recorded_is_named_with_a_remedy(run: Run) -> None:
    for verb in ("show", "export", "verify", "replay"):
        refused = run("context", verb, "sha256:" + "0" * 64)
        assert refused.code == 1
        assert refused.err.startswith("error: no recorded context 'sha256:000")
        assert "`headwater context list`" in refused.err


@pytest.mark.usefixtures("home")
def test_contexts_are_listed_newest_first_page_by_page(folder: Path, run: Run) -> None:
    assert run("context", "list").out == "No contexts.\n"
    ids = [assemble(folder).context_id for _ in range(3)]
    first = run("context", "list", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == [ids[2], ids[1]]
    assert f"pass --cursor {ids[1]} for the next page" in first.err
    rest = run("context", "list", "--cursor", ids[1], "--json").json
    assert [listed["context_id"] for listed in rest["contexts"]] == [ids[0]]
    assert rest["next_cursor"] is None


def test_on_a_narrow_terminal_ids_are_still_whole(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ids begin with their time, so only whole ones can be told apart and pasted.
    made = {assemble(folder).context_id for _ in range(2)}
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    words = run("context", "list").out.split()
    assert made <= set(words)


def test_lists_are_bounded_by_time_name_and_status(folder: Path, run: Run) -> None:
    fresh, degraded = assemble(folder), assemble(folder, "u2")

    def ids(*options: str) -> list[str]:
        listed = run("context", "list", *options, "--json").json["contexts"]
        return [context["context_id"] for context in listed]

    assert ids("--freshness-status", "degraded") == [degraded.context_id]
    assert ids("--name", "support", "--since", "1h") == [degraded.context_id, fresh.context_id]
    assert ids("--name", "sales") == []
    assert ids("--before", "1h") == []
    assert run("context", "list", "--since", "yesterday").code == 2


def test_contexts_are_found_by_feature_entity_and_chunk(folder: Path, run: Run) -> None:
    first, second = assemble(folder), assemble(folder, "u2")

    def found(*options: str) -> list[str]:
        listed = run("context", "find", *options, "--json").json["contexts"]
        return [context["context_id"] for context in listed]

    assert found("--feature", "total_spend") == [second.context_id, first.context_id]
    assert found("--feature", "total_spend", "--entity-id", "u2") == [second.context_id]
    assert found("--entity-id", "u1") == [first.context_id]
    assert found("--entity", "User", "--entity-id", "u1") == [first.context_id]
    assert found("--entity", "Order", "--entity-id", "u1") == []
    assert found("--chunk", "page-2") == [second.context_id, first.context_id]
    assert found("--chunk", "page-9") == []
    assert first.context_id in run("context", "find", "--chunk", "page-1").out
    assert found("--document", "pages", "--entity-id", "u1") == [first.context_id]
    nothing = run("context", "find", "--document", "pages", "--index", "docs")
    assert (nothing.out, nothing.code) == ("No contexts.\n", 0)
    assert "declares no index 'docs'" in nothing.err
    refused = run("context", "find")
    assert refused.code == 2
    assert "--feature, --entity-id, --chunk, --document or --index" in refused.err
    refused = run("context", "find", "--entity", "User")
    assert refused.code == 2
    assert "--entity needs --entity-id" in refused.err


def test_an_intact_record_verifies_and_every_check_is_printed(run: Run, made: Context) -> None:
    verified = run("context", "verify", made.context_id)
    assert verified.code == 0
    lines = verified.out.splitlines()
    checks = ["hash", "signature", "disclosures", "content", "reassembly"]
    assert [line.split()[1] for line in lines[:-1]] == checks
    assert [line.split()[0] for line in lines[:-1]] == ["ok", "-", "ok", "ok", "ok"]
    assert lines[-1] == "Nothing is broken, but it is not signed."
    report = run("context", "verify", str(made.record_hash), "--json").json
    assert (report["ok"], report["signed"]) == (True, False)
    assert [check["ok"] for check in report["checks"]] == [True, None, True, True, True]


def test_a_forged_record_does_not_pass_for_a_signed_one(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", "march:a secret of March")
    made = assemble(folder)
    run("context", "export", made.context_id, "-o", "genuine.json")
    core = open_core(load((folder / "genuine.json").read_bytes()))
    forged = seal(msgspec.structs.replace(core, environment="forged"))
    (folder / "forged.json").write_bytes(export(forged))

    def verify(*options: str) -> Ran:
        return run("context", "verify", "--document", "forged.json", *options)

    refused = verify()
    assert refused.code == 1
    assert "FAILED signature    the record is not signed, although there are keys" in refused.out
    assert refused.out.endswith("\nIt is not signed.\n")
    passed = verify("--unsigned")
    assert passed.code == 0
    assert "-      signature    the record is not signed, although there are keys" in passed.out
    assert passed.out.endswith("\nNothing is broken, but it is not signed.\n")
    assert verify("--json").json["signed"] is False
    another = verify("--unsigned", "--expect", str(made.record_hash))
    unexpected = "It is not the record that was expected."
    assert (another.code, another.out.splitlines()[-1]) == (1, unexpected)
    assert verify("--unsigned", "--expect", forged.record_hash[7:]).code == 0
    monkeypatch.setenv("HEADWATER_SIGNATURE_MODE", "required")
    assert verify().code == 1
    monkeypatch.delenv("HEADWATER_SIGNATURE_MODE")
    tamper(folder, "UPDATE records SET signature = NULL")
    assert run("context", "verify", made.context_id).code == 1
    assert run("context", "verify", made.context_id, "--unsigned").code == 0
    assert run("context", "verify", made.context_id, "--expect", forged.record_hash).code == 1


def test_an_unchecked_signature_fails_if_a_signature_is_required(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", "evil:an unknown secret")
    made = assemble(folder)
    run("context", "export", made.context_id, "-o", "forged.json")
    monkeypatch.delenv("HEADWATER_SIGNING_KEY")
    document = ("context", "verify", "--document", "forged.json")
    assert run(*document).out.endswith("\nNothing is broken, but its signature was not checked.\n")
    for keys in ("", "march:a secret of March"):
        monkeypatch.setenv("HEADWATER_SIGNING_KEY", keys)
        assert run("context", "verify", made.context_id).code == (1 if keys else 0)
        assert run("context", "verify", made.context_id, "--unsigned").code == 0
        for asked in (document, ("context", "verify", made.context_id)):
            refused = run(*asked, "--signed")
            assert refused.code == 1
            assert refused.out.endswith("\nIts signature could not be checked.\n")
            report = run(*asked, "--signed", "--json").json
            assert (report["ok"], report["verdict"]) == (
                False,
                "Its signature could not be checked.",
            )
            assert report["checks"][1]["fault"] == "unchecked"


def test_an_altered_text_is_never_printed_as_the_recorded_one(
    folder: Path, run: Run, made: Context
) -> None:
    change = "CAST(replace(disclosures, 'support agent', 'pirate') AS BLOB)"
    tamper(folder, f"UPDATE records SET disclosures = {change}")
    for options in ((), ("--content",), ("--json",)):
        shown = run("context", "show", made.context_id, *options)
        assert (shown.code, shown.out) == (1, "")
        assert "does not open its commitment" in shown.err


def tamper(folder: Path, statement: str) -> None:
    """Change the database without the store."""
    with sqlite3.connect(folder / ".headwater" / "headwater.db") as log:
        log.execute(statement)
    log.close()


@pytest.mark.parametrize(
    ("statement", "check", "told"),
    [
        (
            "UPDATE records SET core = CAST(replace(core, 'support', 'suppprt') AS BLOB)",
            "hash",
            "altered",
        ),
        (
            "UPDATE records SET disclosures = "
            "CAST(replace(disclosures, '\"parcels\"', '\"refunds\"') AS BLOB)",
            "disclosures",
            "/inputs/question does not open its commitment",
        ),
        ("UPDATE records SET disclosures = x'00'", "disclosures", "cannot be read"),
    ],
)
@pytest.mark.usefixtures("made")
def test_a_record_that_was_tampered_with_is_an_exit_of_1(
    folder: Path, run: Run, statement: str, check: str, told: str
) -> None:
    (listed,) = run("context", "list", "--json").json["contexts"]
    tamper(folder, statement)
    verified = run("context", "verify", listed["context_id"])
    assert verified.code == 1
    (line,) = [line for line in verified.out.splitlines() if line.startswith("BROKEN")]
    assert line.split()[1] == check
    assert told in line
    assert verified.out.endswith("This record is broken.\n")
    assert run("context", "verify", listed["context_id"], "--json").json["ok"] is False


def test_a_signed_record_says_by_whom_and_a_foreign_key_breaks_it(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", "march:a secret of March")
    made = assemble(folder)
    assert "signed by     march\n" in run("context", "show", made.context_id).out
    assert "signed by key 'march' (HMAC-SHA256)" in run("context", "verify", made.context_id).out
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", "april:a secret of April,march:a secret of March")
    verified = run("context", "verify", made.context_id)
    assert (verified.code, verified.out.splitlines()[-1]) == (0, "Nothing is broken.")
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", "march:an unknown secret")
    broken = run("context", "verify", made.context_id)
    assert broken.code == 1
    assert "key 'march' did not sign this statement" in broken.out


def test_an_exported_document_verifies_here_and_elsewhere(
    folder: Path, run: Run, made: Context
) -> None:
    exported = run("context", "export", made.context_id)
    assert exported.code == 0
    assert exported.err == ""
    assert verify_record(load(exported.out), expect=made.record_hash).ok
    written = folder / "record.json"
    assert run("context", "export", made.context_id, "-o", str(written)).out == ""
    assert written.read_text() == exported.out
    elsewhere = run_node(VERIFIER / "cli.mjs", written, "--expect", str(made.record_hash))
    assert elsewhere.returncode == 0, elsewhere.stdout
    assert run("context", "verify", "--document", str(written)).code == 0
    written.write_text(exported.out.replace("u1", "u2"))
    broken = run("context", "verify", "--document", str(written), "--json")
    assert broken.code == 1
    assert broken.json["ok"] is False


def test_a_document_may_come_from_a_pipe(folder: Path, made: Context) -> None:
    headwater = f"{sys.executable} -m headwater context"
    piped = f"{headwater} export {made.context_id} | {headwater} verify --document - --json"
    done = subprocess.run(piped, shell=True, capture_output=True, timeout=60, check=True)
    assert msgspec.json.decode(done.stdout)["ok"] is True


@pytest.mark.parametrize(
    ("options", "file", "told"),
    [
        (["--bundle"], "record.zip", "record.zip is a bundle; unzip it"),
        (["--format", "yaml"], "record.yaml", "record.yaml is YAML, for reading only"),
    ],
)
def test_another_form_of_a_record_is_named_in_the_error(
    run: Run, made: Context, options: list[str], file: str, told: str
) -> None:
    option = [*options, file] if options == ["--bundle"] else [*options, "--output", file]
    assert run("context", "export", made.context_id, *option).code == 0
    refused = run("context", "verify", "--document", file)
    assert refused.code == 1
    assert told in refused.err


def test_an_unmet_requirement_is_not_called_broken(run: Run, made: Context) -> None:
    verified = run("context", "verify", made.context_id, "--signed")
    assert verified.code == 1
    assert "FAILED signature" in verified.out
    assert "BROKEN" not in verified.out


def test_a_file_that_is_not_a_record_document_is_refused(folder: Path, run: Run) -> None:
    (folder / "other.json").write_text("{}")
    for file, told in (
        ("other.json", "not the document of a record"),
        ("none.json", "cannot read"),
    ):
        refused = run("context", "verify", "--document", file)
        assert refused.code == 1
        assert told in refused.err
    neither = run("context", "verify")
    assert neither.code == 2
    assert "no record selected; pass REF, or --document" in neither.err
    both = run("context", "verify", "abc", "--document", "other.json")
    assert both.code == 2
    assert "cannot combine REF with --document" in both.err


def test_yaml_equals_json_with_the_core_parsed(run: Run, made: Context) -> None:
    document = run("context", "export", made.context_id, "--json").json
    written = run("context", "export", made.context_id, "--format", "yaml").out
    assert written.startswith("# For reading only. Verifiers read the JSON document")
    core = msgspec.json.decode(document["core"])
    assert msgspec.yaml.decode(written) == document | {"core": core}
    assert "\n  context:\n    definition: " in written
    assert "value: |-\n    You are a support agent.\n\n    The customer has" in written
    assert run("context", "export", made.context_id, "--format", "yaml", "--json").code == 2


_TEXTS = (
    st.text(st.characters(codec="utf-8"))
    | st.text("ab \n\t:-#'\"{}[]|>\x85\u2028\ufeff\xa0")
    | st.sampled_from(
        [
            "yes",
            "no",
            "null",
            "~",
            "1",
            "1.5",
            "1e3",
            "0x1F",
            "2026-01-31",
            "k\n" * 600,
            "x" * 2000,
            "😀",
        ]
    )
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | _TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner),
    )
)
def test_yaml_reads_back_equal(value: Any) -> None:
    assert msgspec.yaml.decode(to_yaml(value)) == value


def test_a_private_export_keeps_the_hash_and_no_text(run: Run, made: Context) -> None:
    exported = run("context", "export", made.context_id, "--private").out
    assert "parcels" not in exported
    assert '"u1"' not in exported
    report = verify_record(load(exported), expect=made.record_hash)
    assert [check.ok for check in report.checks] == [True, None, None, None, None]


def unpacked(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bundle_has_everything_that_an_auditor_needs(
    folder: Path, run: Run, made: Context
) -> None:
    written = run("context", "export", made.context_id, "--bundle", "evidence.zip", "--json")
    assert written.json == {"bundle": "evidence.zip", "record_hash": made.record_hash}
    files = unpacked(folder / "evidence.zip")
    assert sha256(files["core.json"]) == made.record_hash
    assert files["content.txt"].decode() == made.content
    for line in files["SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert sha256(files[name]) == f"sha256:{digest}"
    readme = files["README.md"].decode()
    for told in ("sha256sum -c SHA256SUMS", f"--expect {made.record_hash}", made.content_hash):
        assert told in readme
    again = run("context", "export", made.context_id, "--bundle", "again.zip")
    assert again.out == ""
    assert "README.md explains how to verify it" in again.err
    assert (folder / "again.zip").read_bytes() == (folder / "evidence.zip").read_bytes()


@pytest.mark.parametrize("option", ["--bundle", "--output"])
def test_a_dash_means_stdout(folder: Path, made: Context, option: str) -> None:
    command = [sys.executable, "-m", "headwater", "context", "export", made.context_id, option, "-"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert not (folder / "-").exists()
    if option == "--output":
        assert load(done.stdout).record_hash == made.record_hash
        return
    assert f"Wrote {made.record_hash} to the bundle" in done.stderr.decode()
    (folder / "evidence.zip").write_bytes(done.stdout)
    assert sha256(unpacked(folder / "evidence.zip")["core.json"]) == made.record_hash


def test_a_bundle_on_stdout_excludes_json(run: Run, made: Context) -> None:
    refused = run("context", "export", made.context_id, "--bundle", "-", "--json")
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [("export",), ("export", "--bundle", "-"), ("export", "-o", "/dev/full"), ("show",)],
    ids=" ".join,
)
def test_a_full_disk_is_one_line_and_no_traceback(
    made: Context, arguments: tuple[str, ...]
) -> None:
    verb, *options = arguments
    command = [sys.executable, "-m", "headwater", "context", verb, made.context_id, *options]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    said = done.stderr.decode().splitlines()
    assert (done.returncode, len(said)) == (1, 1), said
    assert said[0].startswith("error: ")
    assert "cannot write " in said[0]
    assert said[0].endswith(": No space left on device")


def test_the_verifier_of_a_bundle_checks_its_record(folder: Path, run: Run, made: Context) -> None:
    run("context", "export", made.context_id, "--bundle", "evidence.zip")
    with zipfile.ZipFile(folder / "evidence.zip") as archive:
        archive.extractall(folder / "evidence")
    record = folder / "evidence" / "record.json"
    cli = folder / "evidence" / "verifier" / "cli.mjs"
    holds = run_node(cli, record, "--expect", str(made.record_hash))
    assert holds.returncode == 0, holds.stdout + holds.stderr
    record.write_text(record.read_text().replace("parcels: see page 2", "parcels: see page 3"))
    broken = run_node(cli, record)
    assert broken.returncode == 1
    assert "BROKEN disclosures" in broken.stdout


NESTED = """
from headwater import FeatureStore, context

store = FeatureStore()

@context(store)
async def innermost(name: str) -> str:
    return f"Dear {name},"

@context(store)
async def inner(name: str) -> str:
    return (await innermost(name)).content

@context(store)
async def outer(name: str) -> str:
    return (await inner(name)).content + " hello"
"""


@pytest.mark.parametrize("private", [False, True])
def test_a_bundle_holds_the_records_of_inner_contexts_and_each_verifies(
    folder: Path, run: Run, *, private: bool
) -> None:
    (folder / "features.py").write_text(NESTED)
    made = run("context", "assemble", "outer", "name=Ada", "--json").json
    options = ["--private"] if private else []
    run("context", "export", made["context_id"], "--bundle", "evidence.zip", *options)
    with zipfile.ZipFile(folder / "evidence.zip") as archive:
        archive.extractall(folder / "evidence")
    inner = sorted((folder / "evidence" / "inner").iterdir())
    assert len(inner) == 2
    readme = (folder / "evidence" / "README.md").read_text(encoding="utf-8")
    commands = [line.split() for line in readme.splitlines() if line.startswith("    node ")]
    assert {command[2] for command in commands} == {
        "record.json",
        *(f"inner/{file.name}" for file in inner),
    }
    for _, verifier, record, *expected in commands:
        evidence = folder / "evidence"
        done = run_node(evidence / verifier, evidence / record, *expected)
        assert done.returncode == 0, done.stdout
    assert ("Ada" in "".join(file.read_text(encoding="utf-8") for file in inner)) is not private


def test_a_bundle_names_an_inner_context_that_it_does_not_hold(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(NESTED)
    made = run("context", "assemble", "outer", "name=Ada", "--json").json
    tamper(folder, "DELETE FROM records WHERE name = 'innermost'")
    run("context", "export", made["context_id"], "--bundle", "evidence.zip")
    readme = unpacked(folder / "evidence.zip")["README.md"].decode()
    assert "(not in this folder)" in readme
    assert "innermost" in readme


def test_the_readme_of_a_bundle_claims_only_what_the_record_shows(
    folder: Path, run: Run, made: Context
) -> None:
    run("context", "export", made.context_id, "--bundle", "evidence.zip")
    readme = unpacked(folder / "evidence.zip")["README.md"].decode()
    assert "does not show how the text was used" in readme
    assert "the sender could have made all of them" in " ".join(readme.split())
    for claim in ("the model received", "do not have to trust"):
        assert claim not in readme


def test_a_private_bundle_has_no_text_and_says_so(folder: Path, run: Run, made: Context) -> None:
    run("context", "export", made.context_id, "--bundle", "private.zip", "--private")
    files = unpacked(folder / "private.zip")
    assert "content.txt" not in files
    assert not any(b"parcels" in content for content in files.values())
    assert "every text and value (a private copy)" in files["README.md"].decode()
    assert sha256(files["core.json"]) == made.record_hash


def test_a_bundle_that_cannot_be_written_is_an_error(run: Run, made: Context) -> None:
    refused = run("context", "export", made.context_id, "--bundle", "nowhere/evidence.zip")
    assert refused.code == 1
    assert "cannot write nowhere/evidence.zip" in refused.err
    assert run("context", "export", made.context_id, "--bundle", "a.zip", "-o", "b").code == 2


def test_the_wheel_carries_the_verifier(tmp_path: Path) -> None:
    root = VERIFIER.parent
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, capture_output=True, timeout=90, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    files = unpacked(wheel)
    for name in ("verify.mjs", "cli.mjs", "page.html", "README.md"):
        assert files[f"headwater/cli/verifier/{name}"] == (VERIFIER / name).read_bytes()


def test_two_contexts_are_compared(folder: Path, run: Run) -> None:
    before = assemble(folder)
    after = assemble(folder, "u2", max_tokens=20)
    compared = run("context", "diff", before.context_id, str(after.record_hash))
    assert compared.code == 0
    for told in (
        "text          different",
        f"({after.tokens - before.tokens:+d})",
        "user_id  changed  u1      u2",
        "max_tokens",
        "The customer has spent 0.",
        "kept at 2",
        "dropped at 2, 0 tokens",
        "-The customer has spent 40.",
        "+The customer has spent 0.",
    ):
        assert told in compared.out
    whole = run("context", "diff", before.context_id, after.context_id, "--json").json
    assert whole["same_content"] is False
    same = run("context", "diff", before.context_id, before.context_id).out
    assert same.splitlines()[2:] == [
        "text          equal",
        f"tokens        {before.tokens} → {before.tokens} (+0)",
    ]


@pytest.mark.parametrize("mode", ["show", "reassemble", "as_of", "live"])
def test_a_context_is_replayed_and_says_how_faithfully(run: Run, made: Context, mode: str) -> None:
    replayed = run("context", "replay", made.context_id, "--mode", mode)
    assert replayed.code == 0
    assert replayed.out == made.content
    assert replayed.err.startswith(f"\n{mode}: "), "the text ends without a line break"
    whole = run("context", "replay", made.context_id, "--mode", mode, "--json").json
    assert (whole["mode"], whole["matches"]) == (mode, True)
    assert whole["fidelity"]
    assert len(run("context", "list", "--json").json["contexts"]) == 1


def test_a_live_replay_has_the_values_of_now_and_as_of_those_of_then(
    folder: Path, run: Run, made: Context
) -> None:
    store = load_store(folder / "features.py")

    async def spend() -> None:
        async with store:
            await store.set_feature("total_spend", "u1", 99)

    asyncio.run(spend())
    assert "has spent 99." in run("context", "replay", made.context_id, "--mode", "live").out
    assert "has spent 40." in run("context", "replay", made.context_id, "--mode", "as_of").out


ELSEWHERE = [
    "/items/2/content",
    "/items/3/content",
    "/output/content",
    "/retrievals/0/arguments",
    "/retrievals/0/results/0/content",
    "/retrievals/0/results/1/content",
]


def redacted(run: Run, made: Context, *options: str) -> Ran:
    return run("context", "redact", made.context_id[:18], "/inputs/question", *options, "--yes")


def test_a_value_is_redacted_and_the_record_still_verifies(run: Run, made: Context) -> None:
    assert redacted(run, made).code == 2
    done = redacted(run, made, "--reason", "asked by the customer", "--by", "dpo", "--json")
    assert done.json["record_hash"] == made.record_hash
    assert done.json["also_disclosed"] == ELSEWHERE
    (note,) = done.json["redactions"]
    assert (note["pointer"], note["reason"], note["by"]) == (
        "/inputs/question",
        "asked by the customer",
        "dpo",
    )
    verified = run("context", "verify", made.context_id)
    assert verified.code == 0
    assert "redacted: /inputs/question" in verified.out
    shown = run("context", "show", made.context_id).out
    assert shown.count("/inputs/question") == 1
    (row,) = [line for line in shown.splitlines() if line.startswith("/inputs/question")]
    assert row.split()[1:3] == [note["redacted_at"], "dpo"]
    assert row.endswith("  asked by the customer")
    again = redacted(run, made, "--reason", "again")
    assert again.code == 1
    assert f"erased at {note['redacted_at']} by dpo, because: asked by the customer" in again.err
    assert "did you mean" not in again.err


def test_a_value_is_redacted_in_every_place_at_once(run: Run, made: Context) -> None:
    done = redacted(run, made, "--reason", "r", "--everywhere", "--file", "features.py", "--json")
    assert [note["pointer"] for note in done.json["redactions"]] == ["/inputs/question", *ELSEWHERE]
    assert done.json["also_disclosed"] == []
    assert "parcels" not in run("context", "export", made.context_id).out
    assert run("context", "verify", made.context_id).code == 0


def test_several_values_are_redacted_at_once_or_none(run: Run, made: Context) -> None:
    def redact(*pointers: str) -> Ran:
        return run("context", "redact", made.context_id, *pointers, "--reason", "a fault", "--yes")

    assert "did you mean '/inputs/question'" in redact("/items/2/content", "/inputs/questio").err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []
    done = redact("/inputs/question", "/items/2/content", "/inputs/question")
    assert f"Redacted /inputs/question, /items/2/content of {made.context_id}." in done.out
    left = [pointer for pointer in ELSEWHERE if pointer != "/items/2/content"]
    assert f"also occurs at {' '.join(left)}. " in done.err
    # Of the text that is gone now, these items are left.
    assert "also occurs at /items/0/content /items/1/content. " in redact(*left).err
    assert "parcels" not in run("context", "export", made.context_id).out


@pytest.mark.parametrize("mode", ["reassemble", "as_of", "live"])
def test_a_replay_that_is_not_possible_names_the_command_that_shows_the_record(
    run: Run, made: Context, mode: str
) -> None:
    redacted(run, made, "--reason", "r", "--everywhere")
    refused = run("context", "replay", made.context_id, "--mode", mode)
    assert refused.code == 1
    assert refused.err.endswith(f"; `headwater context show {made.context_id}` shows its record\n")
    shown = run("context", "show", made.context_id)
    assert (shown.code, f"its hash is {made.content_hash}" in shown.out) == (0, True)


def test_redaction_asks_for_confirmation_only_on_a_terminal(
    run: Run, made: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.context_redact.is_interactive", lambda: True)
    asked = run(
        "context", "redact", made.context_id, "/inputs/question", "--reason", "r", stdin="n"
    )
    assert asked.code == 1
    assert f"The value also occurs at {' '.join(ELSEWHERE)}. Pass these pointers too" in asked.err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []
    done = redacted(run, made, "--reason", "asked by the customer")
    assert "Redacted /" in done.out
    assert "The value also occurs at /items/2/content /items/3/content " in done.err


def test_redaction_everywhere_lists_the_places_before_it_asks(
    run: Run, made: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.context_redact.is_interactive", lambda: True)
    erase = ("context", "redact", made.context_id, "/inputs/question", "--everywhere")
    asked = run(*erase, "--reason", "r", stdin="n")
    assert asked.code == 1
    assert f"Permanently redact {', '.join(['/inputs/question', *ELSEWHERE])} of" in asked.out
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []


def test_redaction_without_a_terminal_needs_yes(run: Run, made: Context) -> None:
    refused = run("context", "redact", made.context_id, "/inputs/question", "--reason", "r")
    assert refused.code == 2
    assert "pass --yes" in refused.err
    assert run("context", "show", made.context_id, "--json").json["redacted"] == []


def test_in_privacy_mode_hashes_and_facts_are_shown(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_RECORD_INCLUDE_CONTENT", "0")
    made = assemble(folder)
    shown = run("context", "show", made.context_id)
    assert shown.code == 0
    assert "parcels" not in shown.out
    assert f"(withheld; its hash is {made.content_hash})" in shown.out
    assert run("context", "verify", made.context_id).code == 0
    refused = run("context", "show", made.context_id, "--content")
    assert refused.code == 1
    assert f"is withheld; its hash is {made.content_hash}" in refused.err
    assert run("context", "replay", made.context_id, "--mode", "live").code == 1


def test_a_cost_is_written_in_dollars() -> None:
    assert context_output.dollars(None) is None
    assert context_output.dollars(45_000) == "0.000045 USD"
    assert context_output.dollars(2_000_000_000) == "2 USD"
    assert context_output.dollars(100_000_000_000) == "100 USD"
    assert context_output.dollars(0) == "0 USD"
