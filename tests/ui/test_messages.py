"""The X-ray of a context that is messages: roles, tools, images, groups and cache marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import axe, check_sizes
from tests.ui.chat_features import REASONING, RECEIPT
from tests.ui.conftest import OpenTab
from tests.ui.hostile import HOSTILE
from tests.ui.site import ARTICLES, Site

FEATURES = Path(__file__).with_name("chat_features.py")
QUESTION = "Is my lamp still under warranty?"


class Told(NamedTuple):
    """A server, and the ids of its records."""

    site: Site
    chat: str
    hostile: str


@pytest.fixture(scope="package")
def told() -> Iterator[Told]:
    with (
        TemporaryDirectory(prefix="hw-messages-") as home,
        Site(Path(home), {}, FEATURES).shared() as site,
    ):
        for document, text in ARTICLES.items():
            site.index(document, text)
        site.publish("signed_up", "ada", name="Ada Lovelace")
        site.drain()
        chat = site.assemble("chat", user_id="ada", question=QUESTION)
        yield Told(site, chat, site.assemble("hostile_chat", text=" ".join(HOSTILE.values())))


@pytest.fixture
def page(open_tab: OpenTab, told: Told) -> Page:
    return open_tab(told.site).open(f"/ui/records/{told.chat}")


def texts(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Items in the order of the text")


def row(page: Page, text: str) -> Locator:
    return texts(page).get_by_role("option").filter(has_text=text)


def inspector(page: Page) -> Locator:
    return page.locator("[aria-live=polite]").filter(has_text="Decision")


def traced(told: Told) -> dict[str, Any]:
    found: dict[str, Any] = told.site.get(f"/context/{told.chat}/explain")
    return found


def test_messages_have_headings_tools_stand_first_and_dropped_ones_last(
    page: Page, told: Told
) -> None:
    words = texts(page).inner_text()
    places = [
        words.index(each)
        for each in (
            *("find_order(", "You are the support agent", "turn 3", "turn 4", "turn 5", QUESTION),
            *("refund(", "I ordered a lamp"),
        )
    ]
    assert places == sorted(places)
    greeting = row(page, "I ordered a lamp")
    expect(greeting).to_contain_text("user: ")
    expect(greeting).to_contain_text("dropped together")
    expect(row(page, "You are the support agent")).to_contain_text("cached up to here")
    counted = traced(told)["count"]
    main = page.get_by_role("main")
    how = {"exact": "Counted exactly", "estimate": "Estimated"}[counted["grade"]]
    expect(main).to_contain_text(f"{how} with {counted['source']}")
    expect(main).to_contain_text(f"{counted['envelope_tokens']} tokens around the items")
    expect(main).to_contain_text("512 tokens reserved for the answer")
    axe(page)
    check_sizes(page, "xray-messages")
    page.emulate_media(color_scheme="dark")
    axe(page)


def test_a_tool_call_leads_to_its_result_and_back(page: Page) -> None:
    row(page, 'find_order({"order_id":"A-17"})').click()
    about = inspector(page)
    expect(about).to_contain_text("tool call · find_order")
    expect(about).to_contain_text("call_9f3")
    expect(about).to_contain_text("assistant reasoning")  # kept together with it
    about.get_by_role("button", name="tool result find_order").click()
    expect(about).to_contain_text("tool result · find_order")
    expect(row(page, "shipped")).to_have_attribute("aria-selected", "true")
    about.get_by_role("button", name="assistant tool call find_order").press("Enter")
    expect(about).to_contain_text("tool call · find_order")


def test_schemas_and_reasoning_are_collapsed(page: Page) -> None:
    row(page, "Return an order of the customer").click()
    about = inspector(page)
    schema = about.get_by_text('"required"')
    expect(schema).to_be_hidden()
    about.get_by_text("Schema, 2 parameters").press("Enter")
    expect(schema).to_be_visible()
    end = REASONING.splitlines()[-1]
    expect(texts(page)).not_to_contain_text(end)
    row(page, "characters of reasoning").click()
    about.get_by_text(re.compile("^Reasoning, ")).click()
    expect(about.get_by_text(end)).to_be_visible()


def test_images_are_shown_from_the_record_and_addresses_are_not_loaded(
    page: Page, told: Told
) -> None:
    picture = texts(page).get_by_role(
        "img", name="An image, image/png, 30.3 kB", include_hidden=True
    )
    assert picture.evaluate("image => image.naturalWidth") == 160
    address = row(page, RECEIPT)
    expect(address).to_contain_text("not loaded here")
    expect(address.locator("img")).to_have_count(0)
    address.click()
    expect(inspector(page)).to_contain_text("the image is not shown")
    expect(inspector(page).locator("img")).to_have_count(0)


def test_items_that_were_dropped_together_lead_to_each_other(page: Page) -> None:
    row(page, "I ordered a lamp").click()
    about = inspector(page)
    expect(about).to_contain_text("user, turn 1")
    expect(about).to_contain_text("Dropped with")
    about.get_by_role("button", name=re.compile("assistant .*, dropped")).click()
    expect(about).to_contain_text("assistant, turn 2")


def test_keys_go_through_all_items_of_messages(page: Page, told: Told) -> None:
    texts(page).focus()
    page.keyboard.press("Home")
    expect(inspector(page)).to_contain_text("tool · find_order")
    page.keyboard.press("End")
    expect(inspector(page)).to_contain_text("dropped")
    page.keyboard.press("Enter")
    expect(inspector(page)).to_be_focused()


def test_a_context_without_roles_has_no_headings(open_tab: OpenTab, site: Site) -> None:
    page = open_tab(site).open(f"/ui/records/{site.records[0]}")
    expect(page.get_by_role("button", name="Copy text")).to_be_visible()
    expect(texts(page)).not_to_contain_text("system")
    expect(page.get_by_role("main")).not_to_contain_text("Counted exactly")


def test_hostile_messages_are_shown_as_text(open_tab: OpenTab, told: Told) -> None:
    page = open_tab(told.site).open(f"/ui/records/{told.hostile}")
    expect(page.locator("main img")).to_have_count(0)
    options = texts(page).get_by_role("option")
    for index in range(options.count()):
        options.nth(index).click()
    axe(page)
    check_sizes(page, "xray-hostile-messages")
