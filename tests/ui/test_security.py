"""Keys and scopes in the web UI."""

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

UNAUTHORIZED = "status of 401"


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")


def pages_of(page: Page) -> list[str]:
    """Return the words of the rail."""
    return page.get_by_role("navigation", name="Pages").get_by_role("listitem").all_inner_texts()


def test_the_key_is_entered_once_and_kept_in_this_tab_only(
    keyed_site: Site, open_tab: OpenTab
) -> None:
    tab = open_tab(keyed_site, key="")
    tab.expected.append(UNAUTHORIZED)
    page = tab.open("/ui/store")
    expect(page.get_by_label("API key")).to_be_focused()
    axe(page)
    check_sizes(page, "key")
    key = keyed_site.keys["operator"]
    enter(page, key)
    expect(page.get_by_role("link", name="Dead letters")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="Dead letters")).to_be_visible()
    stored = page.evaluate("({session: {...sessionStorage}, local: {...localStorage}})")
    assert key in stored["session"].values()
    assert key not in str(stored["local"])
    assert not page.context.cookies()
    assert key not in page.url
    other = tab.open("/ui/store")
    expect(other.get_by_label("API key")).to_be_visible()


def test_forgetting_the_key_leaves_nothing_behind(keyed_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(keyed_site, key="")
    tab.expected.append(UNAUTHORIZED)
    page = tab.open("/ui/store")
    enter(page, keyed_site.keys["operator"])
    with page.expect_event("load"):  # the page is loaded again, with an empty memory
        page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    assert "total_spend" not in page.content()


@pytest.mark.parametrize(
    ("role", "reason"), [("none", "the API key is not accepted"), ("expired", "expired")]
)
def test_a_key_that_is_not_accepted_can_be_corrected(
    keyed_site: Site, open_tab: OpenTab, role: str, reason: str
) -> None:
    tab = open_tab(keyed_site, key="")
    tab.expected.append(UNAUTHORIZED)
    page = tab.open("/ui/store")
    enter(page, keyed_site.keys.get(role, "hw_none_0123456789"))
    expect(page.get_by_text(reason)).to_be_visible()
    check_sizes(page, f"key-{role}")
    enter(page, keyed_site.keys["operator"])
    expect(page.get_by_role("link", name="Dead letters")).to_be_visible()


def test_pages_that_a_key_may_not_use_are_absent(keyed_site: Site, open_tab: OpenTab) -> None:
    shown = {
        role: set(pages_of(open_tab(keyed_site, key=keyed_site.keys[role]).open("/ui/verify")))
        for role in ("operator", "reader", "auditor")
    }
    assert shown["reader"] < shown["operator"] > shown["auditor"]
    assert {"Store", "Lookup"} <= shown["reader"]
    assert {"Records", "Impact"} <= shown["auditor"]
    assert {"Records", "Dead letters", "Live tail", "Doctor"}.isdisjoint(shown["reader"])
    assert {"Lookup", "Playground", "Dead letters"}.isdisjoint(shown["auditor"])


@pytest.mark.parametrize("path", ["records", "dead-letters", "events", "doctor", "impact"])
def test_the_address_of_a_page_that_a_key_may_not_use_says_so(
    keyed_site: Site, open_tab: OpenTab, path: str
) -> None:
    page = open_tab(keyed_site, key=keyed_site.keys["reader"]).open(f"/ui/{path}")
    expect(page.get_by_text("Your key may not see this page")).to_be_visible()
    scope = "records" if path in {"records", "impact"} else "admin"
    expect(page.get_by_text(f"keys create NAME --scope read --scope {scope}")).to_be_visible()
    expect(page.get_by_role("button", name="Forget the key")).to_have_attribute(
        "title", "Forget the key reader (read)"
    )
    if path == "records":
        axe(page)
        check_sizes(page, "forbidden")


def test_two_tabs_may_have_different_keys(keyed_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(keyed_site, key="")
    tab.expected.append(UNAUTHORIZED)
    first, second = tab.open("/ui/verify"), tab.open("/ui/verify")
    enter(first, keyed_site.keys["reader"])
    enter(second, keyed_site.keys["auditor"])
    expect(first.get_by_role("link", name="Lookup")).to_be_visible()
    expect(second.get_by_role("link", name="Records")).to_be_visible()
    first.reload()
    settle(first)
    assert "Lookup" in pages_of(first)
    assert "Lookup" not in pages_of(second)
