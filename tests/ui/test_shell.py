"""The frame around every page."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.ui.browsing import Tab, axe, photograph


@pytest.mark.both_environments
def test_the_overview_opens(page: Page) -> None:
    expect(page).to_have_title("Headwater")
    axe(page)
    photograph(page, "overview")


def test_the_ui_works_behind_a_proxy_that_adds_a_prefix(tab: Tab) -> None:
    def strip(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace("/tools/", "/")))

    tab.route("**/*", lambda route: route.abort())
    tab.route("**/tools/**", strip)
    page = tab.open("/tools/ui/records")
    page.get_by_role("link", name="Store").click()
    expect(page).to_have_url("/tools/ui/store")
