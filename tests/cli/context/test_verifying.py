"""`headwater context verify`: of records and of exported documents."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headwater.model.lineage import Context
from headwater.records.document import export, load
from headwater.records.sealing import open_core, seal
from headwater.records.verify import verify_record
from tests.cli.conftest import Ran, Run
from tests.cli.context.desk import assemble, tamper
from tests.records.node import VERIFIER
from tests.records.node import run as run_node


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


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("outcomes", 0, "outcome 019b7e9c-4c1c-7000-8000-000000000001\nok     hash "),
        ("outcome-moved", 1, "BROKEN link         it belongs to record sha256:"),
        ("outcome-alone-unchecked", 0, "-      link         it belongs to record sha256:"),
        ("outcome-alone-altered", 1, "BROKEN signature    it signs sha256:"),
    ],
)
def test_both_commands_print_the_same_about_outcomes(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, code: int, said: str
) -> None:
    keys = "" if "unchecked" in name else "2026-01:correct horse battery staple"
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", keys)
    document = VERIFIER / "vectors" / "records" / f"{name}.json"
    verified = run("context", "verify", "--document", str(document))
    assert (verified.code, said in verified.out) == (code, True)
    options = ["--key", keys] if keys else []
    assert run_node(VERIFIER / "cli.mjs", document, *options).stdout == verified.out
    report = run("context", "verify", "--document", str(document), "--json").json
    assert len(report.get("outcomes", [])) == verified.out.count("\noutcome ")
