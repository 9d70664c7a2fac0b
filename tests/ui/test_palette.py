"""The palette: go to a page or a thing from everywhere, by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site


def open_palette(page: Page) -> Locator:
    page.keyboard.press("Control+k")
    search = page.get_by_role("combobox", name="Search")
    expect(search).to_be_focused()
    return search


def options(page: Page) -> Locator:
    return page.get_by_role("option")


def test_it_opens_by_shortcut_and_by_the_search_field(page: Page) -> None:
    open_palette(page)
    expect(page.get_by_role("group", name="Pages")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Feature, context, entity id").click()
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()


@pytest.mark.both_environments
def test_a_feature_is_found_while_typing_and_opened_by_enter(page: Page) -> None:
    search = open_palette(page)
    search.press_sequentially("total_sp")
    first = options(page).first
    expect(first).to_contain_text("total_spend")
    expect(first).to_have_attribute("aria-selected", "true")
    axe(page)
    check_sizes(page, "palette-found")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/ui/store\?card=feature%3Atotal_spend$"))
    open_palette(page)
    recent = page.get_by_role("group", name="Recent")
    expect(recent.get_by_role("option")).to_contain_text(["total_spend"])
    check_sizes(page, "palette-recent")


@pytest.mark.both_environments
def test_records_and_entities_are_found_by_their_ids(page: Page, site: Site) -> None:
    record = site.records[0]
    record_hash = site.get(f"/v1/context/{record}")["record_hash"]
    for text in (record, record[:13], record_hash, record_hash.removeprefix("sha256:")[:12]):
        open_palette(page).fill(text)
        expect(page.get_by_role("group", name="Records").get_by_text(record)).to_be_visible()
        page.keyboard.press("Escape")
    open_palette(page).fill("ada")
    expect(page.get_by_role("group", name="Entities")).to_contain_text("ada")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/ui/lookup\?entity=User&id=ada"))


def test_arrow_keys_choose_and_pages_are_found(page: Page) -> None:
    open_palette(page).fill("re")
    expect(page.get_by_text("↑ ↓ to move, Enter to open")).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(options(page).last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options(page).first).to_have_attribute("aria-selected", "true")
    page.get_by_role("combobox", name="Search").fill("Store")
    page.get_by_role("option", name="Store g s").click()
    expect(page).to_have_url(re.compile("/ui/store$"))


def test_nothing_found_and_hostile_text_are_shown_as_text(page: Page) -> None:
    search = open_palette(page)
    search.fill("<img src=x onerror=alert(1)> \u202e evil")
    note = page.get_by_role("dialog").get_by_role("status")
    expect(note).to_contain_text("Nothing is called “<img src=x")
    check_sizes(page, "palette-nothing")


def test_a_dead_server_leaves_the_pages(own_site: Site, open_tab: OpenTab) -> None:
    tab: Tab = open_tab(own_site)
    tab.expected.append("ERR_CONNECTION_REFUSED|Failed to load resource")
    page = tab.open("/ui/store")
    settle(page)
    own_site.stop()
    open_palette(page).fill("lookup")
    expect(options(page)).to_contain_text(["Lookup"])
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text(
        "The server does not answer"
    )
