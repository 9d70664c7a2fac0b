"""`headwater context export`: JSON, YAML, and bundles for auditors."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.context_export import to_yaml
from headwater.model.lineage import Context
from headwater.records.document import load
from headwater.records.verify import verify_record
from tests.cli.conftest import Run
from tests.cli.context.desk import sha256, tamper, unpacked
from tests.records.node import run as run_node


def test_outcomes_are_exported_with_their_context_and_verified(
    run: Run, made: Context, folder: Path
) -> None:
    before = run("context", "export", made.context_id).out
    answer = run("context", "outcome", made.context_id, "--answer", "See page 1.", "--json").json
    document = run("context", "export", made.context_id, "--json").json
    assert [each["outcome_id"] for each in document.pop("outcomes")] == [answer["outcome_id"]]
    assert msgspec.json.decode(before) == document
    run("context", "export", made.context_id, "-o", "record.json", "--private")
    assert "See page" not in (folder / "record.json").read_text(encoding="utf-8")
    run("context", "export", made.context_id, "--bundle", "evidence.zip")
    evidence = folder / "evidence"
    with zipfile.ZipFile(folder / "evidence.zip") as archive:
        archive.extractall(evidence)
    assert "outcomes  1; see" in (evidence / "README.md").read_text(encoding="utf-8")
    for file in (folder / "record.json", evidence / "record.json"):
        verified = run("context", "verify", "--document", str(file))
        assert (verified.code, f"outcome {answer['outcome_id']}" in verified.out) == (0, True)
        assert run_node(evidence / "verifier" / "cli.mjs", file).stdout == verified.out
    assert f"outcome {answer['outcome_id']}" in run("context", "verify", made.context_id).out


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
    assert "outcomes  none" in readme
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
