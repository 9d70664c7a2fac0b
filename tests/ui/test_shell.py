"""The frame around every page."""

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browsing import axe, photograph


@pytest.mark.both_environments
def test_the_overview_opens(page: Page) -> None:
    expect(page).to_have_title("Headwater")
    axe(page)
    photograph(page, "overview")
