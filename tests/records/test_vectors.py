"""The published vectors: up to date, and the same verdict in Python and in JavaScript."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.context_export import bundle, verifier_page
from headwater.core.canonical_json import canonical, from_tagged, parse, to_tagged
from headwater.errors import RecordDocumentError
from headwater.records.document import load, load_all
from headwater.records.sealing import digest, seal
from headwater.records.verify import verify_document, verify_record
from tests.records.node import VERIFIER, run
from verifier.generator.files import files
from verifier.generator.samples import HMAC, sample

VECTORS = VERIFIER / "vectors"
CASES = json.loads((VECTORS / "records.json").read_text(encoding="utf-8"))
GRAMMAR = json.loads((VECTORS / "grammar.json").read_text(encoding="utf-8"))
CANONICAL = json.loads((VECTORS / "canonical.json").read_text(encoding="utf-8"))


def test_the_published_vectors_match_the_generator() -> None:
    made = files()
    for path, text in made.items():
        assert (VERIFIER / path).read_text(encoding="utf-8") == text, f"{path} is out of date"
    on_disk = {f"vectors/records/{file.name}" for file in (VECTORS / "records").iterdir()}
    assert on_disk <= made.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_python_gives_the_published_verdict(case: dict[str, Any]) -> None:
    document = (VECTORS / case["file"]).read_bytes()
    if case["expected"] is None:
        with pytest.raises(RecordDocumentError, match="is not the document of a record"):
            load_all(document)
        return
    report = verify_document(document, case["keys"], expect=case["expect"], signed=case["signed"])
    expected = case["expected"]
    assert report.ok is expected["ok"]
    assert report.verdict == expected["verdict"]
    outcomes = expected.get("outcomes", [])
    for given, known in zip((report, *report.outcomes), (expected, *outcomes), strict=True):
        assert {check.check: check.ok for check in given.checks} == known["checks"]
        for check in given.checks:
            for name in known["names"].get(check.check, ()):
                assert name in check.detail


@pytest.mark.parametrize("vector", GRAMMAR, ids=lambda vector: vector["what"])
def test_python_reads_and_commits_to_the_published_values(vector: dict[str, Any]) -> None:
    tagged = vector["tagged"]
    assert to_tagged(from_tagged(tagged)) == tagged
    assert canonical(tagged).decode() == vector["canonical"]
    assert digest(vector["salt"], vector["pointer"], tagged) == vector["digest"]


@pytest.mark.parametrize("vector", CANONICAL["accepted"], ids=lambda vector: vector["what"])
def test_python_writes_the_published_canonical_texts(vector: dict[str, Any]) -> None:
    assert canonical(parse(vector["json"])).decode() == vector["canonical"]


def test_javascript_gives_the_published_verdicts() -> None:
    done = run("--test", VERIFIER / "test.mjs")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    # Node 18 and 20 print TAP to a pipe, later ones their own report.
    passed = re.search(r"^\S pass (\d+)$", done.stdout, re.M)
    assert passed is not None
    counted = (CASES, GRAMMAR, CANONICAL["accepted"], CANONICAL["refused"])
    assert int(passed[1]) >= sum(map(len, counted))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("full.json",), 0, "Nothing is broken, but it is not signed."),
        (("full.json", "--key", "a:sixteen letters."), 1, "not signed, although there are keys"),
        (("full.json", "--key", HMAC), 1, "It is not signed."),
        (("full.json", "--key", HMAC, "--unsigned"), 0, "not signed, although there are keys"),
        (("signed-hmac.json",), 0, "Nothing is broken, but its signature was not checked."),
        (("value.json",), 1, "/inputs/question does not open its commitment"),
        (
            ("value-content.json",),
            1,
            "the disclosed value does not open its commitment: /output/con",
        ),
        (("value-item.json",), 1, "the disclosed value does not open its commitment: /items/1/con"),
        (("redacted-item.json",), 0, "not disclosed: /items/0/content"),
        (("value.json", "--expect", "sha256:00", "--signed"), 1, "This record is broken."),
        (("full.json", "--expect", "sha256:00"), 1, "another record than sha256:00"),
        (("full.json", "--expect", "sha256:00"), 1, "It is not the record that was expected."),
        (("full.json", "--signed"), 1, "It is not signed."),
        (("signed-hmac.json", "--signed"), 1, "Its signature could not be checked."),
        (("key-id.json", "--key", HMAC), 1, "key '2027-01' is not in the keyring, which has '2026"),
        (
            ("key-id.json", "--key", HMAC, "--unsigned"),
            0,
            "Nothing is broken, but its signature was not checked.",
        ),
        (("key-id.json", "--key", HMAC), 1, "Its signature could not be checked."),
        (("signature-made-up.json", "--signed"), 1, "Its signature could not be checked."),
        (("signed-hmac.json", "--key", "2026-01:some wrong secret"), 1, "'2026-01' did not sign"),
        (("unreadable-float.json",), 2, "not the document of a record"),
        (("nowhere.json",), 2, "no such file"),
        (("full.json", "--key", "ed25519:a:AAAA"), 2, "never the private one"),
        (("full.json", "--key", "a secret without its id"), 2, "has no key id"),
        (("full.json", "--key", ":a secret without its id"), 2, "has no key id"),
        (("full.json", "--key", "a:fifteen letters"), 2, "less than 16 characters"),
        (("full.json", "--key", f"{HMAC},{HMAC}"), 2, "key '2026-01' is there twice"),
        (("full.json", "--key", f"{HMAC},"), 2, "has no key id"),
        (("full.json", "--key", "ed25519-pub:a:AAAA"), 2, "'a' is not the base64 of 32 bytes"),
        (("full.json", "--key", f"ed25519-pub:a:*{'A' * 43}"), 2, "'a' is not the base64 of 32"),
        (("full.json", "--key", f"ed25519-pub:a:{'A' * 20} {'A' * 23}"), 2, "not the base64 of 32"),
        (("full.json", "--key", f"ed25519-pub::{'A' * 43}"), 2, "has no key id"),
        (("full.json", "--key", f"ed25519-pub:a:{'A' * 43}"), 2, "'a' is a weak public key"),
        (("full.json", "--key", f"ed25519-pub:a:{'/' * 42}8="), 2, "'a' is a weak public key"),
        (("full.json", "--key", f"ed25519-pub:a:7P{'/' * 39}38="), 2, "'a' is a weak public key"),
        (("full.json", "--expect", ""), 1, "It is not the record that was expected."),
        (("full.json", "--unknown"), 2, "--unknown"),
        (("full.json", "--signed", "--unsigned"), 2, "pass one of them"),
        ((), 2, "usage"),
    ],
)
def test_the_command_line_verifier_says_and_returns_its_verdict(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    named = [VECTORS / "records" / each if each.endswith(".json") else each for each in arguments]
    done = run(VERIFIER / "cli.mjs", *named)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done


def test_the_command_line_verifier_takes_keys_from_a_file_and_prints_json(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(
        "2025-01:the secret of last year\r\n\n2026-01:correct horse battery staple\n",
        encoding="utf-8",
    )
    record = VECTORS / "records" / "signed-hmac.json"
    done = run(VERIFIER / "cli.mjs", record, "--key-file", keys, "--json")
    assert [check["ok"] for check in json.loads(done.stdout)["checks"]] == [True] * 5
    assert json.loads(done.stdout)["signed"] is True
    assert run(VERIFIER / "cli.mjs", record, "--key-file", keys).stdout.endswith(
        "Nothing is broken.\n"
    )


def test_a_signature_of_any_length_is_broken_and_no_error(tmp_path: Path) -> None:
    document = json.loads((VECTORS / "records" / "signed-hmac.json").read_text(encoding="utf-8"))
    document["signature"]["signature"] = "A" * 4_000_000
    record = tmp_path / "record.json"
    record.write_text(json.dumps(document), encoding="utf-8")
    keys = "2026-01:correct horse battery staple"
    done = run(VERIFIER / "cli.mjs", record, "--key", keys)
    assert (done.returncode, "'2026-01' did not sign" in done.stdout) == (1, True), done.stderr
    report = verify_record(load(record.read_bytes()), keys)
    assert report.of("signature").ok is False


def test_the_script_of_the_page_is_valid(tmp_path: Path) -> None:
    script = tmp_path / "page.mjs"
    script.write_text(
        verifier_page().split('<script type="module">')[1].split("</script>")[0], encoding="utf-8"
    )
    checked = run("--check", script)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_page_needs_no_other_file_and_no_network() -> None:
    page = verifier_page()
    assert (VERIFIER / "verify.mjs").read_text(encoding="utf-8") in page
    assert page.count("</script>") == 1
    assert "import " not in page.replace('(await import("node:crypto"))', "")
    assert "src=" not in page
    assert "http:" not in page
    assert "https:" not in page


def test_the_readme_of_a_bundled_verifier_names_the_files_that_only_the_repository_has() -> None:
    with zipfile.ZipFile(io.BytesIO(bundle(seal(sample())))) as archive:
        packed = {name.removeprefix("verifier/") for name in archive.namelist()}
        text = archive.read("verifier/README.md").decode()
    here, elsewhere = text.split("## Only in the repository")
    files = re.compile(r"[\w.]+\.(?:mjs|html)\b")
    assert set(files.findall(here)) <= packed
    assert set(files.findall(elsewhere)) - packed == {"page.html", "test.mjs"}
    for name in ("vectors", "generator"):
        assert name not in here
