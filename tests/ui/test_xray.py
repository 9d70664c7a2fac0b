"""The X-ray of one context: its six parts, by pointer and by keyboard, also of unusual records."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Download, Locator, Page, expect

from headwater.records.signing import Ed25519Key, generate_key, parse_keyring, public_text
from tests.ui.browsing import Tab, axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import ARTICLES, SECONDS, Site, until

FEATURES = Path(__file__).with_name("xray_features.py")
QUESTION = "How long does a refund take, and is my lamp under warranty?"
HOSTILE = (
    "<img src=x onerror=alert(1)> </script> \u202emalware\u202c \u0007 "
    + "שלום עולם مرحبا " * 3
    + "W" * 300
    + " {name} 🌊"
)
HOSTILE_ID = "<b>אדה</b>" + "x" * 100


class Told(NamedTuple):
    """A server, and the ids of its records."""

    site: Site
    advice: str
    outer: str
    crowd: str
    hostile: str
    external: str
    redacted: str
    broken: str
    refused: str
    public_key: str


@pytest.fixture(scope="package")
def told() -> Iterator[Told]:
    """Yield a server with a record of every kind."""
    with TemporaryDirectory(prefix="hw-xray-") as home:
        key = generate_key("2026-q4", "Ed25519")
        with Site(Path(home), {"HEADWATER_SIGNING_KEY": key}, FEATURES).shared() as site:
            yield _filled(site, key)


def _filled(site: Site, key: str) -> Told:
    for document, text in ARTICLES.items():
        site.index(document, text)
    site.publish("signed_up", "ada", name="Ada 🌊 Lovelace")
    site.publish("signed_up", HOSTILE_ID, name=HOSTILE)
    for amount in (20, 30):
        site.publish("purchase", "ada", amount=amount)
    site.drain()
    until(lambda: site.get("/v1/features/open_orders?entity_id=ada")["value"] == 7)
    params = {"user_id": "ada", "question": QUESTION}
    interaction = {"ticket": "T-7", "turn": 2}
    answer = site.post("/v1/contexts/advice", {"params": params, "interaction_ref": interaction})
    external = site.post("/v1/record", {"name": "answer", "content": "Hello", "model": "gpt-4o"})
    redacted = site.assemble("advice", user_id="ada", question=QUESTION)
    pointers = ["/items/1/content", "/features/0/value", "/output/content"]
    site.post(
        f"/v1/record/{redacted}/redact", {"pointers": pointers, "reason": "asked to", "by": "dpo"}
    )
    broken = site.assemble("greeting", user_id="ada")
    _tamper(site, broken)
    urgent = f"{site.url}/v1/contexts/urgent"
    refusal = httpx.post(urgent, json={"params": {"user_id": "ada"}}, timeout=SECONDS)
    assert refusal.status_code == 422
    signer = parse_keyring(key).signer
    assert isinstance(signer, Ed25519Key)
    site.publish("purchase", "ada", amount=5)  # the records saw another value than today's
    site.drain()
    return Told(
        site=site,
        advice=answer["context_id"],
        outer=site.assemble("outer", user_id="ada"),
        crowd=site.assemble("crowd", user_id="ada", count=1_000),
        hostile=site.assemble("echo", user_id=HOSTILE_ID, text=HOSTILE),
        external=external["context_id"],
        redacted=redacted,
        broken=broken,
        refused=refusal.json()["context_id"],
        public_key=public_text(signer),
    )


def _tamper(site: Site, context_id: str) -> None:
    """Change a disclosed value in the database."""
    database = site.home / "store" / "headwater.db"
    with closing(sqlite3.connect(database, timeout=SECONDS)) as db:
        rows = "SELECT disclosures FROM records WHERE context_id = ?"
        (stored,) = db.execute(rows, (context_id,)).fetchone()
        text = stored if isinstance(stored, str) else stored.decode()
        assert "Ada" in text
        changed: Any = text.replace("Ada", "Eve")
        if not isinstance(stored, str):
            changed = changed.encode()
        db.execute("UPDATE records SET disclosures = ? WHERE context_id = ?", (changed, context_id))
        db.commit()


def opened(open_tab: OpenTab, told: Told, record: str, **options: Any) -> Page:
    page = open_tab(told.site, **options).open(f"/ui/records/{record}")
    expect(page.get_by_text("verifying")).to_have_count(0)
    return page


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title)


def texts(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Items in the order of the text")


def bar(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Items by their tokens")


def inspector(page: Page) -> Locator:
    return page.locator("[aria-live=polite]").filter(has_text="Decision")


def test_all_six_parts_of_a_context_are_shown(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.advice)
    expect(page.get_by_role("heading", level=1)).to_have_text("advice for ada")
    for word in ("degraded", "gpt-4o", "version 2", "signed by key 2026-q4"):
        expect(page.get_by_role("main")).to_contain_text(word)
    for given in (f"question {QUESTION}", "user_id ada"):
        expect(page.get_by_label("Inputs")).to_contain_text(given)
    for given in ("ticket T-7", "turn 2"):
        expect(page.get_by_label("Interaction")).to_contain_text(given)
    why = page.get_by_role("region", name="Degraded because")
    expect(why).to_contain_text(re.compile(r"open_orders of ada was .+ old, SLA 1 ms"))
    # A text of usual length does not scroll by itself.
    assert texts(page).evaluate("list => list.scrollHeight <= list.clientHeight")
    # 1. The token bar: the budget, and what was dropped.
    trace = told.site.get(f"/context/{told.advice}/explain")
    expect(page.get_by_text(f"{trace['tokens']} of 90 tokens")).to_be_visible()
    expect(
        page.get_by_text(f"+{trace['short_by']} tokens would have kept everything")
    ).to_be_visible()
    expect(bar(page).get_by_role("option")).to_have_count(len(trace["items"]))
    # 2. The text, with the words that came from features.
    marks = texts(page).locator("mark")
    expect(marks.filter(has_text="Ada 🌊 Lovelace")).to_have_attribute("title", "name")
    expect(marks.filter(has_text="50.0")).to_have_attribute("title", "total_spend")
    expect(marks.filter(has_text=re.compile("^7$"))).to_have_attribute(
        "title", "open_orders: not fresh"
    )
    # 3. The inspector of the template, which is selected at first.
    about = inspector(page)
    for said in ("template · profile", "kept: its", "Who asks: {profile}.", "total_spend", "50.0"):
        expect(about).to_contain_text(said)
    expect(about).to_contain_text("1 input not fresh")
    expect(about).to_contain_text("purchase")  # the event behind the value
    # 4. The ages.
    ages = card(page, "Age when it was read")
    for name in ("open_orders ada", "total_spend ada", "name ada", "search_help"):
        expect(ages.get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(ages).to_contain_text("SLA 1 ms")  # its own
    # 5. The proof.
    proof = card(page, "Proof, checked in this browser")
    for step in ("hash", "disclosures", "content", "re-assembly"):
        expect(proof.get_by_role("listitem").filter(has_text=step).first).to_have_attribute(
            "data-ok", "true"
        )
    expect(proof).to_contain_text("Nothing is broken, but its signature was not checked.")
    # 6. The lineage, from events to the text.
    lineage = card(page, "Lineage")
    for node in ("purchase", "signed_up", "total_spend", "profile", "search_help", "advice"):
        expect(lineage.get_by_text(node, exact=True).first).to_be_visible()
    axe(page)
    check_sizes(page, "xray")
    # The reasons lead to the values that the record saw.
    page.goto(ages.get_by_role("link", name="total_spend ada").evaluate("link => link.href"))
    expect(page.get_by_text("Value at the time of the record")).to_contain_text(": 50")
    steps = page.get_by_role("table", name="Steps of the value, newest first")
    expect(steps.get_by_role("row").filter(has_text="at the time of the record")).to_contain_text(
        "50"
    )
    page.emulate_media(color_scheme="dark")
    axe(page)
    check_sizes(page, "lookup-at-record")


def test_an_item_is_selected_everywhere_by_pointer_and_keys(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.advice)
    about = inspector(page)
    rows, parts = texts(page).get_by_role("option"), bar(page).get_by_role("option")
    rows.nth(0).click()
    expect(about).to_contain_text("literal")
    expect(parts.nth(0)).to_have_attribute("aria-selected", "true")
    rows.nth(2).hover()
    expect(about).to_contain_text("retrieval")
    expect(about).to_contain_text("search_help")
    page.mouse.move(0, 0)
    expect(about).to_contain_text("literal")  # what the pointer left is not kept
    parts.nth(1).click()
    expect(about).to_contain_text("template · profile")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    texts(page).focus()
    page.keyboard.press("End")
    expect(about).to_contain_text("dropped")
    expect(page.get_by_text(re.compile(r"^\+\d+ tokens? would have kept it$"))).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(about).to_be_focused()
    expect(page).to_have_url(re.compile(r"\?item=2$"))
    page.reload()
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    bar(page).focus()
    page.keyboard.press("ArrowLeft")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")


def test_the_keyboard_alone_reaches_every_part(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.advice)
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText")
        )
    for name in (
        "Items by their tokens",
        "Items in the order of the text",
        "Export record",
        "Who else saw it",
        "Core bytes",
        "Lineage graph",
    ):
        assert name in reached


def test_a_record_is_downloaded_in_every_form(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.advice)
    proof = card(page, "Proof, checked in this browser")

    def saved(button: Locator) -> tuple[str, str]:
        with page.expect_download() as waiting:
            button.click()
        download: Download = waiting.value
        return download.suggested_filename, Path(download.path()).read_text()

    name, document = saved(page.get_by_role("button", name="Export record"))
    assert name == f"{told.advice}.json"
    record = json.loads(document)
    assert record == told.site.get(f"/v1/record/{told.advice}")
    assert saved(proof.get_by_role("button", name="Core bytes"))[1] == record["core"]
    name, explained = saved(proof.get_by_role("button", name="Explanation (JSON)"))
    assert json.loads(explained) == told.site.get(f"/context/{told.advice}/explain")
    name, yaml = saved(proof.get_by_role("button", name="Explanation (YAML)"))
    assert name.endswith(".yaml")
    assert f'context_id: "{told.advice}"' in yaml


def test_redacted_values_are_shown_as_such_and_the_proof_holds(
    open_tab: OpenTab, told: Told
) -> None:
    page = opened(open_tab, told, told.redacted)
    expect(page.get_by_role("main")).to_contain_text("intact, signature not checked")
    expect(page.get_by_role("main")).to_contain_text("redacted")
    notes = page.get_by_role("list", name="Redactions").get_by_role("listitem")
    expect(notes).to_have_count(1)
    for said in (
        "Redacted",
        "by dpo: asked to",
        "/items/1/content, /features/0/value, /output/content",
    ):
        expect(notes).to_contain_text(said)
    expect(texts(page)).to_contain_text("redacted: erased from the record, the hash still holds")
    expect(inspector(page)).to_contain_text("profile redacted")
    expect(inspector(page)).to_contain_text("asked to")
    axe(page)
    check_sizes(page, "xray-redacted")


def test_a_record_is_verified_once_its_signature_was_checked(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.advice)
    unchecked = page.get_by_text("intact, signature not checked")
    expect(unchecked).to_have_attribute("data-state", "unknown")
    page.get_by_role("button", name="Check the signature with a public key").click()
    keys = page.get_by_role("textbox", name="Public keys, one on each line")
    keys.fill(told.public_key)
    expect(page.get_by_text("verified", exact=True)).to_have_attribute("data-state", "fresh")
    keys.fill(told.public_key.replace("2026-q4", "2025-q1"))
    expect(unchecked).to_have_attribute("data-state", "unknown")


def test_a_refused_context_was_not_given_to_the_model(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.refused)
    expect(page.get_by_role("region", name="Refused because")).to_contain_text("open_orders")
    text = card(page, "What was assembled, and refused")
    expect(text).to_contain_text("The caller got an error and no text")
    expect(page.get_by_text("What the model was given")).to_have_count(0)
    axe(page)
    check_sizes(page, "xray-refused")


def test_a_record_that_was_tampered_with_is_shown_broken(open_tab: OpenTab, told: Told) -> None:
    tab: Tab = open_tab(told.site)
    tab.expected.append("the server responded with a status of")
    page = tab.open(f"/ui/records/{told.broken}")
    expect(page.get_by_role("main")).to_contain_text("broken")
    proof = card(page, "Proof, checked in this browser")
    expect(proof).to_contain_text("This record is broken.")
    expect(proof.get_by_role("listitem").filter(has_text="disclosures")).to_have_attribute(
        "data-ok", "false"
    )
    axe(page)
    check_sizes(page, "xray-broken")


def test_a_thousand_items_are_listed_without_a_thousand_rows(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.crowd)
    expect(page.get_by_text(re.compile("1,000 kept|kept, .* dropped"))).to_be_visible()
    assert texts(page).get_by_role("option").count() < 100
    texts(page).focus()
    page.keyboard.press("End")
    expect(inspector(page)).to_contain_text("Decision")
    expect(texts(page).locator("[aria-selected=true]")).to_be_visible()
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(texts(page).locator("[aria-selected=true]")).to_be_visible()
    check_sizes(page, "xray-1000")


def test_hostile_and_right_to_left_text_is_shown_as_text(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.hostile)
    row = texts(page).get_by_role("option").nth(1)
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")
    expect(row).to_contain_text("שלום")
    expect(page.locator("main img")).to_have_count(0)
    row.click()
    axe(page)
    check_sizes(page, "xray-hostile")


def test_nested_contexts_and_other_sources_lead_to_their_pages(
    open_tab: OpenTab, told: Told
) -> None:
    page = opened(open_tab, told, told.outer)
    about = inspector(page)
    expect(about).to_contain_text("context · greeting")
    texts(page).get_by_role("option").nth(1).click()
    expect(about).to_contain_text('{"page":7}')
    check_sizes(page, "xray-nested")
    texts(page).get_by_role("option").nth(0).click()
    about.get_by_role("link", name="Open this context").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("greeting")


def test_a_text_that_was_assembled_elsewhere_has_an_x_ray(open_tab: OpenTab, told: Told) -> None:
    page = opened(open_tab, told, told.external)
    expect(texts(page)).to_contain_text("Hello")
    expect(card(page, "Age when it was read")).to_contain_text("searched nothing")
    check_sizes(page, "xray-external")


def test_an_unknown_record_leads_to_the_list(open_tab: OpenTab, told: Told) -> None:
    tab = open_tab(told.site)
    tab.expected.append("404")
    page = tab.open("/ui/records/01a1e442-865e-71c3-878d-c07f118a01f8")
    expect(page.get_by_role("heading", name="No record has this id")).to_be_visible()
    expect(page.get_by_role("link", name="See all records")).to_be_visible()


def test_a_private_record_shows_decisions_without_texts(open_tab: OpenTab) -> None:
    with TemporaryDirectory(prefix="hw-xray-") as home:
        private = {"HEADWATER_RECORD_INCLUDE_CONTENT": "0"}
        site = Site(Path(home), private, FEATURES).start()
        try:
            site.publish("signed_up", "ada", name="Ada Lovelace")
            site.drain()
            record = site.assemble("advice", user_id="ada", question=QUESTION)
            page = open_tab(site).open(f"/ui/records/{record}")
            expect(page.get_by_role("main")).to_contain_text("private")
            expect(texts(page)).to_contain_text("withheld: this copy of the record holds only")
            check_sizes(page, "xray-private")
        finally:
            site.close()
