"""Two contexts compared: items, values, rules and text."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.ui.browsing import Tab, axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

HOSTILE = "<script>alert(1)</script>\u202eevil\u202c مرحبا " + "w" * 300


def test_a_sentence_says_what_changed_and_the_text_marks_the_words(tab: Tab, site: Site) -> None:
    before, after = site.records[0], site.records[5]
    page = tab.open(f"/ui/compare?a={before}&b={after}")
    title = page.get_by_role("heading", level=1)
    expect(title).to_contain_text("Another text: ")
    expect(title).to_contain_text("inputs changed")
    items = page.get_by_role("table", name="Items of both contexts")
    expect(items).to_be_visible()
    rows = items.get_by_role("row")
    changed = rows.count()
    page.get_by_label("Items shown").select_option("all")
    expect(rows.nth(changed)).to_be_visible()
    expect(page.get_by_role("table", name="Values of both contexts")).to_contain_text("blurb")
    text = page.get_by_role("table", name="Text of both contexts")
    expect(text.locator("ins").first).to_be_visible()
    expect(text.locator("del").first).to_be_visible()
    axe(page)
    check_sizes(page, "compare")


def test_the_two_can_be_swapped_and_copied_as_a_command(tab: Tab, site: Site) -> None:
    one, two = site.records[0], site.records[1]
    page = tab.open(f"/ui/compare?a={one}&b={two}")
    page.get_by_role("button", name="Swap the two").click()
    expect(page).to_have_url(re.compile(f"a={two}&b={one}"))
    expect(page.get_by_label("Before", exact=True)).to_contain_text(two[:8])


def test_a_context_and_itself_differ_in_nothing(tab: Tab, site: Site) -> None:
    page = tab.open(f"/ui/compare?a={site.records[0]}&b={site.records[0]}")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "This is one context, compared with itself"
    )


def test_one_context_is_compared_with_the_last_ones_about_its_entity(tab: Tab, site: Site) -> None:
    page = tab.open(f"/ui/compare?a={site.records[4]}")
    suggested = page.get_by_role("region", name="of its name that read User")
    others = suggested.get_by_role("link")
    expect(others).to_have_count(3)
    check_sizes(page, "compare-choosing")
    others.first.click()
    expect(page).to_have_url(re.compile(f"a={site.records[4]}&b={site.records[7]}"))


def test_without_contexts_the_page_asks_for_two(tab: Tab, site: Site) -> None:
    page = tab.open("/ui/compare")
    axe(page)
    page.get_by_label("Before", exact=True).fill(site.records[0])
    page.get_by_label("After", exact=True).fill(site.records[1])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Another text")


def test_an_unknown_context_is_an_error_with_a_remedy(tab: Tab, site: Site) -> None:
    tab.expected.append("404")
    page = tab.open(f"/ui/compare?a={site.records[0]}&b=0190aaaa-0000-7000-8000-000000000000")
    expect(page.get_by_role("alert")).to_contain_text("0190aaaa")


def test_hostile_texts_are_shown_as_text(hostile_site: Site, open_tab: OpenTab) -> None:
    ids = [
        hostile_site.post(
            "/v1/record", {"name": "<b>n</b> مرحبا " + "w" * 120, "content": f"{HOSTILE}\n{word}"}
        )["context_id"]
        for word in ("one", "two")
    ]
    page = open_tab(hostile_site).open(f"/ui/compare?a={ids[0]}&b={ids[1]}")
    text = page.get_by_role("table", name="Text of both contexts")
    expect(text).to_contain_text("<script>alert(1)</script>")
    expect(text.locator("ins")).to_have_text("two")
    expect(page.locator("main script")).to_have_count(0)
    axe(page)
    check_sizes(page, "compare-hostile")
