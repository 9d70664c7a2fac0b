"""The frame around every page, and promises that all pages keep."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.ui.browsing import COLOUR_RULES, SIZES, Tab, axe, check_sizes, settle
from tests.ui.conftest import OpenTab
from tests.ui.pages import NAMES, path_of
from tests.ui.pictures import pictures
from tests.ui.site import Site

UNREACHABLE = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_NETWORK"
FOCUS_IS_VISIBLE = """() => {
    const focused = document.activeElement;
    if (focused === null || focused === document.body) return "nothing has the focus";
    const name = focused.outerHTML.slice(0, 200), box = focused.getBoundingClientRect();
    const isMarked = [...document.querySelectorAll(":focus-within")].some((each) => {
        const style = getComputedStyle(each);
        return style.outlineStyle !== "none" || style.boxShadow !== "none";
    });
    if (!isMarked) return `no mark of the focus: ${name}`;
    return box.width * box.height === 0 ? `invisible: ${name}` : null;
}"""


@pytest.mark.both_environments
@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_and_is_accessible(tab: Tab, site: Site, name: str) -> None:
    page = tab.open(path_of(name, site))
    expect(page.locator("main")).not_to_be_empty()
    axe(page)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible_in_the_dark_and_on_a_phone(
    open_tab: OpenTab, site: Site, name: str
) -> None:
    page = open_tab(site, theme="dark").open(path_of(name, site))
    axe(page, COLOUR_RULES)
    page.set_viewport_size(dict(zip(("width", "height"), SIZES["phone"], strict=True)))  # type: ignore[arg-type]
    axe(page)
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0, f"{name} is {overflow} px wider than a phone"


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    tab: Tab, site: Site, name: str
) -> None:
    page = tab.open(path_of(name, site))
    for _ in range(30):
        page.keyboard.press("Tab")
        problem = page.evaluate(FOCUS_IS_VISIBLE)
        if problem == "nothing has the focus":
            break  # the focus has left the page for the browser
        assert problem is None, f"{name}: {problem}"


def test_shortcuts_lead_to_every_page(page: Page) -> None:
    page.keyboard.press("?")
    shortcuts = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(shortcuts).to_be_visible()
    axe(page)
    check_sizes(page, "shortcuts")
    page.keyboard.press("Escape")
    expect(shortcuts).to_be_hidden()
    for key, path in (("r", "records"), ("d", "dead-letters"), ("v", "verify"), ("o", "")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(f"/ui/{path}")
    settle(page)


def test_the_palette_leads_to_a_page_without_the_mouse(page: Page) -> None:
    page.keyboard.press("Control+k")
    search = page.get_by_placeholder("Feature, context, entity id")
    expect(search).to_be_focused()
    page.keyboard.type("dead let")
    axe(page)
    check_sizes(page, "palette")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/ui/dead-letters")
    settle(page)


def test_the_first_key_skips_the_rail(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_rail_is_a_sheet_on_a_phone(open_tab: OpenTab, site: Site) -> None:
    page = open_tab(site, size="phone").open()
    rail = page.get_by_role("navigation", name="Pages")
    expect(rail).not_to_be_in_viewport()
    page.get_by_role("button", name="Pages").click()
    expect(rail).to_be_in_viewport()
    axe(page)
    pictures.take(page, "sheet-phone-light")
    rail.get_by_role("link", name="Verify").click()
    expect(page).to_have_url("/ui/verify")
    expect(rail).not_to_be_in_viewport()


def test_the_theme_is_remembered(tab: Tab) -> None:
    page = tab.open("/ui/verify")
    page.get_by_role("button", name="Dark theme").click()
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(scheme) == "dark"
    page.reload()
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()
    assert page.evaluate(scheme) == "dark"


def test_an_unknown_address_leads_back(tab: Tab) -> None:
    page = tab.open("/ui/no-such-page")
    expect(page.get_by_text("No page has this address")).to_be_visible()
    axe(page)
    check_sizes(page, "unknown")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page).to_have_url("/ui/")


def test_a_dead_server_is_a_banner_over_the_last_data(own_site: Site, open_tab: OpenTab) -> None:
    own_site.publish("checkout", "ada", country="XX", kg=1)
    own_site.drain()
    tab = open_tab(own_site)
    tab.expected.append(UNREACHABLE)
    page = tab.open("/ui/dead-letters")
    expect(page.get_by_text("shipping_fee").first).to_be_visible()
    own_site.stop()
    banner = page.get_by_role("alert").filter(has_text="The server does not answer")
    expect(banner).to_be_visible()
    expect(page.get_by_text("shipping_fee").first).to_be_visible()
    axe(page)
    check_sizes(page, "dead-server")
    # When the server is back, the page may notice it before the button can be clicked.
    with page.expect_request(lambda request: "/v1/dead-letters" in request.url):
        banner.get_by_role("button", name="Try again").click()
    own_site.start()
    expect(banner).to_be_hidden()


def test_a_page_that_a_dead_server_cannot_send_says_so(own_site: Site, open_tab: OpenTab) -> None:
    tab = open_tab(own_site)
    tab.expected += [UNREACHABLE, "UnreachableError"]
    page = tab.open("/ui/verify")
    own_site.stop()
    page.get_by_role("link", name="Impact").click()
    panel = page.get_by_role("alert").filter(has_text="Check that headwater serve runs")
    expect(panel).to_be_visible()
    own_site.start()
    panel.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Who saw it?")).to_be_visible()


def test_a_slow_server_shows_the_shape_of_what_comes(own_site: Site, open_tab: OpenTab) -> None:
    own_site.publish("checkout", "ada", country="XX", kg=1)
    own_site.drain()
    page = open_tab(own_site).open("/ui/verify")
    own_site.freeze()
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("status", name="Loading").first).to_be_visible()
    pictures.take(page, "slow-server")
    own_site.thaw()
    expect(page.get_by_text("shipping_fee").first).to_be_visible()


def test_the_ui_works_behind_a_proxy_that_adds_a_prefix(tab: Tab) -> None:
    def strip(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace("/tools/", "/")))

    tab.route("**/*", lambda route: route.abort())
    tab.route("**/tools/**", strip)
    page = tab.open("/tools/ui/verify")
    page.get_by_role("link", name="Store").click()
    expect(page).to_have_url("/tools/ui/store")
    settle(page)
    icon = page.locator("link[rel=icon]").get_attribute("href")
    assert icon is not None
    assert icon.endswith("/tools/ui/drop.svg")
