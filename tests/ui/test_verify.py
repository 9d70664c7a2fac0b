"""The Verify page: bundles are checked in the browser, without the server."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from headwater.cli.context_export import bundle
from headwater.records.document import export, load
from headwater.records.signing import (
    Ed25519Key,
    Keyring,
    generate_key,
    parse_keyring,
    public_text,
    sign,
)
from tests.ui.browsing import axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

MIB = 1024 * 1024


@pytest.fixture
def page(open_tab: OpenTab, site: Site) -> Page:
    return open_tab(site).open("/ui/verify")


@pytest.fixture
def record(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.get(f"/v1/record/{site.records[0]}")
    return found


def drop(page: Page, *files: tuple[str, bytes]) -> None:
    """Give files to the page."""
    given = [{"name": name, "mimeType": "", "buffer": content} for name, content in files]
    page.get_by_label("Records to verify").set_input_files(given)  # type: ignore[arg-type]


def result(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name)


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.both_environments
def test_a_bundle_is_verified_without_a_request(page: Page, record: dict[str, Any]) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    changed = {**record, "disclosures": [dict(each) for each in record["disclosures"]]}
    changed["disclosures"][0]["value"] = "another"
    drop(page, ("good.json", encoded(record)), ("bad.json", encoded(changed)))
    good, bad = result(page, "good.json"), result(page, "bad.json")
    expect(good).to_contain_text("intact, not signed")
    expect(good).to_contain_text("Nothing is broken, but it is not signed.")
    expect(good).to_contain_text("support")
    expect(good.locator("[data-ok=true]")).to_have_count(4)
    expect(bad).to_contain_text("This record is broken.")
    expect(bad.locator("[data-ok=false]")).to_contain_text("does not open its commitment")
    expect(page.get_by_text("2 documents")).to_be_visible()
    assert not [url for url in requested if "/v1/record" in url or "/context/" in url]
    axe(page)
    check_sizes(page, "verify")
    good.get_by_role("button", name="Remove good.json").click()
    expect(good).to_have_count(0)


def test_the_zip_file_of_the_command_line_is_a_bundle(page: Page, record: dict[str, Any]) -> None:
    packed = bundle(load(encoded(record)))
    drop(page, ("bundle.zip", packed))
    expect(result(page, "bundle.zip: record.json")).to_contain_text("intact, not signed")


def badge(page: Page, name: str, text: str, state: str) -> None:
    """Wait until the badge of a result has a text, in the colour of a state."""
    found = result(page, name).locator("header").get_by_text(text, exact=True)
    expect(found).to_have_attribute("data-state", state)


def test_only_a_checked_signature_makes_a_record_verified(
    page: Page, record: dict[str, Any]
) -> None:
    keyring, public = key_pair("2026-q4")
    genuine = sign(load(encoded(record)), keyring, datetime.now(UTC))
    forged = {**record, "core": record["core"].replace('"name":"support"', '"name":"another"')}
    assert forged["core"] != record["core"]
    forged["record_hash"] = "sha256:" + hashlib.sha256(forged["core"].encode()).hexdigest()
    drop(page, ("signed.json", export(genuine)), ("forged.json", encoded(forged)))
    badge(page, "signed.json", "intact, signature not checked", "unknown")
    badge(page, "forged.json", "intact, not signed", "unknown")
    page.get_by_role("button", name="Check the signature with a public key").click()
    keys = page.get_by_role("textbox", name="Public keys, one on each line")
    expect(page.get_by_text("headwater keys signing public")).to_be_visible()
    keys.fill(public)
    badge(page, "signed.json", "verified", "fresh")
    badge(page, "forged.json", "not signed", "failed")
    keys.fill(public.replace("2026-q4", "2025-q1"))
    badge(page, "signed.json", "intact, signature not checked", "unknown")
    expect(result(page, "signed.json")).to_contain_text("key '2026-q4' is not in the keyring")
    keys.fill(key_pair("2026-q4")[1])
    badge(page, "signed.json", "broken", "failed")
    keys.fill("ed25519:2026-q4:private")
    expect(result(page, "signed.json")).to_contain_text("give the public key")
    badge(page, "signed.json", "not checked", "unknown")


def key_pair(key_id: str) -> tuple[Keyring, str]:
    """Return a new key that signs, and its public half as a text."""
    keyring = parse_keyring(generate_key(key_id, "Ed25519"))
    assert isinstance(keyring.signer, Ed25519Key)
    return keyring, public_text(keyring.signer)


def zipped(**files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name.replace("_", "."))  # of a fixed time: it names the test
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "this is not the document of a record"),
        (b"<script>alert(1)</script>", "this is not the document of a record"),
        (b'{"format": "CRS-002"}', "has no usable 'context_id'"),
        (b"[" * 100_000, "nested deeper than 256 levels"),
        (b"\xff\xfe\x00", "It is not text."),
        (zipped(readme_md="x"), "without a record.json"),
        (zipped(record_json="x")[:30], "a zip file that is damaged"),
        (zipped(record_json=" " * 65 * MIB), "more than 64 MB"),
        ('{"a": "' + "שלום\u202e" * 50 + '"}', "has no usable 'format'"),
    ],
)
def test_a_file_that_is_not_a_bundle_gets_a_clear_error(
    page: Page, content: bytes | str, said: str
) -> None:
    name = "<img src=x onerror=alert(1)> שלום.json"
    drop(page, (name, content.encode() if isinstance(content, str) else content))
    expect(result(page, name)).to_contain_text(said)
    expect(result(page, name)).to_contain_text("not checked")
    expect(page.locator("main img")).to_have_count(0)


def test_the_keyboard_alone_is_enough(page: Page, record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(encoded(record))
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Choose files").press("Enter")
    waiting.value.set_files(file)
    expect(result(page, "mine.json")).to_contain_text("intact, not signed")
    page.get_by_role("button", name="Remove mine.json").press("Enter")
    expect(result(page, "mine.json")).to_have_count(0)


def test_a_large_record_does_not_freeze_the_page(page: Page) -> None:
    """A core of some megabytes is parsed in a worker, so the page answers meanwhile."""
    core = json.dumps({"spec": "CRS-001", "items": ["x" * 100] * 40_000})
    document = {
        "format": "CRS-001",
        "context_id": "a",
        "record_hash": "b",
        "content_hash": "c",
        "core": core,
    }
    drop(page, ("large.json", encoded(document)))
    page.get_by_role("button", name="Check the signature with a public key").click()
    expect(page.get_by_role("textbox", name="Public keys, one on each line")).to_be_visible()
    expect(result(page, "large.json")).to_contain_text("This record is broken.")
