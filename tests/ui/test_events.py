"""The page of events: a live tail with filters and pause, past events, and a form to publish."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

HOSTILE = {
    "html": "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "rtl": "\u202e\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0645\u0631\u062d\u0628\u0627",
    "long": "x" * 400,
    "control": "a\u0001b\u001bc\td",
    "nested": {"deep": [{"er": [1, 2, {"est": None}]}] * 3},
}
ARABIC = "\u0645\u0631\u062d\u0628\u0627"
HOSTILE_ID = f"<b>ada</b> {ARABIC} " + "very-long-" * 20


def tail_of(page: Page) -> Page:
    """Wait until events that are published from now on are shown."""
    expect(page.get_by_role("status").get_by_text("Live", exact=True)).to_be_visible()
    return page


def rows(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Events").get_by_role("option")


@pytest.mark.both_environments
def test_events_appear_as_they_are_accepted(site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(site).open("/ui/events"))
    site.publish("tail_test", "tail-1", amount=1)
    row = rows(page).filter(has_text="tail-1")
    expect(row).to_contain_text("tail_test")
    row.click()
    detail = page.get_by_role("region", name="Event", exact=True)
    expect(detail).to_contain_text('"amount": 1')
    expect(detail).to_contain_text("No feature")
    # The address names the event, also for somebody who was not watching.
    other = open_tab(site).open(page.url.removeprefix(site.url))
    expect(other.get_by_role("region", name="Event", exact=True)).to_contain_text("tail-1")


def test_an_event_that_is_not_in_the_log_is_named(site: Site, open_tab: OpenTab) -> None:
    page = open_tab(site).open("/ui/events?event=never-published")
    detail = page.get_by_role("region", name="Event", exact=True)
    expect(detail).to_contain_text("No such event")
    expect(detail).to_contain_text("never-published")


def test_filters_are_part_of_the_address(site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(site).open("/ui/events?type=filter_test"))
    # The filter is applied after its last letter, and then a tail begins again.
    with page.expect_response(lambda response: "entity_id=wanted" in response.url):
        page.get_by_label("Entity id").fill("wanted")
    expect(page).to_have_url(f"{site.url}/ui/events?type=filter_test&entity=wanted")
    tail_of(page)
    site.publish("filter_test", "other", n=1)
    site.publish("other_type", "wanted", n=2)
    site.publish("filter_test", "wanted", n=3)
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text('{"n":3}')


def test_a_pause_counts_what_waits(site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(site).open("/ui/events?type=pause_test"))
    site.publish("pause_test", "first")
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("p")
    expect(page.get_by_role("status")).to_contain_text("Paused")
    for number in range(3):
        site.publish("pause_test", f"later-{number}")
    expect(page.get_by_role("status")).to_contain_text("3 waiting")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(4)
    expect(rows(page).first).to_contain_text("later-2")
    # With the keyboard alone: the list, then the newest event, then the next.
    page.get_by_role("listbox").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    expect(page.get_by_role("listbox").get_by_role("option", selected=True)).to_contain_text(
        "later-1"
    )


def test_the_tail_goes_on_after_the_server_restarted(own_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(own_site)
    tab.expected.append("ERR_|Failed to load resource")
    page = tail_of(tab.open("/ui/events"))
    own_site.publish("visit", "before")
    expect(rows(page)).to_have_count(1)
    own_site.stop()
    expect(page.get_by_role("status").get_by_text("Reconnecting")).to_be_visible()
    expect(rows(page)).to_contain_text("before")
    own_site.start()
    own_site.publish("visit", "after")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("after")


def test_an_event_is_published_from_a_form(own_site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(own_site, theme="dark").open("/ui/events"))
    page.get_by_role("button", name="Publish").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_contain_text("Enter the type of the event.")
    dialog.get_by_label("Event type").fill("purchase")
    expect(dialog).to_contain_text("Triggers 1 feature: total_spend.")
    dialog.get_by_label("Entity id").fill("ada")
    payload = dialog.get_by_label("Payload")
    payload.fill("{amount: 40}")
    expect(dialog).to_contain_text("This is not JSON")
    check_sizes(page, "events-publish")
    axe(page)
    payload.fill('{"amount": 40}')
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_contain_text("Accepted and visible")
    expect(dialog).to_contain_text("total_spend = 40")
    check_sizes(page, "events-published")
    page.keyboard.press("Escape")
    expect(rows(page)).to_contain_text('{"amount":40}')
    rows(page).click()
    page.get_by_role("link", name="User ada").click()
    expect(page).to_have_url(f"{own_site.url}/ui/lookup?entity=User&id=ada&feature=total_spend")


def test_the_form_asks_for_each_field_of_a_declared_type(own_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(own_site)
    tab.expected.append("422")
    page = tail_of(tab.open("/ui/events"))
    page.get_by_role("button", name="Publish").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Entity id").fill("ada")
    dialog.get_by_label("Event type").fill("review")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_text("This one is required.")).to_have_count(2)
    expect(dialog).to_contain_text("From 1 to 5.")
    dialog.get_by_label("stars").fill("9")
    dialog.get_by_label("channel").select_option("shop")
    dialog.get_by_label("verified").check()
    dialog.get_by_label("tags").fill('["fast"]')
    check_sizes(page, "events-publish-declared")
    axe(page)
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_contain_text("payload.stars does not fit Review")
    dialog.get_by_role("button", name="Edit as JSON").click()
    payload = dialog.get_by_label("Payload")
    expect(payload).to_have_value(re.compile('"stars": 9,\\s+"channel": "shop"'))
    payload.fill('{"stars": 4, "channel": "web", "more": 1}')
    dialog.get_by_role("button", name="Edit the fields").click()
    expect(dialog.get_by_label("stars")).to_have_value("4")
    dialog.get_by_label("text").fill("Good.")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_contain_text("Accepted")
    page.keyboard.press("Escape")
    expect(rows(page)).to_contain_text('{"more":1,"stars":4,"channel":"web","text":"Good."}')


def test_past_events_are_listed_by_time(site: Site, open_tab: OpenTab) -> None:
    page = open_tab(site, theme="dark").open("/ui/events?view=past&type=purchase&entity=grace")
    expect(rows(page)).to_have_count(12)
    page.get_by_label("Time").select_option("all")
    expect(page).to_have_url(f"{site.url}/ui/events?view=past&type=purchase&entity=grace&range=all")
    rows(page).first.click()
    check_sizes(page, "events-past")
    axe(page)


def test_pictures_of_the_tail(own_site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(own_site, theme="dark").open("/ui/events"))
    check_sizes(page, "events-empty")
    axe(page)
    for number in range(30):
        kind = ("purchase", "visit", "refund")[number % 3]
        own_site.publish(kind, f"customer-{number % 7}", amount=number * 1.5, order=number)
    expect(rows(page).filter(has_text='"order":29')).to_be_visible()
    rows(page).nth(3).click()
    check_sizes(page, "events-live")
    axe(page)


def test_hostile_events_are_shown_as_text(hostile_site: Site, open_tab: OpenTab) -> None:
    page = tail_of(open_tab(hostile_site, theme="dark").open("/ui/events"))
    page.on("dialog", lambda dialog: pytest.fail(f"markup ran: {dialog.message}"))
    hostile_site.publish("purchase", "ordinary", amount=1)
    hostile_site.publish("<i>hostile</i> " + "long-" * 30, HOSTILE_ID, **HOSTILE)
    row = rows(page).filter(has_text="<b>ada</b>")
    row.click()
    detail = page.get_by_role("region", name="Event", exact=True)
    expect(detail).to_contain_text("<script>alert(2)</script>")
    check_sizes(page, "events-hostile")
    axe(page)
