"""The tests of the web UI notice errors, other hosts and violations of accessibility."""

import pytest
from playwright.sync_api import Page

from dev.browser import MISSING, find_chromium
from tests.ui.browsing import TabPool, axe
from tests.ui.site import Site, until


@pytest.mark.browser
def test_a_browser_is_installed() -> None:
    assert find_chromium(), MISSING


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("console.error('a failure of a page')", "a failure of a page"),
        ("setTimeout(() => { throw new Error('an exception') })", "an exception"),
        ("void fetch('http://192.0.2.1/').catch(() => 0)", "connect-src"),
        ("void window.open('http://192.0.2.1/')", "request to another host"),
        ("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">')", "style-src"),
        ("document.body.append(Object.assign(new Image(), {src: 'http://192.0.2.1/'}))", "img-src"),
        ("void fetch('/v1/nowhere')", "404"),
    ],
)
def test_an_error_in_a_page_fails_its_test(
    tab_pool: TabPool, site: Site, script: str, error: str
) -> None:
    # Not kept: more errors may follow from the one that is waited for.
    with tab_pool.lent(site.url, size="laptop", theme="light", key=None, is_kept=False) as tab:
        page = tab.open("/ui/nowhere")
        tab.check()
        page.evaluate(script)
        # Events of the browser arrive only while a call waits for it.
        until(lambda: page.evaluate("1") and tab.errors)
        with pytest.raises(AssertionError, match=error):
            tab.check()
        tab.expected.append("")


def test_axe_finds_an_image_without_a_text(page: Page) -> None:
    page.evaluate("document.querySelector('main').append(new Image())")
    with pytest.raises(AssertionError, match="image-alt"):
        axe(page)
