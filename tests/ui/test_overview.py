"""The overview: how the store is, what to look at first, and the last hour; and the doctor."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site


@pytest.mark.both_environments
def test_the_overview_says_what_to_look_at_first(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile("could not be handled|needs attention|not fresh")
    )
    expect(page.get_by_role("banner").get_by_role("link", name="Health: attention")).to_be_visible()
    first = page.get_by_role("region", name="Look at these first")
    letters = first.get_by_role("listitem").filter(has_text="shipping_fee")
    expect(letters.first).to_contain_text("dead letter")
    contexts = page.get_by_role("table", name="Contexts of the last hour")
    expect(contexts.get_by_role("row").filter(has_text="restock")).to_contain_text("0 %")
    expect(page.get_by_role("table", name="Workers").get_by_role("row")).to_have_count(2)
    for tile in ("Events", "Waiting", "Oldest waiting", "Dead letters", "Contexts", "Fresh"):
        expect(page.get_by_role("img", name=re.compile(f"^{tile}: "))).to_be_visible()
    check_sizes(page, "overview-attention")
    letters.get_by_role("link", name="Review").first.click()
    expect(page).to_have_url(re.compile(r"/ui/dead-letters\?feature=shipping_fee"))


def test_a_row_of_contexts_opens_their_records(page: Page) -> None:
    contexts = page.get_by_role("table", name="Contexts of the last hour")
    contexts.get_by_role("row").filter(has_text="support").press("Enter")
    expect(page).to_have_url(re.compile(r"/ui/records\?name=support"))


def test_a_store_is_shown_from_its_first_event_to_the_end_of_its_server(
    own_site: Site, open_tab: OpenTab
) -> None:
    tab = open_tab(own_site)
    tab.expected.append("ERR_CONNECTION_REFUSED|ERR_INTERNET_DISCONNECTED")
    page = tab.open()
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("Ready for the first event")
    expect(page.get_by_text("headwater events publish")).to_be_visible()
    check_sizes(page, "overview-empty")
    own_site.publish("visit", "ada")
    own_site.assemble("many_items", count=3)
    own_site.drain()
    expect(title).to_have_text("Everything works")
    expect(page.get_by_text("Nothing needs attention.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="many_items")).to_contain_text("100 %")
    axe(page)
    check_sizes(page, "overview-healthy")
    # While it stops, its worker ends first, and the page could still read that.
    page.context.set_offline(True)
    own_site.stop()
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(title).to_have_text("Last known: Everything works")
    expect(page.get_by_role("row").filter(has_text="many_items")).to_be_visible()
    check_sizes(page, "overview-dead-server")
    own_site.start()
    expect(page.get_by_role("alert")).to_have_count(0)
    hostile = "<img src=x onerror=alert(1)>\u202ert\u0001"
    own_site.publish("checkout", "ada", country=hostile, kg=1)
    first = page.get_by_role("region", name="Look at these first")
    expect(first.get_by_role("listitem").first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_a_key_without_the_scope_of_metrics_sees_no_overview(
    keyed_site: Site, open_tab: OpenTab
) -> None:
    page = open_tab(keyed_site, key=keyed_site.keys["reader"]).open()
    expect(page).to_have_url(re.compile("/ui/store$"))
    rail = page.get_by_role("navigation", name="Pages")
    expect(rail.get_by_role("link", name="Overview")).to_have_count(0)
    expect(page.get_by_role("link", name="Health: ready")).to_be_visible()


def test_the_doctor_groups_findings_by_severity(page: Page) -> None:
    page.get_by_role("link", name="Doctor").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("warning|order|not work"))
    expect(page.get_by_role("region", name="In order")).to_contain_text("circuit breakers")
    warnings = page.get_by_role("region", name=re.compile("^Works, but"))
    expect(warnings.get_by_role("listitem").first).to_contain_text("→")
    check_sizes(page, "doctor")
