"""The list of recorded contexts: filters, chart, keys, and thousands of rows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.many_records import append_records
from tests.ui.site import Site, until

HOSTILE = "<img src=x onerror=alert(1)> مرحبا " + "w" * 120


def rows(page: Page) -> list[str]:
    """Return the ids of the rows in the page."""
    labels = page.get_by_role("checkbox").evaluate_all(
        "boxes => boxes.map(box => box.getAttribute('aria-label'))"
    )
    return [label.removeprefix("Compare ") for label in labels]


@pytest.mark.both_environments
def test_contexts_are_listed_newest_first_and_filtered_by_the_query_string(
    tab: Tab, site: Site
) -> None:
    page = tab.open("/ui/records")
    expect(page.get_by_role("grid")).to_be_visible()
    assert rows(page) == site.records[::-1]
    page.get_by_label("Context", exact=True).select_option("restock")
    expect(page).to_have_url(re.compile("name=restock"))
    expect(page.get_by_role("checkbox")).to_have_count(1)
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("checkbox")).to_have_count(len(site.records))
    page.get_by_label("Entity id").fill("alan")
    expect(page).to_have_url(re.compile("entity_id=alan"))
    expect(page.get_by_role("checkbox")).to_have_count(4)
    page = tab.open("/ui/records?freshness_status=degraded&range=24h")
    expect(page.get_by_label("Freshness")).to_have_value("degraded")
    expect(page.get_by_label("Time", exact=True)).to_have_value("24h")


def test_the_beginning_of_an_id_or_hash_finds_contexts_while_it_is_typed(
    tab: Tab, site: Site
) -> None:
    page = tab.open("/ui/records")
    field = page.get_by_label("Id or hash")
    field.press_sequentially(site.records[3])
    expect(page.get_by_role("checkbox")).to_have_count(1)
    assert rows(page) == [site.records[3]]
    found = site.get(f"/v1/contexts?prefix={site.records[5]}")["contexts"][0]["record_hash"]
    field.fill(found[:20])
    expect(page.get_by_label(f"Compare {site.records[5]}")).to_be_visible()
    field.fill("zzzz")
    expect(page.get_by_text("No context matches")).to_be_visible()


def test_keys_alone_move_tick_and_compare(tab: Tab, site: Site) -> None:
    page = tab.open("/ui/records")
    expect(page.get_by_role("grid")).to_be_visible()
    check_sizes(page, "records")
    for key in "jjxkx":
        page.keyboard.press(key)
    expect(page.get_by_text("Two contexts ticked.")).to_be_visible()
    newest = site.records[::-1]
    for ticked in newest[:2]:
        expect(page.get_by_label(f"Compare {ticked}")).to_be_checked()
    page.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/compare\\?a={newest[1]}&b={newest[0]}$"))
    page.go_back()
    settle(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/records/[0-9a-f-]{36}"))


def test_a_range_marked_in_the_chart_narrows_the_list(tab: Tab) -> None:
    page = tab.open("/ui/records?range=24h")
    chart = page.get_by_role("slider", name="Contexts over time")
    chart.focus()
    for key in ("End", "Shift+ArrowLeft", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("start=.*end="))
    expect(page.get_by_label("Time", exact=True)).to_have_value("exact")
    page.get_by_role("button", name="Clear").click()
    expect(page).not_to_have_url(re.compile("start="))
    page.go_back()
    expect(page.get_by_label("Time", exact=True)).to_have_value("exact")
    page.go_back()
    expect(page).to_have_url(re.compile(r"\?range=24h$"))
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 4, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("start=.*end="))


def test_a_list_is_exported(tab: Tab, site: Site) -> None:
    page = tab.open("/ui/records?name=support&range=all")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="CSV").click()
    assert download.value.suggested_filename == "contexts.csv"
    lines = download.value.path().read_text().splitlines()
    listed = site.get("/v1/contexts?name=support&limit=1000")["contexts"]
    assert len(lines) == 1 + len(listed)  # a header, and no context of another name


def test_ten_thousand_records_scroll(own_site: Site, open_tab: OpenTab) -> None:
    append_records(own_site.home / "store", 10_000)
    page = open_tab(own_site).open("/ui/records")
    expect(page.get_by_text("10,000 contexts in the last 7 days")).to_be_visible()
    grid = page.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", "10001")
    last = page.locator('[aria-rowindex="10001"]')

    def is_at_end() -> bool:
        # The end of the rows that are loaded; reaching it loads the next ones.
        page.keyboard.press("End")
        return last.is_visible()

    until(is_at_end)
    # Only what is visible is in the page, however long the list is.
    assert page.get_by_role("checkbox").count() < 100
    page.keyboard.press("Home")
    expect(page.locator('[aria-rowindex="2"]')).to_be_visible()
    check_sizes(page, "records-10000")
    grid.evaluate("list => list.scrollTo(0, 3600)")
    scrolled = page.locator('[aria-rowindex="108"]')
    expect(scrolled).to_be_visible()
    page.get_by_role("link", name="Verify").click()
    expect(scrolled).to_be_hidden()
    page.go_back()
    expect(scrolled).to_be_visible()


def test_an_empty_store_teaches_the_next_command(own_site: Site, open_tab: OpenTab) -> None:
    page = open_tab(own_site).open("/ui/records?range=all")
    expect(page.get_by_text("headwater context assemble")).to_be_visible()
    axe(page)
    check_sizes(page, "records-empty")


def test_hostile_names_are_shown_as_text(hostile_site: Site, open_tab: OpenTab) -> None:
    hostile_site.post("/v1/record", {"name": HOSTILE, "content": "x", "model": HOSTILE})
    page = open_tab(hostile_site).open("/ui/records")
    expect(page.get_by_role("link", name="<img src=x")).to_be_visible()
    expect(page.locator("main img")).to_have_count(0)
    axe(page)
    check_sizes(page, "records-hostile")


def test_a_dead_server_leaves_the_known_rows(own_site: Site, open_tab: OpenTab) -> None:
    own_site.post("/v1/record", {"name": "kept", "content": "x"})
    tab = open_tab(own_site)
    tab.expected.append("ERR_CONNECTION_REFUSED|Failed to load resource")
    page = tab.open("/ui/records")
    expect(page.get_by_role("link", name="kept")).to_be_visible()
    own_site.stop()
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.get_by_role("link", name="kept")).to_be_visible()
