"""The playground: assemble a context by hand, and change its limits."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.browsing import Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site, until

HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202e\u05e9\u05dc\u05d5\u05dd"


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    """Yield a filled server of these tests, because every run is recorded."""
    with TemporaryDirectory(prefix="hw-ui-") as home, Site(Path(home), {}).shared() as site:
        yield site.fill()


@pytest.fixture
def tab(shop: Site, open_tab: OpenTab) -> Tab:
    return open_tab(shop)


def runs(page: Page) -> Locator:
    """Return the buttons of the runs, the newest first."""
    return page.get_by_role("list", name="Runs").get_by_role("button")


def shown_run(page: Page) -> str:
    return parse_qs(urlsplit(page.url).query).get("run", [""])[0]


def assemble(page: Page) -> str:
    """Press Assemble; return the id of the run when it is shown."""
    before = shown_run(page)
    page.get_by_role("button", name="Assemble").click()
    until(lambda: page.evaluate("1") and shown_run(page) not in ("", before))
    settle(page)
    return shown_run(page)


def test_a_context_is_assembled_taken_apart_and_compared(tab: Tab, shop: Site) -> None:
    page = tab.open("/ui/playground?context=support")
    expect(page.get_by_text("Nothing assembled yet")).to_be_visible()
    axe(page)
    check_sizes(page, "playground-empty")
    page.get_by_label("user_id").fill("ada")
    page.get_by_label("question").fill("How long does a refund take?")
    first = assemble(page)
    expect(page.get_by_role("region", name="What the model was given")).to_contain_text(
        "Question: How long does a refund take?"
    )
    assert "Ada Lovelace" in shop.get(f"/v1/context/{first}")["content"]
    page.emulate_media(color_scheme="dark")
    axe(page)
    check_sizes(page, "playground")

    page.get_by_label("Token budget").focus()
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("60 of 72")).to_be_visible()
    # The run of the last position is shown in the end, however many were begun before it.
    until(lambda: page.evaluate("1") and "max_tokens=60" in page.url)
    settle(page)
    second = shown_run(page)
    assert second != first
    expect(runs(page).first).to_contain_text("≤ 60")
    compare = page.get_by_role("link", name="Compare with before")
    expect(compare).to_have_attribute("href", re.compile(f"b={second}"))

    runs(page).last.click()
    until(lambda: page.evaluate("1") and shown_run(page) == first)
    page.reload()
    expect(page.get_by_role("region", name="What the model was given")).to_contain_text("refund")
    expect(page.get_by_label("user_id")).to_have_value("ada")


def test_a_stricter_sla_degrades_the_run(tab: Tab) -> None:
    page = tab.open("/ui/playground?context=support&params=" + '{"user_id":"alan","question":"Hm"}')
    assemble(page)
    expect(runs(page).first).to_contain_text("guaranteed")
    page.get_by_label("Freshness SLA").press("Home")
    until(lambda: page.evaluate("1") and "sla_ms=1000" in page.url)
    settle(page)
    expect(runs(page).first).to_contain_text("degraded")
    expect(page.get_by_label("Freshness SLA")).to_have_attribute("aria-valuetext", "1 s of 1 h")


def test_arguments_are_checked_before_they_are_sent(tab: Tab) -> None:
    page = tab.open("/ui/playground?context=many_items")
    page.get_by_label("count").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This one is required.")).to_be_visible()
    page.keyboard.type("many")
    expect(page.get_by_text("Give a whole number, such as 7.")).to_be_visible()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="What the model was given")).to_contain_text(
        "Item 2 of 3."
    )
    page.get_by_label("Context", exact=True).select_option("restock")
    expect(page.get_by_label("sku")).to_be_visible()
    expect(page.get_by_text("Nothing assembled yet")).to_be_visible()


def test_a_budget_that_is_too_small_says_what_is_needed(tab: Tab) -> None:
    tab.expected.append("422")
    page = tab.open(
        '/ui/playground?context=support&max_tokens=1&params={"user_id":"ada","question":"Hm"}'
    )
    page.get_by_role("button", name="Assemble").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Token budget exceeded")
    expect(alert.get_by_role("button", name="Try again")).to_be_visible()
    axe(page)
    check_sizes(page, "playground-error")


def test_hostile_arguments_are_shown_as_text(tab: Tab) -> None:
    page = tab.open("/ui/playground?context=support&params=[not-an-object")
    page.get_by_label("user_id").fill(HOSTILE.replace("\u202e", ""))
    page.get_by_label("question").fill(HOSTILE)
    assemble(page)
    expect(page.get_by_role("region", name="What the model was given")).to_contain_text(
        "Question: <img src=x onerror="
    )
    assert "owned" not in page.title()
    assert page.locator("main img").count() == 0
    check_sizes(page, "playground-hostile")
