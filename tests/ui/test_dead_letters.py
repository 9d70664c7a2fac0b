"""The page of dead letters: groups, one opened, and actions with a result for each letter."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.site import Site, until
from tests.ui.test_events import ARABIC, HOSTILE, HOSTILE_ID


@pytest.fixture
def failed(own_site: Site) -> Site:
    """Return a server with three groups of dead letters."""
    for number in range(6):
        own_site.publish("checkout", f"customer-{number}", country="XX", kg=number)
    for number in range(2):
        own_site.publish("checkout", f"customer-{number}", country="DE", kg=f"heavy {number}")
    own_site.publish("stock_counted", "lamp", units=3)
    until(lambda: own_site.get("/v1/dead-letters/groups")["letters"] == 9)
    return own_site


def group(page: Page, text: str) -> Locator:
    return page.get_by_label("Groups of dead letters").get_by_role("button").filter(has_text=text)


def confirm(page: Page, action: str) -> None:
    """Click an action, read the question and confirm it."""
    page.get_by_role("button", name=action).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name=action.split()[0]).click()
    expect(dialog).to_be_hidden()


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Dead letters of the group").locator("tbody tr")


@pytest.mark.both_environments
def test_letters_are_grouped_by_feature_and_error(site: Site, open_tab: OpenTab) -> None:
    page = open_tab(site).open("/ui/dead-letters")
    expect(page.get_by_role("heading", level=1)).to_have_text("5 dead letters")
    group(page, "KeyError: 'XX'").click()
    expect(rows(page)).to_have_count(2)
    expect(page).to_have_url(
        f"{site.url}/ui/dead-letters?feature=shipping_fee&error=KeyError%3A+%27XX%27"
    )
    letter = page.get_by_role("region", name="Letter", exact=True)
    expect(letter).to_contain_text("rates[event.payload[")
    expect(letter).to_contain_text('"country": "XX"')


def test_one_letter_of_many_is_settled_after_a_question(failed: Site, open_tab: OpenTab) -> None:
    page = open_tab(failed, theme="dark").open("/ui/dead-letters")
    group(page, "KeyError: 'XX'").click()
    expect(rows(page)).to_have_count(6)
    check_sizes(page, "dead-letters")
    axe(page)
    # By keyboard alone: the next row, tick it and the one after it.
    rows(page).first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("j")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Discard 2").click()
    check_sizes(page, "dead-letters-question")
    axe(page)
    page.keyboard.press("Escape")
    expect(rows(page)).to_have_count(6)
    confirm(page, "Discard 2")
    results = page.get_by_role("list", name="Results")
    expect(results.get_by_text("Discarded")).to_have_count(2)
    expect(page.get_by_text("2 letters discarded.")).to_be_visible()
    expect(rows(page)).to_have_count(4)
    check_sizes(page, "dead-letters-result")
    axe(page)
    # All of the group: they fail again, and come back.
    confirm(page, "Redrive all")
    expect(page.get_by_text("4 letters published again, 4 failed again.")).to_be_visible()
    expect(results.get_by_text("Failed again")).to_have_count(4)
    until(lambda: failed.get("/v1/dead-letters/groups")["letters"] == 7)
    expect(rows(page)).to_have_count(4)
    # A letter of a redrive leads to the original event.
    letter = page.get_by_role("region", name="Letter", exact=True)
    expect(letter).to_contain_text("was letter")
    letter.get_by_role("definition").get_by_role("link").click()
    expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text("customer-")


def test_two_tabs_that_act_on_the_same_letter_get_a_clear_answer(
    failed: Site, open_tab: OpenTab
) -> None:
    tab = open_tab(failed)
    tab.expected.append("404")
    first, second = tab.open("/ui/dead-letters"), tab.open("/ui/dead-letters")
    for page in (first, second):
        group(page, "could not convert").click()
        expect(rows(page)).to_have_count(2)
        page.get_by_label("Tick all letters that are listed").check()
        page.get_by_role("button", name="Discard 2").click()
    first.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(first.get_by_text("2 letters discarded.")).to_be_visible()
    second.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(second.get_by_text("No letter discarded, 2 were gone.")).to_be_visible()
    expect(second.get_by_text("another call was faster")).to_have_count(2)
    expect(second.get_by_text("No letters in this group")).to_be_visible()


def test_a_letter_that_is_gone_says_so(site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(site)
    tab.expected.append("404")
    page = tab.open("/ui/dead-letters?feature=shipping_fee&letter=999999")
    expect(page.get_by_text("This letter is gone")).to_be_visible()


def test_a_store_without_dead_letters_says_so(own_site: Site, open_tab: OpenTab) -> None:
    page = open_tab(own_site, theme="dark").open("/ui/dead-letters")
    expect(page.get_by_role("heading", level=1)).to_have_text("No dead letters")
    check_sizes(page, "dead-letters-empty")
    axe(page)


def test_hostile_letters_are_shown_as_text(own_site: Site, open_tab: OpenTab) -> None:
    own_site.publish("checkout", HOSTILE_ID, country="<script>alert(1)</script>" * 9, **HOSTILE)
    own_site.publish(
        "checkout",
        "ada",
        country="DE",
        kg=f"\u202e{ARABIC} <img onerror=alert(1)>",
    )
    until(lambda: own_site.get("/v1/dead-letters/groups")["letters"] == 2)
    page = open_tab(own_site, theme="dark").open("/ui/dead-letters")
    page.on("dialog", lambda dialog: pytest.fail(f"markup ran: {dialog.message}"))
    group(page, "<text>").first.click()
    expect(rows(page)).to_have_count(1)
    check_sizes(page, "dead-letters-hostile")
    axe(page)
