"""Hostile text in every field that users and events fill: it is shown as text, and nothing more."""

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import SIZES, axe, check_sizes
from tests.ui.conftest import OpenTab
from tests.ui.hostile import HOSTILE
from tests.ui.pages import NAMES, path_of
from tests.ui.site import Site


@pytest.mark.parametrize("name", NAMES)
def test_hostile_text_is_only_ever_text(hostile_site: Site, open_tab: OpenTab, name: str) -> None:
    page = open_tab(hostile_site).open(path_of(name, hostile_site))
    expect(page.locator("main")).not_to_be_empty()
    check(page)


@pytest.mark.parametrize("kind", ["markup", "rtl", "long"])
def test_a_record_of_hostile_text_opens(hostile_site: Site, open_tab: OpenTab, kind: str) -> None:
    record = hostile_site.records[1 + list(HOSTILE).index(kind)]
    page = open_tab(hostile_site).open(f"/ui/records/{record}")
    check(page)
    axe(page)
    check_sizes(page, f"hostile-{kind}")


def test_keys_show_the_whole_of_a_long_text(hostile_site: Site, open_tab: OpenTab) -> None:
    record = hostile_site.records[1 + list(HOSTILE).index("long")]
    page = open_tab(hostile_site).open(f"/ui/records/{record}")
    texts = page.get_by_role("listbox", name="Items in the order of the text")
    texts.focus()
    page.keyboard.press("Home")
    first = texts.get_by_role("option").first
    expect(first).not_to_contain_text(HOSTILE["long"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(first).to_contain_text(HOSTILE["long"])
    expect(texts).to_be_focused()


def check(page: Page) -> None:
    """Fail if a text became more than a text, or widened the page."""
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src=x], main script, main b:text('bold')").count() == 0
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{page.url} is {overflow} px wider than {width} px"
