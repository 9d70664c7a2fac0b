"""The page of retrievers and indexes: try a query."""

from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

HOSTILE = (
    "<script>document.title='owned'</script> \u202e\u05e9\u05dc\u05d5\u05dd parcel " + "word" * 200
)


def facts(page: Page) -> str:
    return page.get_by_role("region", name="Search", exact=True).inner_text()


@pytest.mark.both_environments
def test_a_query_shows_chunks_with_scores_and_then_comes_from_the_cache(tab: Tab) -> None:
    page = tab.open("/ui/retrievers?retriever=search_help")
    page.get_by_label("question").fill("Do parcels to Austria take two days?")
    page.get_by_role("button", name="Search", exact=True).click()
    best = page.get_by_role("region", name="Chunks").get_by_role("listitem").first
    expect(best).to_contain_text("Parcels to Germany and Austria take two days.")
    expect(best).to_contain_text("score")
    expect(best.get_by_role("link", name="Who saw it")).to_have_attribute(
        "href", "/ui/impact?document=shipping&index=help"
    )
    assert "miss, searched now" in facts(page)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("region", name="Search", exact=True)).to_contain_text("hit, found")
    axe(page)
    check_sizes(page, "retrievers")


@pytest.mark.both_environments
def test_an_index_shows_its_generations_and_answers_queries(tab: Tab) -> None:
    page = tab.open("/ui/retrievers")
    page.get_by_role("table", name="Indexes").get_by_role("row", name="help").click()
    page.wait_for_url("**/retrievers?index=help")
    generations = page.get_by_role("table", name="Generations of the index")
    expect(generations.locator("tbody tr").first).to_contain_text("active")
    page.get_by_role("textbox", name="Query").fill("gift cards")
    page.get_by_label("Search", exact=True).select_option("text")
    page.get_by_role("button", name="Search", exact=True).click()
    chunks = page.get_by_role("region", name="Chunks").get_by_role("listitem")
    expect(chunks.first).to_contain_text("Gift cards never expire.")
    axe(page)
    check_sizes(page, "retrievers-index")
    page.get_by_label("Filters").fill("lang = en")
    expect(page.get_by_text("Give a JSON object")).to_be_visible()
    page.get_by_label("Filters").fill('{"lang": "xx"}')
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("heading", name="Nothing was found")).to_be_visible()


def test_a_query_is_tried_by_keyboard_alone_and_is_in_the_address(tab: Tab) -> None:
    page = tab.open("/ui/retrievers")
    page.get_by_role("table", name="Retrievers").get_by_role("row", name="search_help").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/retrievers?retriever=search_help")
    page.get_by_label("question").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This one is required.")).to_be_visible()
    page.keyboard.type("warranty of lamps")
    page.keyboard.press("Enter")
    chunks = page.get_by_role("region", name="Chunks").get_by_role("listitem")
    expect(chunks.first).to_contain_text("Lamps have a warranty of five years.")
    page.reload()
    expect(chunks.first).to_contain_text("Lamps have a warranty of five years.")
    expect(page.get_by_label("question")).to_have_value("warranty of lamps")


def test_hostile_documents_and_queries_are_shown_as_text(
    hostile_site: Site, open_tab: OpenTab
) -> None:
    document = quote("<b>%41\u05e9\u05dc\u05d5\u05dd/..", safe="")
    hostile_site.request(
        "PUT", f"/v1/index/help/{document}", {"text": HOSTILE, "metadata": {"<i>": "\u202e<b>bold"}}
    )
    tab = open_tab(hostile_site)
    page = tab.open("/ui/retrievers?retriever=search_help")
    page.get_by_label("question").fill(HOSTILE[:200])
    page.get_by_role("button", name="Search", exact=True).click()
    chunk = page.get_by_role("region", name="Chunks").get_by_role("listitem").first
    expect(chunk).to_contain_text("<script>document.title='owned'</script>")
    expect(chunk).to_contain_text("<i>: ")
    assert "owned" not in page.title()
    axe(page)
    check_sizes(page, "retrievers-hostile")


def test_an_empty_index_and_a_dead_server_say_what_to_do(own_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(own_site)
    tab.expected.append("ERR_CONNECTION_REFUSED")
    page = tab.open("/ui/retrievers?index=help")
    expect(page.get_by_text("headwater index build help docs/")).to_be_visible()
    check_sizes(page, "retrievers-empty")
    page.get_by_role("table", name="Retrievers").get_by_role("row", name="search_help").click()
    settle(page)
    own_site.stop()
    page.get_by_label("question").fill("anything")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("alert").last).to_contain_text("Check that headwater serve runs")
    check_sizes(page, "retrievers-error")
