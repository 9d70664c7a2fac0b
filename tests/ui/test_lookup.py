"""The page of one entity: all its values, and one value over time."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

ADA = "/ui/lookup?entity=User&id=ada"
HOSTILE_ID = "<b>'\"/../%00?&#\u05e9\u05dc\u05d5\u05dd"
HOSTILE_TEXT = (
    "<img src=x onerror=\"document.title='owned'\">\u202e\u05e9\u05dc\u05d5\u05dd" + "x" * 400
)


def row(page: Page, feature: str) -> str:
    found = page.get_by_role("table", name="Values of the entity").get_by_role("row")
    return found.filter(has=page.locator("td:first-child").get_by_text(feature)).inner_text()


@pytest.mark.both_environments
def test_all_values_of_an_entity_are_shown_with_their_state(tab: Tab) -> None:
    page = tab.open(ADA)
    expect(page).to_have_title("ada · Lookup · Headwater")
    expect(page.get_by_role("heading", level=1)).to_have_text("User ada")
    assert "90" in row(page, "total_spend")
    assert "Ada Lovelace, silver customer" in row(page, "blurb")
    assert "fresh" in row(page, "past_orders")
    assert "no value" in row(page, "shipping_fee") or "9.8" in row(page, "shipping_fee")
    check_sizes(page, "lookup")


@pytest.mark.both_environments
def test_one_value_shows_its_steps_and_the_events_behind_them(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=total_spend")
    steps = page.get_by_role("table", name="Steps of the value, newest first")
    expect(steps.locator("tbody tr")).to_have_count(5)
    newest = steps.locator("tbody tr").first
    expect(newest).to_contain_text("refund")
    expect(newest).to_contain_text("90")
    expect(steps.locator("tbody tr").last).to_contain_text("purchase")
    event = newest.get_by_role("link", name="refund")
    assert re.search(r"/ui/events\?view=past&range=all&event=.+", event.get_attribute("href") or "")
    seen = page.get_by_role("link", name="Who saw it").last
    expect(seen).to_have_attribute(
        "href", "/ui/impact?feature=total_spend&entity=User&entity_id=ada"
    )
    axe(page)
    check_sizes(page, "lookup-value")


def test_the_page_is_used_by_keyboard_alone(tab: Tab) -> None:
    page = tab.open("/ui/lookup")
    expect(page.get_by_role("combobox", name="user_id")).to_be_focused()
    page.keyboard.type("gra")
    expect(page.locator("datalist option[value=grace]")).to_be_attached()
    page.keyboard.type("ce")
    page.keyboard.press("Enter")
    page.wait_for_url("**/lookup?entity=User&id=grace")
    settle(page)
    page.get_by_role("row", name="total_spend").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**&feature=total_spend")
    settle(page)
    page.get_by_role("group", name="History as a chart").focus()
    page.keyboard.press("End")
    readout = page.locator("figcaption")
    expect(readout).to_contain_text("741")
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("627")
    expect(page.locator("[aria-selected=true]").last).to_contain_text("627")
    page.keyboard.press("Home")
    expect(readout).to_contain_text("9.5")


def test_texts_over_time_are_a_band_and_ranges_are_in_the_address(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=name")
    chart = page.get_by_role("group", name="History as a chart")
    expect(chart.locator("svg text").filter(has_text="Ada Lovelace")).to_be_visible()
    page.get_by_text("24 h", exact=True).click()
    page.wait_for_url("**&range=24h")
    settle(page)
    expect(chart.locator("svg text").filter(has_text="Ada Lovelace")).to_be_visible()
    check_sizes(page, "lookup-text")


def test_a_feature_without_a_history_names_the_ones_that_have_one(tab: Tab) -> None:
    page = tab.open(f"{ADA}&feature=blurb")
    expect(page.get_by_role("region", name="History")).to_contain_text(
        "Look at the history of name, tier, total_spend, visits"
    )


def test_an_unknown_entity_is_an_error_with_the_nearest_name(tab: Tab) -> None:
    tab.expected.append("404")
    page = tab.open("/ui/lookup?entity=Usr&id=ada")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("did you mean 'User'?")
    expect(alert.get_by_role("button", name="Try again")).to_be_visible()
    check_sizes(page, "lookup-error")


def test_without_an_entity_the_page_teaches_a_command(tab: Tab) -> None:
    page = tab.open("/ui/lookup")
    expect(page.locator("pre")).to_have_text("headwater features get total_spend ada")
    axe(page)
    check_sizes(page, "lookup-empty")


def test_hostile_ids_and_texts_are_shown_as_text(hostile_site: Site, open_tab: OpenTab) -> None:
    hostile_site.publish("signed_up", HOSTILE_ID, name=HOSTILE_TEXT)
    hostile_site.publish("purchase", HOSTILE_ID, amount=1e300)
    hostile_site.drain()
    tab = open_tab(hostile_site)
    page = tab.open(f"/ui/lookup?entity=User&id={quote(HOSTILE_ID, safe='')}&feature=name")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<b>'\"/../%00?&#")
    expect(page.get_by_role("region", name="name")).to_contain_text("<img src=x onerror=")
    assert "owned" not in page.title()
    assert page.locator("main img").count() == 0
    axe(page)
    check_sizes(page, "lookup-hostile")
    page.get_by_role("row", name="total_spend").click()
    expect(page.get_by_role("group", name="History as a chart")).to_be_visible()
    settle(page)


def test_the_last_known_values_stay_when_the_server_dies(own_site: Site, open_tab: OpenTab) -> None:
    own_site.publish("signed_up", "ada", name="Ada")
    own_site.drain()
    tab = open_tab(own_site)
    tab.expected.append("ERR_CONNECTION_REFUSED")
    page = tab.open(ADA)
    expect(page.get_by_role("table", name="Values of the entity")).to_contain_text("Ada")
    own_site.stop()
    page.get_by_role("row", name="name").click()
    # In the banner, which goes when the server is back, and in the place of the steps.
    retry = page.get_by_role("button", name="Try again")
    expect(retry).to_have_count(2)
    expect(page.get_by_role("table", name="Values of the entity")).to_contain_text("Ada")
    # The page may notice that the server is back before a button can be clicked.
    with page.expect_request(lambda request: "/v1/features/name/history" in request.url):
        retry.last.click()
    own_site.start()
    expect(page.get_by_text("does not answer")).to_have_count(0)
    expect(page.get_by_role("table", name="Steps of the value")).to_contain_text("signed_up")
